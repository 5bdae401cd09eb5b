package recent_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

// broadcasts makes id a broadcast member with a photo for each date, which me follows or not.
func (b bench) broadcasts(id member.ID, followed bool, dates ...int64) {
	before := slices.Clone(b.index.entries)
	b.contact(id, dates...)
	b.index.entries = before
	if !followed {
		b.store.RemoveContact(me.ID, id)
	}
	b.index.broadcast.Entries = append(b.index.broadcast.Entries, index.Entry{Contact: id, Score: uint64(max(dates[0], -dates[0]))})
	b.index.broadcast.Of = member.Copies[3]
}

// page has the first read of the copy give n broadcast members, as if all were many more.
func (b bench) page(n int) {
	all, of := b.index.broadcast.Entries, b.index.broadcast.Of
	b.index.broadcast = index.Copy{Of: of, Entries: all[:n], Bound: all[n].Score, More: func(_ context.Context, above uint64) index.Copy {
		more := slices.DeleteFunc(slices.Clone(all), func(e index.Entry) bool { return e.Score <= above })
		return index.MoreOfCopy(of, above, more, nil)
	}}
}

// A read that does not get more broadcast members walks.
func TestReadWithoutMore(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		contacts int
		more     func(ctx context.Context, above uint64) index.Copy
		reason   string
		hints    []string
	}{
		"few contacts": {2, nil, recent.ManyBroadcasts, nil},
		"it is away":   {3, func(context.Context, uint64) index.Copy { return index.Copy{Err: errors.New("away")} }, recent.RedisUnavailable, nil},
		"it hangs": {3, func(ctx context.Context, _ uint64) index.Copy {
			<-ctx.Done()
			return index.Copy{Err: ctx.Err()}
		}, recent.RedisUnavailable, nil},
		"it is lost": {3, func(context.Context, uint64) index.Copy {
			return index.Copy{Of: member.Copies[3], Err: index.ErrMissing}
		}, recent.NoBroadcastSet, []string{"refill 9007199254740919"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(recent.Options{IndexWait: 50 * time.Millisecond})
			for i := range test.contacts {
				b.contact(member.ID(11+i), int64(90-i))
			}
			b.broadcasts(21, false, 99)
			b.broadcasts(22, false, 95)
			b.page(1)
			b.store.SetBroadcast(21, contacts.Broadcast{State: contacts.Joined})
			more := b.index.broadcast.More
			b.index.broadcast.More = func(ctx context.Context, above uint64) index.Copy {
				if test.more != nil {
					more = test.more
				} else {
					t.Error("it asked for more")
				}
				return more(ctx, above)
			}
			if a := b.read(t, 11, recent.FromDatabase); a.Trace.WalkReason != test.reason {
				t.Errorf("it walked because %q, want %q", a.Trace.WalkReason, test.reason)
			}
			b.hinted(t, test.hints...)
		})
	}
}

// What a read asks, and what it answers, where broadcast members stand before, between and behind the candidates of
// the set.
func TestReadWithBroadcastMembers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		make   func(b bench)
		shown  member.ID
		source recent.Source
		proof  recent.Proof
		bound  uint64
		calls  []string
	}{
		"followed by none, behind the second": {func(b bench) {
			b.broadcasts(21, false, 70)
		}, 11, recent.FromIndex, recent.ByNext, 80, []string{"photos of 11"}},
		"no contacts, before all": {func(b bench) {
			b.broadcasts(21, false, 99)
			b.broadcasts(22, false, 95)
		}, 11, recent.FromIndex, recent.ByNext, 80, []string{"photos of 11, 2 relations"}},
		"a contact, before all": {func(b bench) {
			b.broadcasts(21, false, 99)
			b.broadcasts(22, true, 95)
		}, 22, recent.FromIndex, recent.ByNext, 90, []string{"photos of 11, 2 relations", "photos of 22, 1 relations"}},
		"a contact with nothing to show": {func(b bench) {
			b.broadcasts(21, true, -99)
		}, 11, recent.FromIndex, recent.ByLowest, 60, []string{"photos of 11, 1 relations", "photos of 21", "standings of 5", "photos of 11"}},
		"a contact between the first two": {func(b bench) {
			b.broadcasts(21, true, 85)
		}, 11, recent.FromIndex, recent.ByNext, 85, []string{"photos of 11"}},
		"none between the first two, newer than the first's newest": {func(b bench) {
			b.broadcasts(21, false, 85)
			b.store.DeletePhoto(1100)
			b.store.AddPhoto(1101, 11, "photo", contacts.Public, 82)
		}, 11, recent.FromIndex, recent.ByLowest, 60, []string{"photos of 11", "standings of 5"}},
		"in the set with an old score": {func(b bench) {
			b.broadcasts(21, true, 99)
			b.index.entries = append(b.index.entries, index.Entry{Contact: 21, Score: 55})
		}, 21, recent.FromIndex, recent.ByNext, 90, []string{"photos of 21"}},
		"more of them, older than the next": {func(b bench) {
			b.broadcasts(21, true, 99)
			b.index.broadcast.Bound = 50
		}, 21, recent.FromIndex, recent.ByNext, 90, []string{"photos of 11, 1 relations", "photos of 21"}},
		"more of them, newer than the next": {func(b bench) {
			b.broadcasts(21, true, 99)
			b.broadcasts(22, false, 95)
			b.index.broadcast.Bound = 89
		}, 21, recent.FromIndex, recent.ByNext, 95, []string{"photos of 11, 2 relations", "photos of 21"}},
		"more of them, newer than all that it follows": {func(b bench) {
			b.broadcasts(21, false, 99)
			b.index.broadcast.Bound = 95
			b.broadcasts(30, true, 94)
			b.index.broadcast.Entries = b.index.broadcast.Entries[:1]
		}, 30, recent.FromDatabase, recent.ByWalk, 0, []string{"walk"}},
		"more of them, and the best is older": {func(b bench) {
			b.broadcasts(21, true, 99, 88)
			b.store.DeletePhoto(2100)
			b.index.broadcast.Bound = 89
			b.broadcasts(30, true, 89)
			b.index.broadcast.Entries = b.index.broadcast.Entries[:1]
			b.store.DeletePhoto(1100)
			b.store.AddPhoto(1101, 11, "photo", contacts.Public, 87)
		}, 30, recent.FromDatabase, recent.ByWalk, 0, []string{"photos of 11, 1 relations", "photos of 21", "standings of 5", "walk"}},
		"beyond the page there is no contact": {func(b bench) {
			b.broadcasts(21, false, 99)
			b.broadcasts(22, false, 95)
			b.broadcasts(23, false, 85)
			b.broadcasts(24, true, 80)
			b.page(1)
		}, 11, recent.FromIndex, recent.ByNext, 85, []string{"photos of 11, 2 relations"}},
		"beyond the page is the answer": {func(b bench) {
			b.broadcasts(21, false, 99)
			b.broadcasts(22, false, 95)
			b.broadcasts(23, true, 94)
			b.broadcasts(24, true, 93)
			b.page(1)
		}, 23, recent.FromIndex, recent.ByNext, 93, []string{"photos of 11, 4 relations", "photos of 23, 2 relations"}},
		"beyond the page are too many": {func(b bench) {
			for id := member.ID(21); id < 21+600; id++ {
				b.broadcasts(id, id == 600, 1000-int64(id))
			}
			b.page(1)
		}, 600, recent.FromDatabase, recent.ByWalk, 0, []string{"photos of 11, 512 relations", "walk"}},
		"beyond the page may be others, newer than the best of all": {func(b bench) {
			b.broadcasts(21, true, -99)
			b.broadcasts(22, false, 85)
			b.broadcasts(23, true, 83)
			b.store.DeletePhoto(1100)
			b.store.AddPhoto(1101, 11, "photo", contacts.Public, 82)
			b.page(1)
		}, 23, recent.FromIndex, recent.ByLowest, 81, []string{"photos of 11, 1 relations", "photos of 21", "standings of 5", "standings of 7", "photos of 23"}},
		"twice beyond the page": {func(b bench) {
			b.broadcasts(21, false, 99)
			b.broadcasts(22, false, 91)
			b.broadcasts(23, true, 79)
			b.broadcasts(24, true, 73)
			b.store.DeletePhoto(1100)
			b.store.AddPhoto(1101, 11, "photo", contacts.Public, 65)
			b.store.DeletePhoto(1200)
			b.store.AddPhoto(1201, 12, "photo", contacts.Public, 72)
			b.page(1)
		}, 23, recent.FromIndex, recent.ByLowest, 71, []string{"photos of 11, 2 relations", "standings of 6", "standings of 8", "photos of 23"}},
		"beyond the page may be others, older than a contact": {func(b bench) {
			b.broadcasts(21, true, 99)
			b.broadcasts(22, false, 95)
			b.page(1)
		}, 21, recent.FromIndex, recent.ByNext, 95, []string{"photos of 11, 2 relations", "photos of 21"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(recent.Options{})
			b.contact(11, 90)
			b.contact(12, 80)
			b.contact(13, 70)
			b.contact(14, 60)
			test.make(b)
			a := b.read(t, test.shown, test.source)
			b.called(t, test.calls...)
			if a.Trace.Proof != test.proof || a.Trace.Bound() != test.bound {
				t.Errorf("proven by %q with the bound %d, want %q, %d", a.Trace.Proof, a.Trace.Bound(), test.proof, test.bound)
			}
			b.hinted(t)
		})
	}
}

// A read of a viewer whose last answer was a broadcast member's begins with the first of these.
func TestReadsOfAFan(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		then   func(b bench) // after the first read
		shown  member.ID
		source recent.Source
		calls  []string
	}{
		"the same again": {func(bench) {}, 21, recent.FromIndex, []string{"photos of 21"}},
		"the first is none": {func(b bench) {
			b.store.RemoveContact(me.ID, 21)
			b.broadcasts(22, true, 97)
		}, 22, recent.FromIndex, []string{"photos of 21", "photos of 22, 2 relations"}},
		"the first two are none": {func(b bench) {
			b.store.RemoveContact(me.ID, 21)
			b.broadcasts(22, false, 97)
			b.broadcasts(23, true, 96)
		}, 23, recent.FromIndex, []string{"photos of 21", "photos of 22, 3 relations", "photos of 23, 2 relations"}},
		"none is": {func(b bench) {
			b.store.RemoveContact(me.ID, 21)
		}, 11, recent.FromIndex, []string{"photos of 21", "photos of 11, 1 relations"}},
		"the first has nothing to show any more": {func(b bench) {
			b.store.DeletePhoto(2100)
		}, 11, recent.FromIndex, []string{"photos of 21", "photos of 11, 1 relations", "standings of 4"}},
		"the first shows what is older": {func(b bench) {
			b.store.AddPhoto(2101, 21, "photo", contacts.Public, 85)
			b.store.DeletePhoto(2100)
		}, 11, recent.FromIndex, []string{"photos of 21", "standings of 4", "photos of 11"}},
		"it is none any more": {func(b bench) {
			b.index.broadcast.Entries = nil
			b.store.RemoveContact(me.ID, 21)
		}, 11, recent.FromIndex, []string{"photos of 11"}},
		"beyond the page": {func(b bench) {
			b.store.RemoveContact(me.ID, 21)
			b.broadcasts(22, false, 97)
			b.broadcasts(23, true, 96)
			b.page(1)
		}, 23, recent.FromIndex, []string{"photos of 21", "photos of 22, 3 relations", "photos of 23, 2 relations"}},
		"beyond the page, and the first has left": {func(b bench) {
			b.store.RemoveContact(me.ID, 21)
			b.broadcasts(22, true, 95)
			b.page(1)
			b.index.broadcast.More = func(context.Context, uint64) index.Copy { return index.Copy{Bound: 79} }
			b.store.RemoveContact(me.ID, 22)
		}, 11, recent.FromIndex, []string{"photos of 21", "photos of 11"}},
		"beyond the page, which cannot be read": {func(b bench) {
			b.store.RemoveContact(me.ID, 21)
			b.broadcasts(22, true, 97)
			b.page(1)
			b.index.broadcast.More = nil
		}, 22, recent.FromDatabase, []string{"photos of 21", "walk"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(recent.Options{})
			b.contact(11, 90)
			b.contact(12, 80)
			b.contact(13, 70)
			b.broadcasts(21, true, 99)
			b.read(t, 21, recent.FromIndex)
			b.called(t, "photos of 11, 1 relations", "photos of 21")
			b.store.calls = nil
			test.then(b)
			b.read(t, test.shown, test.source)
			b.called(t, test.calls...)
			b.store.calls = nil
			if test.shown == 11 && len(b.index.broadcast.Entries) > 0 && b.index.broadcast.More == nil { // it is a fan no longer
				b.read(t, 11, recent.FromIndex)
				if b.store.calls[0] != "photos of 11, 1 relations" {
					t.Errorf("then it was asked for %q", b.store.calls)
				}
			}
		})
	}
}

// A viewer with fewer than min contacts in its set follows no others but broadcast members.
func TestReadOfFewContactsWithBroadcastMembers(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, -90)
	b.broadcasts(21, false, 99)
	b.broadcasts(22, true, 50)
	b.read(t, 22, recent.FromIndex)
	b.called(t, "photos of 11, 1 relations", "standings of 3", "photos of 22")
	b.index.broadcast.Bound = 50
	b.index.broadcast.Entries = b.index.broadcast.Entries[:1]
	if a := b.read(t, 22, recent.FromDatabase); a.Trace.WalkReason != recent.NothingVisible {
		t.Errorf("it walked because %s", a.Trace.WalkReason)
	}
}

// Without a copy the set is not enough, unless there are no broadcast members.
func TestReadWithoutCopy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		some   bool
		source recent.Source
		reason string
		hints  []string
	}{
		"missing, and there are none": {index.ErrMissing, false, recent.FromIndex, "", nil},
		"missing":                     {index.ErrMissing, true, recent.FromDatabase, recent.NoBroadcastSet, []string{"refill 9007199254740919"}},
		"away, and there are none":    {errors.New("away"), false, recent.FromIndex, "", nil},
		"malformed":                   {index.ErrMalformed, true, recent.FromDatabase, recent.NoBroadcastSet, []string{"refill 9007199254740919"}},
		"unknown":                     {index.ErrUnknown, true, recent.FromDatabase, recent.SetUnknown, nil},
		"away":                        {errors.New("away"), true, recent.FromDatabase, recent.RedisUnavailable, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(recent.Options{})
			b.contact(11, 90)
			b.contact(12, 80)
			b.contact(13, 70)
			if test.some {
				b.store.SetBroadcast(77, contacts.Broadcast{State: contacts.Joined})
			}
			b.index.broadcast = index.Copy{Of: member.Copies[3], Err: test.err}
			a := b.read(t, 11, test.source)
			if a.Trace.WalkReason != test.reason || a.Trace.Broadcast != (recent.CopyRead{}) {
				t.Errorf("it walked because %q, want %q; %+v", a.Trace.WalkReason, test.reason, a.Trace.Broadcast)
			}
			b.hinted(t, test.hints...)
		})
	}
}

// A copy that may lack what is not written yet makes a read walk, unless there are no broadcast members.
func TestReadWithACopyThatIsBehind(t *testing.T) {
	t.Parallel()
	for some, want := range map[bool]recent.Source{false: recent.FromIndex, true: recent.FromDatabase} {
		b := newBench(recent.Options{})
		b.contact(11, 90)
		b.contact(12, 80)
		b.contact(13, 70)
		// Which would have a read ask for more.
		b.index.broadcast = index.Copy{Of: member.Copies[3], IsBehind: true, Entries: []index.Entry{{Contact: 77, Score: 99}}, Bound: 95}
		if some {
			b.store.SetBroadcast(77, contacts.Broadcast{State: contacts.Joined})
		}
		if a := b.read(t, 11, want); some && a.Trace.WalkReason != recent.WritesRefused {
			t.Errorf("it walked because %q", a.Trace.WalkReason)
		}
	}
}

// lateNone is a store that takes its time to say that there are no broadcast members.
type lateNone struct {
	*countingStore

	took time.Duration
}

func (s lateNone) AnyBroadcast(context.Context) (bool, error) {
	time.Sleep(s.took) //nolint:forbidigo // the time of the bubble
	return false, nil
}

// That there are no broadcast members says nothing of a set that was read long before: there may have been one then.
func TestNoneIsOfTheMoment(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]recent.Source{2900 * time.Millisecond: recent.FromIndex, 3100 * time.Millisecond: recent.FromDatabase} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(recent.Options{})
			b.contact(11, 90)
			b.contact(12, 80)
			b.contact(13, 70)
			b.index.broadcast = index.Copy{Of: member.Copies[3], Err: index.ErrMissing}
			b.Reader = recent.NewReader(b.index, lateNone{b.store, took}, b.hints, recent.Options{Min: 3})
			b.read(t, 11, want)
		})
	}
}

// Who is a contact is decided with the photos: what an earlier statement said of those before them does not count.
func TestAContactThatComesBetweenTwoStatements(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 90)
	b.contact(12, 80)
	b.contact(13, 70)
	b.broadcasts(21, false, 99)
	b.broadcasts(22, true, 95)
	b.store.before = func(_ context.Context, call string) error {
		if call == "photos of 22, 1 relations" {
			b.store.SetContact(me.ID, 21, false, false)
		}
		return nil
	}
	b.read(t, 21, recent.FromIndex)
	b.called(t, "photos of 11, 2 relations", "photos of 22, 1 relations", "photos of 21")
}
