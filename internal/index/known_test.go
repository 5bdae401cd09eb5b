package index_test

import (
	"context"
	"errors"
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
	"github.com/activityd/activityd/internal/testing/clustertest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

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

// must fails the test with an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A server that starts with older data is not believed for an instant, however it is
// read, and its sets are deleted.
func TestOlderDataAreNeverBelieved(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	b := newBench(t, &redis.Options{Addr: server.Addr(), Network: "unix"}, index.Options{})
	ctx := t.Context()
	must(t, b.Probe(ctx))
	noted := b.LostAt()
	b.refill(t, ladder(3))
	must(t, b.client.Save(ctx).Err())
	b.add(t, 9, 900) // after the save

	reading, stop := context.WithCancel(ctx)
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for reading.Err() == nil {
				if got, err := b.Candidates(reading, user); err == nil && got[0].Contact != 9 {
					t.Errorf("an old set was believed: %v", got)
					return
				}
			}
		})
	}
	must(t, server.Restart(ctx))
	servertest.Eventually(t, "a read that finds the data to be old", func() bool {
		_, err := b.Candidates(ctx, user)
		return errors.Is(err, index.ErrUnknown)
	})
	if sets := b.Index.Look(ctx, []member.ID{user}); !errors.Is(sets[0].Err, index.ErrUnknown) {
		t.Errorf("look: %+v", sets)
	}
	// A process that was not there finds out as well, and one that only reads leaves it so.
	late := newBench(t, &redis.Options{Addr: server.Addr(), Network: "unix"}, index.Options{})
	if _, err := late.Candidates(ctx, user); !errors.Is(err, index.ErrUnknown) {
		t.Errorf("a later process: %v", err)
	}
	if err := late.Probe(ctx); !errors.Is(err, index.ErrUnknown) {
		t.Errorf("probe of a later process: %v", err)
	}
	b.watched(t)
	servertest.Eventually(t, "the loss to be noted", func() bool { return b.LostAt() > noted })
	servertest.Eventually(t, "the set to be missing", func() bool {
		_, err := late.Candidates(ctx, user)
		return errors.Is(err, index.ErrMissing)
	})
	stop()
	readers.Wait()
	must(t, late.Probe(ctx))
	if b.LostAt() <= noted || late.LostAt() != b.LostAt() {
		t.Errorf("lost at %d and %d, was %d", b.LostAt(), late.LostAt(), noted)
	}
	b.refill(t, ladder(3))
	b.holds(t, ladder(3))
}

// A server that is emptied has no sets, and that it was is noted once.
func TestAnEmptiedServerIsNoted(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	b := newBench(t, &redis.Options{Addr: server.Addr(), Network: "unix"}, index.Options{})
	ctx := t.Context()
	must(t, b.Probe(ctx))
	first := b.LostAt()
	must(t, b.Probe(ctx))
	if first == 0 || b.LostAt() != first {
		t.Errorf("lost at %d, then %d: a new server has nothing to lose but once", first, b.LostAt())
	}
	b.refill(t, ladder(3))
	b.client.FlushAll(ctx)
	must(t, b.Probe(ctx))
	second := b.LostAt()
	must(t, server.Restart(ctx)) // without a save
	servertest.Eventually(t, "a probe", func() bool { return b.Probe(ctx) == nil })
	if third := b.LostAt(); second <= first || third <= second {
		t.Errorf("lost at %d, %d, %d", first, second, third)
	}
	if _, err := b.Candidates(ctx, user); !errors.Is(err, index.ErrMissing) {
		t.Errorf("read: %v", err)
	}
}

// Marks that fall show that a server which runs on has older data; the other processes
// are told.
func TestDataThatGoBackAreNotBelieved(t *testing.T) {
	t.Parallel()
	b := newBench(t, &redis.Options{Addr: servertest.Redis(t).Addr(), Network: "unix"}, index.Options{})
	ctx := t.Context()
	b.refill(t, ladder(3))
	must(t, b.Probe(ctx))
	must(t, b.client.Set(ctx, "activityd_mark", 0, 0).Err())
	if err := b.Probe(ctx); !errors.Is(err, index.ErrUnknown) {
		t.Errorf("probe: %v", err)
	}
	late := bench{Index: index.New(b.client, index.Options{Settings: b.Settings()}), client: b.client}
	if _, err := late.Candidates(ctx, user); !errors.Is(err, index.ErrUnknown) {
		t.Errorf("a later process: %v", err)
	}
	late.watched(t)
	servertest.Eventually(t, "the set to be missing", func() bool {
		probe := b.Probe(ctx)
		_, err := b.Candidates(ctx, user)
		return probe == nil && errors.Is(err, index.ErrMissing)
	})
}

// several is an index over three masters, each with a replica where there are replicas,
// and the sets of users.
type several struct {
	bench
	*clustertest.Cluster

	users []member.ID
}

func newSeveral(t *testing.T, replicas int) several {
	t.Helper()
	cluster := servertest.Cluster(t, 3, replicas, "--cluster-node-timeout", "15000")
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs()[:1], ContextTimeoutEnabled: true, MaxRetries: 1, DialerRetries: 1,
		DialTimeout: time.Minute, ReadTimeout: time.Minute, // a machine may stall
	})
	t.Cleanup(func() { _ = client.Close() })
	s := several{bench: bench{Index: index.New(client, index.Options{Settings: settings(t, 10, 20, 0)})}, Cluster: cluster}
	for id := member.ID(1); id <= 300; id++ {
		s.users = append(s.users, id)
	}
	must(t, s.Probe(t.Context()))
	s.fill(t, 3)
	return s
}

// fill refills the sets of all users with a ladder.
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
func (s several) on(t *testing.T, n *clustertest.Node) (users []member.ID) {
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

// A master that is dead fails its own users, and nobody else's.
func TestADeadNodeFailsItsOwnUsers(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 0)
	ctx := t.Context()
	dead := s.Nodes[1]
	theirs := s.on(t, dead)
	if len(theirs) < 50 || len(theirs) > 150 {
		t.Fatalf("%d of 300 users on one of three nodes", len(theirs))
	}
	must(t, dead.Kill())
	right := func(what string, user member.ID, err error) {
		t.Helper()
		if slices.Contains(theirs, user) != errors.Is(err, index.ErrUnavailable) || !slices.Contains(theirs, user) && err != nil {
			t.Errorf("%s for %s: %v", what, user, err)
		}
	}
	for _, contact := range []member.ID{7, 7} { // it comes in, then it rises
		missing, failed := s.Index.Add(ctx, toAll(s.users, index.Entry{Contact: contact, Score: uint64(time.Now().UnixNano() / 1000)}))
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
		if r.Err == nil && r.Outcome != index.Applied {
			t.Errorf("apply for %s: %v", s.users[i], r.Outcome)
		}
	}
	for i, set := range s.Index.Look(ctx, s.users) {
		right("look", s.users[i], set.Err)
	}
	var reads sync.WaitGroup // each of the dead node is tried again after a pause
	for _, user := range s.users {
		reads.Go(func() {
			_, err := s.Candidates(ctx, user)
			right("read", user, err)
		})
	}
	reads.Wait()
	status := s.Index.Probe(ctx)
	if status.Away < 0.3 || status.Away > 0.37 || len(status.Nodes) != 3 || !errors.Is(status.Err(), index.ErrUnavailable) {
		t.Errorf("status %+v", status)
	}
	must(t, dead.Restart(ctx))
	must(t, s.AwaitOK(ctx, s.Nodes...))
	s.watched(t) // it came back empty, or with what it saved
	servertest.Eventually(t, "all sets to be there or missing", func() bool {
		for _, user := range s.users {
			if _, err := s.Candidates(ctx, user); err != nil && !errors.Is(err, index.ErrMissing) {
				return false
			}
		}
		return true
	})
	s.fill(t, 5)
}

// lagging returns a master, its replica, which was killed before contact 9 was added to all
// sets and restarts without it, and the users whose sets lie there.
func (s several) lagging(t *testing.T) (master, replica *clustertest.Node, theirs []member.ID) {
	t.Helper()
	ctx := t.Context()
	master, replica = s.Nodes[0], s.Nodes[3]
	theirs = s.on(t, master)
	servertest.Eventually(t, "the replica to have the sets", func() bool {
		n, err := replica.Client.DBSize(ctx).Result()
		return err == nil && n >= int64(len(theirs))
	})
	must(t, replica.Client.Save(ctx).Err())
	must(t, replica.Kill())
	if _, failed := s.Index.Add(ctx, toAll(s.users, index.Entry{Contact: 9, Score: 900})); len(failed) > 0 {
		t.Fatal(failed)
	}
	return master, replica, theirs
}

// takeOver restarts a replica and makes it the master, though the others do not agree.
func takeOver(t *testing.T, replica *clustertest.Node) {
	t.Helper()
	must(t, replica.Restart(t.Context()))
	servertest.Eventually(t, "the replica to take over", func() bool {
		if replica.Client.Do(t.Context(), "CLUSTER", "FAILOVER", "TAKEOVER").Err() == nil {
			return true
		}
		role, err := replica.Client.Do(t.Context(), "ROLE").Slice()
		return err == nil && role[0] == "master" // the reply to the one before was lost
	})
}

// A replica that takes over without the last writes is not believed for an instant.
func TestAReplicaThatLaggedIsNeverBelieved(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 1)
	ctx := t.Context()
	master, replica, theirs := s.lagging(t)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for reading.Err() == nil {
				for _, user := range s.users {
					got, err := s.Candidates(reading, user)
					if err == nil && got[0].Contact != 9 {
						t.Errorf("an old set was believed: of %s: %v", user, got)
						return
					}
					if err != nil && reading.Err() == nil && !slices.Contains(theirs, user) {
						t.Errorf("a node that lives: %v", err)
						return
					}
				}
			}
		})
	}
	must(t, master.Kill())
	takeOver(t, replica)
	servertest.Eventually(t, "a read that finds the data to be old", func() bool {
		_, err := s.Candidates(ctx, theirs[0])
		return errors.Is(err, index.ErrUnknown)
	})
	s.watched(t)
	servertest.Eventually(t, "the sets of the node to be missing", func() bool {
		for _, user := range theirs {
			if _, err := s.Candidates(ctx, user); !errors.Is(err, index.ErrMissing) {
				return false
			}
		}
		return true
	})
	stop()
	readers.Wait()
	s.fill(t, 5)
}

// Slots that move, with what lies in them beside the sets, are no loss, and hold up
// nothing for long.
func TestMovingSlotsLosesNothing(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 0)
	ctx := t.Context()
	s.watched(t)
	lost := s.LostAt()
	moving, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() {
		for moving.Err() == nil {
			for _, user := range s.users {
				if got, err := s.Candidates(moving, user); moving.Err() == nil && (err != nil || len(got) < 3) {
					t.Errorf("read of %s: %v, %v", user, got, err)
					return
				}
			}
		}
	})
	score := uint64(1000)
	work.Go(func() {
		for ; moving.Err() == nil; score++ {
			missing, failed := s.Index.Add(ctx, toAll(s.users, index.Entry{Contact: 9, Score: score}))
			if len(missing)+len(failed) > 0 {
				t.Errorf("add: missing %v, failed for %d users, as for 1: %v", missing, len(failed), failed[1])
				return
			}
		}
	})
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
	for i, set := range s.Index.Look(ctx, s.users) {
		if set.Err != nil || len(set.Members) != 4 || set.Members[3].Score != score-1 {
			t.Errorf("set of %s: %+v, want the score %d", s.users[i], set, score-1)
		}
	}
	must(t, s.Probe(ctx))
	if s.LostAt() != lost {
		t.Errorf("lost at %d, was %d", s.LostAt(), lost)
	}
}

// A master stalls, a replica that lagged takes over, and before its sets were deleted the
// former master, which follows it now and was never restarted, is the master again.
func TestAFormerMasterWithTheDataOfALaggingReplicaIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 1)
	ctx := t.Context()
	master, replica, theirs := s.lagging(t)
	must(t, master.Pause())
	takeOver(t, replica)
	servertest.Eventually(t, "a probe that finds the data to be old", func() bool {
		return errors.Is(s.Probe(ctx), index.ErrUnknown)
	})
	must(t, master.Resume())
	servertest.Eventually(t, "the former master to answer (Redis 8.0.2 may loop here: docs/setup.md, Servers)", func() bool {
		soon, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return master.Client.Ping(soon).Err() == nil
	})
	must(t, s.AwaitOK(ctx, s.Nodes...))
	servertest.Eventually(t, "the former master to be the master again", func() bool {
		_ = master.Client.Do(ctx, "CLUSTER", "FAILOVER").Err()
		role, err := master.Client.Do(ctx, "ROLE").Slice()
		return err == nil && role[0] == "master"
	})
	must(t, s.AwaitOK(ctx, s.Nodes...))
	servertest.Eventually(t, "the probe to find the former master", func() bool {
		st := s.Index.Probe(ctx)
		return slices.ContainsFunc(st.Nodes, func(n redisnodes.NodeStatus) bool { return n.Node == master.HostPort })
	})
	if got, err := s.Candidates(ctx, theirs[0]); !errors.Is(err, index.ErrUnknown) {
		t.Errorf("an old set is believed: %v, %v", got, err)
	}
}

// Keys of other programs outlive the deletion of old sets.
func TestForeignKeysAreNotDeleted(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	b := newBench(t, &redis.Options{Addr: server.Addr(), Network: "unix"}, index.Options{})
	ctx := t.Context()
	must(t, b.Probe(ctx))
	b.refill(t, ladder(3))
	must(t, b.client.Set(ctx, "user_sessions:42", "the site's", 0).Err())
	must(t, b.client.Save(ctx).Err())
	must(t, server.Restart(ctx))
	b.watched(t)
	servertest.Eventually(t, "the sets to be deleted", func() bool { return b.Probe(ctx) == nil })
	if n := b.client.Exists(ctx, "user_sessions:42").Val(); n != 1 {
		t.Error("a key of another program was deleted after a restart of Redis")
	}
}

// A node that hangs is found to be down by the probe, which ends the calls under way: they
// fail for its users alone. It is tried by probes only, until it answers.
func TestANodeThatHangs(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 0)
	ctx := t.Context()
	hung := s.Nodes[0] // it was asked where the others are, over a connection of its own
	theirs := s.on(t, hung)
	s.watched(t)
	must(t, hung.Pause())
	soon, cancel := context.WithTimeout(ctx, 30*time.Second) // half of the client's own timeout
	defer cancel()
	for range 2 { // the first finds out
		updates := s.Index.Begin(soon, s.users)
		for _, u := range updates {
			if slices.Contains(theirs, u.Member) != errors.Is(u.Err, index.ErrUnavailable) {
				t.Fatalf("begin for %s: %v", u.Member, u.Err)
			}
		}
	}
	if _, err := s.Candidates(ctx, theirs[0]); err == nil || !strings.Contains(err.Error(), "a moment ago") {
		t.Errorf("%v of a node that is known not to answer", err)
	}
	must(t, hung.Resume())
	servertest.Eventually(t, "all nodes to answer", func() bool {
		_, err := s.Begin(ctx, s.users)
		return err == nil
	})
}

// Sentinels promote a replica that lagged: its data are not believed for an instant, nor are
// those of the old master when it wakes up, and takes itself for the master for a while.
func TestSentinelsPromoteAReplicaThatLagged(t *testing.T) {
	t.Parallel()
	w := servertest.Watched(t, 3*time.Second)
	ctx := t.Context()
	o := w.FailoverOptions()
	o.MaxRetries, o.DialerRetries, o.DialTimeout = 1, 1, time.Second
	client := redis.NewFailoverClient(o)
	t.Cleanup(func() { _ = client.Close() })
	b := bench{Index: index.New(client, index.Options{Settings: settings(t, 10, 20, 0)}), client: client}
	must(t, b.Probe(ctx))
	lost := b.LostAt()
	b.refill(t, ladder(3))
	master, replica := w.Nodes[0], w.Nodes[1]
	servertest.Eventually(t, "the replica to have the set", func() bool {
		return replica.Client.ZCard(ctx, index.UserKey(user)).Val() == 3
	})
	must(t, replica.Client.Save(ctx).Err())
	must(t, replica.Kill())
	b.add(t, 9, 900)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	var newest atomic.Uint64 // the contact that comes first
	newest.Store(9)
	var after atomic.Int64 // reads that found the set
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for reading.Err() == nil {
				want := newest.Load()
				if got, err := b.Candidates(reading, user); err == nil && uint64(got[0].Contact) < want {
					t.Errorf("an old set was believed: %v, want %d first", got, want)
					return
				} else if err == nil {
					after.Add(1)
				}
			}
		})
	}
	must(t, master.Pause())
	must(t, replica.Restart(ctx))
	servertest.Eventually(t, "a read that finds the data to be old", func() bool {
		_, err := b.Candidates(ctx, user)
		return errors.Is(err, index.ErrUnknown)
	})
	b.watched(t)
	servertest.Eventually(t, "the set to be missing", func() bool {
		_, err := b.Candidates(ctx, user)
		return errors.Is(err, index.ErrMissing)
	})
	servertest.Eventually(t, "the node to be known", func() bool { return b.Probe(ctx) == nil })
	if b.LostAt() <= lost {
		t.Errorf("lost at %d, was %d", b.LostAt(), lost)
	}
	b.refill(t, entries(10, 1000))
	newest.Store(10)
	after.Store(0)
	must(t, master.Resume())
	servertest.Eventually(t, "reads after the old master woke up", func() bool { return after.Load() > 1000 })
	stop()
	readers.Wait()
}
