package check

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

func TestARightSetIsLookedAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r := b.check(t)
	found(t, r)
	if r.Checked != 1 || r.Erroneous != 0 || r.Unsettled != 0 || b.index.looks != 1 {
		t.Errorf("%+v after %d looks", r, b.index.looks)
	}
}

func TestAnErrorIsSeenThreeTimes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.upload(20, 300)
	r := b.check(t)
	found(t, r, "error stale score")
	if b.index.looks != 6 || r.Erroneous != 1 || r.Checked != 1 {
		t.Errorf("%+v after %d looks, want 6: the set before and after, three times", r, b.index.looks)
	}
	if f := r.Findings[0]; f.User != viewer || f.Contact != 20 || f.Stored != 200 || f.Actual != 300 {
		t.Errorf("%+v", f)
	}
}

func TestPendingTasksMakeALag(t *testing.T) {
	t.Parallel()
	far := tasks.NewFanOut(20, 0)
	far.Delay = time.Hour
	for name, c := range map[string]struct {
		task queue.New
		lag  bool
	}{
		"the upload":               {tasks.NewUpload(20), true},
		"a part of its fan-out":    {far, true},
		"a contact's change":       {tasks.NewRemoveContact(viewer, 11), true},
		"an addition":              {tasks.NewAddContact(viewer, 999), true},
		"a refill":                 {tasks.NewRefill(viewer), true},
		"another one's upload":     {tasks.NewUpload(19), false},
		"another one's refill":     {tasks.NewRefill(20), false},
		"the upload of the viewer": {tasks.NewUpload(viewer), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.upload(20, 300)
			b.enqueue(t, c.task)
			want := "error stale score"
			if c.lag {
				want = "lag stale score"
			}
			found(t, b.check(t), want)
		})
	}
}

// News of a contact only ever add it and raise its score.
func TestAGhostAndAHighScoreDoNotWaitForUploads(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.upload(20, 300)
	b.refill(t, viewer)
	b.store.RemoveContact(viewer, 20)
	b.enqueue(t, tasks.NewUpload(20), tasks.NewFanOut(20, 5))
	if _, failed := b.index.Add(t.Context(), []index.Addition{{Member: viewer, Entry: index.Entry{Contact: 19, Score: 999}}}); len(failed) > 0 {
		t.Fatal(failed)
	}
	b.enqueue(t, tasks.NewUpload(19))
	found(t, b.check(t), "waste ghost", "waste high score")
	b.enqueue(t, tasks.NewRemoveContact(viewer, 20))
	found(t, b.check(t), "lag ghost", "lag high score")
}

// A lost set waits for whoever of its contacts is about to be told, and for
// nobody else.
func TestALostSetWaitsForItsContacts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.index.Forget(viewer)
	b.enqueue(t, tasks.NewUpload(viewer))
	found(t, b.check(t), "error lost set")
	b.enqueue(t, tasks.NewUpload(16))
	found(t, b.check(t), "lag lost set")
}

func TestRunningAndScheduledArePendingAndDeadIsNot(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.upload(20, 300)
	b.enqueue(t, tasks.NewUpload(20))
	claim := func() queue.Task {
		t.Helper()
		list, err := b.queue.Claim(t.Context(), tasks.QueueDefault, 1, time.Minute)
		must(t, err)
		return list[0]
	}
	finish := func(task queue.Task, result error) {
		t.Helper()
		_, err := b.queue.Finish(t.Context(), []queue.Result{{Task: task, Err: result}})
		must(t, err)
	}
	task := claim()
	found(t, b.check(t), "lag stale score")
	finish(task, queue.Later(time.Hour, errors.New("away")))
	found(t, b.check(t), "lag stale score")
	_, err := b.queue.Retry(t.Context(), queue.Filter{}, 10)
	must(t, err)
	finish(claim(), queue.Permanent(errors.New("no such thing")))
	found(t, b.check(t), "error stale score")
}

// A site that reports by HTTP commits its task a moment after its change.
func TestATaskThatComesLateIsALag(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.upload(20, 300)
	b.index.before = func(look int) {
		if look == 5 { // of the third time
			b.enqueue(t, tasks.NewUpload(20))
		}
	}
	found(t, b.check(t), "lag stale score")
}

// The task was finished between the look at the set and that at the tasks.
func TestASetThatMovesIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.upload(20, 300)
	b.index.before = func(look int) {
		if look == 2 {
			b.refill(t, viewer)
		}
	}
	r := b.check(t)
	found(t, r)
	if r.Checked != 1 || b.index.looks != 3 {
		t.Errorf("%+v after %d looks", r, b.index.looks)
	}
}

// A-B-A: a single look may be deceived, but not three.
func TestADifferenceThatPassesIsNone(t *testing.T) {
	t.Parallel()
	for _, healed := range []int{3, 5} {
		b := newBench(t)
		b.upload(20, 300)
		b.index.before = func(look int) {
			if look == healed {
				b.refill(t, viewer)
			}
		}
		found(t, b.check(t))
	}
}

func TestWhatNeverRestsIsUnsettled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.index.before = func(look int) {
		b.upload(20, 300+uint64(look)) // another difference each time
		if look%2 == 0 {
			b.refill(t, viewer)
		}
	}
	r := b.check(t)
	found(t, r)
	if r.Unsettled != 1 || r.Checked != 0 || r.Erroneous != 0 {
		t.Errorf("%+v", r)
	}
}

func TestCheckOfManyAndOfTwiceTheSame(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	users := []member.ID{viewer, viewer}
	for id := member.ID(1000); id < 2200; id++ {
		b.store.AddMember(id, "one more")
		users = append(users, id)
	}
	b.store.SetContact(2100, 15, false, false)
	r, err := b.Check(t.Context(), users)
	must(t, err)
	found(t, r, "error lost set")
	if r.Checked != 1201 || r.Findings[0].User != 2100 {
		t.Errorf("%+v", r)
	}
	if n, err := b.Repair(t.Context(), r.Wrong); err != nil || n != 1 {
		t.Errorf("repaired %d, %v", n, err)
	}
	list, err := b.queue.List(t.Context(), queue.Filter{Key: 2100}, 10)
	must(t, err)
	if len(list) != 1 || list[0].Kind != tasks.Refill || list[0].Priority != queue.Idle {
		t.Errorf("%+v", list)
	}
	b.refill(t, 2100)
	found(t, b.check(t))
}

func TestErrorsAndTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.upload(20, 300)
	ctx, cancel := context.WithCancel(t.Context())
	b.index.before = func(look int) {
		if look == 3 {
			cancel()
		}
	}
	if r, err := b.Check(ctx, []member.ID{viewer}); !errors.Is(err, context.Canceled) || len(r.Findings) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	b.index.FailIf = func(string, member.ID) (bool, error) { return false, index.ErrSettings }
	if _, err := b.Check(t.Context(), []member.ID{viewer}); !errors.Is(err, index.ErrSettings) {
		t.Errorf("%v, want ErrSettings", err)
	}
}

// A node that is away, or whose sets may be old, hides only the sets on it.
func TestANodeThatIsAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]error{"it is away": index.ErrUnavailable, "its sets may be old": index.ErrUnknown} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			for id := member.ID(2); id <= 4; id++ {
				b.store.AddMember(id, "one more")
				b.store.SetContact(id, 15, false, false)
			}
			looks := 0
			b.index.before = func(look int) { looks = look }
			b.index.FailIf = func(_ string, user member.ID) (bool, error) {
				if user == 2 || user == 3 && looks == 2 { // that of 3 goes away after the first look
					return false, away
				}
				return true, nil
			}
			r, err := b.Check(t.Context(), []member.ID{viewer, 2, 3, 4})
			must(t, err)
			found(t, r, "error lost set")
			if r.Checked != 2 || r.Erroneous != 1 || r.Findings[0].User != 4 || len(r.Failed) != 2 || !errors.Is(r.Failed[2], away) || !errors.Is(r.Failed[3], away) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// The argument of the package comment stands on this order.
func TestTheOrderOfALook(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.upload(20, 300)
	b.enqueue(t, tasks.NewUpload(20))
	o := &ordered{}
	b.index.before = func(int) { o.note("set") }
	c := &Checker{Sets: b.index, Truth: orderedTruth{o, b.store}, Tasks: orderedTasks{o, b.queue}}
	_, err := c.Check(t.Context(), []member.ID{viewer})
	must(t, err)
	if got, want := strings.Join(o.calls, ", "), "set, relations, top, upload, add_contact, set"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

// ordered notes who is asked, and when.
type ordered struct{ calls []string }

func (o *ordered) note(call string) { o.calls = append(o.calls, call) }

type orderedTruth struct {
	*ordered
	Truth
}

func (o orderedTruth) Relations(ctx context.Context, pairs []contacts.Pair) (map[contacts.Pair]uint64, error) {
	o.note("relations")
	return o.Truth.Relations(ctx, pairs)
}

func (o orderedTruth) TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]contacts.Contact, error) {
	o.note("top")
	return o.Truth.TopContacts(ctx, users, limit)
}

type orderedTasks struct {
	*ordered
	Tasks
}

func (o orderedTasks) Pending(ctx context.Context, kinds []string, keys []uint64) (map[uint64]bool, error) {
	o.note(kinds[0])
	return o.Tasks.Pending(ctx, kinds, keys)
}
