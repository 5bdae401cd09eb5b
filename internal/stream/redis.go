package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// The keys. Producers know the first.
const (
	Key     = "activityd_events"
	DeadKey = "activityd_events_dead"
	turnKey = "activityd_events_turn" // the lease: whose turn it is to move
)

// first is the id before all entries.
const first = "0"

// maxDead is about how many entries the stream of the dead keeps: with 3 KB each, 30 MB at the very most.
const maxDead = 10_000

var errReply = errors.New("redis replied what no stream replies")

// holdScript takes the lease KEYS[1] for ARGV[1], its owner, or prolongs it, for ARGV[2] milliseconds.
//
// It returns 1, or 0 if another owner has it; and the time of the server that gives entries their ids, in milliseconds, unless an
// ACL forbids to ask for it. Without memory for the lease it returns 1.
var holdScript = redis.NewScript(`
local owner = redis.call('GET', KEYS[1])
local held = 0
if not owner or owner == ARGV[1] then
	held = 1
	local set = redis.pcall('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
	if set.err and not string.find(set.err, 'OOM', 1, true) then
		return set
	end
end
local now = redis.pcall('TIME')
if now.err then
	return {held}
end
return {held, now[1] * 1000 + math.floor(now[2] / 1000)}
`)

// hold reports whether it is this process' turn, and the time by the clock of Redis. Without the right to ask for that, it is
// the time of this process.
func (m *Mover) hold(ctx context.Context) (now time.Time, isTurn bool, err error) {
	reply, err := holdScript.Run(ctx, m.client, []string{turnKey}, m.owner, m.lease.Milliseconds()).Int64Slice()
	switch {
	case err != nil:
		return now, false, fmt.Errorf("take the turn to read %s: %w", Key, err)
	case len(reply) == 1:
		return time.Now(), reply[0] == 1, nil
	}
	return time.UnixMilli(reply[1]), reply[0] == 1, nil
}

var releaseScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
	redis.call('DEL', KEYS[1])
end
return 0
`)

// release gives the lease back. If it fails, the lease soon ends.
func (m *Mover) release(ctx context.Context) {
	_ = releaseScript.Run(ctx, m.client, []string{turnKey}, m.owner).Err()
}

// read returns the first n entries after an id. If there is none, it waits a moment.
//
// The client's own method returns the fields of an entry as a map, where the second of two with the same name hides the first,
// and that may be a task.
func (m *Mover) read(ctx context.Context, from string, n int) ([]entry, error) {
	cmd := redis.NewCmd(ctx, "XREAD", "COUNT", n, "BLOCK", m.block.Milliseconds(), "STREAMS", Key, from)
	cmd.SetFirstKeyPos(6)
	_ = m.client.Process(ctx, cmd) // the command has its error
	reply, err := cmd.Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", Key, err)
	}
	// A map in RESP3, an array of pairs in RESP2.
	byKey, ok := reply.(map[any]any)
	if !ok {
		keys, _ := reply.([]any)
		if len(keys) != 1 {
			return nil, errReply
		}
		pair, _ := keys[0].([]any)
		if len(pair) != 2 {
			return nil, errReply
		}
		return entries(pair[1])
	}
	return entries(byKey[Key])
}

// entries reads a list of pairs of an id and a list of fields.
func entries(reply any) (list []entry, err error) {
	items, _ := reply.([]any)
	for _, item := range items {
		pair, _ := item.([]any)
		if len(pair) != 2 {
			return nil, errReply
		}
		id, isText := pair[0].(string)
		fields, isList := pair[1].([]any)
		e := entry{id: id}
		for _, field := range fields {
			s, ok := field.(string)
			isText = isText && ok
			e.fields = append(e.fields, s)
		}
		if !isText || !isList {
			return nil, errReply
		}
		list = append(list, e)
	}
	return list, nil
}

// settle takes entries that are done out of the stream: the invariant of this package.
func (m *Mover) settle(ctx context.Context) error {
	if len(m.done) == 0 {
		return nil
	}
	there, err := m.client.XDel(ctx, Key, m.done...).Result()
	if err != nil {
		return fmt.Errorf("take %d entries out of %s: %w", len(m.done), Key, err)
	}
	entriesRepeated.Add(float64(len(m.done) - int(there)))
	m.done = nil
	return nil
}

// addDead copies entries to the dead, and returns the ids of the entries that lie there now.
func (m *Mover) addDead(ctx context.Context, list []*item) (ids []string, err error) {
	added := make([]*redis.StringCmd, len(list))
	_, err = m.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, item := range list {
			added[i] = p.XAdd(ctx, &redis.XAddArgs{Stream: DeadKey, MaxLen: maxDead, Approx: true, Values: item.dead(item.reason)})
		}
		return nil
	})
	for i, item := range list {
		// Without a connection the error is that of the pipeline alone, and the commands have neither an error nor a reply.
		if added[i].Err() == nil && added[i].Val() != "" {
			ids = append(ids, item.id)
		}
	}
	if err != nil {
		return ids, fmt.Errorf("copy %d entries to %s: %w", len(list), DeadKey, err)
	}
	return ids, nil
}

// measured sets the gauges.
func (m *Mover) measured(ctx context.Context, now time.Time) error {
	length, err := m.client.XLen(ctx, Key).Result()
	var oldest []redis.XMessage
	if err == nil {
		oldest, err = m.client.XRangeN(ctx, Key, "-", "+", 1).Result()
	}
	if err != nil {
		return fmt.Errorf("measure %s: %w", Key, err)
	}
	lag := time.Duration(0)
	if len(oldest) > 0 {
		lag = max(0, now.Sub(entry{id: oldest[0].ID}.added()))
	}
	streamLength.Set(float64(length))
	streamLag.Set(lag.Seconds())
	return nil
}

// blockOf returns for how long a read may wait in Redis: at a stop it is waited for, and beyond its read timeout the client
// takes the connection for dead.
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
