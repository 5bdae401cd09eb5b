package tasks_test

import (
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// celebrity is a member with the followers 101 to 105.
const (
	celebrity = member.ID(1)
	followers = 5
)

// drain does all tasks that are due.
func (b *bench) drain(handlers map[string]queue.Handler) {
	b.Helper()
	_, err := b.queue.Sweep(b.Context())
	b.must(err)
	for worked := true; worked; {
		worked = false
		for _, name := range []string{tasks.QueueDefault, tasks.QueueFanOut, tasks.QueueRefill} {
			list, err := b.queue.Claim(b.Context(), name, 1, time.Minute)
			b.must(err)
			for _, t := range list {
				worked = true
				outcome := handlers[t.Kind].Handle(b.Context(), []queue.Task{t})
				b.must(outcome[0].Err)
				_, err := b.queue.Finish(b.Context(), []queue.Result{{Task: t, Next: outcome[0].Next}})
				b.must(err)
			}
		}
	}
}

// row expects the member's row, nil if there is none.
func (b *bench) row(want *contacts.Broadcast) {
	b.Helper()
	rows, err := b.hooked.Broadcasts(b.Context(), []member.ID{celebrity})
	b.must(err)
	got, found := rows[celebrity]
	if found != (want != nil) || found && (got.LastUpload != want.LastUpload || got.Named != want.Named || (got.Leaving != 0) != (want.Leaving != 0)) {
		b.Fatalf("the row is %+v (%v), want %+v", got, found, want)
	}
}

// A member becomes a broadcast member by the followers that a fan-out comes to, and ceases a day after they are few.
func TestABroadcastMemberComesAndGoes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handlers := tasks.Handlers(b.hooked, b.hooked, b.queue, tasks.HandlerOptions{PartSize: 2, BroadcastAt: 3, ConflictPause: -1})
	uploads := func(date uint64) {
		b.upload(celebrity, date)
		enqueue(t, b.queue, tasks.NewUpload(celebrity))
		b.drain(handlers)
	}
	sets := func(want uint64) {
		t.Helper()
		for i := range member.ID(followers) {
			b.holds(101+i, index.Entry{Contact: celebrity, Score: want})
		}
	}
	b.upload(celebrity, 100)
	for i := range member.ID(followers) {
		b.contact(101+i, celebrity, 0)
		b.refill(101 + i)
	}
	uploads(200)
	b.row(&contacts.Broadcast{LastUpload: 200})
	before := b.hooked.tried
	uploads(300)
	b.row(&contacts.Broadcast{LastUpload: 300})
	if b.hooked.tried != before {
		t.Errorf("an upload of a broadcast member went to %d sets", b.hooked.tried-before)
	}
	b.ahead += 25 * time.Hour // it has followers
	b.drain(handlers)
	b.row(&contacts.Broadcast{LastUpload: 300})
	handlers = tasks.Handlers(b.hooked, b.hooked, b.queue, tasks.HandlerOptions{PartSize: 2, BroadcastAt: 12, ConflictPause: -1})
	b.ahead += 25 * time.Hour
	b.drain(handlers)
	b.row(&contacts.Broadcast{LastUpload: 300, Leaving: 1})
	sets(300)
	uploads(400) // to the row and to the sets
	b.row(&contacts.Broadcast{LastUpload: 400, Leaving: 1})
	sets(400)
	b.ahead += time.Hour
	b.drain(handlers)
	b.row(nil)
	uploads(500)
	sets(500)
}

// A removal that is taken back leaves the row, and the next removal waits for its own fan-out.
func TestARemovalThatIsTakenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	handlers := tasks.Handlers(b.hooked, b.hooked, b.queue, tasks.HandlerOptions{ConflictPause: -1})
	b.contact(101, celebrity, 100)
	leave := func() queue.New {
		row, err := b.hooked.LeaveBroadcast(t.Context(), celebrity)
		b.must(err)
		return tasks.NewLeaving(row)
	}
	b.must(b.hooked.AddBroadcast(t.Context(), celebrity, true))
	enqueue(t, b.queue, leave())
	b.drain(handlers)
	b.must(b.hooked.AddBroadcast(t.Context(), celebrity, true))
	b.ahead += 2 * time.Hour
	b.drain(handlers)
	b.row(&contacts.Broadcast{LastUpload: 100, Named: true})
	leave()
	b.ahead += 2 * time.Hour
	b.drain(handlers)
	b.row(&contacts.Broadcast{LastUpload: 100, Named: true, Leaving: 1})
}
