package once_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

// losses are what makes a Redis lose data, or go on with older data.
var losses = map[string]struct {
	args       []string // of the server
	replicated bool     // from before the first use
	lose       func(*testing.T, *site)
}{
	"FLUSHALL": {lose: func(t *testing.T, s *site) { t.Helper(); s.must(t, s.client.FlushAll(t.Context()).Err()) }},
	"DEL of the markers": {lose: func(t *testing.T, s *site) {
		t.Helper()
		for i := range 64 {
			s.must(t, s.client.Del(t.Context(), once.MarkerKey(i)).Err())
		}
	}},
	"restart without persistence": {lose: restart},
	"restart with an older snapshot": {lose: func(t *testing.T, s *site) {
		t.Helper()
		s.must(t, s.client.Save(t.Context()).Err())
		s.use(t, 3)
		restart(t, s)
	}},
	"restart with AOF everysec":          {args: []string{"--appendonly", "yes", "--appendfsync", "everysec"}, lose: restart},
	"restart with AOF always":            {args: localserver.AOF, lose: restart},
	"promotion of a replica":             {replicated: true, lose: promote},
	"promotion of a replica that lagged": {replicated: true, lose: func(t *testing.T, s *site) { t.Helper(); s.cut(t); s.use(t, 3); promote(t, s) }},
	"attachment of a replica": {lose: func(t *testing.T, s *site) {
		t.Helper() // which gives the master another id
		s.replicate(t)
	}},
	"demotion and promotion": {lose: func(t *testing.T, s *site) {
		t.Helper()
		s.must(t, s.client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
		s.must(t, s.client.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	}},
}

// site is a Redis that will lose data, and the highest fences of the names in it.
type site struct {
	server  *localserver.Redis
	addr    string // of TCP
	client  *redis.Client
	proxy   *servertest.Proxy // between the replica and the server, if there is one
	replica *redis.Client
	epochs  func(context.Context) (uint64, error)
	highest map[string]once.Fence
}

func (s *site) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// use acquires and ends all names so many times, and checks the fences.
func (s *site) use(t *testing.T, times int) {
	t.Helper()
	store := once.NewRedis(s.client, s.epochs)
	for range times {
		for i := range 100 {
			name := "name" + strconv.Itoa(i)
			if _, err := store.Forget(t.Context(), name, true); err != nil {
				t.Fatal(err)
			}
			r, err := store.Apply(t.Context(), name, once.Operation{Action: once.Acquire, Owner: "me", Terms: terms})
			if err != nil || r.Outcome != once.OK || r.State.Fence <= s.highest[name] {
				t.Fatalf("%s: %+v, %v; the highest fence was %v", name, r, err, s.highest[name])
			}
			s.highest[name] = r.State.Fence
		}
	}
}

// restart kills the server and starts it again, with what is on its disk.
func restart(t *testing.T, s *site) {
	t.Helper()
	s.must(t, errors.Join(s.server.Kill(), s.server.Restart(t.Context())))
}

// replicate starts a replica, and waits until it has all that the server has.
func (s *site) replicate(t *testing.T) {
	t.Helper()
	s.proxy = servertest.NewProxy(t, s.addr)
	s.replica = connect(t, servertest.Redis(t))
	host, port, _ := strings.Cut(s.proxy.Addr(), ":")
	s.must(t, s.replica.Do(t.Context(), "REPLICAOF", host, port).Err())
	s.sync(t)
}

// sync waits until the replica has all that the server has.
func (s *site) sync(t *testing.T) {
	t.Helper()
	offset := func(c *redis.Client) string {
		info := c.Info(t.Context(), "replication").Val()
		_, offset, _ := strings.Cut(info, "\nmaster_repl_offset:")
		offset, _, _ = strings.Cut(offset, "\r")
		return offset
	}
	await(t, func() bool {
		return strings.Contains(s.replica.Info(t.Context(), "replication").Val(), "master_link_status:up") && offset(s.replica) == offset(s.client)
	})
}

// cut cuts the replica off, for good.
func (s *site) cut(t *testing.T) {
	t.Helper()
	s.sync(t)
	s.proxy.Refuse(true)
	s.proxy.Cut()
}

// promote goes on with the replica.
func promote(t *testing.T, s *site) {
	t.Helper()
	s.must(t, s.replica.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	s.client = s.replica
}

// await waits until a condition holds.
func await(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("waited for 30 s")
		}
	}
}

var terms = once.Terms{Lease: time.Hour, Keep: time.Hour, Attempts: 3}

func newSite(t *testing.T, args []string, replicated bool, epochs func(context.Context) (uint64, error)) *site {
	t.Helper()
	host, port := servertest.FreePort(t)
	server := servertest.Redis(t, append([]string{"--bind", host, "--port", port}, args...)...)
	s := &site{server: server, addr: net.JoinHostPort(host, port), client: connect(t, server), epochs: epochs, highest: make(map[string]once.Fence)}
	if replicated {
		s.replicate(t)
	}
	return s
}

// Whatever is lost, the fences go on rising, by themselves if there is a counter of
// epochs.
func TestRedisLosses(t *testing.T) {
	t.Parallel()
	for name, loss := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, loss.args, loss.replicated, counter())
			s.use(t, 2)
			loss.lose(t, s)
			s.use(t, 2)
		})
	}
}

// Without a counter no fence is given after a loss, until an epoch is begun.
func TestRedisLossesWithoutCounter(t *testing.T) {
	t.Parallel()
	for name, loss := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, loss.args, loss.replicated, nil)
			refused := func() {
				t.Helper()
				for range 2 {
					for i := range 100 {
						r, err := once.NewRedis(s.client, nil).Apply(t.Context(), "fresh"+strconv.Itoa(i), once.Operation{Action: once.Acquire, Owner: "me", Terms: terms})
						if !errors.Is(err, once.ErrNoEpoch) || errors.Is(err, once.ErrUnavailable) || r != (once.Reply{}) || !strings.Contains(err.Error(), "begin-epoch") {
							t.Fatalf("%+v, %v, want ErrNoEpoch", r, err)
						}
					}
				}
			}
			begin := func() uint64 {
				t.Helper()
				epoch, begun, err := once.NewRedis(s.client, nil).BeginEpoch(t.Context())
				if err != nil || len(begun) != 64 || epoch == 0 {
					t.Fatalf("%v, %v, %v", epoch, begun, err)
				}
				if _, again, err := once.NewRedis(s.client, nil).BeginEpoch(t.Context()); err != nil || len(again) != 0 {
					t.Fatalf("begun again: %v, %v", again, err)
				}
				return epoch
			}
			refused()
			first := begin()
			s.use(t, 2)
			loss.lose(t, s)
			refused()
			if second := begin(); second <= first {
				t.Errorf("epoch %d after %d", second, first)
			}
			s.use(t, 2)
		})
	}
}

// A lost state is no lost marker: fences go on.
func TestRedisLosesStates(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil, false, nil)
	if _, _, err := once.NewRedis(s.client, nil).BeginEpoch(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.use(t, 1)
		for name := range s.highest {
			s.must(t, s.client.Del(t.Context(), once.StateKey(name)).Err())
		}
	}
}

// When the sequence numbers are used up, another epoch is needed.
func TestRedisSequenceEnds(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Redis(t))
	store := once.NewRedis(client, counter())
	var fences []once.Fence
	for range 4 {
		if _, err := store.Forget(t.Context(), "a", true); err != nil {
			t.Fatal(err)
		}
		r, err := store.Apply(t.Context(), "a", once.Operation{Action: once.Acquire, Owner: "me", Terms: terms})
		if err != nil {
			t.Fatal(err)
		}
		if fences = append(fences, r.State.Fence); len(fences) == 1 {
			if err := client.HSet(t.Context(), once.MarkerKey(once.BucketOf("a")), "seq", 1<<31-2).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if want := []once.Fence{1<<31 | 1, 1<<31 | (1<<31 - 1), 2<<31 | 1, 2<<31 | 2}; !slices.Equal(fences, want) {
		t.Errorf("fences %v, want %v", fences, want)
	}
	if err := client.HSet(t.Context(), once.MarkerKey(once.BucketOf("a")), "seq", 1<<31-1).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := store.Forget(t.Context(), "a", true)
	r, err2 := once.NewRedis(client, nil).Apply(t.Context(), "a", once.Operation{Action: once.Acquire, Owner: "me", Terms: terms})
	if err != nil || !errors.Is(err2, once.ErrNoEpoch) {
		t.Errorf("%v, %+v, %v", err, r, err2)
	}
	if _, begun, err := store.BeginEpoch(t.Context()); err != nil || !slices.Equal(begun, []int{once.BucketOf("a")}) {
		t.Errorf("begun: %v, %v", begun, err)
	}
}

// Many processes that find the data lost begin epochs at the same time.
func TestRedisBeginTogether(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	epochs := counter()
	var mu sync.Mutex
	highest := make(map[string]once.Fence)
	for range 10 {
		if err := connect(t, server).FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		before := make(map[string]once.Fence)
		maps.Copy(before, highest)
		var all sync.WaitGroup
		for process := range 4 {
			store := once.NewRedis(connect(t, server), epochs)
			for g := range 4 {
				all.Go(func() {
					name := "name" + strconv.Itoa(g)
					r, err := store.Apply(t.Context(), name, once.Operation{Action: once.Acquire, Owner: strconv.Itoa(process), Terms: terms})
					if err != nil || r.State.Fence <= before[name] {
						t.Errorf("%s: %+v, %v; the highest fence was %v", name, r, err, before[name])
					}
					mu.Lock()
					defer mu.Unlock()
					highest[name] = max(highest[name], r.State.Fence)
				})
			}
		}
		all.Wait()
	}
}

// The same without a counter: each bucket has one epoch in the end.
func TestRedisBeginByHandTogether(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	total := make([]int, 64)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			_, begun, err := once.NewRedis(connect(t, server), nil).BeginEpoch(t.Context())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, bucket := range begun {
				total[bucket]++
			}
		})
	}
	all.Wait()
	s := &site{client: connect(t, server), highest: make(map[string]once.Fence)}
	s.use(t, 2)
	if slices.Contains(total, 0) {
		t.Errorf("buckets were begun so many times: %v", total)
	}
}

// TestPropertyEpochs sends the scripts that begin an epoch late, twice and in any order,
// between losses of all kinds, and checks that no fence goes back.
func TestPropertyEpochs(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Redis(t))
	store := once.NewRedis(client, nil)
	ctx, name := t.Context(), "a"
	marker := []string{once.MarkerKey(once.BucketOf(name))}
	must := func(t *rapid.T, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		must(t, client.FlushAll(ctx).Err())
		type begin struct {
			nonce string
			epoch int // 0: not allocated
		}
		var begins []begin
		var dumps []string
		highest, allocated, prepared := once.Fence(0), 0, 0
		promote := func() { // as a restart does, with the data that there are
			must(t, client.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err())
			must(t, client.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
		}
		prepare := func(random string) (nonce string) {
			reply, err := once.PrepareScript.Run(ctx, client, marker, random).StringSlice()
			must(t, err)
			return reply[0]
		}
		bind := func(b begin) { must(t, once.BindScript.Run(ctx, client, marker, b.nonce, b.epoch).Err()) }
		for range rapid.IntRange(10, 100).Draw(t, "steps") {
			switch step := rapid.IntRange(0, 14).Draw(t, "step"); {
			case step == 0:
				must(t, client.FlushAll(ctx).Err())
			case step == 1:
				must(t, client.Del(ctx, marker...).Err())
			case step == 2:
				promote()
			case step == 3: // a snapshot
				dump, err := client.Dump(ctx, marker[0]).Result()
				if err != nil && !errors.Is(err, redis.Nil) {
					t.Fatal(err)
				}
				dumps = append(dumps, dump)
			case step == 4 && len(dumps) > 0: // a restart with a snapshot
				dump := rapid.SampledFrom(dumps).Draw(t, "dump")
				must(t, client.FlushAll(ctx).Err())
				if dump != "" {
					must(t, client.RestoreReplace(ctx, marker[0], 0, dump).Err())
				}
				promote()
			case step <= 6: // a client prepares, perhaps by a script that was sent before
				random := rapid.IntRange(max(0, prepared-2), prepared+1).Draw(t, "random")
				prepared = max(prepared, random)
				if nonce := prepare(fmt.Sprint("late ", random)); nonce != "" {
					begins = append(begins, begin{nonce: nonce})
				}
			case step <= 8: // it allocates an epoch
				for i := range begins {
					if begins[i].epoch == 0 {
						allocated++
						begins[i].epoch = allocated
						break
					}
				}
			case step <= 11: // it binds it, perhaps late, perhaps again
				if len(begins) > 0 {
					if b := begins[rapid.IntRange(max(0, len(begins)-5), len(begins)-1).Draw(t, "begin")]; b.epoch != 0 {
						bind(b)
					}
				}
			default: // all at once
				allocated++
				if nonce := prepare(fmt.Sprint("client ", allocated)); nonce != "" {
					bind(begin{nonce, allocated})
				}
			}
			_, err := store.Forget(ctx, name, true)
			must(t, err)
			r, err := store.Apply(ctx, name, once.Operation{Action: once.Acquire, Owner: "me", Terms: terms})
			if errors.Is(err, once.ErrNoEpoch) {
				continue
			}
			if err != nil || r.Outcome != once.OK || r.State.Fence <= highest {
				t.Fatalf("%+v, %v; the highest fence was %v", r, err, highest)
			}
			highest = r.State.Fence
		}
	})
}

// A counter that fails, or that has lost data itself, begins no epoch.
func TestRedisBadCounter(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Redis(t))
	apply := func(epochs func(context.Context) (uint64, error)) error {
		t.Helper()
		if err := client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
			t.Fatal(err)
		}
		_, err := once.NewRedis(client, epochs).Apply(t.Context(), "a", once.Operation{Action: once.Acquire, Owner: "me", Terms: terms})
		return err
	}
	constant := func(n uint64) func(context.Context) (uint64, error) {
		return func(context.Context) (uint64, error) { return n, nil }
	}
	down := fmt.Errorf("%w: mysql is away", once.ErrUnavailable)
	if err := apply(func(context.Context) (uint64, error) { return 0, down }); !errors.Is(err, once.ErrNoEpoch) || !errors.Is(err, once.ErrUnavailable) || !errors.Is(err, down) {
		t.Errorf("failing: %v", err)
	}
	for _, n := range []uint64{0, 1 << 32, 1 << 63} {
		if err := apply(constant(n)); !errors.Is(err, once.ErrNoEpoch) {
			t.Errorf("%d: %v", n, err)
		}
	}
	if err := apply(constant(7)); err != nil {
		t.Error(err)
	}
	for _, n := range []uint64{7, 6, 1} {
		_, err := once.NewRedis(client, nil).Forget(t.Context(), "a", true)
		if err := errors.Join(err, apply(constant(n))); !errors.Is(err, once.ErrNoEpoch) || !strings.Contains(err.Error(), "not above 7") {
			t.Errorf("%d after 7: %v", n, err)
		}
	}
	if err := apply(constant(8)); err != nil {
		t.Error(err)
	}
	_, err := once.NewRedis(client, nil).Forget(t.Context(), "a", true)
	if err := errors.Join(err, apply(constant(1<<32-1))); err != nil {
		t.Error(err)
	}
	// A clock that is behind the last epoch begins none, either.
	if err := client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	if _, begun, err := once.NewRedis(client, nil).BeginEpoch(t.Context()); !errors.Is(err, once.ErrNoEpoch) || len(begun) > 0 || !strings.Contains(err.Error(), "clock") {
		t.Errorf("begun by the clock: %v, %v", begun, err)
	}
}
