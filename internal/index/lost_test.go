package index_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/clustertest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// empty deletes all data of a node and returns when that was noted.
func (s several) empty(t *testing.T, n *clustertest.Node) (lost int64) {
	t.Helper()
	before := s.LostAt()
	must(t, n.Client.FlushAll(t.Context()).Err())
	s.settled(t)
	if s.LostAt() <= before {
		t.Fatal("the loss was not noted")
	}
	return s.LostAt()
}

// settled waits until a probe finds nothing new.
func (s several) settled(t *testing.T) {
	t.Helper()
	servertest.Eventually(t, "a probe that finds nothing new", func() bool {
		before := s.LostAt()
		return s.Index.Probe(t.Context()).Err() == nil && s.LostAt() == before
	})
}

// lostSince compares what may be lost with what a test says.
func (s several) lostSince(t *testing.T, what string, at int64, want ...[]member.ID) {
	t.Helper()
	all := slices.Concat(want...)
	for _, user := range s.users {
		if got := s.LostSince(user, at); got != slices.Contains(all, user) {
			t.Errorf("%s: of %s the set may be lost: %v", what, user, got)
			return
		}
	}
}

// What one node lost, or another one after it, is known of its own users, until slots move.
func TestWhoseSetsMayBeLost(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 0)
	ctx := t.Context()
	s.settled(t)
	on := [][]member.ID{s.on(t, s.Nodes[0]), s.on(t, s.Nodes[1]), s.on(t, s.Nodes[2])}
	first := s.LostAt()
	s.lostSince(t, "none was lost since", first)
	s.lostSince(t, "ever", 0, s.users)

	second := s.empty(t, s.Nodes[1])
	s.lostSince(t, "the second node was emptied", first, on[1])
	third := s.empty(t, s.Nodes[2])
	s.lostSince(t, "two nodes were emptied", first, on[1], on[2])
	s.lostSince(t, "the third node was emptied last", second, on[2])

	// A process that came later does not know what was where.
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	late := several{bench: bench{Index: index.New(client, index.Options{Settings: s.Settings()})}, Cluster: s.Cluster, users: s.users}
	late.lostSince(t, "nothing was probed", third, late.users)
	late.settled(t)
	late.lostSince(t, "a later process", second, late.users)
	late.lostSince(t, "a later process, since", third)

	// Where slots moved lately, all may be lost with any node.
	moved := on[2][:20]
	var slots []int
	for _, user := range moved {
		slot, err := s.Nodes[0].Client.ClusterKeySlot(ctx, index.UserKey(user)).Result()
		must(t, err)
		if !slices.Contains(slots, int(slot)) {
			slots = append(slots, int(slot))
		}
	}
	must(t, s.MoveSlots(ctx, s.Nodes[2], s.Nodes[0], slots...))
	must(t, s.AwaitOK(ctx, s.Nodes...))
	servertest.Eventually(t, "the nodes are told apart", func() bool { return len(s.on(t, s.Nodes[0])) == len(on[0])+len(moved) })
	servertest.Eventually(t, "the second node knows where they are, too", func() bool { // it may be asked
		return !slices.ContainsFunc(moved, func(user member.ID) bool {
			err := s.Nodes[1].Client.ZCard(ctx, index.UserKey(user)).Err()
			return err == nil || !strings.HasSuffix(err.Error(), " "+s.Nodes[0].HostPort)
		})
	})
	fourth := s.empty(t, s.Nodes[1])
	s.lostSince(t, "the second node was emptied again", third, s.users)
	if s.LostSince(on[0][0], fourth) {
		t.Error("something is lost since the last loss")
	}
	s.fill(t, 5)
}

// Of one server all sets are lost at once.
func TestOneServerLosesAll(t *testing.T) {
	t.Parallel()
	b := newBench(t, &redis.Options{Addr: miniredis.RunT(t).Addr()}, index.Options{})
	must(t, b.Probe(context.Background()))
	for _, at := range []int64{0, b.LostAt(), b.LostAt() + 1} {
		if !b.LostSince(user, at) {
			t.Errorf("not since %d", at)
		}
	}
}
