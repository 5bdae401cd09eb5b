package tasks_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/site"
	"github.com/activityd/activityd/internal/tasks"
)

// slowSets is an index in which telling followers takes a second.
type slowSets struct{ tasks.Index }

func (slowSets) Add(context.Context, []index.Addition) ([]member.ID, error) {
	deaf(time.Second)
	return nil, nil
}

// The end of a fan-out tells how many followers it had, and how long they waited
// from the upload's task on: in the queue, too, and for all parts of the chain.
func TestAFanOutTellsItsLag(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		followers int
		event     string
	}{
		"no follower": {0, "fanned out in 5s 0"}, // with nothing to write
		"one part":    {1, "fanned out in 6s 1"},
		"four parts":  {6, "fanned out in 8s 6"}, // the last of which is empty
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				told := &noted{}
				s := &site.Memory{Store: contacts.NewMemory()}
				must(t, s.AddMember(t.Context(), star, "star"))
				for i := range test.followers {
					must(t, s.AddMember(t.Context(), viewer+id(i), "follower"))
					must(t, s.SetContact(t.Context(), viewer+id(i), star, site.Grant{}))
				}
				_, err := s.Upload(t.Context(), site.Photo{Owner: star, Visibility: contacts.Public, DateUpload: 100})
				must(t, err)
				q := queue.NewMemoryQueue(queue.Options{}, time.Now)
				handlers := tasks.Handlers(slowSets{}, s.Store, q, tasks.HandlerOptions{PartSize: 2, Observer: told})
				enqueue(t, q, tasks.NewUpload(star))
				deaf(5 * time.Second)
				for _, name := range []string{tasks.QueueDefault, tasks.QueueFanOut} {
					for {
						list := claimFor(t, q, name, 1, time.Minute)
						if len(list) == 0 {
							break
						}
						must(t, errors.Join(handlers[list[0].Kind].Handle(t.Context(), list)...))
						finish(t, q, nil, list...)
					}
				}
				told.expect(t, test.event)
			})
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A chain that began before its beginning was noted has no lag to tell.
func TestAFanOutOfUnknownAgeTellsNothing(t *testing.T) {
	t.Parallel()
	b, told := newBench(t), &noted{}
	b.followers(1)
	b.upload(star, 900)
	b.uploads.Observer = told
	b.done(b.uploads, tasks.NewFanOut(star, 1))
	b.told(1, 900)
	told.expect(t)
}

func TestAbsorbedUploadsAreTold(t *testing.T) {
	t.Parallel()
	b, told := newBench(t), &noted{}
	b.contact(viewer, 1, 100)
	b.uploads.Observer = told
	held := claimAfter(b, tasks.NewUpload(1))
	enqueue(t, b.queue, tasks.NewUpload(1))
	b.must(errors.Join(b.uploads.Handle(t.Context(), held)...))
	if n := told.sum("upload absorbed"); n != 1 {
		t.Errorf("told of %d absorbed uploads", n)
	}
}

func claimAfter(b *bench, batch ...queue.New) []queue.Task {
	b.Helper()
	enqueue(b.T, b.queue, batch...)
	return claim(b.T, b.queue, len(batch))
}

// Conflicts are told whenever an update begins again, refills when they were
// read and written.
func TestConflictsAndRefillsAreTold(t *testing.T) {
	t.Parallel()
	b, told := newBench(t), &noted{}
	b.ladder(viewer, 12)
	b.pairs.Observer, b.refills.Observer = told, told
	b.once("Apply", func() { b.client.Del(t.Context(), "guard_{user_9001}") })
	b.refill(viewer)
	b.done(b.pairs, tasks.NewAddContact(viewer, 3)) // nothing is refilled for it
	told.expect(t, "conflicted 1", "refilled 1")
	b.client.Del(t.Context(), "user_9001")
	b.done(b.pairs, tasks.NewAddContact(viewer, 3)) // there is no set
	told.expect(t, "conflicted 1", "refilled 1", "refilled 1")
}

// A missing set that shall stay missing is not refilled, though its update is
// applied.
func TestNoRefillIsToldOfWhatStaysMissing(t *testing.T) {
	t.Parallel()
	b, told := newBench(t), &noted{}
	b.ladder(viewer, 3)
	b.pairs.ActiveOnly, b.pairs.Observer = true, told
	b.done(b.pairs, tasks.NewAddContact(viewer, 3))
	told.expect(t)
}
