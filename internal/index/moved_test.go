package index_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/redisnodes"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// moving is a server behind a name, such as the primary endpoint of a managed service, and one with
// an older copy of its data: it lacks contact 9.
type moving struct {
	bench
	former, promoted *servertest.Proxy // each before a server, at an address of its own
	old              *redis.Client     // of the former server, past the proxy
	leads            atomic.Pointer[servertest.Proxy]
}

func newMoving(t *testing.T) *moving {
	t.Helper()
	ctx := t.Context()
	open := func(server string) *redis.Client {
		client := redis.NewClient(&redis.Options{Addr: server, Network: "unix"})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	from, to := servertest.Redis(t).Addr(), servertest.Redis(t).Addr()
	m := &moving{former: servertest.NewProxy(t, from), promoted: servertest.NewProxy(t, to), old: open(from)}
	m.leads.Store(m.former)
	m.bench = m.process(t)
	must(t, m.Probe(ctx))
	m.refill(t, ladder(3))
	target := open(to)
	keys, err := m.client.Keys(ctx, "*").Result()
	must(t, err)
	for _, key := range keys {
		must(t, target.Restore(ctx, key, 0, m.client.Dump(ctx, key).Val()).Err())
	}
	m.add(t, 9, 900)
	m.first(t, 9)
	return m
}

// process returns an index over the name, of a process of its own.
func (m *moving) process(t *testing.T) bench {
	t.Helper()
	return newBench(t, &redis.Options{Addr: "primary.example:6379", PipelinePoolSize: -1, Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", m.leads.Load().Addr())
	}}, index.Options{})
}

// first checks which contact comes first.
func (b bench) first(t *testing.T, want uint64) {
	t.Helper()
	if got, err := b.Candidates(t.Context(), user); err != nil || uint64(got[0].Contact) != want {
		t.Fatalf("read: %v, %v, want %d first", got, err, want)
	}
}

// moves are the ways in which a name comes to lead to another server.
var moves = map[string]func(t *testing.T, m *moving){
	"the former server is gone": func(_ *testing.T, m *moving) {
		m.leads.Store(m.promoted)
		m.former.Refuse(true)
		m.former.Cut()
	},
	"the former server is a replica": func(t *testing.T, m *moving) {
		t.Helper()
		m.leads.Store(m.promoted)
		must(t, m.old.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	},
	"the former server is a replica behind the same address": func(t *testing.T, m *moving) {
		t.Helper()
		m.former.Move(m.promoted.Addr())
		must(t, m.old.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	},
	"the former server does not know": func(_ *testing.T, m *moving) { m.leads.Store(m.promoted) },
}

// The primary endpoint of a managed service moves to a server with older data, under reads that
// open connections: it is not believed for an instant, and when its sets are built again the former
// server is read no more.
func TestAnEndpointThatMoves(t *testing.T) {
	t.Parallel()
	for name, move := range moves {
		t.Run(name, func(t *testing.T) {
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
			move(t, m)
			for range 32 { // they need more connections
				readers.Go(read)
			}
			servertest.Eventually(t, "a read that finds the data to be old", func() bool {
				_ = m.client.Ping(ctx).Err() // a connection more, where the reads need none
				return unknown.Load()
			})
			m.watched(t)
			servertest.Eventually(t, "the set to be missing", func() bool {
				_, err := m.Candidates(ctx, user)
				return errors.Is(err, index.ErrMissing)
			})
			servertest.Eventually(t, "the set to be built", func() bool {
				updates, err := m.Begin(ctx, []member.ID{user})
				if err != nil {
					return false
				}
				outcomes, err := m.Apply(ctx, []index.Change{{Update: updates[0], WithRefill: true, Refill: entries(10, 1000)}})
				return err == nil && outcomes[0] == index.Applied
			})
			servertest.Eventually(t, "a read of the new set", func() bool { return newest.Load() == 10 })
			stop()
			readers.Wait()
		})
	}
}

// A process that needs no new connection finds out by its probe that the server is a replica now.
func TestAProbeFindsThatTheServerIsAReplica(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	ctx := t.Context()
	idle := m.process(t)
	must(t, idle.Probe(ctx))
	idle.first(t, 9)
	moves["the former server is a replica"](t, m)
	idle.first(t, 9) // it was not told yet
	servertest.Eventually(t, "a probe that finds the data to be old", func() bool { return errors.Is(idle.Probe(ctx), index.ErrUnknown) })
	if got, err := idle.Candidates(ctx, user); !errors.Is(err, index.ErrUnknown) {
		t.Errorf("an old set is believed: %v, %v", got, err)
	}
	if state, err := idle.StateOf(ctx, user); state != redisnodes.Refusing && state != redisnodes.Unknown {
		t.Errorf("state %s: %v", state, err)
	}
	idle.watched(t)
	servertest.Eventually(t, "the set to be missing", func() bool {
		_, err := idle.Candidates(ctx, user)
		return errors.Is(err, index.ErrMissing)
	})
}

// A name that leads to another server for the time of a single reply, as that of a Sentinel that
// lags behind the others may: that reply is not believed, though the run that is found then is the
// former one.
func TestAnEndpointThatMovesForOneReply(t *testing.T) {
	t.Parallel()
	m := newMoving(t)
	ctx := t.Context()
	m.leads.Store(m.promoted)
	for m.client.PoolStats().IdleConns > 0 { // so that the next read makes a connection
		held := m.client.Conn()
		t.Cleanup(func() { _ = held.Close() })
		must(t, held.Ping(ctx).Err())
	}
	m.client.AddHook(afterPipelines{func(cmds []redis.Cmder) {
		isRead := func(cmd redis.Cmder) bool { return cmd.Name() == "zrevrange" }
		if slices.ContainsFunc(cmds, isRead) && m.leads.CompareAndSwap(m.promoted, m.former) {
			m.promoted.Cut()
			servertest.Eventually(t, "a connection to the former server", func() bool { return m.client.Ping(ctx).Err() == nil })
		}
	}})
	if got, err := m.Candidates(ctx, user); !errors.Is(err, index.ErrUnknown) {
		t.Errorf("an old set is believed: %v, %v", got, err)
	}
	m.first(t, 9)
}

// A name may have several addresses, as where two proxies stand before one server. Connections to
// both are kept.
func TestANameWithSeveralAddresses(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := servertest.Redis(t).Addr()
	proxies := []*servertest.Proxy{servertest.NewProxy(t, server), servertest.NewProxy(t, server)}
	var dials atomic.Int64
	b := newBench(t, &redis.Options{Addr: "primary.example:6379", PipelinePoolSize: -1, Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", proxies[dials.Add(1)%2].Addr())
	}}, index.Options{})
	must(t, b.Probe(ctx))
	b.refill(t, ladder(3))
	servertest.Eventually(t, "reads over connections to both", func() bool {
		before := dials.Load()
		var failed atomic.Bool
		var readers sync.WaitGroup
		for range 16 {
			readers.Go(func() {
				for range 50 {
					if _, err := b.Candidates(ctx, user); err != nil {
						failed.Store(true)
					}
				}
			})
		}
		readers.Wait()
		return !failed.Load() && dials.Load() == before && proxies[0].Connections(server) > 0 && proxies[1].Connections(server) > 0
	})
}
