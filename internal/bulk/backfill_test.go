package bulk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// What a backfill builds is what the tasks would have built, one by one.
func TestItBuildsWhatTheTasksBuild(t *testing.T) {
	t.Parallel()
	g := newBackend(t)
	g.load(t, 500, 40)
	counts := g.run(t, g.builder(), 60, 3)
	client, ix := newSets(t)
	one := &tasks.RefillHandler{Index: ix, Store: g.store}
	for i := range 500 {
		for _, err := range queuetest.Errors(one.Handle(t.Context(), []queue.Task{{Kind: tasks.Refill, Key: uint64(i + 1)}})) {
			must(t, err)
		}
	}
	want := sets(t, client)
	if diff := cmp.Diff(want, sets(t, g.client)); diff != "" {
		t.Errorf("sets (-tasks +backfill):\n%s", diff)
	}
	if n := int64(len(want)); n < 400 || counts[bulk.Built] != n || counts[bulk.Empty] != 500-n || counts[bulk.Seen] != 500 {
		t.Errorf("counts %v with %d sets", counts, n)
	}
}

func TestWhichSetsAreBuilt(t *testing.T) {
	t.Parallel()
	type world struct{ there, foreign, missing, empty []redis.Z }
	stale, built := []redis.Z{{Score: 1, Member: "2"}}, []redis.Z{{Score: 2000, Member: "2"}}
	alien := []redis.Z{{Score: 7, Member: "alien"}}
	for name, test := range map[string]struct {
		existing, active bool
		want             world
		counts           bulk.Counts
	}{
		"missing": {
			want:   world{there: stale, foreign: built, missing: built},
			counts: bulk.Counts{bulk.Seen: 4, bulk.Built: 2, bulk.Skipped: 1, bulk.Empty: 1},
		},
		"existing, too": {
			existing: true, want: world{there: built, foreign: built, missing: built},
			counts: bulk.Counts{bulk.Seen: 4, bulk.Built: 3, bulk.Empty: 1},
		},
		"existing alone": {
			existing: true, active: true, want: world{there: built, foreign: built},
			counts: bulk.Counts{bulk.Seen: 4, bulk.Built: 2, bulk.Absent: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newBackend(t)
			g.load(t, 4, 1)
			exec := func(query string) {
				_, err := g.site.DB.ExecContext(t.Context(), query)
				must(t, err)
			}
			exec("DELETE FROM contacts")
			exec("INSERT INTO contacts (user_id, contact_id) VALUES (1, 2), (3, 2), (4, 2)")
			exec("UPDATE users SET last_upload = IF(id = 2, 2000, NULL)")
			must(t, g.client.ZAdd(t.Context(), index.UserKey(1), stale...).Err())
			must(t, g.client.ZAdd(t.Context(), index.UserKey(3), alien...).Err())
			b := g.builder()
			b.Existing, b.ActiveOnly = test.existing, test.active
			if diff := cmp.Diff(test.counts, g.run(t, b, 3, 1)); diff != "" {
				t.Errorf("counts (-want +got):\n%s", diff)
			}
			want := map[string][]redis.Z{}
			for user, set := range map[member.ID][]redis.Z{1: test.want.there, 2: test.want.empty, 3: test.want.foreign, 4: test.want.missing} {
				if set != nil {
					want[index.UserKey(user)] = set
				}
			}
			if diff := cmp.Diff(want, sets(t, g.client)); diff != "" {
				t.Errorf("sets (-want +got):\n%s", diff)
			}
		})
	}
}

// refiller fails for some.
type refiller map[member.ID]error

func (r refiller) Refill(_ context.Context, users []member.ID) (map[member.ID]int, map[member.ID]error) {
	found := map[member.ID]int{}
	for _, user := range users {
		found[user] = 3
	}
	return found, r
}

func TestWhoFailedIsLeft(t *testing.T) {
	t.Parallel()
	fatal, tooSlow := errors.New("no such table"), &driver.MySQLError{Number: 3024, Message: "Query execution was interrupted"}
	for name, test := range map[string]struct {
		failed refiller
		left   []member.ID
		want   error
		fault  bulk.Fault
	}{
		"contended":       {refiller{2: tasks.ErrContended}, []member.ID{2}, tasks.ErrContended, bulk.Own},
		"away":            {refiller{1: mysql.ErrUnavailable, 3: mysql.ErrUnavailable}, []member.ID{1, 3}, mysql.ErrUnavailable, bulk.Away},
		"Redis":           {refiller{1: fmt.Errorf("begin: %w", index.ErrUnavailable)}, []member.ID{1}, index.ErrUnavailable, bulk.Away},
		"too slow":        {refiller{2: tooSlow}, []member.ID{2}, tooSlow, bulk.Own},
		"own before away": {refiller{1: mysql.ErrUnavailable, 3: tasks.ErrContended}, []member.ID{1, 3}, tasks.ErrContended, bulk.Own},
		"the worst first": {refiller{1: fatal, 3: tasks.ErrContended}, []member.ID{1, 3}, fatal, bulk.Fatal},
		"the worst last":  {refiller{1: tasks.ErrContended, 3: fatal}, []member.ID{1, 3}, fatal, bulk.Fatal},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bulk.Builder{Refiller: test.failed, Existing: true}
			counts, left, err := b.Build(t.Context(), []member.ID{1, 2, 3})
			if !errors.Is(err, test.want) || bulk.Judge(err) != test.fault || !slices.Equal(left, test.left) {
				t.Errorf("left %v, %v (fault: %v)", left, err, bulk.Judge(err))
			}
			if n := int64(3 - len(test.left)); counts[bulk.Built] != n || counts[bulk.Seen] != n {
				t.Errorf("counts %v, want %d", counts, n)
			}
		})
	}
}

// nodes is an index some of whose nodes are away.
type nodes map[member.ID]error

func (n nodes) Look(_ context.Context, users []member.ID) []index.Set {
	sets := make([]index.Set, len(users))
	for i, user := range users {
		sets[i] = index.Set{Member: user, Err: n[user]}
	}
	return sets
}

func TestANodeThatIsAwayLeavesItsMembers(t *testing.T) {
	t.Parallel()
	b := &bulk.Builder{Index: nodes{2: index.ErrUnavailable, 4: index.ErrUnknown}, Refiller: refiller{5: index.ErrUnavailable}}
	counts, left, err := b.Build(t.Context(), []member.ID{1, 2, 3, 4, 5})
	if bulk.Judge(err) != bulk.Away || !slices.Equal(left, []member.ID{2, 4, 5}) || counts[bulk.Built] != 2 || counts[bulk.Seen] != 2 {
		t.Errorf("left %v, %v, counts %v", left, err, counts)
	}
}

// Sets that were built with other numbers are not touched.
func TestOtherSettingsDoNotPass(t *testing.T) {
	t.Parallel()
	g := newBackend(t)
	g.load(t, 20, 5)
	g.run(t, g.builder(), 10, 1)
	before := sets(t, g.client)
	settings, err := index.NewSettings(5, 0, 0)
	must(t, err)
	other := index.New(g.client, index.Options{Settings: settings})
	b := &bulk.Builder{Index: other, Refiller: &tasks.RefillHandler{Index: other, Store: g.store}, Existing: true}
	_, left, err := b.Build(t.Context(), []member.ID{1, 2})
	if !errors.Is(err, index.ErrSettings) || bulk.Judge(err) != bulk.Fatal || len(left) != 2 {
		t.Errorf("left %v, %v", left, err)
	}
	if diff := cmp.Diff(before, sets(t, g.client)); diff != "" {
		t.Errorf("sets (-before +after):\n%s", diff)
	}
}
