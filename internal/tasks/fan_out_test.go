package tasks_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// star is the uploader of these tests.
const star member.ID = 50

// followers gives star n followers, 9001 and so on, each with a set, where star
// has the score 50.
func (b *bench) followers(n uint64) {
	b.Helper()
	var batch []queue.New
	for i := range n {
		b.contact(viewer+id(i), star, 50)
		b.contact(viewer+id(i), 1, 100)
		batch = append(batch, tasks.NewRefill(viewer+id(i)))
	}
	b.done(b.refills, batch...)
	b.hooked.calls = nil
}

// told expects all n followers to know star's upload.
func (b *bench) told(n, score uint64) {
	b.Helper()
	for i := range n {
		b.holds(viewer+id(i), index.Entry{Contact: 1, Score: 100}, index.Entry{Contact: star, Score: score})
	}
}

// finish records an outcome and returns it.
func (b *bench) finish(t queue.Task, o queue.Outcome) queue.Outcome {
	b.Helper()
	_, err := b.queue.Finish(b.Context(), []queue.Result{{Task: t, Err: o.Err, Next: o.Next}})
	b.must(err)
	return o
}

// work runs all tasks of the queue to their end, and returns their
// types.
func (b *bench) work() (types []string) {
	b.Helper()
	handlers := map[string]queue.Handler{tasks.Upload: b.uploads, tasks.FanOut: b.uploads, tasks.Refill: b.refills}
	for _, name := range []string{tasks.QueueDefault, tasks.QueueFanOut, tasks.QueueFanOutAgain, tasks.QueueRefill} {
		for {
			list := claimFor(b.T, b.queue, name, 1, time.Minute)
			if len(list) == 0 {
				break
			}
			types = append(types, list[0].Kind)
			b.must(b.finish(list[0], handlers[list[0].Kind].Handle(b.Context(), list)[0]).Err)
		}
	}
	return types
}

func TestAnUploadIsToldInParts(t *testing.T) {
	t.Parallel()
	for followers, parts := range map[uint64]int{0: 1, 1: 1, 2: 2, 5: 3, 6: 4} {
		b := newBench(t)
		b.uploads.PartSize = 2
		b.followers(followers)
		b.upload(star, 900)
		enqueue(t, b.queue, tasks.NewUpload(star))
		if types := b.work(); len(types) != parts {
			t.Errorf("%d followers: tasks %v, want %d", followers, types, parts)
		}
		b.told(followers, 900)
	}
}

// A part hands on the chain when it is written, with its end: a crash in between
// neither ends the chain nor, repeated, doubles it.
func TestAFanOutSurvivesACrash(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads.PartSize = 2
	b.followers(5)
	b.upload(star, 900)
	b.hooked.before = func(call string) error {
		if call == "Add" {
			return errors.New("crashed")
		}
		return nil
	}
	enqueue(t, b.queue, tasks.NewUpload(star))
	for range 2 {
		task := claim(t, b.queue, 1)[0]
		o := b.uploads.Handle(t.Context(), []queue.Task{task})[0]
		o.Err = queue.Later(0, o.Err)
		if next := (queue.Result{Task: task, Err: o.Err, Next: o.Next}).FollowUps(); len(next) > 0 {
			t.Fatalf("followed by %+v", next)
		}
		b.called("Active", "Dedupe", "LastUploads", "FollowerPages", "Add")
		finish(t, b.queue, o.Err, task)
	}
	b.hooked.before = nil
	if types := b.work(); len(types) != 3 {
		t.Errorf("tasks %v, want 3", types)
	}
	b.told(5, 900)
}

// A refusal by Redis may be the end of a page, but not of the chain.
func TestAPartThatMayDieHandsOnTheChain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads.PartSize = 2
	b.followers(5)
	b.upload(star, 900)
	part := queue.Task{Kind: tasks.FanOut, Key: uint64(star), Payload: tasks.NewFanOut(star, viewer-1).Payload, MaxAttempts: 25}
	for _, test := range []struct {
		attempts, next int
		err            error
	}{
		{1, 0, errors.New("no such thing")}, // it is tried again
		{25, 1, errors.New("no such thing")},
		{1, 1, nil},
	} {
		b.hooked.before = func(call string) error {
			if call == "Add" {
				return test.err
			}
			return nil
		}
		part.Attempts = test.attempts
		o := b.uploads.Handle(t.Context(), []queue.Task{part})[0]
		next := queue.Result{Task: part, Err: o.Err, Next: o.Next}.FollowUps()
		if !errors.Is(o.Err, test.err) || len(next) != test.next {
			t.Errorf("attempt %d: %v, followed by %+v, want %d", test.attempts, o.Err, next, test.next)
		}
	}
}

// An upload does a small page, whatever the size of the pages behind it.
func TestAnUploadDoesASmallPage(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads.PartSize = 10_000
	b.followers(2600)
	b.upload(star, 900)
	upload := queue.Task{Kind: tasks.Upload, Key: uint64(star), Attempts: 1, MaxAttempts: 25}
	o := b.uploads.Handle(t.Context(), []queue.Task{upload})[0]
	if o.Err != nil || len(o.Next) != 1 || o.Next[0].DedupeKey != fmt.Sprintf("fan_out:%d:%d", star, viewer+2499) {
		t.Errorf("%v, followed by %+v", o.Err, o.Next)
	}
}

// While Redis is away and is not known to be, a fan-out stays as long as it is: its tries make no more tasks than it has
// pages on each node, and afterwards all followers have the upload.
func TestAnOutageMakesAFanOutNoLonger(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads.PartSize = 2
	const followers, pages = 20, 10
	b.followers(followers)
	b.upload(star, 900)
	b.hooked.before = func(call string) error {
		if call == "Add" {
			return index.ErrUnavailable
		}
		return nil
	}
	enqueue(t, b.queue, tasks.NewUpload(star))
	for range 20 {
		b.tryAll()
	}
	if n := b.open(); n == 0 || n > 2*pages {
		t.Errorf("%d tasks after the outage for %d pages on two nodes", n, pages)
	}
	b.hooked.before = nil
	for range 20 {
		b.tryAll()
	}
	if n := b.open(); n > 0 {
		t.Errorf("%d tasks are open", n)
	}
	b.told(followers, 900)
}

// tryAll tries each task that waits once, four of a queue at most.
func (b *bench) tryAll() {
	b.Helper()
	b.ahead += time.Minute
	_, err := b.queue.Sweep(b.Context())
	b.must(err)
	for _, name := range []string{tasks.QueueDefault, tasks.QueueFanOut, tasks.QueueFanOutAgain} {
		for _, task := range claimFor(b.T, b.queue, name, 4, time.Hour) {
			b.finish(task, b.uploads.Handle(b.Context(), []queue.Task{task})[0])
		}
	}
}

// open is how many tasks are not done.
func (b *bench) open() int {
	b.Helper()
	c, err := queuetest.Count(b.Context(), b.queue)
	b.must(err)
	return c.Open()
}

// The parts of an urgent upload are urgent. The parts of an idle upload are not idle: a
// later upload waits for them, and may be urgent.
func TestPartsAreAsUrgentAsTheirUpload(t *testing.T) {
	t.Parallel()
	for priority, want := range map[int]int{queue.Urgent: queue.Urgent, queue.Normal: queue.Normal, queue.Idle: queue.Normal} {
		b := newBench(t)
		b.uploads.PartSize = 2
		b.followers(5)
		b.upload(star, 900)
		upload := tasks.NewUpload(star)
		upload.Priority = priority
		enqueue(t, b.queue, upload)
		for _, name := range []string{tasks.QueueDefault, tasks.QueueFanOut} { // the second part hands it on
			task := claimFor(t, b.queue, name, 1, time.Minute)[0]
			b.must(b.finish(task, b.uploads.Handle(t.Context(), []queue.Task{task})[0]).Err)
			next := claimFor(t, b.queue, tasks.QueueFanOut, 1, time.Minute)
			if len(next) != 1 || next[0].Priority != want {
				t.Errorf("an upload of priority %d is followed by %+v, want priority %d", priority, next, want)
			}
			finish(t, b.queue, queue.Later(0, errors.New("not yet")), next...)
		}
	}
}

func TestFollowersWithoutASetAreRefilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.followers(3)
	b.redis.FlushAll()
	b.upload(star, 900)
	b.done(b.uploads, tasks.NewUpload(star), tasks.NewUpload(star))
	b.done(b.uploads, tasks.NewUpload(star))
	counts(t, b.queue, queuetest.Counts{Waiting: 3}) // a refill for each
	for i := range uint64(3) {
		b.holds(viewer + id(i)) // an upload never makes a set
	}
	b.work()
	b.told(3, 900)
}

// A refill of an id that is no member makes no set, and each upload would ask for it
// again.
func TestFollowersThatAreNoMembersAreNotRefilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.followers(3)
	b.redis.FlushAll()
	b.site.Store.SetContact(viewer+3, star, false, false) // there is no member viewer+3
	b.upload(star, 900)
	b.done(b.uploads, tasks.NewUpload(star))
	counts(t, b.queue, queuetest.Counts{Waiting: 3})
}

func TestActiveOnlySkipsMissingSets(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads.ActiveOnly = true
	b.followers(2)
	b.client.Del(t.Context(), "user_9001")
	b.upload(star, 900)
	b.done(b.uploads, tasks.NewUpload(star))
	counts(t, b.queue, queuetest.Counts{})
	b.holds(viewer)
	b.holds(viewer+1, index.Entry{Contact: 1, Score: 100}, index.Entry{Contact: star, Score: 900})
}

// A refill that read MySQL before the upload must not make the set without it.
func TestActiveOnlyEndsTheRefillUnderWay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads.ActiveOnly = true
	b.followers(1)
	b.redis.FlushAll()
	b.once("Apply", func() {
		b.upload(star, 900)
		b.done(b.uploads, tasks.NewUpload(star))
	})
	b.refill(viewer)
	b.told(1, 900)
}

// A burst of uploads runs one fan-out after the other.
func TestAnUploadWaitsForTheFanOutBeforeIt(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads.PartSize = 2
	b.followers(3)
	b.upload(star, 900)
	enqueue(t, b.queue, tasks.NewUpload(star))
	first := claim(t, b.queue, 1)[0]
	b.must(b.finish(first, b.uploads.Handle(t.Context(), []queue.Task{first})[0]).Err) // the second part waits
	b.upload(star, 950)
	b.hooked.calls = nil
	errs := b.handle(b.uploads, tasks.NewUpload(star), tasks.NewUpload(1))
	if kind := outcome(t, errs[0]); kind != "postponed" {
		t.Errorf("the second upload is %s (%v), want postponed", kind, errs[0])
	}
	b.must(errs[1]) // another uploader does not wait
	b.work()
	b.done(b.uploads, tasks.NewUpload(star))
	b.work()
	b.told(3, 950)
}

func TestWhoNeverUploadedHasNothingToTell(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.contact(viewer, 60, 0)
	b.done(b.uploads, tasks.NewUpload(60), tasks.NewUpload(777)) // who is no member
	b.called("Active", "Dedupe", "LastUploads", "FollowerPages") // of none
}

// Every part reads again, so a late part writes the newest upload.
func TestALatePartTellsTheNewestUpload(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.followers(3)
	b.upload(star, 900)
	part := tasks.NewFanOut(star, viewer)
	b.upload(star, 950)
	b.done(b.uploads, part)
	b.holds(viewer, index.Entry{Contact: star, Score: 50}, index.Entry{Contact: 1, Score: 100}) // not of this part
	b.holds(viewer+2, index.Entry{Contact: 1, Score: 100}, index.Entry{Contact: star, Score: 950})
	b.called("LastUploads", "FollowerPages", "Add")
}

func TestBadArgumentsOfAFanOutAreDead(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.followers(1)
	b.upload(star, 900)
	errs := queuetest.Errors(b.uploads.Handle(t.Context(), []queue.Task{
		{ID: 1, Kind: tasks.FanOut, Key: uint64(star), Payload: []byte(`{"after":"x"}`)},
		{ID: 2, Kind: tasks.Upload, Key: uint64(star)},
	}))
	if kind := outcome(t, errs[0]); kind != "dead" {
		t.Errorf("bad arguments: %s (%v)", kind, errs[0])
	}
	b.must(errs[1])
	b.told(1, 900)
}

func TestAHundredUploadsCostAHandfulOfRoundTrips(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.uploads.PartSize = 3
	var batch []queue.New
	for i := range uint64(100) {
		uploader := 5000 + id(i)
		for f := range uint64(4) {
			b.contact(viewer+id(f), uploader, 1000+i)
		}
		batch = append(batch, tasks.NewUpload(uploader), tasks.NewUpload(uploader))
	}
	for f := range uint64(4) {
		b.refill(viewer + id(f))
	}
	b.hooked.calls = nil
	enqueue(t, b.queue, batch...)
	next := 0
	for _, o := range b.uploads.Handle(t.Context(), claim(t, b.queue, len(batch))) {
		b.must(o.Err)
		next += len(o.Next)
	}
	b.called("Active", "Dedupe", "LastUploads", "FollowerPages", "Add")
	if next != 100 { // the second parts
		t.Errorf("%d parts follow, want 100", next)
	}
}
