package push

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/queue"
)

// DeliveryStore is what deliveries need of the database; it is a [*MySQL].
type DeliveryStore interface {
	Looker
	Events(ctx context.Context, numbers []uint64) (map[uint64]*StoredEvent, error)
	CurrentEvents(ctx context.Context, numbers []uint64) (map[uint64]*StoredEvent, error)
	Pending(ctx context.Context, bursts []BurstDevice) ([][]uint64, error)
	AcceptedSince(ctx context.Context, bursts []BurstDevice) ([][]Receipt, error)
	Take(ctx context.Context, deliveries [][]Receipt, lasts time.Duration) ([]bool, error)
	WriteReceipts(ctx context.Context, held []queue.Task, receipts []Receipt) error
	Prune(ctx context.Context, gone []Pruned) (int, error)
	Hear(ctx context.Context, accepted, silent []uint64) error
}

// DeliveryOptions say what deliveries work with.
type DeliveryOptions struct {
	Store   DeliveryStore
	Senders map[Platform]Sender // of the platforms that have keys here
	// ByMembers are the platforms whose push services members name: see [Kind].
	ByMembers map[Platform]bool
	// MustShow are the platforms whose devices have to show all that they are sent: see [Kind].
	MustShow map[Platform]bool
	Log      *slog.Logger
	// Timeout is how long a message may take; 0: [DefaultTimeout]. It must be well below the
	// limit of the pool.
	Timeout time.Duration
	// Patience is how long a batch waits for the slowest of its messages; 0:
	// [DefaultPatience].
	Patience time.Duration
}

// The defaults of [DeliveryOptions].
const (
	DefaultTimeout  = 10 * time.Second
	DefaultPatience = time.Second
)

const (
	// maxLook is how many candidates are looked at, and then sent to, at once, and maxFlight how many of a
	// batch may be in flight when more are looked at; messages of small bursts, 15 a task, come on top of that.
	maxLook   = 1000
	maxFlight = 1000
	// maxBurst is how many events of a burst are looked at and counted: the newest. Older ones
	// that are pending are taken for accepted with them.
	maxBurst = 100
	// flushAfter is how long an accepted message waits for others before its receipt is
	// written.
	flushAfter = 100 * time.Millisecond
	// recordTime is how long a batch tries to write its receipts, and each try takes at most: then
	// the lease of the tasks may be over. recordLate is how long if it is.
	recordTime = 4 * time.Second
	recordLate = time.Second
	// recordAgain is how long a task waits whose receipt is not written by then, and inFlightPause one of which this process sends
	// something already.
	recordAgain   = 5 * time.Second
	inFlightPause = 2 * time.Second
	// maxOwed is how many receipts may wait for the database before nothing more is sent.
	maxOwed = 10000
	// briefPatience is how long a batch waits for messages to push services that members name, and for
	// others that are unlikely to be answered soon: see breakers.
	briefPatience = 250 * time.Millisecond
	// detachedMargin is how long after the end of a message that its batch did not wait for
	// its task comes again.
	detachedMargin = 5 * time.Second
	// maxStale is how long ago a look may have begun when a message leaves for its sender. It
	// is longer in a process that was stopped for a while: another one may have the task by
	// now.
	maxStale = 3 * time.Second
	// gathered is the least distance of the times to which deliveries to push services that are
	// not proven are put off for long, so that they come together.
	gathered = 5 * time.Second
)

// Deliveries is the handler of deliver tasks: each stands for an event and some devices, or for
// what waits of a burst of events for a device.
//
// # What is promised, and why
//
// A batch goes through these steps:
//
//	look     what decides about each device is read, by one statement
//	take     what is pending of bursts is marked as unanswered, by one transaction
//	send     all that is to go is sent at once, and answered
//	receipt  what was accepted is written, by one transaction
//	finish   the queue deletes the tasks, or schedules them for later
//
// A delivery is a value of its own in each: asked, looked, sent, answer. What is left of a task when
// its batch ends is follow-ups of it, one for each time that some of its devices have to wait;
// or the same task, if that is all of it. Of an event of a burst, a device leaves its task, by a pending
// receipt and a follow-up of its own, when it waits until others of the burst may be due, or when others wait for the device: a later page writes
// that they do before it makes a task for them, so this is seen here, or they are sent first, and counted here.
//
// At least once: a task ends only after the commit of receipts for all that it stands for: that
// the message was accepted, that the push service refused it for good, that the device is gone,
// or why [Decide] does not send it. Whatever happens before, its lease runs out, or it is
// scheduled, and it is done again. So an event is accepted for a device, or a receipt says why
// not; and what is pending has a task: that it is pending is only written while its task is held.
//
// At most once, unless an answer was lost, or the process died, or the database was away,
// between the answer and the commit of the receipt. From the commit on, a look finds that the
// event was accepted, in whichever process. Before it, no other goroutine of this process
// sends the same (see reserve), and no other process has the task while its lease holds. Several tasks may be for one burst
// and device: of these, one at a time has the receipts (see take). While
// the database is away, the leases run out, but no process can claim. The receipts are kept
// until the process ends, and written as soon as the database is back. A double is possible
// only if another process is quicker: a sweep has to free the task, and that process to claim it
// and to look, before the receipts are written.
//
// Doubles have the same [Message].Collapse. activityd_push_doubles_possible_total counts what may
// have become one: a message without an answer; an acceptance that could not be recorded; and a
// task that was taken over after its lease ran out, or with a receipt that says that the message
// was sent and not answered.
//
// No member is notified of a photo that it could not see during the whole last look: a
// message is sent only if the look of this attempt found the photo visible, in a
// statement that began after the task's claim. The message is given to its sender at most
// maxStale after the beginning of that statement, and the sender gives it up Timeout later.
// Nothing is sent by what an earlier attempt saw.
//
// # Where receipts are
//
// An event that was accepted for one of several devices of a task is a part of a row of push_runs, which
// names the task: whoever does the task again looks for it there. No other task is for these devices
// then: the follow-ups of a task commit with its end, and are for the others. Others of a burst find the runs
// of it since a time (see [MySQL.AcceptedSince]). All else is rows of
// push_receipts: what a batch does not wait for, too, as the follow-up looks for it there.
//
// # No push service holds up another
//
// A batch waits for the slowest of its messages at most for Patience, and for push services that
// members name briefly. For those that accepted nothing lately, or have answered nothing since a batch gave
// up waiting for them, one batch at a time waits, briefly. The messages that are not answered by
// then go on without it, they are detached: their tasks are scheduled for when they have ended for sure, and their results recorded
// when they come. The task then finds that its event was accepted, or sends it again. A
// push service that fails is left alone, and those that members may have made up share a
// quota: see breakers.
type Deliveries struct {
	DeliveryOptions
	breakers *breakers
	lines    *outage.Lines

	mu       sync.Mutex
	reserved map[deliveryKey]uint64 // what is being sent, or was, and has no receipt yet: by which task
	standing map[uint64][]uint64    // by silent device, the newest events, ascending
	unlikely sync.Mutex             // held by the batch that waits for messages that are unlikely to be answered soon

	detached sync.WaitGroup  // batches with messages that go on, or with receipts to be written
	owing    atomic.Int64    // receipts that could not be written in time
	ending   context.Context // ends when receipts that cannot be written are given up
	giveUp   context.CancelFunc
}

var _ queue.Handler = (*Deliveries)(nil)

// NewDeliveries returns the handler of deliver tasks.
func NewDeliveries(o DeliveryOptions) *Deliveries {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	d := &Deliveries{DeliveryOptions: o, breakers: newBreakers(o.ByMembers), reserved: make(map[deliveryKey]uint64), lines: outage.NewLines(o.Log), standing: make(map[uint64][]uint64)}
	d.ending, d.giveUp = context.WithCancel(context.Background()) //nolint:gosec // G118: Wait calls it
	return d
}

// Wait waits for messages that no batch waits for, and for receipts that could not be written:
// for the end of the process, after that of the pool. It takes a little more than Timeout
// at most.
func (d *Deliveries) Wait() {
	defer time.AfterFunc(d.Timeout+detachedMargin, d.giveUp).Stop()
	d.detached.Wait()
}

// batch is the work on tasks that were claimed together.
type batch struct {
	*Deliveries
	book

	ctx      context.Context // of the handler
	jobs     []*job
	held     []*asked  // whose keys are reserved
	jitter   float64   // of the pauses: one for all, so that they are few
	lookedAt time.Time // when the last look began, by the clock of this process
	now      time.Time // then, by the database's
	results  chan answer
	inFlight map[*asked]*sent // not answered
	awaited  int              // of these, those that are likely to be answered soon, but for the next
	browsers int              // likewise, to push services that members name
	waited   bool             // also for messages that are unlikely to be answered soon
	detached bool             // it goes on without the handler
}

const (
	// reasonStale is that of a message that did not leave, as its look was too long ago.
	reasonStale = "stale"
	// reasonUnanswered is that of the receipt of a message that was sent, and that its batch
	// did not wait for, or of one of a burst that is about to be sent. It is replaced when the message is accepted or refused, or when
	// its task, or what followed that, sends it again.
	reasonUnanswered = "unanswered"
)

var (
	errInFlight = errors.New("the same is being sent at this moment")
	errSlow     = errors.New("the push service has not answered yet")
	errLeft     = errors.New("the push service fails, and is left alone")
	errQuota    = errors.New("too many messages to push services that do not answer are in flight")
	errNoKeys   = errors.New("this process has no keys of the platform")
	errQuiet    = errors.New("quiet hours")
	errMore     = errors.New("the newest events of the burst are not sent, and older ones may be")
	errTogether = errors.New("others of the burst wait for the device")
	errRejected = errors.New("the newest event of the burst was refused, and older ones may be accepted")
	errOwed     = errors.New("the database did not take the receipt yet")
)

// Handle implements [queue.Handler].
func (d *Deliveries) Handle(ctx context.Context, tasks []queue.Task) []queue.Outcome {
	return Handler{Deliveries: d}.Handle(ctx, tasks)
}

// newBatch returns a batch. Its results have room for all that is sent, so that no sender waits: more is what comes on top of maxLook and maxFlight.
func (d *Deliveries) newBatch(ctx context.Context, more int) *batch {
	return &batch{
		Deliveries: d, ctx: ctx, jitter: rand.Float64(), inFlight: make(map[*asked]*sent),
		results: make(chan answer, maxFlight+maxLook+more), book: book{unwritten: make(map[*asked]*sent)},
	}
}

// settled waits for the answers to the messages of the batch, as long as it should, and finds what becomes of
// its jobs. What is left of it goes on in the background.
func (b *batch) settled() {
	b.await()
	b.mark()
	b.leaveWaiting()
	b.flushInTime()
	for _, j := range b.jobs {
		j.outcome = b.outcome(j)
	}
	b.detached = true
	b.release()
	if len(b.inFlight) > 0 || len(b.receipts) > 0 {
		b.Deliveries.detached.Go(b.goOn)
	}
}

// end is the end of the batch if its handler panics. What has left is answered, and recorded: the tasks are done again at once.
func (b *batch) end() {
	if b.detached {
		return
	}
	defer func() {
		if !b.detached {
			for _, s := range b.inFlight {
				b.breakers.release(s.pass)
			}
			clear(b.inFlight)
			b.forget()
		}
	}()
	b.settled()
}

// deliver looks at jobs, some at a time, and sends what is to go.
func (b *batch) deliver(jobs []*job) {
	isLate := false
	for some := range byLook(jobs) {
		b.collect(b.ctx.Done(), maxFlight, b.Patience, b.Patience, true)
		if isLate || len(b.inFlight) > maxFlight {
			isLate = true
			failAll(some, queue.Later(minRetryPause, errSlow))
			continue
		}
		found, err := b.look(some)
		if err != nil {
			failAll(some, err)
			continue
		}
		var ready []*sent
		for _, l := range found {
			if s := b.admit(l); s != nil {
				ready = append(ready, s)
			}
		}
		for _, s := range b.take(ready) {
			b.launch(s)
		}
	}
}

// goOn is what is left of a batch whose handler has returned: messages without an answer, and
// receipts that the database did not take.
func (b *batch) goOn() {
	b.collect(nil, 0, b.Timeout+detachedMargin/2, b.Timeout+detachedMargin/2, true)
	b.abandon()
	b.flush(b.ending)
	if len(b.receipts) > 0 { // the tasks that they belong to come again
		b.Log.WarnContext(b.ctx, "receipts of notifications lost", "count", len(b.receipts), "cause", "the process ends, and the database is away")
	}
	b.forget()
}

// reserve keeps others of this process from sending what a job does, until release. What another one sends already is done later.
// Of an event without a burst that is the whole job, by the same task: what that has accepted may be in a run of it, which no other
// task looks for. Then it returns false.
func (b *batch) reserve(j *job) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range j.all {
		if _, isReserved := b.reserved[one.key]; !isReserved {
			continue
		}
		postponed.WithLabelValues(sameInFlight).Inc()
		if !j.isOfBurst() {
			j.err = queue.Later(inFlightPause, errInFlight)
			return false
		}
		one.later(inFlightPause, errInFlight)
	}
	for _, one := range j.all {
		if one.again == nil {
			b.reserved[one.key] = one.task.ID
			b.held = append(b.held, one)
		}
	}
	return true
}

// release is the end of the deliveries that are answered, and whose receipts are written.
func (b *batch) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = slices.DeleteFunc(b.held, func(one *asked) bool {
		_, isUnwritten := b.unwritten[one]
		if b.inFlight[one] != nil || isUnwritten {
			return false
		}
		delete(b.reserved, one.key)
		return true
	})
}

// KeysChanged is to be told that the sender of a platform has other keys: push services that
// refused those before are not left alone any longer.
func (d *Deliveries) KeysChanged(p Platform) { d.breakers.forgetKeys(p) }

// logOften writes a message, once a minute for each platform.
func (d *Deliveries) logOften(ctx context.Context, level slog.Level, p Platform, message string, about ...any) {
	if p != "" {
		about = append([]any{"platform", string(p)}, about...)
	}
	d.lines.Log(ctx, level, string(p), message, about...)
}
