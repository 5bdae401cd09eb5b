package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/queue"
)

// DeliveryStore is the database as deliveries need it: a [*MySQL].
type DeliveryStore interface {
	Looker
	EventsOf(ctx context.Context, refs []EventRef) (map[EventRef]*StoredEvent, error)
	Waiting(ctx context.Context, bursts []BurstDevice) ([]WaitingBurst, error)
	Record(ctx context.Context, receipts []Receipt) error
	Prune(ctx context.Context, gone []Pruned) (int, error)
}

// DeliveryOptions are for [NewDeliveries].
type DeliveryOptions struct {
	Store   DeliveryStore
	Senders map[Platform]Sender // of the platforms that have keys here
	// MustShow are the platforms whose devices have to show all that they are sent: see [Kind].
	MustShow map[Platform]bool
	Log      *slog.Logger
	// Timeout is how long a message may take; 0: [DefaultTimeout]. It must be well below the
	// limit of the pool.
	Timeout time.Duration
	// Patience is how long a handler waits for the slowest of its messages; 0: [DefaultPatience].
	Patience time.Duration
}

// The defaults of [DeliveryOptions].
const (
	DefaultTimeout  = 10 * time.Second
	DefaultPatience = 400 * time.Millisecond
)

const (
	// maxLook is how many candidates are looked at, and then sent to, at once; and maxInFlight how many messages handlers
	// wait for at once, but for urgent messages: the rest of a large event waits before it leaves.
	maxLook     = 500
	maxInFlight = 1000
	// maxStale is how long ago a look may have begun when a message leaves. It is longer ago in a process that was stopped for
	// a while: another process may have the task by now; and where the message waits for a connection.
	maxStale = 3 * time.Second
	// recordEvery is how long an answer waits for further answers before its receipt is written.
	recordEvery = 20 * time.Millisecond
	// recordAgain is the pause between two tries to write receipts: less than another process needs to find that a lease
	// ran out.
	recordAgain = 100 * time.Millisecond
	// lateMargin is how long after the end of a message that its handler did not wait for its task comes again.
	lateMargin = 5 * time.Second
)

// Deliveries is the handler of deliver and burst tasks. It sends an event, or the waiting events of a burst, to some devices: see
// the package's comment for its promises.
//
// A handler waits for the slowest of its messages for Patience. A message without an answer by then goes on without it: its task
// comes again when the message has ended for sure, and finds the receipt, or sends it again. So a push service that hangs
// holds up no device of another; and [origins] keep its own share small.
type Deliveries struct {
	DeliveryOptions
	origins *origins
	lines   *outage.Lines
	room    *semaphore.Weighted // for messages that handlers wait for

	background sync.WaitGroup  // messages and receipts without a handler
	ending     context.Context // ends when receipts that cannot be written are given up
	giveUp     context.CancelFunc
}

var _ queue.Handler = (*Deliveries)(nil)

// NewDeliveries returns the handler of deliver and burst tasks.
func NewDeliveries(o DeliveryOptions) *Deliveries {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	d := &Deliveries{DeliveryOptions: o, origins: newOrigins(o.Log), lines: outage.NewLines(o.Log), room: semaphore.NewWeighted(maxInFlight)}
	d.ending, d.giveUp = context.WithCancel(context.Background()) //nolint:gosec // G118: Wait calls it
	return d
}

// Wait waits for messages that no handler waits for, and for receipts that could not be written: for the end of the
// process, after that of the pool. It takes a little more than Timeout at most.
func (d *Deliveries) Wait() {
	defer time.AfterFunc(d.Timeout+lateMargin, d.giveUp).Stop()
	d.background.Wait()
}

// KeysChanged is to be told that the sender of a platform has new keys: push services that
// refused the keys before are not left alone any longer.
func (d *Deliveries) KeysChanged(p Platform) { d.origins.forgetKeys(p) }

// Handle implements [queue.Handler].
func (d *Deliveries) Handle(ctx context.Context, tasks []queue.Task) []queue.Outcome {
	began, jitter, jobs := time.Now(), rand.Float64(), jobsOf(tasks)
	var err error
	for some := range byLook(d.read(ctx, jobs)) {
		if err != nil { // of a look before: a task that failed comes again as a whole, so nothing more of it is sent
			failAsked(some, err)
			continue
		}
		if time.Since(began) > maxWork {
			put(askedAgain(some, 0, errRest))
			continue
		}
		at := time.Now()
		var facts []Facts
		if facts, err = d.Store.Look(ctx, candidatesOf(some)); err != nil { // a single statement: privacy, wishes, receipts
			failAsked(some, err)
			continue
		}
		plan := decideAll(some, facts, d.MustShow) // pure: send, skip, or later
		flight := d.sendAll(ctx, plan, at)
		fates := plan.fates
		for answers := range flight.steps(ctx, d.Patience) {
			fates = append(fates, judgeAll(answers, jitter)...) // pure: receipts, devices that are gone, or later
			put(d.record(ctx, fates))
			fates = nil
		}
		put(d.record(ctx, append(fates, d.leave(flight)...)))
	}
	return outcomes(jobs)
}

// read reads the events of the tasks and the waiting events of bursts, and returns all that is to be looked at.
func (d *Deliveries) read(ctx context.Context, jobs []*job) []*asked {
	err := d.readEvents(ctx, jobs)
	if err == nil {
		err = d.readBursts(ctx, jobs)
	}
	failAll(jobs, err)
	return ask(jobs)
}

// readBursts reads the waiting events of burst tasks.
func (d *Deliveries) readBursts(ctx context.Context, jobs []*job) error {
	var bursts []BurstDevice
	var of []*job
	for _, j := range jobs {
		if j.err == nil && j.isBurst() && !slices.Contains(bursts, j.burstDevice()) {
			bursts, of = append(bursts, j.burstDevice()), append(of, j)
		}
	}
	all, err := d.Store.Waiting(ctx, bursts)
	if err != nil {
		return err
	}
	var refs []EventRef
	for i, b := range all {
		of[i].more, all[i].Receipts = b.More, running(b.Receipts)
		for _, r := range all[i].Receipts {
			refs = append(refs, EventRef{Number: r.Event})
		}
	}
	events, err := d.Store.EventsOf(ctx, refs)
	for i := range all {
		for _, r := range all[i].Receipts {
			if e := events[EventRef{Number: r.Event}]; e != nil { // else it was forgotten, long after it expired
				of[i].waiting = append(of[i].waiting, e)
			}
		}
	}
	return err
}

// readEvents reads the tasks and their events.
func (d *Deliveries) readEvents(ctx context.Context, jobs []*job) error {
	var refs []EventRef
	for _, j := range jobs {
		if j.err = j.parse(); j.err == nil {
			refs = append(refs, j.payload.ref())
		}
	}
	events, err := d.Store.EventsOf(ctx, refs)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		if j.event = events[j.payload.ref()]; j.event == nil && j.err == nil && !j.isBurst() { // it was forgotten, or lost
			skipped.WithLabelValues(atDelivery, string(Lost)).Add(float64(len(j.payload.To)))
		}
	}
	return nil
}

// answer is the result of a message.
type answer struct {
	*message
	Result
	sent bool          // else it did not leave
	left time.Duration // for how long its push service is left alone
}

// flight is the messages that were sent together.
type flight struct {
	results chan answer
	open    map[*message]bool // not answered
	leaves  func(n int)       // makes room for messages
	stepped time.Time         // when the last step ended; zero: there was none
}

// sendAll sends the messages of a plan, by a look that began at a time.
func (d *Deliveries) sendAll(ctx context.Context, p plan, at time.Time) *flight {
	f := &flight{results: make(chan answer, len(p.sends)), open: make(map[*message]bool, len(p.sends)), leaves: func(int) {}}
	if len(p.sends) > 0 && !p.urgent {
		if d.room.Acquire(ctx, int64(len(p.sends))) != nil { // the handler is to stop
			at = time.Time{} // so they are stale
		} else {
			f.leaves = func(n int) { d.room.Release(int64(n)) }
		}
	}
	ctx = context.WithoutCancel(ctx) // a message that has left is answered, also when the lease is lost
	for _, m := range p.sends {
		f.open[m] = true
		go func() { f.results <- d.send(ctx, m, at) }()
	}
	return f
}

// send sends a message, if its push service takes any.
func (d *Deliveries) send(ctx context.Context, m *message, at time.Time) answer {
	sender := d.Senders[m.device.Platform]
	if sender == nil { // another process may have its keys
		return m.postponed(noKeys, noKeysPause(m.age()))
	}
	visit, wait := d.origins.admit(m.device.Platform, sender.Origin(m.device), m.device.Member)
	if wait > 0 {
		return m.postponed(breakerOpen, wait)
	}
	if time.Since(at) > maxStale {
		d.origins.release(visit)
		return m.postponed(stale, minRetryPause)
	}
	if m.again {
		doublesPossible.WithLabelValues(string(m.device.Platform), takenOver).Inc()
	}
	m.visit.Store(visit)
	messagesInFlight.Inc()
	defer messagesInFlight.Dec()
	r := d.ask(ctx, sender, m, at.Add(maxStale))
	countResult(m.device.Platform, r, m.age()+time.Since(at))
	return answer{message: m, Result: r, sent: true, left: d.origins.report(visit, r)}
}

// postponed is the answer to a message that did not leave.
func (m *message) postponed(why string, wait time.Duration) answer {
	postponed.WithLabelValues(why).Inc()
	return answer{message: m, Result: Result{Outcome: Wait, Reason: why, After: wait}}
}

// ask has the sender send a message, if it can before a time. A panic is no answer.
func (d *Deliveries) ask(ctx context.Context, sender Sender, m *message, before time.Time) (r Result) {
	defer func() {
		if value := recover(); value != nil {
			r = Result{Outcome: Ambiguous, Reason: "panic"}
			d.lines.Log(ctx, slog.LevelError, string(m.device.Platform), "sender of notifications panicked",
				"platform", m.device.Platform, "panic", value, "stack", string(debug.Stack()))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	out := m.Message()
	out.Before = before
	return sender.Send(ctx, out)
}

// steps yields answers, until all are there, patience is over, or ctx ends. An answer waits for further answers for
// recordEvery at most.
func (f *flight) steps(ctx context.Context, patience time.Duration) func(yield func([]answer) bool) {
	return func(yield func([]answer) bool) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		for len(f.open) > 0 && ctx.Err() == nil {
			if some := f.step(ctx.Done()); len(some) > 0 && !yield(some) {
				return
			}
		}
	}
}

func (f *flight) step(end <-chan struct{}) (some []answer) {
	defer func() { f.stepped = time.Now() }()
	got := func(a answer) {
		some = append(some, a)
		delete(f.open, a.message)
		f.leaves(1)
	}
	var soon <-chan time.Time
	for len(f.open) > 0 {
		select {
		case a := <-f.results:
			if got(a); soon == nil {
				wait := recordEvery
				if !f.stepped.IsZero() { // it may have waited for the receipts before
					wait -= time.Since(f.stepped)
				}
				soon = time.After(wait)
			}
		case <-soon:
			for range len(f.results) {
				got(<-f.results)
			}
			return some
		case <-end:
			return some
		}
	}
	return some
}

// leave leaves the messages that are not answered to the background, which records their ends, and returns
// that their tasks come again afterwards.
func (d *Deliveries) leave(f *flight) (fates []fate) {
	if len(f.open) == 0 {
		return nil
	}
	f.leaves(len(f.open))
	f.leaves = func(int) {}
	for m := range f.open {
		postponed.WithLabelValues(slow).Inc()
		if visit := m.visit.Load(); visit != nil {
			d.origins.late(visit)
		}
		fates = append(fates, m.all(fate{again: rounded(d.Timeout + lateMargin), why: errSlow})...)
	}
	d.background.Go(func() {
		for answers := range f.steps(context.Background(), d.Timeout+lateMargin/2) { // a sender may not return
			done := judgeAll(answers, 0)
			done = slices.DeleteFunc(done, func(f fate) bool { return f.state == "" })
			d.persist(receiptsOf(done), goneOf(done))
		}
	})
	return fates
}

// record writes the receipts of fates, and drops devices that are gone. When ctx ends before that has succeeded, it goes on
// in the background, and the fates are that the tasks are done again: none ends without its receipts.
func (d *Deliveries) record(ctx context.Context, fates []fate) []fate {
	receipts, gone := receiptsOf(fates), goneOf(fates)
	if len(receipts)+len(gone) == 0 {
		return fates
	}
	written := make(chan struct{})
	d.background.Go(func() {
		defer close(written)
		d.persist(receipts, gone)
	})
	select {
	case <-written:
		return fates
	case <-ctx.Done():
		all := make([]fate, len(fates))
		for i, f := range fates {
			all[i] = fate{delivery: f.delivery, again: rounded(lateMargin), why: errUnwritten}
		}
		return all
	}
}

// persist writes receipts, and then ends devices that are gone, until that has succeeded or the process ends.
func (d *Deliveries) persist(receipts []Receipt, gone []Pruned) {
	try := func(what string, count int, do func(ctx context.Context) error) {
		for count > 0 {
			ctx, cancel := context.WithTimeout(d.ending, lateMargin)
			err := do(ctx)
			cancel()
			if err == nil {
				return
			}
			d.lines.Log(d.ending, slog.LevelWarn, "", what, "count", count, "error", err)
			if retry.Sleep(d.ending, recordAgain) != nil {
				return
			}
		}
	}
	try("receipts of notifications not written yet", len(receipts), func(ctx context.Context) error { return d.Store.Record(ctx, receipts) })
	try("devices that are gone not pruned yet", len(gone), func(ctx context.Context) error { _, err := d.Store.Prune(ctx, gone); return err })
}

var (
	errSlow      = errors.New("the push service has not answered yet")
	errQuiet     = errors.New("quiet hours")
	errBurst     = errors.New("one of the burst was sent less than a minute ago")
	errUnwritten = errors.New("the database did not take the receipt yet")
)

// whyAgain is the error of a task whose message was not accepted, and is tried again.
func whyAgain(p Platform, r Result) error {
	return fmt.Errorf("%s: %s (%s)", p, clip(because(r)), r.Outcome)
}
