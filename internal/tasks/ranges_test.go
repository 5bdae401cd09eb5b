package tasks_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/metricstest"
	"github.com/activityd/activityd/queue"
)

// ranger is a site whose members all call 1 and 2 contacts, and the handler of its ranges.
type ranger struct {
	*bench
	h tasks.RefillRangeHandler
}

func newRanger(t *testing.T, ids ...member.ID) *ranger {
	t.Helper()
	b := newBench(t)
	b.contact(1, 2, 200)
	b.contact(2, 1, 100)
	for _, id := range ids {
		b.contact(id, 1, 0)
		b.contact(id, 2, 0)
	}
	h := tasks.RefillRangeHandler(*b.refills)
	h.Log = quiet()
	return &ranger{b, h}
}

// ids are n ids from first on, at a distance of step.
func ids(first, n, step int) (list []member.ID) {
	for i := range n {
		list = append(list, member.ID(first+i*step))
	}
	return list
}

// run does chains to their end, and returns the last state of each and the refills that follow.
func (r *ranger) run(chains []queue.New) (ends []tasks.RangeArgs, others []queue.New) {
	r.Helper()
	for _, n := range chains {
		for more := true; more; {
			o := r.h.Handle(r.Context(), []queue.Task{{Kind: n.Kind, Payload: n.Payload, MaxAttempts: 25}})[0]
			r.must(o.Err)
			args, err := tasks.ArgsOf[tasks.RangeArgs](queue.Task{Payload: n.Payload})
			r.must(err)
			more = false
			for _, next := range o.Next {
				if next.Kind == tasks.RefillRange {
					n, more = next, true
				} else {
					others = append(others, next)
				}
			}
			if !more {
				ends = append(ends, args)
			}
		}
	}
	return ends, others
}

func (r *ranger) ranges(first, last member.ID, existing bool, rate int) []queue.New {
	r.Helper()
	list, err := tasks.NewRefillRanges(r.Context(), r.site.Store, first, last, existing, rate)
	r.must(err)
	return list
}

func (r *ranger) sets() (n int) {
	r.Helper()
	keys, err := r.client.Keys(r.Context(), "user_*").Result()
	r.must(err)
	return len(keys)
}

// The chains cover a range once, whatever gaps its ids have, and count its members.
func TestRangesCoverTheMembers(t *testing.T) {
	t.Parallel()
	r := newRanger(t, slices.Concat(ids(10, 2300, 1), ids(1_000_000, 20, 9000), []member.ID{math.MaxUint64})...)
	for _, test := range []struct {
		first, last member.ID
		rate        int
		chains      int
		want        int64
	}{
		{1, math.MaxUint64, 0, 3, 2323},
		{1, 5000, 0, 3, 2302},
		{11, 1_000_000, 0, 3, 2300},
		{11, 1_000_000, 100, 1, 2300},
		{5000, 6000, 0, 0, 0},
		{12, 12, 0, 1, 1},
	} {
		list, seen, to := r.ranges(test.first, test.last, false, test.rate), int64(0), test.first-1
		for _, n := range list {
			a, err := tasks.ArgsOf[tasks.RangeArgs](queue.Task{Payload: n.Payload})
			r.must(err)
			members, err := r.site.Store.CountMembers(r.Context(), a.After+1, a.To)
			if err != nil || a.After != to || a.To > test.last || a.All != test.want || a.Total != members || n.DedupeKey == "" {
				t.Errorf("%v: %+v with %d members after %d, %v", test, a, members, to, err)
			}
			seen, to = seen+a.Total, a.To
		}
		if len(list) != test.chains || seen != test.want || seen > 0 && to != test.last {
			t.Errorf("%v: %d chains of %d members", test, len(list), seen)
		}
	}
	if r.ranges(12, 12, false, 0)[0].DedupeKey == r.ranges(12, 12, true, 0)[0].DedupeKey {
		t.Error("a backfill of existing sets merges with a backfill of missing ones")
	}
}

// A chain builds what is missing, in tasks of some hundred members, and says how far it is.
func TestARangeBuildsWhatIsMissing(t *testing.T) { //nolint:paralleltest // it counts
	r := newRanger(t, ids(10, 1100, 1)...)
	r.refill(13)
	expect := counting(t, "activityd_backfill_members_total")
	ends, others := r.run(r.ranges(5, 2000, false, 0))
	if len(others) != 0 || r.sets() != 1100 || len(ends) != 2 {
		t.Errorf("%d sets, %+v, others %+v", r.sets(), ends, others)
	}
	expect(metricstest.Samples{`activityd_backfill_members_total{result="built"}`: 1099, `activityd_backfill_members_total{result="skipped"}`: 1})
	r.must(r.client.ZRem(r.Context(), "user_17", "2").Err())
	r.run(r.ranges(1, 100, true, 0))
	r.holds(17, index.Entry{Contact: 1, Score: 100}, index.Entry{Contact: 2, Score: 200})
}

// The last task of a chain says that it is at the end, even if the members behind the page before are gone.
func TestAChainShowsItsEnd(t *testing.T) {
	t.Parallel()
	r := newRanger(t, ids(10, 5, 1)...)
	for _, after := range []member.ID{9, 14} {
		payload, err := json.Marshal(tasks.RangeArgs{After: after, To: 20})
		r.must(err)
		ends, _ := r.run([]queue.New{{Kind: tasks.RefillRange, Payload: payload}})
		if len(ends) != 1 || !ends[0].AtEnd() {
			t.Errorf("after %d: %+v", after, ends)
		}
	}
}

func TestARangeOfActiveMembers(t *testing.T) {
	t.Parallel()
	r := newRanger(t, 10, 11)
	r.refill(11)
	r.must(r.client.ZRem(r.Context(), "user_11", "2").Err())
	r.h.ActiveOnly = true
	r.run(r.ranges(1, 100, true, 0))
	if r.holds(11, index.Entry{Contact: 1, Score: 100}, index.Entry{Contact: 2, Score: 200}); r.sets() != 1 {
		t.Errorf("%d sets", r.sets())
	}
}

// A member that spoils the statement for all, and a member whose set keeps changing, get refills of their own. The
// chain names them and stops for none.
func TestAMemberThatFailsStopsNothing(t *testing.T) {
	t.Parallel()
	r := newRanger(t, ids(10, 50, 1)...)
	r.h.Store = spoiled{r.site.Store, 20}
	r.hooked.before = func(call string) error {
		if call == "Apply" {
			r.elsewhere(tasks.NewAddContact(30, 1)) // it makes the set
		}
		return nil
	}
	ends, others := r.run(r.ranges(10, 59, false, 0))
	if len(others) != 2 || others[0].Key != 20 || others[1].Key != 30 || others[0].Kind != tasks.Refill || others[0].Priority != queue.Idle {
		t.Errorf("others %+v", others)
	}
	if len(ends) != 1 || ends[0].Failed != 2 || ends[0].Seen != 50 || ends[0].Last == "" {
		t.Errorf("ends %+v", ends)
	}
	if r.sets() != 49 {
		t.Errorf("%d sets", r.sets())
	}
}

// spoiled is MySQL that gives up at a member.
type spoiled struct {
	tasks.Store
	at member.ID
}

func (s spoiled) TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]contacts.Contact, error) {
	if slices.Contains(users, s.at) {
		return nil, errors.New("maximum statement execution time exceeded")
	}
	return s.Store.TopContacts(ctx, users, limit)
}

// While MySQL fails for all members, the page comes again, and the chain goes on behind it when it is given up. While
// a node of its sets is away, the page comes again until it is back.
func TestAPageComesAgain(t *testing.T) {
	t.Parallel()
	r := newRanger(t, ids(10, 600, 1)...)
	chains := r.ranges(10, 2000, false, 0)
	first := queue.Task{Kind: tasks.RefillRange, Payload: chains[0].Payload}
	healthy := r.h.Index
	for _, from := range []member.ID{1, 300} {
		r.h.Index = &awayFrom{healthy, from}
		if o := r.h.Handle(r.Context(), []queue.Task{first})[0]; outcome(t, o.Err) != "postponed" || len(o.Next) != 0 || r.sets() > 0 {
			t.Errorf("the node of the sets from %s on is away: %+v", from, o)
		}
	}
	r.h.Index = healthy
	r.hooked.before = func(call string) error {
		if call == "TopContacts" {
			return errors.New("no such table")
		}
		return nil
	}
	r.hooked.away = []member.ID{10}
	if o := r.h.Handle(r.Context(), []queue.Task{first})[0]; outcome(t, o.Err) != "postponed" {
		t.Errorf("a node is away, and MySQL fails: %+v", o)
	}
	r.hooked.away = nil
	o := r.h.Handle(r.Context(), []queue.Task{first})[0]
	if o.Err == nil || len(o.Next) != 1 || o.Next[0].Kind != tasks.RefillRange {
		t.Fatalf("%+v", o)
	}
	r.hooked.before = nil
	if ends, others := r.run(o.Next); ends[0].Failed != 500 || ends[0].Seen != 600 || len(others) != 0 || r.sets() == 600 {
		t.Errorf("behind the page that was given up: %+v, %d sets", ends, r.sets())
	}
	if ends, _ := r.run(chains); ends[0].Failed != 0 || r.sets() != 600 {
		t.Errorf("once more: %+v, %d sets", ends, r.sets())
	}
}

// awayFrom is an index whose node of the sets from an id on is away.
type awayFrom struct {
	tasks.Index
	from member.ID
}

func (a *awayFrom) Look(ctx context.Context, users []member.ID) []index.Set {
	list := a.Index.Look(ctx, users)
	for i, id := range users {
		if id >= a.from {
			list[i] = index.Set{Member: id, Err: index.ErrUnavailable}
		}
	}
	return list
}

// It gives way while reads are slow, and keeps to its rate.
func TestARangeYields(t *testing.T) {
	t.Parallel()
	r := newRanger(t, ids(10, 30, 1)...)
	var reads []member.ID
	var last time.Time
	r.h.Read = func(_ context.Context, viewer member.ID) error {
		reads, last = append(reads, viewer), time.Now()
		deaf(20 * time.Millisecond)
		return nil
	}
	o := r.h.Handle(r.Context(), []queue.Task{{Payload: r.ranges(10, 39, false, 10)[0].Payload}})[0]
	if rested := time.Since(last); rested < 400*time.Millisecond || !slices.Equal(reads, []member.ID{10}) {
		t.Errorf("rested %v after reads of %v", rested, reads)
	}
	if o.Err != nil || len(o.Next) != 1 || o.Next[0].Delay != 2*time.Second {
		t.Errorf("%+v, want 20 members in 2 s", o)
	}
}
