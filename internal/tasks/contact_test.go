package tasks_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// The cardinality is exactly 12 after the 13th add, and the rest are the
// most recent.
func TestThirteenContactsLeaveTwelve(t *testing.T) {
	t.Parallel()
	ascending := steps(1, 13)
	descending := slices.Clone(ascending)
	slices.Reverse(descending)
	shuffled := slices.Clone(ascending)
	rand.New(rand.NewPCG(1, 2)).Shuffle(13, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	for name, order := range map[string][]index.Entry{"ascending": ascending, "descending": descending, "shuffled": shuffled} {
		t.Run(name+" one at a time", func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			for i, e := range order {
				b.contact(viewer, e.Contact, e.Score)
				b.done(b.pairs, tasks.NewAddContact(viewer, e.Contact))
				if got, want := len(b.set(viewer)), min(i+1, 12); got != want {
					t.Fatalf("%d members after %d adds, want %d", got, i+1, want)
				}
			}
			b.holds(viewer, steps(2, 13)...)
		})
		t.Run(name+" in one batch", func(t *testing.T) {
			t.Parallel()
			for _, before := range []int{0, 1, 11, 12} { // how many the set holds already
				b := newBench(t)
				for _, e := range order[:before] {
					b.contact(viewer, e.Contact, e.Score)
				}
				b.refill(viewer)
				var batch []queue.New
				for _, e := range order[before:] {
					b.contact(viewer, e.Contact, e.Score)
					batch = append(batch, tasks.NewAddContact(viewer, e.Contact))
				}
				b.done(b.pairs, batch...)
				b.holds(viewer, steps(2, 13)...)
			}
		})
	}
}

// "In the same step": one Apply, before which the set is as it was.
func TestARemovalThatLeavesNineRefillsToTwelve(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ladder(viewer, 20)
	b.refill(viewer)
	b.remove(viewer, 20)
	b.done(b.pairs, tasks.NewRemoveContact(viewer, 20))
	b.remove(viewer, 19)
	b.done(b.pairs, tasks.NewRemoveContact(viewer, 19))
	b.holds(viewer, steps(9, 18)...) // ten need no refill
	b.remove(viewer, 18)
	b.hooked.calls = nil
	b.once("Apply", func() { b.holds(viewer, steps(9, 18)...) })
	b.done(b.pairs, tasks.NewRemoveContact(viewer, 18))
	b.called("Begin", "Relations", "TopContacts", "Apply")
	b.holds(viewer, steps(6, 17)...)
}

func TestAContactWhoNeverUploadedIsNotIndexed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.contact(viewer, 50, 0)
	b.done(b.pairs, tasks.NewAddContact(viewer, 50))
	b.holds(viewer)
	b.ladder(viewer, 3)
	b.refill(viewer)
	b.done(b.pairs, tasks.NewAddContact(viewer, 50))
	b.holds(viewer, steps(1, 3)...)
}

// An old contact that is added to a set with room belongs below it; who else
// does, only a refill can tell.
func TestAnOldContactIsTakenInWithThoseBetween(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ladder(viewer, 14)
	b.refill(viewer)
	b.remove(viewer, 14)
	b.done(b.pairs, tasks.NewRemoveContact(viewer, 14))
	b.holds(viewer, steps(3, 13)...)
	b.done(b.pairs, tasks.NewAddContact(viewer, 1))
	b.holds(viewer, steps(2, 13)...) // not 1 with a hole at 2
}

// Whatever the tasks are called and however often they come, the row decides.
func TestPairsComeInAnyOrder(t *testing.T) {
	t.Parallel()
	add, remove := tasks.NewAddContact(viewer, 2), tasks.NewRemoveContact(viewer, 2)
	for _, batch := range [][]queue.New{
		{add, remove}, {remove, add}, {add, add}, {remove, remove}, {remove, add, remove, add},
	} {
		for _, members := range []uint64{3, 10, 12, 15} {
			b := newBench(t)
			b.ladder(viewer, members)
			b.refill(viewer)
			b.remove(viewer, 2)
			b.done(b.pairs, batch...)
			b.refillsTo(viewer)
			b.must(b.site.SetContact(t.Context(), viewer, 2, site.Grant{}))
			b.done(b.pairs, batch...)
			b.refillsTo(viewer)
		}
	}
}

// refillsTo expects the set to be at least what a refill would make of it.
func (b *bench) refillsTo(user member.ID) {
	b.Helper()
	top, err := b.site.Store.TopContacts(b.Context(), []member.ID{user}, 12)
	b.must(err)
	set := b.set(user)
	if len(set) < min(10, len(top[user])) {
		b.Fatalf("only %v of %v", set, top[user])
	}
	for i, c := range top[user][:len(set)] {
		if e := set[len(set)-1-i]; e.Contact != c.ID || e.Score != c.LastUpload {
			b.Fatalf("the set holds %v, most recent are %v", set, top[user])
		}
	}
}

// A task that was doubled must not make its removal look like two: that would
// conflict for ever.
func TestADoubledRemovalInOneBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ladder(viewer, 11)
	b.refill(viewer)
	b.remove(viewer, 11)
	b.hooked.calls = nil
	b.done(b.pairs, tasks.NewRemoveContact(viewer, 11), tasks.NewRemoveContact(viewer, 11))
	b.called("Begin", "Relations", "Apply")
	b.holds(viewer, steps(1, 10)...)
}

func TestBadArgumentsAreDeadAndOthersAreNot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.contact(viewer, 1, 100)
	bad := []string{``, `{}`, `{"contact_id":"0"}`, `{"contact_id":"bob"}`, `{"contact_id":`, `[]`}
	batch := []queue.Task{{ID: 1, Kind: tasks.AddContact, Key: uint64(viewer), Payload: json.RawMessage(`{"contact_id":"1"}`)}}
	for i, raw := range bad {
		batch = append(batch, queue.Task{ID: uint64(i + 2), Kind: tasks.AddContact, Key: uint64(viewer), Payload: json.RawMessage(raw)})
	}
	errs := queuetest.Errors(b.pairs.Handle(t.Context(), batch))
	b.must(errs[0])
	b.holds(viewer, steps(1, 1)...)
	for i, raw := range bad {
		if kind := outcome(t, errs[i+1]); kind != "dead" || !errors.Is(errs[i+1], queue.ErrInvalid) {
			t.Errorf("arguments %q: %s (%v), want dead as invalid", raw, kind, errs[i+1])
		}
	}
}

func TestTheLargestIDs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	const user, contact = member.ID(math.MaxUint64), member.ID(1 << 63)
	b.contact(user, contact, 100)
	b.done(b.pairs, tasks.NewAddContact(user, contact))
	b.holds(user, index.Entry{Contact: contact, Score: 100})
	b.upload(contact, 200)
	b.done(b.uploads, tasks.NewUpload(contact))
	b.holds(user, index.Entry{Contact: contact, Score: 200})
	b.remove(user, contact)
	b.done(b.pairs, tasks.NewRemoveContact(user, contact))
	b.holds(user)
}

// A set that is missing and shall stay so is not made; but a refill that read
// MySQL before the change must not make it either.
func TestActiveOnlyLeavesMissingSetsMissing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.pairs.ActiveOnly = true
	b.ladder(viewer, 2)
	b.done(b.pairs, tasks.NewAddContact(viewer, 1))
	b.holds(viewer)
	b.called("Begin", "Relations", "Apply")
	b.once("Apply", func() {
		b.hooked.before = nil
		b.contact(viewer, 3, 300)
		b.done(b.pairs, tasks.NewAddContact(viewer, 3))
		b.holds(viewer)
	})
	b.refill(viewer)
	b.holds(viewer, steps(1, 3)...)
}

func TestAHundredUsersCostAHandfulOfRoundTrips(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	var adds, removes, refills []queue.New
	for i := range uint64(100) {
		user := viewer + id(i)
		b.ladder(user, 3)
		adds, removes = append(adds, tasks.NewAddContact(user, 1)), append(removes, tasks.NewRemoveContact(user, 3))
		refills = append(refills, tasks.NewRefill(user))
	}
	b.done(b.pairs, adds...)
	b.called("Begin", "Relations", "TopContacts", "Apply")
	b.done(b.pairs, adds...) // who has a set needs no refill
	b.called("Begin", "Relations", "Apply")
	for i := range uint64(100) {
		b.remove(viewer+id(i), 3)
	}
	b.done(b.pairs, removes...)
	b.called("Begin", "Relations", "TopContacts", "Apply")
	b.redis.FlushAll()
	b.done(b.refills, refills...)
	b.called("Begin", "Relations", "TopContacts", "Apply")
	b.done(b.refills, refills...)
	b.called("Begin", "Relations", "TopContacts", "Apply")
	for i := range uint64(100) {
		b.holds(viewer+id(i), steps(1, 2)...)
	}
}

// A member that activityd never wrote makes way, though the set falls below min
// without it.
func TestAForeignMemberIsRefilledAway(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ladder(viewer, 10)
	b.refill(viewer)
	b.remove(viewer, 10)
	b.must(b.client.ZRem(t.Context(), "user_9001", "10").Err())
	b.must(b.client.ZAdd(t.Context(), "user_9001", redis.Z{Member: "foreign", Score: 5}).Err())
	b.done(b.pairs, tasks.NewAddContact(viewer, 3))
	b.holds(viewer, steps(1, 9)...)
}

// A member who is deleted and inserted again in one transaction is a contact when its
// tasks run, and no add would lower its score. Those whom the lower score leaves behind
// come in with the refill.
func TestAContactWhoComesBackWithLessIsLowered(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.ladder(viewer, 14)
	b.refill(viewer)
	b.must(b.site.ReplaceMember(b.Context(), 14, 150))
	b.hooked.calls = nil
	b.done(b.pairs, tasks.NewRemoveContact(viewer, 14))
	b.called("Begin", "Relations", "TopContacts", "Apply")
	b.holds(viewer, steps(2, 13)...)
	b.must(b.site.ReplaceMember(b.Context(), 13, 1250))
	b.done(b.pairs, tasks.NewRemoveContact(viewer, 13))
	b.holds(viewer, append(steps(2, 12), index.Entry{Contact: 13, Score: 1250})...)
	b.must(b.site.ReplaceMember(b.Context(), 13, 0))
	b.done(b.pairs, tasks.NewRemoveContact(viewer, 13))
	b.holds(viewer, steps(2, 12)...) // it has nothing to show
}

// An upload that the handler has not read stays: it raised the score, or found one that
// is high enough and so ended the update.
func TestALowerScoreDoesNotHideAnUpload(t *testing.T) {
	t.Parallel()
	for _, date := range []uint64{120, 300, 400} {
		b := newBench(t)
		b.ladder(viewer, 3)
		b.refill(viewer)
		b.must(b.site.ReplaceMember(b.Context(), 3, 100))
		b.once("Apply", func() {
			b.upload(3, date)
			b.done(b.uploads, tasks.NewUpload(3))
		})
		b.done(b.pairs, tasks.NewRemoveContact(viewer, 3))
		want := append(steps(1, 2), index.Entry{Contact: 3, Score: date})
		slices.SortFunc(want, func(a, b index.Entry) int { return cmp.Compare(a.Score, b.Score) })
		b.holds(viewer, want...)
	}
}
