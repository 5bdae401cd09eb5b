package once

import (
	"cmp"
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

// Redis is a [Store] in Redis 6.2 or later, or Valkey: one server, Sentinel, or a
// cluster. The names are spread over [buckets], and each bucket has two kinds of keys, in
// one slot:
//
//	activityd_once_{BUCKET}       hash: the marker, see [Redis.BeginEpoch]
//	activityd_once_{BUCKET}_NAME  hash: the state of a name; expires when it is forgotten
//
// Each operation is one script, which has the server's clock decide. The scripts are
// [Step] in Lua; they leave no state without its time to live.
//
// A Redis that loses data loses the states with it: a name that was done may be done
// again, and one that is held may be acquired. The order of the fences it never loses.
type Redis struct {
	client    redis.UniversalClient
	epochs    func(context.Context) (uint64, error) // nil: a person begins the epochs
	beginning chan struct{}                         // has one element while a goroutine begins an epoch
}

// NewRedis returns a store in Redis. epochs returns a number that is higher than all that
// it returned before, in any process, below 1<<32: see [MySQL.NextEpoch]. With nil the
// first acquisition of all, and the first one after Redis has restarted or lost data,
// return [ErrNoEpoch] until [Redis.BeginEpoch].
//
// The client needs ContextTimeoutEnabled for operations to end with their contexts.
func NewRedis(client redis.UniversalClient, epochs func(context.Context) (uint64, error)) *Redis {
	return &Redis{client: client, epochs: epochs, beginning: make(chan struct{}, 1)}
}

// buckets is the number of buckets. It must never change.
const buckets = 64

// keyPrefix begins all keys. The number of the bucket, in braces, follows: the part that
// a cluster hashes.
const keyPrefix = "activityd_once_{"

// bucketOf returns the bucket of a name. It must never change.
func bucketOf(name string) int { return int(crc32.ChecksumIEEE([]byte(name)) % buckets) }

// markerKey returns the key of the marker of a bucket.
func markerKey(bucket int) string { return keyPrefix + strconv.Itoa(bucket) + "}" }

// stateKey returns the key of the state of a name.
func stateKey(name string) string { return markerKey(bucketOf(name)) + "_" + name }

// nameOf returns the name whose state has a key.
func nameOf(key string) (name string, ok bool) {
	_, name, _ = strings.Cut(key, "}_")
	return name, CheckName(name) == nil && stateKey(name) == key
}

// stateFields are the fields of a state. The times and the durations are in milliseconds,
// until is 0 unless the name is held, and the fence is the epoch and the sequence number,
// with a space between: both together are too much for a number in Lua.
var stateFields = []string{"phase", "owner", "attempt", "lease", "keep", "max", "fence", "until", "forget_at", "reason"}

// load begins the script of each operation. It sets now, in milliseconds, and s, the
// values of [stateFields]; s[1] is false if there is no state.
var load = `
local s = redis.call('HMGET', KEYS[1], '` + strings.Join(stateFields, "', '") + `')
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
if s[1] and now >= tonumber(s[9]) then s[1] = false end
`

// serverID is an expression in Lua: the id of the data of the server that runs the script,
// another one after each start and each promotion of a replica, or nil if the server is
// a replica or does not tell.
const serverID = `string.match(redis.call('INFO', 'replication'), 'role:master\r?\n.-master_replid:(%x+)')`

// maxSequence is the last sequence number of an epoch, 1<<31 - 1.
const maxSequence = "2147483647"

// noEpoch is the outcome of an acquisition that finds no valid marker.
const noEpoch = "no epoch"

// acquireScript is [Acquire].
//
//	KEYS[1] the state  KEYS[2] the marker
//	ARGV[1] owner  ARGV[2] lease  ARGV[3] keep  ARGV[4] max
//	returns the outcome or "no epoch", 1 if the phase changed, now, and the state
var acquireScript = redis.NewScript(load + `
local was = s[1]
if was == 'done' then return {'done', 0, now, s} end
if was == 'exhausted' then return {'out of attempts', 0, now, s} end
local live = was == 'held' and now < tonumber(s[8])
if live and s[2] ~= ARGV[1] then return {'busy', 0, now, s} end
local till = now + ARGV[2]
if live then
	s[4], s[5], s[6], s[8], s[9] = ARGV[2], ARGV[3], ARGV[4], till, till + ARGV[3]
	redis.call('HSET', KEYS[1], 'lease', s[4], 'keep', s[5], 'max', s[6], 'until', s[8], 'forget_at', s[9])
	redis.call('PEXPIREAT', KEYS[1], s[9])
	return {'ok', 0, now, s}
end
if not was then s[3], s[10] = 0, '' end
if was == 'held' then s[10] = 'the lease of attempt ' .. s[3] .. ' expired' end
local outcome, max = 'ok', tonumber(ARGV[4])
if max > 0 and tonumber(s[3]) >= max then
	outcome, s[1], s[8], s[9] = 'out of attempts', 'exhausted', 0, now + ARGV[3]
else
	local m = redis.call('HMGET', KEYS[2], 'epoch', 'seq', 'server')
	if not (m[1] and m[2] and tonumber(m[2]) < ` + maxSequence + ` and m[3] and m[3] == ` + serverID + `) then
		return {'no epoch', 0, now, {}}
	end
	s[7] = m[1] .. ' ' .. redis.call('HINCRBY', KEYS[2], 'seq', 1)
	s[1], s[2], s[3], s[8], s[9] = 'held', ARGV[1], s[3] + 1, till, till + ARGV[3]
end
s[4], s[5], s[6] = ARGV[2], ARGV[3], ARGV[4]
redis.call('HSET', KEYS[1], 'phase', s[1], 'owner', s[2], 'attempt', s[3], 'lease', s[4], 'keep', s[5], 'max', s[6], 'fence', s[7], 'until', s[8], 'forget_at', s[9], 'reason', s[10])
redis.call('PEXPIREAT', KEYS[1], s[9])
return {outcome, s[1] == was and 0 or 1, now, s}
`)

// extendScript is [Extend].
//
//	KEYS[1] the state
//	ARGV[1] owner
//	returns the outcome, 0, now, and the state
var extendScript = redis.NewScript(load + `
if s[1] ~= 'held' or s[2] ~= ARGV[1] or now >= tonumber(s[8]) then return {'lost', 0, now, s} end
s[8] = now + s[4]
s[9] = s[8] + s[5]
redis.call('HSET', KEYS[1], 'until', s[8], 'forget_at', s[9])
redis.call('PEXPIREAT', KEYS[1], s[9])
return {'ok', 0, now, s}
`)

// finishScript is [Finish].
//
//	KEYS[1] the state
//	ARGV[1] owner
//	returns the outcome, 1 if the phase changed, now, and the state
var finishScript = redis.NewScript(load + `
if not s[1] or s[2] ~= ARGV[1] then return {'lost', 0, now, s} end
if s[1] ~= 'held' then return {s[1] == 'done' and 'ok' or 'lost', 0, now, s} end
s[1], s[8], s[9] = 'done', 0, now + s[5]
redis.call('HSET', KEYS[1], 'phase', s[1], 'until', s[8], 'forget_at', s[9])
redis.call('PEXPIREAT', KEYS[1], s[9])
return {'ok', 1, now, s}
`)

// failScript is [Fail].
//
//	KEYS[1] the state
//	ARGV[1] owner  ARGV[2] reason
//	returns the outcome, 1 if the phase changed, now, and the state
var failScript = redis.NewScript(load + `
if not s[1] or s[2] ~= ARGV[1] then return {'lost', 0, now, s} end
if s[1] ~= 'held' then return {s[1] == 'done' and 'lost' or 'ok', 0, now, s} end
local max = tonumber(s[6])
s[1] = max > 0 and tonumber(s[3]) >= max and 'exhausted' or 'free'
s[8], s[9], s[10] = 0, now + s[5], ARGV[2]
redis.call('HSET', KEYS[1], 'phase', s[1], 'until', s[8], 'forget_at', s[9], 'reason', s[10])
redis.call('PEXPIREAT', KEYS[1], s[9])
return {'ok', 1, now, s}
`)

// releaseScript is [Release].
//
//	KEYS[1] the state
//	ARGV[1] owner
//	returns the outcome, 1 if the phase changed, now, and the state
var releaseScript = redis.NewScript(load + `
if not s[1] or s[2] ~= ARGV[1] then return {'lost', 0, now, s} end
if s[1] ~= 'held' then return {s[1] == 'free' and 'ok' or 'lost', 0, now, s} end
s[1], s[3], s[8], s[9] = 'free', s[3] - 1, 0, now + s[5]
redis.call('HSET', KEYS[1], 'phase', s[1], 'attempt', s[3], 'until', s[8], 'forget_at', s[9])
redis.call('PEXPIREAT', KEYS[1], s[9])
return {'ok', 1, now, s}
`)

// Apply implements [Store].
func (r *Redis) Apply(ctx context.Context, name string, op Operation) (Reply, error) {
	if err := op.Check(name); err != nil {
		return Reply{}, err
	}
	switch op.Action {
	case Acquire:
		return r.acquire(ctx, name, op)
	case Extend:
		return r.run(ctx, extendScript, name, op.Owner)
	case Finish:
		return r.run(ctx, finishScript, name, op.Owner)
	case Fail:
		return r.run(ctx, failScript, name, op.Owner, CutReason(op.Reason))
	default: // Release
		return r.run(ctx, releaseScript, name, op.Owner)
	}
}

// acquire runs acquireScript, and begins an epoch if that is what it takes. A loss of
// data just after that is met by one more try.
func (r *Redis) acquire(ctx context.Context, name string, op Operation) (Reply, error) {
	ask := func() (Reply, error) {
		return r.run(ctx, acquireScript, name, op.Owner, op.Terms.Lease.Milliseconds(), op.Terms.Keep.Milliseconds(), op.Terms.Attempts)
	}
	reply, err := ask()
	if err != nil || reply.Outcome != noEpoch {
		return reply, err
	}
	if r.epochs == nil {
		return Reply{}, fmt.Errorf("%w: %s", ErrNoEpoch, noEpochHelp)
	}
	select {
	case r.beginning <- struct{}{}:
		defer func() { <-r.beginning }()
	case <-ctx.Done():
		return Reply{}, context.Cause(ctx)
	}
	var beginErr error // of other buckets, perhaps
	for range 3 {
		if reply, err = ask(); err != nil || reply.Outcome != noEpoch {
			return reply, err // it was another goroutine that has begun one
		}
		if beginErr != nil {
			return Reply{}, beginErr
		}
		_, _, beginErr = r.beginEpoch(ctx)
	}
	return Reply{}, cmp.Or(beginErr, fmt.Errorf("%w: %w: each one that was begun was lost at once: see that one master answers, and what deletes its keys", ErrUnavailable, ErrNoEpoch))
}

// run runs a script on the state of a name, and on the marker of its bucket.
func (r *Redis) run(ctx context.Context, script *redis.Script, name string, args ...any) (Reply, error) {
	if err := ctx.Err(); err != nil {
		return Reply{}, context.Cause(ctx)
	}
	key := stateKey(name)
	keys := []string{key}
	if script == acquireScript {
		keys = append(keys, markerKey(bucketOf(name)))
	}
	reply, err := script.Run(ctx, r.client, keys, args...).Slice()
	if err != nil {
		return Reply{}, translate(ctx, strings.Join(keys, " or "), err)
	}
	if len(reply) != 4 {
		return Reply{}, malformed(key)
	}
	d := decoder{key: key}
	state, _ := reply[3].([]any)
	result := Reply{Outcome: Outcome(d.text(reply[0])), Changed: d.number(reply[1]) == 1, Now: d.time(reply[2]), State: d.state(state)}
	return result, d.err
}

// getScript reads a state.
//
//	KEYS[1] the state
//	returns "", 0, now, and the state
var getScript = redis.NewScript(load + `return {'', 0, now, s}`)

// Get implements [Store].
func (r *Redis) Get(ctx context.Context, name string) (Reply, error) {
	if err := CheckName(name); err != nil {
		return Reply{}, err
	}
	return r.run(ctx, getScript, name)
}

// forgetScript deletes a state.
//
//	KEYS[1] the state
//	returns the outcome, which is "ok", "busy" or "lost" (there is none), 1 if it was deleted, now, and the state before
var forgetScript = redis.NewScript(load + `
if not s[1] then return {'lost', 0, now, s} end
if s[1] == 'held' and now < tonumber(s[8]) then return {'busy', 0, now, s} end
redis.call('DEL', KEYS[1])
return {'ok', 1, now, s}
`)

// forgetForcedScript deletes a state, or whatever has its key.
//
//	KEYS[1] the state
//	returns 1 if there was one, else 0
var forgetForcedScript = redis.NewScript(`
local forget_at = redis.pcall('HGET', KEYS[1], 'forget_at')
local now = redis.call('TIME')
local deleted = redis.call('DEL', KEYS[1])
if type(forget_at) == 'string' and now[1] * 1000 + math.floor(now[2] / 1000) >= (tonumber(forget_at) or 1e15) then return 0 end
return deleted
`)

// Forget implements [Store]. With force it deletes even a key that holds no state.
func (r *Redis) Forget(ctx context.Context, name string, force bool) (forgotten bool, err error) {
	if err := CheckName(name); err != nil {
		return false, err
	}
	if !force {
		reply, err := r.run(ctx, forgetScript, name)
		if err == nil && reply.Outcome == Busy {
			err = ErrHeld
		}
		return reply.Changed && err == nil, err
	}
	if err := ctx.Err(); err != nil {
		return false, context.Cause(ctx)
	}
	n, err := forgetForcedScript.Run(ctx, r.client, []string{stateKey(name)}).Int()
	return n == 1, translate(ctx, stateKey(name), err)
}

// List implements [Store]. It scans all keys of all masters. What changes meanwhile may
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

// readStates adds to states those of one server that have some of the keys.
func readStates(ctx context.Context, server redis.UniversalClient, keys []string, states map[string]Reply) error {
	var now *redis.TimeCmd
	values := make(map[string]*redis.SliceCmd)
	_, err := server.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		now = pipe.Time(ctx)
		for _, key := range keys {
			if name, ok := nameOf(key); ok {
				values[name] = pipe.HMGet(ctx, key, stateFields...)
			}
		}
		return nil
	})
	for name, value := range values {
		key := stateKey(name)
		if err := cmp.Or(value.Err(), now.Err(), err); err != nil {
			return translate(ctx, key, err)
		}
		d := decoder{key: key}
		reply := Reply{State: d.state(value.Val()), Now: time.UnixMilli(now.Val().UnixMilli())}
		if d.err != nil {
			return d.err
		}
		if reply.Now.Before(reply.State.ForgetAt) {
			states[name] = reply
		}
	}
	return nil
}

// decoder decodes what a script returns, and keeps the first error.
type decoder struct {
	key string
	err error
}

// state decodes the values of [stateFields], of which the first is nil if there is no
// state. A script leaves out what follows.
func (d *decoder) state(v []any) State {
	if len(v) == 0 || v[0] == nil {
		return State{}
	}
	if len(v) != len(stateFields) {
		d.err = malformed(d.key)
		return State{}
	}
	s := State{
		Phase: Phase(d.text(v[0])), Owner: d.text(v[1]), Attempt: int(d.number(v[2])),
		Terms: Terms{
			Lease:    time.Duration(d.number(v[3])) * time.Millisecond,
			Keep:     time.Duration(d.number(v[4])) * time.Millisecond,
			Attempts: int(d.number(v[5])),
		},
		Fence: d.fence(v[6]), ForgetAt: d.time(v[8]), Reason: d.text(v[9]),
	}
	if s.Phase == Held {
		s.Until = d.time(v[7])
	}
	return s
}

func (d *decoder) text(v any) string {
	s, ok := v.(string)
	if !ok {
		d.err = malformed(d.key)
	}
	return s
}

// number decodes a number that a script computed, or a string that it read.
func (d *decoder) number(v any) int64 {
	if n, ok := v.(int64); ok {
		return n
	}
	n, err := strconv.ParseInt(d.text(v), 10, 64)
	if err != nil {
		d.err = malformed(d.key)
	}
	return n
}

func (d *decoder) time(v any) time.Time { return time.UnixMilli(d.number(v)) }

func (d *decoder) fence(v any) Fence {
	epoch, sequence, _ := strings.Cut(d.text(v), " ")
	e, err := strconv.ParseUint(epoch, 10, 32)
	n, err2 := strconv.ParseUint(sequence, 10, 31)
	if err != nil || err2 != nil {
		d.err = malformed(d.key)
	}
	return Fence(e<<31 | n)
}

// malformed is the error of a key that something else wrote.
func malformed(key string) error {
	return fmt.Errorf("the key %s of Redis holds something that is not the state of a lock: %s", key, repair)
}

const (
	repair = "see which program writes it, and forget the lock with force, or delete the key"
	rights = "the user needs the commands EVALSHA, EVAL, SCAN, HMGET, HGET, HSET, HINCRBY, PEXPIREAT, DEL, TIME and INFO, and the keys activityd_once_*"
)

// translate wraps an error of the client, about a key, as one of the errors of stores, or
// as that of ctx if it has ended.
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

// isMalformed reports whether a script met a key that something else wrote: one of
// another type, or a hash whose fields it cannot compute with.
func isMalformed(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return false
	}
	text := reply.Error()
	return strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "attempt to ") || strings.Contains(text, "not an integer")
}
