package index_test

import (
	"slices"
	"testing"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// In a cluster a script may touch one slot only, pipelines are split over the
// nodes, and a scan sees one node.
func TestCluster(t *testing.T) {
	t.Parallel()
	client := servertest.RedisCluster(t)
	ix, ledger := bench{Index: index.New(client, index.Options{Settings: settings(t, 10, 20, 0)})}, index.NewLedger(client)
	ctx := t.Context()
	var users []member.ID
	var additions []index.Addition
	for id := member.ID(1); id <= 50; id++ {
		users = append(users, id)
		additions = append(additions, index.Addition{Member: id, Entry: index.Entry{Contact: 4, Score: 400}})
	}
	updates, err := ix.Begin(ctx, users)
	if err != nil {
		t.Fatal(err)
	}
	changes := make([]index.Change, len(updates))
	for i, u := range updates {
		changes[i] = index.Change{Update: u, WithRefill: true, Refill: ladder(3)}
	}
	outcomes, err := ix.Apply(ctx, changes)
	if err != nil {
		t.Fatal(err)
	}
	if missing, err := ix.Add(ctx, additions); err != nil || len(missing) > 0 {
		t.Fatalf("missing %v, %v", missing, err)
	}
	for i, id := range users {
		got, err := ix.Candidates(ctx, id)
		if outcomes[i] != index.Applied || err != nil || len(got) != 4 || got[0].Contact != 4 {
			t.Errorf("set of %s: %v, %v, %v", id, outcomes[i], got, err)
		}
	}
	for want := int64(1); want <= 2; want++ { // its marks lie on both nodes
		s := ix.Index.Probe(ctx)
		if s.Err() != nil || len(s.Nodes) != 2 || s.Away != 0 {
			t.Errorf("probe: %+v", s)
		}
		if g, err := ix.Generation(ctx, index.Generation{}); err != nil || len(g.Marks) != 128 || slices.Min(g.Marks) != want || slices.Max(g.Marks) != want {
			t.Errorf("marks %v, %v", g, err)
		}
	}
	if _, begun, err := ledger.BeginSweep(ctx, 1); err != nil || !begun {
		t.Errorf("begin the sweep: %v, %v", begun, err)
	}
	if saved, err := ledger.SaveSweep(ctx, 1, "here"); err != nil || !saved {
		t.Errorf("save the sweep: %v, %v", saved, err)
	}
	if sets, err := ix.Reset(ctx); err != nil || sets != 50 {
		t.Errorf("reset: %d sets, %v", sets, err)
	}
}
