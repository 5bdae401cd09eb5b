package index_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/redisnodes"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// must fails the test with an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// watched runs Watch until the test ends.
func (b bench) watched(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Watch(ctx, func(time.Time, redisnodes.Status) {}) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// becomes waits until a read of the set ends with an error; nil: with none.
func (b bench) becomes(t *testing.T, want error) {
	t.Helper()
	servertest.Eventually(t, "a read that ends otherwise", func() bool {
		_, err := b.Candidates(t.Context(), user)
		return errors.Is(err, want) || errors.Is(err, index.ErrBehind) && want == nil
	})
}

// neverOld reads the set until the caller calls stop. stop fails the test if a read returned a set
// whose first contact is not the given contact. It reads from many goroutines, so that the client
// makes connections.
func (b bench) neverOld(t *testing.T, contact member.ID) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for ctx.Err() == nil {
				if got, err := b.Candidates(ctx, user); len(got) > 0 && got[0].Contact < contact {
					t.Errorf("an old set was believed: %v, %v", got, err)
					return
				}
			}
		})
	}
	return func() { cancel(); readers.Wait() }
}

// rebuild builds the set again as soon as it can be, of a contact that is newer than all.
func (b bench) rebuild(t *testing.T) {
	t.Helper()
	servertest.Eventually(t, "the set to be built again", func() bool {
		updates, err := b.Begin(t.Context(), []member.ID{user})
		if err != nil || updates[0].Known {
			return false
		}
		outcomes, err := b.Apply(t.Context(), []index.Change{{Update: updates[0], WithRefill: true, Refill: entries(99, 9900)}})
		return err == nil && outcomes[0] == index.Applied
	})
	b.becomes(t, nil)
}

// No read believes a server that starts again, empty or with a snapshot. A server that was only
// paused loses nothing. The keys of other programs stay.
func TestAServerThatStartsAgain(t *testing.T) {
	t.Parallel()
	for _, isSaved := range []bool{false, true} {
		for _, isHung := range []bool{false, true} { // before it dies
			t.Run("", func(t *testing.T) {
				t.Parallel()
				server := servertest.Redis(t)
				b := newBench(t, &redis.Options{Addr: server.Addr(), Network: "unix"}, index.Options{})
				ctx := t.Context()
				b.refill(t, ladder(3))
				b.watched(t)
				must(t, b.client.Set(ctx, "user_sessions:42", "the site's", 0).Err())
				if isSaved {
					must(t, b.client.Save(ctx).Err())
				}
				b.add(t, 9, 900)
				lost, stop := b.LostAt(), b.neverOld(t, 9)
				if isHung {
					must(t, server.Pause())
					b.becomes(t, index.ErrUnavailable)
					must(t, server.Resume())
					b.becomes(t, nil)
					must(t, server.Pause())
					b.becomes(t, index.ErrUnavailable)
				}
				must(t, server.Restart(ctx))
				b.becomes(t, index.ErrMissing)
				servertest.Eventually(t, "the loss to be noted", func() bool { return b.LostAt() > lost }) // by the next probe
				b.rebuild(t)
				stop()
				if n := b.client.Exists(ctx, "user_sessions:42").Val(); (n == 1) != isSaved {
					t.Error("a key of another program was deleted")
				}
			})
		}
	}
}

// A server that is emptied in place keeps its connections. The next probe deletes the sets made
// before it, and an update that began before finishes nothing.
func TestAServerThatIsEmptied(t *testing.T) {
	t.Parallel()
	b := newBench(t, &redis.Options{Addr: servertest.Redis(t).Addr(), Network: "unix"}, index.Options{})
	b.refill(t, ladder(3))
	lost := b.LostAt()
	under := b.begin(t)
	must(t, b.client.FlushAll(t.Context()).Err())
	if !b.add(t, 9, 900) {
		t.Error("an add made a set")
	}
	if got := b.apply(t, index.Change{Update: under, WithRefill: true, Refill: ladder(3)}); got != index.Conflict {
		t.Errorf("an update that began before: %v", got)
	}
	b.refill(t, ladder(2))
	b.first(t, 2)
	must(t, b.Probe(t.Context()))
	b.becomes(t, index.ErrMissing)
	if b.LostAt() <= lost {
		t.Error("the loss was not noted")
	}
	late := newBench(t, b.client.Options(), index.Options{})
	late.rebuild(t)
	b.first(t, 99)
}

// first fails the test unless the contact comes first.
func (b bench) first(t *testing.T, want uint64) {
	t.Helper()
	if got, err := b.Candidates(t.Context(), user); err != nil && !errors.Is(err, index.ErrBehind) || uint64(got[0].Contact) != want {
		t.Fatalf("read: %v, %v, want %d first", got, err, want)
	}
}

// Reads and tasks know within a probe of a server that cannot be used, and go on when it can.
func TestAServerThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change, back, reason string
		reads                bool // the sets are read
	}{
		"full":             {"CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0", "OOM", true},
		"no replicas":      {"CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0", "NOREPLICAS", true},
		"a replica":        {"REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE", "replica", false},
		"wrong password":   {"ACL SETUSER app resetpass >other", "ACL SETUSER app >right", "password", false},
		"no user":          {"ACL SETUSER app off", "ACL SETUSER app on", "password", false},
		"a write of it":    {"ACL SETUSER app -zadd", "ACL SETUSER app +zadd", "ACL", true},
		"hides its run":    {"ACL SETUSER app -info", "ACL SETUSER app +info", "ACL", false},
		"other settings":   {"SET activityd_settings need=7", "DEL activityd_settings", "other settings", false},
		"a foreign string": {"SET activityd_settings x", "DEL activityd_settings", "other settings", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servertest.Redis(t)
			client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Addr()})
			t.Cleanup(func() { _ = client.Close() })
			admin := client.Conn()
			do(t, admin, "ACL SETUSER app on >right ~* &* +@all")
			b := newBench(t, &redis.Options{Network: "unix", Addr: server.Addr(), Username: "app", Password: "right"}, index.Options{})
			b.refill(t, ladder(3))
			b.watched(t)
			do(t, admin, c.change)
			_ = admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err()
			servertest.Eventually(t, "the state to be known", func() bool {
				_, err := b.Usable(t.Context(), "user_1")
				return err != nil && strings.Contains(redisnodes.Reason(err), c.reason)
			})
			got, err := b.Candidates(t.Context(), user)
			if (len(got) > 0) != c.reads || c.reads != errors.Is(err, index.ErrBehind) {
				t.Errorf("read: %v, %v", got, err)
			}
			if n := admin.Exists(t.Context(), "user_probe").Val(); n != 0 {
				t.Error("a probe left a set")
			}
			do(t, admin, c.back)
			servertest.Eventually(t, "it can be used again", func() bool {
				_, err := b.Begin(t.Context(), []member.ID{user})
				return err == nil
			})
		})
	}
}

func do(t *testing.T, admin *redis.Conn, command string) {
	t.Helper()
	var args []any
	for word := range strings.FieldsSeq(command) {
		args = append(args, word)
	}
	if err := admin.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
}

// A name comes to lead to another server, and a process sees it late: the late process wrote to the
// former server meanwhile. The sets of the early process lack that write, so no read believes them.
func TestANameThatLeadsElsewhereForOneProcessFirst(t *testing.T) {
	t.Parallel()
	servers := [2]string{servertest.Redis(t).Addr(), servertest.Redis(t).Addr()}
	var leads [2]atomic.Int32
	var processes [2]bench
	for i := range processes {
		processes[i] = newBench(t, &redis.Options{Addr: "primary.example:6379", Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", servers[leads[i].Load()])
		}}, index.Options{})
	}
	early, late := processes[0], processes[1]
	early.refill(t, ladder(3))
	leads[0].Store(1)
	_ = early.Probe(t.Context())
	early.rebuild(t)
	if late.add(t, 100, 10000) {
		t.Fatal("the former server has no set")
	}
	leads[1].Store(1)
	_ = late.Probe(t.Context())
	early.becomes(t, index.ErrMissing)
	late.rebuild(t)
	_, _ = early.Probe(t.Context()), late.Probe(t.Context())
	early.first(t, 99)
	late.first(t, 99)
}

// A name, as the primary endpoint of a managed service, comes to lead to a server with an older
// copy of the data. Then it leads back to the former server, whose data are old by then.
func TestANameThatLeadsElsewhere(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	var servers [2]*servertest.Proxy
	var clients [2]*redis.Client
	for i := range servers {
		server := servertest.Redis(t).Addr()
		servers[i], clients[i] = servertest.NewProxy(t, server), redis.NewClient(&redis.Options{Addr: server, Network: "unix"})
		t.Cleanup(func() { _ = clients[i].Close() })
	}
	var leads atomic.Pointer[servertest.Proxy]
	leads.Store(servers[0])
	b := newBench(t, &redis.Options{Addr: "primary.example:6379", Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", leads.Load().Addr())
	}}, index.Options{})
	b.refill(t, ladder(3))
	for _, key := range clients[0].Keys(ctx, "*").Val() {
		must(t, clients[1].Restore(ctx, key, 0, clients[0].Dump(ctx, key).Val()).Err())
	}
	b.add(t, 9, 900)
	b.watched(t)
	for i := range 3 { // 1, 0, 1
		to := (i + 1) % 2
		for range 2 { // connections that are open go on, or end
			leads.Store(servers[to])
			if i == 1 {
				servers[0].Cut()
			}
		}
		b.becomes(t, index.ErrMissing)
		if got := clients[to].Exists(ctx, index.UserKey(user)).Val(); got != 0 {
			t.Error("the old set was not deleted")
		}
		b.rebuild(t)
		if got := clients[to].Exists(ctx, index.UserKey(user)).Val(); got != 1 {
			t.Error("the set was built elsewhere")
		}
	}
}

// Sentinels promote a replica that lagged: no read believes its data, nor the data of the old
// master when it wakes up, and takes itself for the master for a while.
func TestSentinelsPromoteAReplicaThatLagged(t *testing.T) {
	t.Parallel()
	w := servertest.NewWatched(t, 3*time.Second)
	ctx := t.Context()
	o := w.FailoverOptions()
	o.MaxRetries, o.DialerRetries, o.DialTimeout = 1, 1, time.Second
	client := redis.NewFailoverClient(o)
	t.Cleanup(func() { _ = client.Close() })
	b := bench{Index: index.New(client, index.Options{Settings: settings(t, 10, 20, 0)}), client: client}
	b.refill(t, ladder(3))
	b.watched(t)
	master, replica := w.Nodes[0], w.Nodes[1]
	servertest.Eventually(t, "the replica to have the set", func() bool {
		return replica.Client.ZCard(ctx, index.UserKey(user)).Val() == 3
	})
	must(t, replica.Client.Save(ctx).Err())
	must(t, replica.Kill())
	b.add(t, 9, 900)
	stop := b.neverOld(t, 9)
	must(t, master.Pause())
	must(t, replica.Restart(ctx))
	b.becomes(t, index.ErrMissing)
	b.rebuild(t)
	stop()
	stop = b.neverOld(t, 99)
	must(t, master.Resume())
	servertest.Eventually(t, "the former master to follow", func() bool {
		role, err := master.Client.Do(ctx, "ROLE").Slice()
		return err == nil && role[0] == "slave"
	})
	b.becomes(t, nil)
	stop()
}

// several is an index over three masters, each with a replica if there are replicas,
// and the sets of users.
type several struct {
	bench
	*servertest.Cluster

	users []member.ID
}

func newSeveral(t *testing.T, replicas int) several {
	t.Helper()
	cluster := servertest.NewCluster(t, 3, replicas, "--cluster-node-timeout", "15000")
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()[:1], DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	s := several{bench: bench{Index: index.New(client, index.Options{Settings: settings(t, 10, 20, 0)})}, Cluster: cluster}
	for id := member.ID(1); id <= 300; id++ {
		s.users = append(s.users, id)
	}
	must(t, s.Probe(t.Context()))
	s.watched(t)
	s.fill(t, 3)
	return s
}

// fill makes the sets of all users a ladder.
func (s several) fill(t *testing.T, n uint64) {
	t.Helper()
	updates, err := s.Begin(t.Context(), s.users)
	must(t, err)
	var changes []index.Change
	for _, u := range updates {
		changes = append(changes, index.Change{Update: u, WithRefill: true, Refill: ladder(n)})
	}
	outcomes, err := s.Apply(t.Context(), changes)
	if err != nil || slices.Contains(outcomes, index.Conflict) {
		t.Fatalf("apply: %v, %v", outcomes, err)
	}
}

// on returns the users whose set lies on a node.
func (s several) on(t *testing.T, n *servertest.Node) (users []member.ID) {
	t.Helper()
	for _, user := range s.users {
		_, err := n.Client.ZCard(t.Context(), index.UserKey(user)).Result()
		switch {
		case err == nil:
			users = append(users, user)
		case !redis.HasErrorPrefix(err, "MOVED"):
			t.Fatal(err)
		}
	}
	return users
}

// become waits until reads of the sets of users end with an error; nil: with none.
func (s several) become(t *testing.T, users []member.ID, want error) {
	t.Helper()
	servertest.Eventually(t, "reads that end otherwise", func() bool {
		return !slices.ContainsFunc(users, func(user member.ID) bool {
			_, err := s.Candidates(t.Context(), user)
			return !errors.Is(err, want) && (want != nil || !errors.Is(err, index.ErrBehind))
		})
	})
}

// A master that is dead, or hangs, fails its own users, and nobody else's.
func TestANodeThatIsAwayFailsItsOwnUsers(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"killed": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSeveral(t, 0)
			ctx := t.Context()
			away := s.Nodes[1]
			theirs := s.on(t, away)
			if hangs {
				must(t, away.Pause())
			} else {
				must(t, away.Kill())
			}
			right := func(what string, user member.ID, err error) {
				t.Helper()
				if slices.Contains(theirs, user) != errors.Is(err, index.ErrUnavailable) || !slices.Contains(theirs, user) && err != nil {
					t.Errorf("%s for %s: %v", what, user, err)
				}
			}
			for range 3 { // the first finds out
				missing, failed := s.Index.Add(ctx, toAll(s.users, index.Entry{Contact: 7, Score: uint64(time.Now().UnixNano() / 1000)}))
				if len(missing) > 0 {
					t.Errorf("missing %v", missing)
				}
				for _, user := range s.users {
					right("add", user, failed[user])
				}
			}
			var changes []index.Change
			for _, u := range s.Index.Begin(ctx, s.users) {
				right("begin", u.Member, u.Err)
				changes = append(changes, index.Change{Update: u})
			}
			for i, r := range s.Index.Apply(ctx, changes) {
				right("apply", s.users[i], r.Err)
			}
			for i, set := range s.Index.Look(ctx, s.users) {
				right("look", s.users[i], set.Err)
			}
			began := time.Now()
			for _, user := range s.users {
				_, err := s.Candidates(ctx, user)
				right("read", user, err)
			}
			if took := time.Since(began); took > redisnodes.CallTimeout {
				t.Errorf("reads took %v: the node is tried each time", took)
			}
			if status := s.Status(ctx); status.Away < 0.3 || status.Away > 0.37 || len(status.Nodes) != 3 || !errors.Is(status.Err(), index.ErrUnavailable) {
				t.Errorf("status %+v", status)
			}
			if hangs {
				must(t, away.Resume())
				s.become(t, s.users, nil)
			} else {
				must(t, away.Restart(ctx))
				s.become(t, theirs, index.ErrMissing)
			}
			servertest.Eventually(t, "all can be written", func() bool {
				_, err := s.Begin(ctx, s.users)
				return err == nil
			})
			s.fill(t, 5)
		})
	}
}

// takeOver restarts a replica and makes it the master, though its peers do not agree.
func takeOver(t *testing.T, replica *servertest.Node) {
	t.Helper()
	must(t, replica.Restart(t.Context()))
	servertest.Eventually(t, "the replica to take over", func() bool {
		if replica.Client.Do(t.Context(), "CLUSTER", "FAILOVER", "TAKEOVER").Err() == nil {
			return true
		}
		role, err := replica.Client.Do(t.Context(), "ROLE").Slice()
		return err == nil && role[0] == "master" // the reply to the previous attempt was lost
	})
}

// A replica that takes over without the last writes is not believed for an instant; nor is the former master with its
// data, when it comes back, follows, and becomes the master again.
func TestAReplicaThatLaggedTakesOver(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"killed": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSeveral(t, 1)
			ctx := t.Context()
			master, replica := s.Nodes[0], s.Nodes[3]
			theirs := s.on(t, master)
			servertest.Eventually(t, "the replica to have the sets", func() bool {
				n, err := replica.Client.DBSize(ctx).Result()
				return err == nil && n >= int64(len(theirs))
			})
			must(t, replica.Client.Save(ctx).Err())
			must(t, replica.Kill())
			if _, failed := s.Index.Add(ctx, toAll(s.users, index.Entry{Contact: 9, Score: 900})); len(failed) > 0 {
				t.Fatal(failed)
			}
			var readers sync.WaitGroup
			reading, stop := context.WithCancel(ctx)
			defer stop()
			for range 4 {
				readers.Go(func() {
					for reading.Err() == nil {
						for _, user := range s.users {
							if got, err := s.Candidates(reading, user); len(got) > 0 && got[0].Contact != 9 {
								t.Errorf("an old set was believed: of %s: %v, %v", user, got, err)
								return
							}
						}
					}
				})
			}
			if hangs {
				must(t, master.Pause())
			} else {
				must(t, master.Kill())
			}
			takeOver(t, replica)
			s.become(t, theirs, index.ErrMissing)
			stop()
			readers.Wait()
			if hangs {
				must(t, master.Resume())
			} else {
				must(t, master.Restart(ctx))
			}
			s.AwaitOK(t)
			s.fill(t, 5)
			servertest.Eventually(t, "the former master to be the master again", func() bool {
				_ = master.Client.Do(ctx, "CLUSTER", "FAILOVER").Err()
				role, err := master.Client.Do(ctx, "ROLE").Slice()
				return err == nil && role[0] == "master"
			})
			s.AwaitOK(t)
			servertest.Eventually(t, "all can be written", func() bool {
				_, err := s.Begin(ctx, s.users)
				return err == nil
			})
			s.fill(t, 6)
		})
	}
}

// Slots move under traffic, with the keys beside the sets: no probe takes that for a loss.
func TestMovingSlotsLosesNothing(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 0)
	ctx := t.Context()
	lost := s.LostAt()
	moving, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	score := uint64(1000)
	work.Go(func() {
		for ; moving.Err() == nil; score++ {
			todo := toAll(s.users, index.Entry{Contact: 9, Score: score})
			for len(todo) > 0 {
				missing, failed := s.Index.Add(ctx, todo)
				if len(missing) > 0 {
					t.Errorf("missing %v", missing)
					return
				}
				todo = slices.DeleteFunc(todo, func(a index.Addition) bool { return failed[a.Member] == nil })
			}
		}
	})
	for range 2 {
		work.Go(func() {
			for moving.Err() == nil {
				for _, user := range s.users {
					got, err := s.Candidates(moving, user)
					if moving.Err() == nil && err != nil && !errors.Is(err, index.ErrUnavailable) || err == nil && len(got) < 3 {
						t.Errorf("read of %s: %v, %v", user, got, err)
						return
					}
				}
			}
		})
	}
	for _, step := range [][2]int{{0, 1}, {1, 2}} {
		var slots []int
		first := (step[0]*16384 + 2) / 3
		for slot := first; slot < first+500; slot++ {
			slots = append(slots, slot)
		}
		must(t, s.MoveSlots(ctx, s.Nodes[step[0]], s.Nodes[step[1]], slots...))
	}
	stop()
	work.Wait()
	servertest.Eventually(t, "all sets to be as they were written", func() bool {
		return !slices.ContainsFunc(s.Index.Look(ctx, s.users), func(set index.Set) bool {
			return set.Err != nil || len(set.Members) != 4 || set.Members[3].Score != score-1
		})
	})
	if must(t, s.Probe(ctx)); s.LostAt() != lost {
		t.Errorf("lost at %d, was %d", s.LostAt(), lost)
	}
	if sets, err := s.Reset(ctx); err != nil || sets != 300 {
		t.Errorf("reset: %d sets, %v", sets, err)
	}
}
