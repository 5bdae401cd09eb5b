package index_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/localserver/servertest"
)

// moving is a server behind an address, and one with an older copy of its data: it lacks
// contact 9. The client of the bench has one connection.
type moving struct {
	bench
	*servertest.Proxy

	old, promoted string // the addresses of the servers
}

func newMoving(t *testing.T) moving {
	t.Helper()
	ctx := t.Context()
	m := moving{old: servertest.Redis(t).Addr(), promoted: servertest.Redis(t).Addr()}
	m.Proxy = servertest.NewProxy(t, m.old)
	m.bench = m.process(t)
	must(t, m.Probe(ctx))
	m.refill(t, ladder(3))
	to := redis.NewClient(&redis.Options{Addr: m.promoted, Network: "unix"})
	defer func() { must(t, to.Close()) }()
	keys, err := m.client.Keys(ctx, "*").Result()
	must(t, err)
	for _, key := range keys {
		must(t, to.Restore(ctx, key, 0, m.client.Dump(ctx, key).Val()).Err())
	}
	m.add(t, 9, 900)
	m.first(t, 9)
	return m
}

// process returns an index over the address, of a process of its own.
func (m moving) process(t *testing.T) bench {
	t.Helper()
	return newBench(t, &redis.Options{Addr: m.Addr(), PipelinePoolSize: -1}, index.Options{})
}

// first checks which contact comes first.
func (b bench) first(t *testing.T, want uint64) {
	t.Helper()
	if got, err := b.Candidates(t.Context(), user); err != nil || uint64(got[0].Contact) != want {
		t.Fatalf("read: %v, %v, want %d first", got, err, want)
	}
}

// afterPipeline calls a function once, after the next pipeline.
type afterPipeline struct {
	thenCancel
	do func()
}

func (a *afterPipeline) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if do := a.do; do != nil {
			a.do = nil
			do()
		}
		return err
	}
}

// The address of a server moves to one with older data, while connections to the former
// one stay open: what answers over a new connection is not judged by what is known of the
// former one, and nothing reads that one any more.
func TestAnAddressThatMovesIsNeverBelieved(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	ctx := t.Context()
	former := m.client.Conn() // keeps the only connection
	must(t, former.Ping(ctx).Err())
	m.Move(m.promoted)
	// The read needs a new connection. What it asks next finds the former one idle.
	m.client.AddHook(&afterPipeline{do: func() { must(t, former.Close()) }})
	if got, err := m.Candidates(ctx, user); !errors.Is(err, index.ErrUnknown) {
		t.Fatalf("an old set was believed: %v, %v", got, err)
	}
	servertest.Eventually(t, "the connections to the former server to be closed", func() bool { return m.Connections(m.old) == 0 })

	reading, stop := context.WithCancel(ctx)
	defer stop()
	var newest atomic.Uint64 // the contact that comes first
	newest.Store(9)
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for reading.Err() == nil {
				want := newest.Load()
				if got, err := m.Candidates(reading, user); err == nil && uint64(got[0].Contact) < want {
					t.Errorf("an old set was believed: %v, want %d first", got, want)
					return
				}
			}
		})
	}
	m.watched(t)
	servertest.Eventually(t, "the set to be missing", func() bool {
		_, err := m.Candidates(ctx, user)
		return errors.Is(err, index.ErrMissing)
	})
	m.refill(t, entries(10, 1000))
	newest.Store(10)
	m.first(t, 10)
	stop()
	readers.Wait()
}

// Readers that open connections while the address moves never believe the older data.
func TestAnAddressMovesUnderReads(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	ctx := t.Context()
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var unknown atomic.Bool
	var newest atomic.Uint64 // the contact that came first in any read
	newest.Store(9)
	var readers sync.WaitGroup
	read := func() {
		for reading.Err() == nil {
			least := newest.Load()
			got, err := m.Candidates(reading, user)
			if err == nil && uint64(got[0].Contact) < least {
				t.Errorf("an old set was believed: %v after contact %d", got, least)
				return
			}
			if err == nil && uint64(got[0].Contact) > least {
				newest.CompareAndSwap(least, uint64(got[0].Contact))
			}
			if errors.Is(err, index.ErrUnknown) {
				unknown.Store(true)
			}
		}
	}
	for range 4 {
		readers.Go(read)
	}
	m.first(t, 9)
	m.Move(m.promoted)
	for range 32 { // they need more connections
		readers.Go(read)
	}
	servertest.Eventually(t, "a read that finds the data to be old", unknown.Load)
	servertest.Eventually(t, "the connections to the former server to be closed", func() bool { return m.Connections(m.old) == 0 })
	m.watched(t)
	servertest.Eventually(t, "the set to be missing", func() bool {
		_, err := m.Candidates(ctx, user)
		return errors.Is(err, index.ErrMissing)
	})
	m.refill(t, entries(10, 1000))
	servertest.Eventually(t, "a read of the new set", func() bool { return newest.Load() == 10 })
	stop()
	readers.Wait()
}

// A process that needs no new connection finds out by its probe, whether the data where
// the address leads now are old or were made there by others.
func TestAProbeFindsThatTheAddressMoved(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	ctx := t.Context()
	idle := m.process(t)
	must(t, idle.Probe(ctx))
	idle.first(t, 9)
	m.Move(m.promoted)
	if err := m.Probe(ctx); !errors.Is(err, index.ErrUnknown) {
		t.Errorf("probe: %v", err)
	}
	m.watched(t)
	servertest.Eventually(t, "the set to be missing", func() bool {
		_, err := m.Candidates(ctx, user)
		return errors.Is(err, index.ErrMissing)
	})
	m.refill(t, entries(10, 1000))
	idle.first(t, 9) // it was not told yet
	must(t, idle.Probe(ctx))
	idle.first(t, 10)
	servertest.Eventually(t, "the connections to the former server to be closed", func() bool { return m.Connections(m.old) == 0 })
}
