package index

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// probeScript writes what an update writes, with the same commands, and deletes it
// in the same step. Its first write needs memory: a full server refuses none after
// the first. Whatever an ACL may forbid comes before the set is made, so that none
// is left behind.
//
//	KEYS[1] a set that does not exist  KEYS[2] its guard
//	ARGV[1] the guard's life in milliseconds, should the script end early
var probeScript = redis.NewScript(`
redis.call('SET', KEYS[2], 'probe', 'PX', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[1], '1')
redis.call('ZREMRANGEBYRANK', KEYS[1], '0', '-1')
redis.call('ZADD', KEYS[1], '1', '1')
return redis.call('DEL', KEYS[1], KEYS[2])
`)

const (
	probeEvery   = time.Second     // between two probes of [Index.Watch]
	probeTimeout = 2 * time.Second // of one of them
	probeLife    = time.Second     // of the guard of a probe that was cut short

	// refusalLife is how long a refusal is known after it happened. It is longer
	// than a task that was postponed waits until it is tried again, and longer than
	// a server that is nearly full takes from one refusal to the next.
	refusalLife = 5 * time.Second
)

// refusal is the last write that Redis refused.
type refusal struct {
	err error
	at  time.Time
}

// Refused returns why Redis is known to refuse writes, or nil: a probe was refused
// less than five seconds ago, or a write to a user's set was, for a reason that
// holds for all of them. The error matches [ErrRefused]. It costs nothing; without
// [Index.Watch] little is known.
func (ix *Index) Refused() error {
	if r := ix.refusal.Load(); r != nil && ix.options.Now().Sub(r.at) < refusalLife {
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

// Probe tells whether the index can be read and written now: nil, or an error that
// matches [ErrSettings] or [ErrUnavailable], and [ErrRefused] where Redis answers
// but refuses. It writes a little, to each node of a cluster. For five seconds after
// a refusal it returns that one: see [Index.Refused].
func (ix *Index) Probe(ctx context.Context) (err error) {
	defer func(start time.Time) { ix.observe(opProbe, start, err) }(time.Now())
	if err := ix.probe(ctx); err != nil {
		ix.note(err)
		return err
	}
	return ix.Refused()
}

func (ix *Index) probe(ctx context.Context) error {
	calls := make([]call, len(ix.markKeys()))
	for i := range calls {
		set := probeKey(i)
		calls[i] = call{[]string{set, guardOf(set)}, []any{probeLife.Milliseconds()}}
	}
	var stored *redis.StringCmd
	replies, err := ix.evalAll(ctx, probeScript, calls, func(pipe redis.Pipeliner) { stored = getText(ctx, pipe, settingsKey) })
	if err := ix.verify(ctx, stored); err != nil {
		return err
	}
	for _, r := range replies {
		err = cmp.Or(err, r.err)
	}
	return translate(ctx, "probe", err)
}

// Watch probes every second until ctx ends, whose end is no error, so that
// [Index.Refused] is known and the metrics say whether Redis can be used. It
// calls tell with the time at which each probe began, and its error. Call it once.
func (ix *Index) Watch(ctx context.Context, tell func(began time.Time, err error)) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		bounded, cancel := context.WithTimeout(ctx, probeTimeout)
		err := ix.Probe(bounded)
		cancel()
		if ctx.Err() == nil {
			tell(began, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}
