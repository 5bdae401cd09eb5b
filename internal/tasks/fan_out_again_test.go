package tasks_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// followersOf returns followers by their numbers.
func followersOf(numbers ...uint64) (users []member.ID) {
	for _, i := range numbers {
		users = append(users, viewer+id(i))
	}
	return users
}

// rest runs the waiting tasks, until all that is left is postponed, and returns the types of the tasks
// that were done.
func (b *bench) rest() (done []string) {
	b.Helper()
	b.ahead += time.Minute
	for again := true; again; {
		_, err := b.queue.Sweep(b.Context())
		b.must(err)
		again = false
		for _, name := range []string{tasks.QueueDefault, tasks.QueueFanOut, tasks.QueueFanOutAgain} {
			for list := claimFor(b.T, b.queue, name, 1, time.Hour); len(list) > 0; list = claimFor(b.T, b.queue, name, 1, time.Hour) {
				o := b.uploads.Handle(b.Context(), list)[0]
				if o.Err == nil {
					done, again = append(done, list[0].Kind), true
				}
				b.finish(list[0], o)
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

// Sets on a node that is away hold up neither the rest nor later uploads. Their pages come again until the node is
// back, and do not grow with the uploads.
func TestANodeThatIsAwayHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	for size, pages := range map[int]int{2: 4, 3: 3, 100: 1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.uploads.PartSize = size
			b.followers(7)
			b.hooked.away = followersOf(0, 2, 4)
			for score := uint64(900); score < 905; score++ {
				b.upload(star, score)
				enqueue(t, b.queue, tasks.NewUpload(star))
				b.rest()
				b.know(7, score, 0, 2, 4)
			}
			if n := b.open(); n > pages {
				t.Errorf("%d tasks are left for %d pages", n, pages)
			}
			b.hooked.away = nil
			if done := b.rest(); !slices.Contains(done, tasks.FanOutAgain) || b.open() > 0 {
				t.Errorf("done %v, %d left", done, b.open())
			}
			b.know(7, 904)
		})
	}
}

// While its nodes are away, a page costs a look in memory: nothing is read or written.
func TestAPageThatWaitsCostsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.followers(6)
	b.upload(star, 900)
	b.hooked.away = followersOf(0, 2, 4)
	enqueue(t, b.queue, tasks.NewUpload(star))
	b.rest()
	b.hooked.calls = nil
	if b.rest(); len(b.hooked.calls) > 0 || b.open() != 1 {
		t.Errorf("calls %q, %d left", b.hooked.calls, b.open())
	}
}

// A node that is back waits for no node that is away.
func TestNodesComeBackOneByOne(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads.PartSize = 3
	b.followers(9)
	b.upload(star, 900)
	b.hooked.away = followersOf(0, 1, 5, 8)
	enqueue(t, b.queue, tasks.NewUpload(star))
	b.rest()
	b.know(9, 900, 0, 1, 5, 8)
	b.hooked.away = followersOf(0, 8)
	b.rest()
	b.know(9, 900, 0, 8)
	b.hooked.away = followersOf(1, 5)
	b.rest()
	b.know(9, 900)
	b.hooked.away = nil
	b.rest()
	if n := b.open(); n > 0 {
		t.Errorf("%d tasks are left", n)
	}
}

// A page that is left has the time of its upload, so that the lag is counted, and a queue of its own. The fan-out goes on.
func TestAPageThatIsLeft(t *testing.T) {
	t.Parallel()
	for first, away := range map[member.ID][]member.ID{9001: followersOf(0, 2), 9002: followersOf(1)} {
		b := newBench(t)
		b.uploads.PartSize = 2
		b.followers(3)
		b.upload(star, 900)
		b.hooked.away = away
		upload := queue.Task{Kind: tasks.Upload, Key: uint64(star), Attempts: 1, MaxAttempts: 25, Created: time.Now()}
		o := b.uploads.Handle(t.Context(), []queue.Task{upload})[0]
		b.must(o.Err)
		want := fmt.Sprintf(`{"to":"9002","for":"%d","since":%d}`, first, upload.Created.UnixMilli())
		n := o.Next[0]
		if n.Kind != tasks.FanOutAgain || n.Queue != tasks.QueueFanOutAgain || string(n.Payload) != want || n.Delay == 0 ||
			n.DedupeKey != fmt.Sprintf("fan_out_again:%d:0:9002:%d", star, first) {
			t.Errorf("followed by %+v, want %s", n, want)
		}
		if len(o.Next) != 2 || o.Next[1].Kind != tasks.FanOut {
			t.Errorf("followed by %+v", o.Next)
		}
	}
}

// A user that fails is no failure of its batch.
func TestAUserThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for i := range uint64(3) {
		b.ladder(viewer+id(i), 3)
	}
	b.hooked.away = followersOf(1)
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
