package audit_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/clustertest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// threeNodes imitates three nodes: the set of a member lies on the node id modulo 3.
type threeNodes struct {
	*swept
	sets *sets

	mu   sync.Mutex
	lost [3]int64
	away map[int]bool
}

func newThreeNodes(t *testing.T) *threeNodes {
	n := &threeNodes{away: make(map[int]bool)}
	b := newBench(t)
	b.index.FailIf = func(_ string, user member.ID) (bool, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.away[int(user%3)] && user >= 1000 {
			return false, index.ErrUnavailable
		}
		return true, nil
	}
	n.sets = b.index
	n.swept = newSwept(b, 3000, audit.PatrolOptions{Rate: 1, Probes: answering, LostSince: func(user member.ID, at int64) bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return at == 0 || n.lost[user%3] > at
	}})
	for id := member.ID(1000); id < 4000; id++ {
		b.store.SetContact(id, 15, false, false)
	}
	return n
}

// lose makes nodes lose their sets now.
func (n *threeNodes) lose(nodes ...int) {
	for id := member.ID(1000); id < 4000; id++ {
		if slices.Contains(nodes, int(id%3)) {
			n.sets.Forget(id) // not while mu is held, which FailIf locks
		}
	}
	n.mu.Lock()
	for _, node := range nodes {
		n.lost[node] = time.Now().UnixMilli()
	}
	n.mu.Unlock()
	n.ledger.lose()
}

func (n *threeNodes) setAway(node int, away bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.away[node] = away
}

// hasBuilt reports whether a hurried round has ended that built and spared so many.
func (n *threeNodes) hasBuilt(built, unreachable, spared int) bool {
	return strings.Contains(n.log.String(), fmt.Sprintf("built=%d failed=0 unreachable=%d spared=%d ", built, unreachable, spared))
}

// After the loss of one node the sets of the others are skipped, unless they were left out
// when they were lost.
func TestOnlyTheSetsOfALostNodeAreLookedAt(t *testing.T) {
	for name, test := range map[string]struct {
		play func(n *threeNodes, wait func())
		want [][3]int // built, unreachable, spared, of rounds; eleven more members have no sets that are lost
	}{
		"one after the other": {func(n *threeNodes, wait func()) {
			n.lose(1)
			wait()
			n.lose(2)
			wait()
		}, [][3]int{{3000, 0, 0}, {1000, 0, 2007}}},
		"what is kept of the round is lost, too": {func(n *threeNodes, wait func()) {
			n.lose(1)
			n.ledger.set("", 0)
			wait()
		}, [][3]int{{1000, 0, 2007}}},
		"another node is away": {func(n *threeNodes, wait func()) {
			n.setAway(1, true)
			n.lose(1, 2) // noticed, and then the first is away
			wait()
			n.setAway(1, false)
			n.lose(0)
			wait()
		}, [][3]int{{1000, 1000, 1003}, {2000, 0, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newThreeNodes(t)
				wait := func() { <-time.After(5 * time.Minute) }
				n.lose(0, 1, 2)
				stop := running(t, n.patrol.Run)
				wait()
				test.play(n, wait)
				stop()
				for _, w := range test.want {
					if !n.hasBuilt(w[0], w[1], w[2]) {
						t.Errorf("no round built %d, left out %d and spared %d: %s", w[0], w[1], w[2], n.log.String())
					}
				}
				for id := member.ID(1000); id < 4000; id++ {
					if !n.sets.Memory.Look(t.Context(), []member.ID{id})[0].Known {
						t.Fatalf("the set of %s is missing", id)
					}
				}
			})
		})
	}
}

// clustered is a ground whose sets lie in a cluster of three masters, and what is kept of
// the sweep elsewhere.
type clustered struct {
	*ground
	*clustertest.Cluster

	members []member.ID
	mu      sync.Mutex
	looked  map[member.ID]bool // since the last call of seen
}

func newClustered(t *testing.T) *clustered {
	c := &clustered{ground: inMemory(t), Cluster: servertest.Cluster(t, 3, 0), looked: make(map[member.ID]bool)}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
	t.Cleanup(func() { _ = client.Close() })
	c.index = index.New(client, index.Options{Settings: settings(t)})
	c.Auditor = c.auditor(t, time.Millisecond)
	viewers, owners := from(100, 300), from(1000, 20)
	c.members = viewers
	running(t, func(ctx context.Context) error { // Watch has shorter timeouts
		for ctx.Err() == nil {
			c.index.Probe(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
		return nil
	})
	c.settle(t, viewers, owners, 8)
	return c
}

// patrolling begins to sweep.
func (c *clustered) patrolling(t *testing.T) (stop func()) {
	t.Helper()
	builder := &bulk.Builder{Index: c.index, Refiller: &tasks.RefillHandler{Index: c.index, Store: c.store}}
	return running(t, c.patrolOf(record(t), audit.PatrolOptions{
		Rate: 1, LostSince: c.index.LostSince, Log: (&logged{}).logger(),
		Build: func(ctx context.Context, members []member.ID) (bulk.Counts, []member.ID, error) {
			c.mu.Lock()
			for _, id := range members {
				c.looked[id] = true
			}
			c.mu.Unlock()
			return builder.Build(ctx, members)
		},
	}).Run)
}

// awaitBuilt waits until the sets of all viewers are there, and a round has ended that had
// seen the last loss.
func (c *clustered) awaitBuilt(t *testing.T) {
	t.Helper()
	eventually(t, "all sets are there", func() bool {
		sets := c.index.Look(t.Context(), c.members)
		state := c.client.Get(t.Context(), "activityd_{sweep}_state").Val()
		since, lost := audit.SinceOf(state), c.index.LostAt()
		return lost != 0 && since == lost && !slices.ContainsFunc(sets, func(s index.Set) bool { return s.Err != nil || !s.Known })
	})
}

// seen returns the viewers whose sets were looked at since the last call.
func (c *clustered) seen() (looked []member.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range c.members {
		if c.looked[id] {
			looked = append(looked, id)
		}
	}
	clear(c.looked)
	return looked
}

// empty deletes all data of a node, and waits until that is noticed.
func (c *clustered) empty(t *testing.T, n *clustertest.Node) {
	t.Helper()
	lost := c.index.LostAt()
	must(t, n.Client.FlushAll(t.Context()).Err())
	eventually(t, "the loss is noticed", func() bool { return c.index.LostAt() > lost })
}

// on returns the viewers whose sets lie on a node.
func (c *clustered) on(t *testing.T, n *clustertest.Node) (users []member.ID) {
	t.Helper()
	for _, user := range c.members {
		if n.Client.ZCard(t.Context(), index.UserKey(user)).Err() == nil {
			users = append(users, user)
		}
	}
	return users
}

// After a node of a real cluster is emptied, only the sets of that node are looked at and built,
// also if another node is emptied at once; all are, if slots have moved since.
func TestANodeOfAClusterIsBuilt(t *testing.T) {
	c := newClustered(t)
	stop := c.patrolling(t)
	c.awaitBuilt(t)
	c.seen()
	theirs := c.on(t, c.Nodes[1])
	c.empty(t, c.Nodes[1])
	c.awaitBuilt(t)
	if looked := c.seen(); !slices.Equal(looked, theirs) || len(looked) < 50 || len(looked) > 150 {
		t.Errorf("%d sets were looked at, of %d on the node and %d in all", len(looked), len(theirs), len(c.members))
	}

	theirs = append(theirs, c.on(t, c.Nodes[0])...)
	slices.Sort(theirs)
	c.empty(t, c.Nodes[1])
	c.empty(t, c.Nodes[0])
	c.awaitBuilt(t)
	if looked := c.seen(); !slices.Equal(looked, theirs) {
		t.Errorf("%d sets were looked at, of %d on two nodes", len(looked), len(theirs))
	}

	stop()
	last := c.index.LostAt()
	c.empty(t, c.Nodes[2])
	var slots []int
	for slot := 2*16384/3 + 1; len(slots) < 300; slot++ {
		slots = append(slots, slot)
	}
	must(t, c.MoveSlots(t.Context(), c.Nodes[2], c.Nodes[0], slots...))
	must(t, c.AwaitOK(t.Context(), c.Nodes...))
	eventually(t, "the move is noticed", func() bool {
		return !slices.ContainsFunc(c.members, func(user member.ID) bool { return !c.index.LostSince(user, last) })
	})
	c.patrolling(t)
	c.awaitBuilt(t)
	if looked := c.seen(); !slices.Equal(looked, c.members) {
		t.Errorf("%d sets were looked at after slots moved, of %d", len(looked), len(c.members))
	}
}
