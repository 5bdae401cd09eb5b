package once

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/redisreply"
)

// Redis is a [Store] in Redis 6.2 or later, or Valkey: a single server, Sentinel, or a cluster.
// The names are spread over [buckets], and each bucket has two kinds of keys, in the same slot:
//
//	activityd_once_{BUCKET}       string: the last fence of the bucket
//	activityd_once_{BUCKET}_NAME  string: the state of a name; expires when it is forgotten
//
// Each operation is a script, which has the server's clock decide. The scripts are [Step] in
// Lua; they leave no state without its time to live. A script returns the time that is left, and
// this process adds its own clock to it. Only [State].Began is by the clock of the process that
// began the attempt.
//
// A Redis that loses data loses its locks: a name that was done may be done again, and a held
// name may be acquired beside its holder.
//
// # Why no fence goes back
//
// A fence is the last fence of its bucket plus 1, or the server's clock in milliseconds if that
// is higher. The script that acquires stores the last fence, which never expires. As long as the
// server keeps it, fences rise by counting. If it was lost, or came back from an older snapshot
// or a replica that lagged, the clock is past it, as [MySQL] argues of a database that lost
// commits: unless the clock of the server is behind the clock of the server before.
type Redis struct{ client redis.UniversalClient }

// NewRedis returns a store in Redis. The client needs ContextTimeoutEnabled for operations to end with
// their contexts.
func NewRedis(client redis.UniversalClient) *Redis { return &Redis{client} }

// buckets is the number of buckets. It must never change.
const buckets = 64

// keyPrefix begins all keys. The number of the bucket, in braces, follows: the part that
// a cluster hashes.
const keyPrefix = "activityd_once_{"

// bucketOf returns the bucket of a name. It must never change.
func bucketOf(name string) int { return int(crc32.ChecksumIEEE([]byte(name)) % buckets) }

// stateKey returns the key of the state of a name.
func stateKey(name string) string { return keyPrefix + strconv.Itoa(bucketOf(name)) + "}_" + name }

// fenceKey returns the key of the last fence of the bucket of a state, which is the beginning of
// its key.
func fenceKey(key string) string { return key[:strings.IndexByte(key, '}')+1] }

// nameOf returns the name whose state has a key.
func nameOf(key string) (name string, ok bool) {
	_, name, _ = strings.Cut(key, "}_")
	return name, CheckName(name) == nil && stateKey(name) == key
}

// A state is a string, which costs half as much as a hash:
//
//	PHASE OWNER
//	KEEP LEASE MAX ATTEMPT
//	FENCE BEGAN
//	ENDED
//	REASON
//
// An owner has no line feed and no tab; a reason may have some. KEEP and LEASE are in
// milliseconds, BEGAN in unix milliseconds. The key's time to live is the rest: the state is
// forgotten at its end, and the lease of a held name ends KEEP before that.
//
// The order of the parts is for speed: a state that an owner holds begins with "held", the owner
// and a line feed, and the terms are a single argument of the script that acquires.

// load begins the script of each operation. It sets v, the state, or an empty string.
// Scripts return the outcome, a line feed, 1 if the phase changed or 0, the time to live,
// and v.
const load = `
local v = redis.call('GET', KEYS[1]) or ''
`

// parse sets the parts of v; phase is nil if there is no state. fence has BEGAN, too, and the
// reason begins at rest.
const parse = `
local phase, owner, keep, lease, max, attempt, fence, ended, rest
if v ~= '' then
	phase, owner, keep, lease, max, attempt, fence, ended, rest =
		string.match(v, '^(%l+) ([^\n]+)\n(%d+) (%d+) (%d+) (%d+)\n(%d+ %d+)\n([^\n]*)\n()')
	if not phase then return redis.error_reply('MALFORMED state') end
end
`

// endings has functions for State.wasEnded and State.noteEnded.
var endings = `
local function was_ended(how) return string.find('\t' .. ended, '\t' .. how .. ' ' .. ARGV[1] .. '\t', 1, true) end
local function note_ended(how)
	ended = how .. ' ' .. owner .. '\t' .. ended
	if #ended > ` + strconv.Itoa(maxEnded) + ` then ended = string.match(string.sub(ended, 1, ` + strconv.Itoa(maxEnded) + `), '^.*\t') end
end
`

// loadEnding is load and parse for a failure or a release, named action, of an owner, ARGV[1].
var loadEnding = load + parse + endings + `
if phase ~= 'held' or owner ~= ARGV[1] then
	return (phase and was_ended(action) and 'ok\n0 ' or 'lost\n0 ') .. redis.call('PTTL', KEYS[1]) .. ' ' .. v
end
note_ended(action)
`

// acquireScript is [Acquire].
//
//	KEYS[1] the state  KEYS[2] the last fence of the bucket
//	ARGV[1] owner  ARGV[2] terms: KEEP LEASE MAX  ARGV[3] lease + keep  ARGV[4] now, in unix milliseconds
//	returns as load says
var acquireScript = redis.NewScript(load + `
local before, reason, nth, outcome = '', '', '1', 'ok\n1 '
if v ~= '' then -- it is not the first attempt
` + parse + endings + `
	local newKeep, newMax = string.match(ARGV[2], '^(%d+) %d+ (%d+)$')
	reason = string.sub(v, rest)
	if phase ~= 'free' then
		local ttl = redis.call('PTTL', KEYS[1])
		if phase == 'done' then return 'done\n0 ' .. ttl .. ' ' .. v end
		if phase == 'exhausted' then return 'out of attempts\n0 ' .. ttl .. ' ' .. v end
		if ttl > tonumber(keep) and owner ~= ARGV[1] then return 'busy\n0 ' .. ttl .. ' ' .. v end
		if ttl > tonumber(keep) then
			v = 'held ' .. owner .. '\n' .. ARGV[2] .. ' ' .. attempt .. '\n' .. fence .. '\n' .. ended .. '\n' .. reason
			redis.call('SET', KEYS[1], v, 'PX', ARGV[3])
			return 'ok\n0 ' .. ARGV[3] .. ' ' .. v
		end
	end
	if owner == ARGV[1] or was_ended('fail') or was_ended('release') or was_ended('expire') then
		return 'lost\n0 ' .. redis.call('PTTL', KEYS[1]) .. ' ' .. v
	end
	if phase == 'held' then
		note_ended('expire')
		reason = 'the lease of attempt ' .. attempt .. ' expired'
		outcome = 'ok\n0 '
	end
	if newMax ~= '0' and tonumber(attempt) >= tonumber(newMax) then
		v = 'exhausted ' .. owner .. '\n' .. ARGV[2] .. ' ' .. attempt .. '\n' .. fence .. '\n' .. ended .. '\n' .. reason
		redis.call('SET', KEYS[1], v, 'PX', newKeep)
		return 'out of attempts\n1 ' .. newKeep .. ' ' .. v
	end
	nth, before = attempt + 1, ended
end
local time = redis.call('TIME')
local last = tonumber(redis.call('GET', KEYS[2]) or 0)
local next = string.format('%.0f', math.max(last + 1, time[1] * 1000 + math.floor(time[2] / 1000)))
redis.call('SET', KEYS[2], next)
v = 'held ' .. ARGV[1] .. '\n' .. ARGV[2] .. ' ' .. nth .. '\n' .. next .. ' ' .. ARGV[4] .. '\n' .. before .. '\n' .. reason
redis.call('SET', KEYS[1], v, 'PX', ARGV[3])
return outcome .. ARGV[3] .. ' ' .. v
`)

// extendScript is [Extend].
//
//	KEYS[1] the state
//	ARGV[1] owner
//	returns as load says
var extendScript = redis.NewScript(load + parse + `
local ttl = redis.call('PTTL', KEYS[1])
if phase ~= 'held' or owner ~= ARGV[1] or ttl <= tonumber(keep) then return 'lost\n0 ' .. ttl .. ' ' .. v end
redis.call('PEXPIRE', KEYS[1], lease + keep)
return 'ok\n0 ' .. lease + keep .. ' ' .. v
`)

// finishScript is [Finish].
//
//	KEYS[1] the state
//	ARGV[1] owner
//	returns as load says
var finishScript = redis.NewScript(load + `
local keep = string.find(v, 'held ' .. ARGV[1] .. '\n', 1, true) == 1 and string.match(v, '\n(%d+) ')
if keep then
	v = 'done' .. string.sub(v, 5) -- without 'held'
	redis.call('SET', KEYS[1], v, 'PX', keep)
	return 'ok\n1 ' .. keep .. ' ' .. v
end
` + parse + `
return (owner == ARGV[1] and phase == 'done' and 'ok\n0 ' or 'lost\n0 ') .. redis.call('PTTL', KEYS[1]) .. ' ' .. v
`)

// failScript is [Fail].
//
//	KEYS[1] the state
//	ARGV[1] owner  ARGV[2] reason
//	returns as load says
var failScript = redis.NewScript(`local action = 'fail'` + loadEnding + `
phase = max ~= '0' and tonumber(attempt) >= tonumber(max) and 'exhausted' or 'free'
v = phase .. ' ' .. owner .. '\n' .. keep .. ' ' .. lease .. ' ' .. max .. ' ' .. attempt .. '\n' .. fence .. '\n' .. ended .. '\n' .. ARGV[2]
redis.call('SET', KEYS[1], v, 'PX', keep)
return 'ok\n1 ' .. keep .. ' ' .. v
`)

// releaseScript is [Release].
//
//	KEYS[1] the state
//	ARGV[1] owner
//	returns as load says
var releaseScript = redis.NewScript(`local action = 'release'` + loadEnding + `
v = 'free ' .. owner .. '\n' .. keep .. ' ' .. lease .. ' ' .. max .. ' ' .. attempt - 1 .. '\n' .. fence .. '\n' .. ended .. '\n' .. string.sub(v, rest)
redis.call('SET', KEYS[1], v, 'PX', keep)
return 'ok\n1 ' .. keep .. ' ' .. v
`)

// Apply implements [Store].
func (r *Redis) Apply(ctx context.Context, name string, op Operation) (Reply, error) {
	if err := op.Check(name); err != nil {
		return Reply{}, err
	}
	key := stateKey(name)
	switch op.Action {
	case Acquire:
		lease, keep := op.Terms.Lease.Milliseconds(), op.Terms.Keep.Milliseconds()
		terms := strconv.FormatInt(keep, 10) + " " + strconv.FormatInt(lease, 10) + " " + strconv.Itoa(op.Terms.Attempts)
		return r.run(ctx, acquireScript, []string{key, fenceKey(key)}, op.Owner, terms, lease+keep, time.Now().UnixMilli())
	case Extend:
		return r.run(ctx, extendScript, []string{key}, op.Owner)
	case Finish:
		return r.run(ctx, finishScript, []string{key}, op.Owner)
	case Fail:
		return r.run(ctx, failScript, []string{key}, op.Owner, CutReason(op.Reason))
	default: // Release
		return r.run(ctx, releaseScript, []string{key}, op.Owner)
	}
}

// run runs a script on the state of a name.
func (r *Redis) run(ctx context.Context, script *redis.Script, keys []string, args ...any) (Reply, error) {
	if err := ctx.Err(); err != nil {
		return Reply{}, context.Cause(ctx)
	}
	text, err := script.Run(ctx, r.client, keys, args...).Text()
	if err != nil {
		return Reply{}, translate(ctx, strings.Join(keys, " or "), err)
	}
	now := millisecond(time.Now())
	outcome, text, _ := strings.Cut(text, "\n")
	changed, text, _ := strings.Cut(text, " ")
	ttl, text, _ := strings.Cut(text, " ")
	millis, err := strconv.ParseInt(ttl, 10, 64)
	s, ok := decodeState(text, now, time.Duration(millis)*time.Millisecond)
	if !ok || err != nil {
		return Reply{}, malformed(keys[0])
	}
	return Reply{Outcome: Outcome(outcome), State: s, Now: now, Changed: changed == "1"}, nil
}

// millisecond returns t in whole milliseconds, by the wall clock only.
func millisecond(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()) }

// getScript reads a state.
//
//	KEYS[1] the state
//	returns as load says, and no outcome
var getScript = redis.NewScript(load + parse + `return '\n0 ' .. redis.call('PTTL', KEYS[1]) .. ' ' .. v`)

// Get implements [Store].
func (r *Redis) Get(ctx context.Context, name string) (Reply, error) {
	if err := CheckName(name); err != nil {
		return Reply{}, err
	}
	return r.run(ctx, getScript, []string{stateKey(name)})
}

// forgetScript deletes a state.
//
//	KEYS[1] the state
//	returns as load says; the outcome is "ok", "busy", or "lost" if there is no state
var forgetScript = redis.NewScript(load + parse + `
if not phase then return 'lost\n0 0 ' end
local ttl = redis.call('PTTL', KEYS[1])
if phase == 'held' and ttl > tonumber(keep) then return 'busy\n0 ' .. ttl .. ' ' .. v end
redis.call('DEL', KEYS[1])
return 'ok\n1 0 '
`)

// Forget implements [Store]. With force it deletes even a key that holds no state.
func (r *Redis) Forget(ctx context.Context, name string, force bool) (forgotten bool, err error) {
	if err := CheckName(name); err != nil {
		return false, err
	}
	if force {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		n, err := r.client.Del(ctx, stateKey(name)).Result()
		return n == 1, translate(ctx, stateKey(name), err)
	}
	reply, err := r.run(ctx, forgetScript, []string{stateKey(name)})
	if err == nil && reply.Outcome == Busy {
		err = fmt.Errorf("%s: %w", name, ErrHeld)
	}
	return reply.Outcome == OK, err
}

// List implements [Store]. It scans all keys of all masters. A state that changes meanwhile may
// be missing.
func (r *Redis) List(ctx context.Context) ([]Named, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	var mu sync.Mutex // ForEachMaster calls concurrently
	var masters []redis.UniversalClient
	if cluster, ok := r.client.(*redis.ClusterClient); ok {
		err := cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			masters = append(masters, master)
			return nil
		})
		if err != nil {
			return nil, translate(ctx, "list the masters", err)
		}
	} else {
		masters = append(masters, r.client)
	}
	states := make(map[string]Reply) // a scan may return a key twice
	for _, master := range masters {
		for cursor, more := uint64(0), true; more; more = cursor != 0 {
			keys, next, err := master.Scan(ctx, cursor, keyPrefix+"*}_*", 1000).Result()
			if err != nil {
				return nil, translate(ctx, "scan the keys", err)
			}
			if err := readStates(ctx, master, keys, states); err != nil {
				return nil, err
			}
			cursor = next
		}
	}
	list := make([]Named, 0, len(states))
	for _, name := range slices.Sorted(maps.Keys(states)) {
		list = append(list, Named{name, states[name]})
	}
	return list, nil
}

// readStates reads some keys from a server that has them, and adds their states to states.
func readStates(ctx context.Context, server redis.UniversalClient, keys []string, states map[string]Reply) error {
	values, ttls := make(map[string]*redis.StringCmd), make(map[string]*redis.DurationCmd)
	_, err := server.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			if name, ok := nameOf(key); ok {
				values[name], ttls[name] = pipe.Get(ctx, key), pipe.PTTL(ctx, key)
			}
		}
		return nil
	})
	now := millisecond(time.Now())
	for name, value := range values {
		key := stateKey(name)
		switch {
		case errors.Is(value.Err(), redis.Nil):
			continue // it has expired since the scan
		case value.Err() != nil:
			return translate(ctx, key, value.Err())
		case value.Val() == "" && err != nil: // without a connection the commands have no error
			return translate(ctx, key, err)
		}
		s, ok := decodeState(value.Val(), now, ttls[name].Val())
		if !ok {
			return malformed(key)
		}
		states[name] = Reply{State: s, Now: now}
	}
	return nil
}

// decodeState reports whether v is a state, or empty.
func decodeState(v string, now time.Time, ttl time.Duration) (s State, ok bool) {
	if v == "" {
		return State{}, true
	}
	ok = true
	next := func(end string) (part string) {
		var found bool
		part, v, found = strings.Cut(v, end)
		ok = ok && found
		return part
	}
	number := func(end string, bits int) int64 {
		n, err := strconv.ParseUint(next(end), 10, bits)
		ok = ok && err == nil
		return int64(n)
	}
	const millis = int64(time.Millisecond)
	s.Phase, s.Owner = Phase(next(" ")), next("\n")
	s.Terms.Keep, s.Terms.Lease = time.Duration(number(" ", 43)*millis), time.Duration(number(" ", 43)*millis)
	s.Terms.Attempts, s.Attempt = int(number(" ", 31)), int(number("\n", 31))
	s.Fence = Fence(number(" ", 63))
	s.Began = time.UnixMilli(number("\n", 63))
	s.Ended = next("\n")
	s.Reason, s.ForgetAt = v, now.Add(ttl)
	switch s.Phase {
	case Held:
		s.Until = s.ForgetAt.Add(-s.Terms.Keep)
	case Free, Done, Exhausted:
	default:
		ok = false
	}
	return s, ok
}

// malformed is the error of a key that something else wrote.
func malformed(key string) error {
	return fmt.Errorf("the key %s of Redis holds something that is not the state of a lock: %s", key, repair)
}

const (
	repair = "see which program writes it, and forget the lock with force, or delete the key"
	rights = "the user needs the commands EVALSHA, EVAL, GET, SET, DEL, PTTL, PEXPIRE, SCAN and TIME, and the keys activityd_once_*"
)

// translate wraps an error of the client, about a key, as an error of a store. If ctx has ended,
// it returns the cause of ctx.
func translate(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	deadline, hasDeadline := ctx.Deadline()
	passing, _ := redisreply.Passing(err)
	switch reason := redisreply.Reason(err); {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	case hasDeadline && !time.Now().Before(deadline): // the connection may see it before ctx ends
		return fmt.Errorf("%s: %w: %w", doing, context.DeadlineExceeded, err)
	case redisreply.Denied(err):
		return fmt.Errorf("%s: %w: %s: %s: %w", doing, ErrUnavailable, reason, rights, err)
	case passing && reason != "":
		return fmt.Errorf("%s: %w: %s: %w", doing, ErrUnavailable, reason, err)
	case passing:
		return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
	case isMalformed(err):
		return fmt.Errorf("%w: %w", malformed(doing), err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// isMalformed reports whether a script met a key that something else wrote.
func isMalformed(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := reply.Error()
	return strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "MALFORMED") || strings.Contains(text, "attempt to ") || strings.Contains(text, "not an integer")
}
