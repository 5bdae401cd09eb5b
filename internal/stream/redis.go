package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// The keys. Producers know the first.
const (
	Key     = "activityd_events"
	DeadKey = "activityd_events_dead"
)

// Group is the consumer group, of which every process with workers has a consumer.
const Group = "activityd"

// maxDead is about how many entries the stream of the dead keeps: with 3 KB each, 30 MB at
// the very most.
const maxDead = 10_000

// What a consumer reads next, beside the id after which it goes on with what it holds.
const (
	held  = "0" // what it holds, from the beginning
	fresh = ">" // what no consumer was given
)

// errGroupLost says that the group was gone, and was made again.
var errGroupLost = errors.New("the group was lost")

// makeGroup makes the group, and the stream if there is none: from the beginning, as what
// is in the stream was not moved.
func (c *Consumer) makeGroup(ctx context.Context) error {
	err := c.client.XGroupCreateMkStream(ctx, Key, Group, "0").Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return fmt.Errorf("make the group %s of %s: %w", Group, Key, err)
	}
	return nil
}

// call runs a command that needs the group; nil if it returns nothing. It makes a group
// that is lost again, and then returns errGroupLost.
//
// The client's own methods return the fields of an entry as a map, where the second of two
// with one name hides the first, which may be a task.
func (c *Consumer) call(ctx context.Context, args ...any) (reply any, err error) {
	reply, err = c.client.Do(ctx, args...).Result()
	switch {
	case err == nil || errors.Is(err, redis.Nil):
		return reply, nil
	case redis.HasErrorPrefix(err, "NOGROUP") || redis.HasErrorPrefix(err, "UNBLOCKED"): // which a reader gets that waited
		if err := c.makeGroup(ctx); err != nil {
			return nil, err
		}
		c.log.WarnContext(ctx, "stream group lost and made again", "stream", Key, "group", Group)
		return nil, errGroupLost
	}
	return nil, fmt.Errorf("%v of %s: %w", args[0], Key, err)
}

// readGroup returns up to n entries: those that this consumer holds, after an id, or fresh
// ones, for which it waits a moment.
func (c *Consumer) readGroup(ctx context.Context, from string, n int) ([]entry, error) {
	reply, err := c.call(ctx, "XREADGROUP", "GROUP", Group, c.name, "COUNT", n, "BLOCK", c.block.Milliseconds(), "STREAMS", Key, from)
	if err != nil || reply == nil {
		return nil, err
	}
	// A map in RESP3, an array of pairs in RESP2.
	if byKey, ok := reply.(map[any]any); ok {
		return entries(byKey[Key])
	}
	list, _ := reply.([]any)
	if len(list) != 1 {
		return nil, errReply
	}
	pair, _ := list[0].([]any)
	if len(pair) != 2 {
		return nil, errReply
	}
	return entries(pair[1])
}

// autoClaim takes up to n entries over from consumers that did nothing with them for a
// while, and returns the cursor of the rest; "0-0": there are none. Redis 7 forgets those
// that were trimmed, and says how many; before, they are claimed, and are entries without an
// id.
func (c *Consumer) autoClaim(ctx context.Context, cursor string, n int) (claimed []entry, next string, trimmed int, err error) {
	reply, err := c.call(ctx, "XAUTOCLAIM", Key, Group, c.name, c.idle.Milliseconds(), cursor, "COUNT", n)
	if err != nil {
		return nil, "", 0, err
	}
	list, _ := reply.([]any)
	if len(list) < 2 {
		return nil, "", 0, errReply
	}
	next, ok := list[0].(string)
	if !ok {
		return nil, "", 0, errReply
	}
	if len(list) > 2 {
		deleted, _ := list[2].([]any)
		trimmed = len(deleted)
	}
	claimed, err = entries(list[1])
	return claimed, next, trimmed, err
}

var errReply = errors.New("redis replied what no stream replies")

func entries(reply any) ([]entry, error) {
	list, ok := reply.([]any)
	if !ok && reply != nil {
		return nil, errReply
	}
	out := make([]entry, len(list))
	for i, item := range list {
		if item == nil {
			continue
		}
		pair, _ := item.([]any)
		if len(pair) != 2 {
			return nil, errReply
		}
		out[i].id, ok = pair[0].(string)
		if !ok {
			return nil, errReply
		}
		fields, _ := pair[1].([]any) // nil: it was trimmed
		for _, field := range fields {
			s, ok := field.(string)
			if !ok {
				return nil, errReply
			}
			out[i].fields = append(out[i].fields, s)
		}
	}
	return out, nil
}

// timeScript returns the time of the server that gives entries their ids; nil if an ACL forbids
// it.
var timeScript = redis.NewScript(`
local now = redis.pcall('TIME')
if now.err then
	return false
end
return now
`)

// now returns the time by the clock of Redis, which may not be that of this process. Without
// the right to ask for it, it is that of this process.
func (c *Consumer) now(ctx context.Context) (time.Time, error) {
	reply, err := timeScript.Run(ctx, c.client, []string{Key}).StringSlice()
	if errors.Is(err, redis.Nil) {
		return time.Now(), nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for the time of %s: %w", Key, err)
	}
	return timeOf(reply)
}

// timeOf returns the time of a reply to TIME: seconds and microseconds.
func timeOf(reply []string) (time.Time, error) {
	if len(reply) != 2 {
		return time.Time{}, errReply
	}
	seconds, err := strconv.ParseInt(reply[0], 10, 64)
	if err != nil {
		return time.Time{}, errReply
	}
	micros, err := strconv.ParseInt(reply[1], 10, 64)
	if err != nil {
		return time.Time{}, errReply
	}
	return time.Unix(seconds, 1000*micros), nil
}

// settleScript takes entries out of what consumers hold and out of the stream, both or
// neither, and returns how many were in the stream.
var settleScript = redis.NewScript(`
redis.call('XACK', KEYS[1], unpack(ARGV))
return redis.call('XDEL', KEYS[1], unpack(ARGV, 2))
`)

// settle takes entries out of the stream, and returns how many were still there. Their tasks
// are committed, or they lie with the dead, or they were trimmed: that is the invariant of
// this package.
func (c *Consumer) settle(ctx context.Context, ids []string) (there int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	args := []any{Group}
	for _, id := range ids {
		args = append(args, id)
	}
	there, err = settleScript.Run(ctx, c.client, []string{Key}, args...).Int()
	if err != nil {
		return 0, fmt.Errorf("take %d entries out of %s: %w", len(ids), Key, err)
	}
	return there, nil
}

// addDead copies entries to the dead, and returns the ids of those that lie there now.
func (c *Consumer) addDead(ctx context.Context, list []item) (ids []string, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	added := make([]*redis.StringCmd, len(list))
	_, err = c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, item := range list {
			added[i] = p.XAdd(ctx, &redis.XAddArgs{Stream: DeadKey, MaxLen: maxDead, Approx: true, Values: item.dead(item.reason)})
		}
		return nil
	})
	for i, item := range list {
		// Without a connection the error is that of the pipeline alone, and the commands have
		// neither an error nor a reply.
		if added[i].Err() == nil && added[i].Val() != "" {
			ids = append(ids, item.id)
		}
	}
	if err != nil {
		return ids, fmt.Errorf("copy %d entries to %s: %w", len(list), DeadKey, err)
	}
	return ids, nil
}

// lookScript returns the length of the stream, how many entries are held, the id of the
// oldest, and 1 if there was an entry that was delivered and that no consumer
// holds. As settle takes entries out in one step, such a one was acknowledged by hand,
// lost its consumer by hand, or is older than the group. Then the group begins again with the
// first entry. Those who hold some of them move these twice.
var lookScript = redis.NewScript(`
local length, held, oldest, passed = redis.call('XLEN', KEYS[1]), 0, '', 0
local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
if first then
	oldest = first[1]
end
local groups = redis.pcall('XINFO', 'GROUPS', KEYS[1])
if groups.err then
	groups = {}
end
for _, group in ipairs(groups) do
	local is = {}
	for i = 1, #group, 2 do
		is[group[i]] = group[i + 1]
	end
	if is.name == ARGV[1] then
		held = is.pending
		local delivered = redis.call('XRANGE', KEYS[1], '-', is['last-delivered-id'], 'COUNT', 1)[1]
		local from = delivered and delivered[1]
		local to = from
		if from and #redis.call('XPENDING', KEYS[1], ARGV[1], from, to, 1) == 0 then
			redis.call('XGROUP', 'SETID', KEYS[1], ARGV[1], '0')
			passed = 1
		end
	end
end
return {length, held, oldest, passed}
`)

// look is what lookScript returns.
type look struct {
	length, held int
	lag          time.Duration // the age of the oldest entry; 0: there is none
	passed       bool          // entries were passed over, and will be delivered
}

func (c *Consumer) look(ctx context.Context) (l look, err error) {
	reply, err := lookScript.Run(ctx, c.client, []string{Key}, Group).Slice()
	if err != nil {
		return l, err
	}
	if len(reply) != 4 {
		return l, errReply
	}
	length, _ := reply[0].(int64)
	held, _ := reply[1].(int64)
	l.length, l.held, l.passed = int(length), int(held), reply[3] == int64(1)
	if oldest, _ := reply[2].(string); oldest != "" {
		now, err := c.now(ctx)
		if err != nil {
			return l, err
		}
		l.lag = max(0, now.Sub(entry{id: oldest}.added()))
	}
	return l, nil
}

// leaveScript deletes a consumer that holds nothing. What one holds may be claimed at once:
// to delete it would have the group forget the entries.
var leaveScript = redis.NewScript(`
local held = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 10000, ARGV[2])
if #held == 0 then
	return redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
end
for _, entry in ipairs(held) do
	redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, entry[1], 'IDLE', ARGV[3], 'JUSTID')
end
return 0
`)

func (c *Consumer) leave(ctx context.Context, name string) error {
	return leaveScript.Run(ctx, c.client, []string{Key}, Group, name, c.idle.Milliseconds()).Err()
}

// idleConsumers returns the consumers that did nothing for so long.
func (c *Consumer) idleConsumers(ctx context.Context, since time.Duration) (names []string, err error) {
	list, err := c.client.XInfoConsumers(ctx, Key, Group).Result()
	for _, consumer := range list {
		if consumer.Idle > since {
			names = append(names, consumer.Name)
		}
	}
	return slices.Sorted(slices.Values(names)), err
}

// blockOf returns for how long a read may wait in Redis: at a stop it is waited for, and
// beyond its read timeout the client takes the connection for dead.
func blockOf(client redis.UniversalClient) time.Duration {
	timeout := time.Duration(0)
	switch c := client.(type) {
	case *redis.Client:
		timeout = c.Options().ReadTimeout
	case *redis.ClusterClient:
		timeout = c.Options().ReadTimeout
	}
	if timeout <= 0 {
		return maxBlock
	}
	return min(maxBlock, max(timeout/2, time.Millisecond)) // 0 would be for ever
}
