package index

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	probeEvery   = time.Second     // between two probes of [Index.Watch]
	probeTimeout = 2 * time.Second // of one of them
	probeTTL     = time.Second     // of the guard of a probe that was cut short

	// refusalTTL is how long a refusal is reported. It is longer than a postponed task
	// waits until it is tried again, and longer than the time between two refusals of a
	// server that is nearly full.
	refusalTTL = 5 * time.Second
)

// refusal is the last write that Redis refused.
type refusal struct {
	err error
	at  time.Time
}

// probeScript writes what an update writes, with the same commands, and deletes it
// in the same step. Its first write needs memory, because a full server refuses no write
// after the first one of a script. What an ACL may forbid comes before the set is made,
// so that none is left behind.
//
//	KEYS[1]  a set that does not exist
//	KEYS[2]  its guard
//	ARGV[1]  the TTL of the guard in milliseconds, should the script end early
//	returns  1
var probeScript = redis.NewScript(`
redis.call('SET', KEYS[2], 'probe', 'PX', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[1], '1')
redis.call('ZREMRANGEBYRANK', KEYS[1], '0', '-1')
redis.call('ZADD', KEYS[1], '1', '1')
return redis.call('DEL', KEYS[1], KEYS[2])
`)

// Probe reports whether the index can be read and written now: nil, or an error that
// matches [ErrSettings] or [ErrUnavailable], and [ErrRefused] where Redis answers
// but refuses. It writes a little, to each node of a cluster. For five seconds after
// a refusal it returns the refusal: see [Index.Refused].
func (ix *Index) Probe(ctx context.Context) (err error) {
	defer func(start time.Time) { ix.observe(opProbe, start, err) }(time.Now())
	defer func() {
		ix.note(err)
		err = cmp.Or(err, ix.Refused())
	}()
	calls := make([]call, ix.client.spread())
	for i := range calls {
		set := probeKey(i)
		calls[i] = call{[]string{set, guardKey(set)}, []any{probeTTL.Milliseconds()}}
	}
	var stored *redis.StringCmd
	replies, err := ix.client.evalAll(ctx, probeScript, calls, func(pipe redis.Pipeliner) { stored = getText(ctx, pipe, settingsKey) })
	if err := ix.compare(ctx, stored); err != nil {
		return err
	}
	for _, r := range replies {
		err = cmp.Or(err, r.err)
	}
	return translate(ctx, "probe", err)
}

// Refused returns why Redis refuses writes: the error of a probe that was refused less
// than five seconds ago, or of a write to a set, if its reason holds for all sets. It
// matches [ErrRefused]; nil: nothing was refused. It does not ask Redis, and relies on
// [Index.Watch].
func (ix *Index) Refused() error {
	if r := ix.refusal.Load(); r != nil && ix.options.Now().Sub(r.at) < refusalTTL {
		return r.err
	}
	return nil
}

// note remembers a refusal, if err is one.
func (ix *Index) note(err error) {
	if errors.Is(err, ErrRefused) {
		ix.refusal.Store(&refusal{err, ix.options.Now()})
	}
}

// Watch probes every second until ctx ends, which is no error, so that [Index.Refused]
// is up to date and the metrics say whether Redis can be used. It calls report with
// the time at which each probe began, and its error. Call it once.
func (ix *Index) Watch(ctx context.Context, report func(began time.Time, err error)) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, probeTimeout)
		err := ix.Probe(bounded)
		cancel()
		if ctx.Err() == nil {
			report(began, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}
