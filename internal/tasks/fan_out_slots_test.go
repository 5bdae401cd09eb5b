package tasks_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// slotsOf returns the slots of the followers with these numbers.
func slotsOf(numbers ...uint64) index.Slots {
	var users []member.ID
	for _, i := range numbers {
		users = append(users, viewer+id(i))
	}
	return index.SlotsOfUsers(users...)
}

// rest runs what waits, one by one, until nothing does that can be done now, and returns
// the types of the tasks that were done. The others are postponed.
func (b *bench) rest() (done []string) {
	b.Helper()
	b.ahead += time.Minute
	for again := true; again; {
		_, err := b.queue.Sweep(b.Context())
		b.must(err)
		again = false
		for _, name := range []string{tasks.QueueDefault, tasks.QueueFanOut, tasks.QueueFanOutSlots} {
			for list := claimFor(b.T, b.queue, name, 1, time.Hour); len(list) > 0; list = claimFor(b.T, b.queue, name, 1, time.Hour) {
				task := list[0]
				o := b.uploads.Handle(b.Context(), list)[0]
				switch {
				case o.Err == nil:
					done, again = append(done, task.Kind), true
				case errors.Is(o.Err, index.ErrUnavailable):
					o.Err = queue.Later(time.Minute, o.Err)
				default:
					b.Fatal(o.Err)
				}
				b.finish(task, o)
			}
		}
	}
	return done
}

// know expects of all n followers that they know star's upload, or, of some, that they
// do not.
func (b *bench) know(n, score uint64, but ...uint64) {
	b.Helper()
	for i := range n {
		knows := slices.Contains(b.set(viewer+id(i)), index.Entry{Contact: star, Score: score})
		if knows == slices.Contains(but, i) {
			b.Errorf("follower %d knows the upload at %d: %v", i, score, knows)
		}
	}
}

// Slots that are out hold up no others, nor later uploads; what is left for them is one
// task, which is done when they are back.
func TestSlotsThatAreOutHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2, 3, 100} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.uploads.PartSize = size
			b.followers(7)
			b.hooked.away = slotsOf(0, 3, 4)
			for score := uint64(900); score < 905; score++ {
				b.upload(star, score)
				enqueue(t, b.queue, tasks.NewUpload(star))
				b.rest()
				b.know(7, score, 0, 3, 4)
			}
			if n := b.open(); n > 2 { // one that was tried, and one of the last upload
				t.Errorf("%d tasks are left", n)
			}
			b.hooked.away = index.Slots{}
			if done := b.rest(); !slices.Contains(done, tasks.FanOutSlots) || b.open() > 0 {
				t.Errorf("done %v, %d left", done, b.open())
			}
			b.know(7, 904)
		})
	}
}

// All that is left for the same slots is done at once.
func TestWhatIsLeftForTheSameSlotsIsOneFanOut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.followers(4)
	b.hooked.away = slotsOf(1, 2)
	for score := uint64(900); score < 910; score++ {
		b.upload(star, score)
		enqueue(t, b.queue, tasks.NewUpload(star))
		for _, name := range []string{tasks.QueueDefault, tasks.QueueFanOut, tasks.QueueFanOutSlots} {
			b.ahead += time.Minute
			_, err := b.queue.Sweep(t.Context())
			b.must(err)
			b.try(name, 100, time.Hour)
		}
	}
	b.hooked.away, b.hooked.tried = index.Slots{}, 0
	b.ahead += 2 * time.Hour
	if done := b.rest(); len(done) != 1 || b.hooked.tried != 2 {
		t.Errorf("done %v, %d additions, want one fan-out to 2 sets", done, b.hooked.tried)
	}
	b.know(4, 909)
}

// While its slots are out, an attempt costs little: a small page, and no more tasks.
func TestAnAttemptAtSlotsThatAreOutIsCheap(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads.PartSize = 10_000
	b.followers(3000)
	b.upload(star, 900)
	some := make([]uint64, 0, 1500)
	for i := uint64(0); i < 3000; i += 2 {
		some = append(some, i)
	}
	b.hooked.away = slotsOf(some...)
	enqueue(t, b.queue, tasks.NewUpload(star))
	b.rest()
	for range 3 {
		b.hooked.calls, b.hooked.tried = nil, 0
		if done := b.rest(); len(done) > 0 {
			t.Errorf("done %v", done)
		}
		b.called("Dedupe", "LastUploads", "FanOutPages", "Add")
		if b.hooked.tried > 100 || b.open() != 1 {
			t.Errorf("an attempt tried %d sets, %d tasks are left", b.hooked.tried, b.open())
		}
	}
	b.hooked.away = index.Slots{}
	b.rest()
	b.know(3000, 900)
}

// When some of the slots are back, their sets are updated, and the others are left.
func TestSlotsThatComeBackAreDone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads.PartSize = 3
	b.followers(9)
	b.upload(star, 900)
	b.hooked.away = slotsOf(0, 1, 5, 8)
	enqueue(t, b.queue, tasks.NewUpload(star))
	b.rest()
	b.know(9, 900, 0, 1, 5, 8)
	b.hooked.away = slotsOf(1, 8)
	b.rest()
	b.know(9, 900, 1, 8)
	b.hooked.away = slotsOf(0, 8) // another one
	b.upload(star, 950)
	enqueue(t, b.queue, tasks.NewUpload(star))
	b.rest()
	b.know(9, 950, 0, 8)
	b.hooked.away = index.Slots{}
	b.rest()
	b.know(9, 950)
	if n := b.open(); n > 0 {
		t.Errorf("%d tasks are left", n)
	}
}

// An upload whose followers are all away is done; what it leaves does not hold up a later
// one.
func TestAnUploadWithoutReachableFollowers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.followers(1)
	b.hooked.away = slotsOf(0)
	for score := uint64(900); score < 903; score++ {
		b.upload(star, score)
		enqueue(t, b.queue, tasks.NewUpload(star))
		if done := b.rest(); !slices.Contains(done, tasks.Upload) {
			t.Errorf("done %v", done)
		}
	}
	b.contact(viewer+1, star, 0) // one that can be
	b.refill(viewer + 1)
	b.upload(star, 950)
	enqueue(t, b.queue, tasks.NewUpload(star))
	b.rest()
	b.know(2, 950, 0)
	b.hooked.away = index.Slots{}
	b.rest()
	b.know(2, 950)
}

// What is left is not urgent, even if its upload was: it waits for a server anyway. Its
// dedupe key is its slots alone, so that any two are the same work. It has the time of its
// upload, so that the lag is counted, and a queue of its own, where no older process looks.
func TestWhatIsLeftIsTheSameForTheSameSlots(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.followers(3)
	b.upload(star, 900)
	b.hooked.away = slotsOf(2)
	upload := queue.Task{Kind: tasks.Upload, Key: uint64(star), Attempts: 1, MaxAttempts: 25, Created: time.Now()}
	o := b.uploads.Handle(t.Context(), []queue.Task{upload})[0]
	b.must(o.Err)
	want := fmt.Sprintf(`{"slots":%q,"since":%d}`, b.hooked.away.String(), upload.Created.UnixMilli())
	if len(o.Next) != 1 || o.Next[0].Kind != tasks.FanOutSlots || o.Next[0].Queue != tasks.QueueFanOutSlots || string(o.Next[0].Payload) != want || o.Next[0].Delay != 0 ||
		o.Next[0].DedupeKey != fmt.Sprintf("fan_out_slots:%d:0:%s", star, b.hooked.away) {
		t.Errorf("followed by %+v, want %s", o.Next, want)
	}
}

// Slots that move are tried again at once, those of a node that is away after a pause.
func TestSlotsOfANodeAreLeftAlone(t *testing.T) {
	t.Parallel()
	for n, pause := range map[uint64]bool{1: false, 300: true} {
		b := newBench(t)
		b.uploads.PartSize = 1000
		b.followers(n + 1)
		b.upload(star, 900)
		some := make([]uint64, n)
		for i := range some {
			some[i] = uint64(i)
		}
		b.hooked.away = slotsOf(some...)
		upload := queue.Task{Kind: tasks.Upload, Key: uint64(star), Attempts: 1, MaxAttempts: 25}
		o := b.uploads.Handle(t.Context(), []queue.Task{upload})[0]
		b.must(o.Err)
		if len(o.Next) != 1 || (o.Next[0].Delay > 0) != pause {
			t.Errorf("%d users: followed by %d tasks, the first after %v", n, len(o.Next), o.Next[0].Delay)
		}
	}
}

// Slots that are too scattered for a dedupe key are hashed.
func TestTheKeyOfManySlotsIsShort(t *testing.T) {
	t.Parallel()
	var some []uint64
	for i := range uint64(100) {
		some = append(some, i)
	}
	b := newBench(t)
	b.followers(101)
	b.upload(star, 900)
	b.hooked.away = slotsOf(some...)
	enqueue(t, b.queue, tasks.NewUpload(star))
	task := claim(t, b.queue, 1)[0]
	o := b.finish(task, b.uploads.Handle(t.Context(), []queue.Task{task})[0])
	if len(o.Next) != 1 || len(o.Next[0].DedupeKey) > 100 || !strings.Contains(string(o.Next[0].Payload), b.hooked.away.String()) {
		t.Errorf("followed by %+v", o.Next)
	}
	b.hooked.away = index.Slots{}
	b.rest()
	b.know(101, 900)
}

// One user that fails is no failure of the others of its batch.
func TestAUserThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range uint64(3) {
		b.ladder(viewer+id(i), 3)
	}
	b.hooked.away = slotsOf(1)
	for _, h := range []struct {
		handler queue.Handler
		task    func(user id) queue.New
	}{
		{b.refills, tasks.NewRefill},
		{b.pairs, func(user id) queue.New { return tasks.NewAddContact(user, 2) }},
	} {
		errs := b.handle(h.handler, h.task(viewer), h.task(viewer+1), h.task(viewer+2), h.task(viewer+1))
		for i, err := range errs {
			if away := i%2 == 1; errors.Is(err, index.ErrUnavailable) != away || !away && err != nil {
				t.Errorf("task %d: %v", i, err)
			}
		}
		b.holds(viewer, steps(1, 3)...)
		b.holds(viewer + 1)
		b.holds(viewer+2, steps(1, 3)...)
	}
}

// A set that fails at Apply fails alone, whether or not it was written.
func TestAnApplyThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range uint64(3) {
		b.ladder(viewer+id(i), 3)
	}
	b.once("Apply", func() { b.hooked.away = slotsOf(2) })
	errs := b.handle(b.refills, tasks.NewRefill(viewer), tasks.NewRefill(viewer+1), tasks.NewRefill(viewer+2))
	if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], index.ErrUnavailable) {
		t.Errorf("errors %v", errs)
	}
	b.called("Begin", "TopContacts", "Apply")
	b.holds(viewer+1, steps(1, 3)...)
}
