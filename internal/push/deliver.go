package push

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/queue"
)

// DeliveryStore is what deliveries need of the database; it is a [*MySQL].
type DeliveryStore interface {
	Looker
	Events(ctx context.Context, numbers []uint64) (map[uint64]*StoredEvent, error)
	CurrentEvents(ctx context.Context, numbers []uint64) (map[uint64]*StoredEvent, error)
	Pending(ctx context.Context, bursts []BurstDevice) ([][]uint64, error)
	AcceptedSince(ctx context.Context, bursts []BurstDevice, since []time.Time) ([][]Receipt, error)
	WriteReceipts(ctx context.Context, receipts []Receipt) error
	Prune(ctx context.Context, gone []Pruned) (int, error)
	Hear(ctx context.Context, accepted, silent []uint64) error
}

// DeliveryOptions say what deliveries work with.
type DeliveryOptions struct {
	Store   DeliveryStore
	Senders map[Platform]Sender // of the platforms that have keys here
	Log     *slog.Logger
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
	// maxLook is how many candidates are looked at, and then sent to, at once.
	maxLook = 1000
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
	// recordAgain is how long a task waits whose receipt is not written by then.
	recordAgain = 5 * time.Second
	// maxOwed is how many receipts may wait for the database before nothing more is sent.
	maxOwed = 10000
	// briefPatience is how long a batch waits for messages to origins that are not proven, or
	// silent: see breakers.
	briefPatience = 250 * time.Millisecond
	// detachedMargin is how long after the end of a message that its batch did not wait for
	// its task comes again.
	detachedMargin = 5 * time.Second
	// maxStale is how long ago a look may have begun when a message leaves for its sender. It
	// is longer in a process that was stopped for a while: another one may have the task by
	// now.
	maxStale = 3 * time.Second
	// maxSilence is for how long a subscription may accept nothing, if it never did: then it is
	// dropped. Until then it is tried again after as long as it has been silent, maxSilentPause at
	// most. From then on only maxStanding deliveries wait for it, the newest: not before, since its
	// push service may just be away.
	maxSilence     = 3 * 24 * time.Hour
	maxSilentPause = 30 * time.Minute
	maxStanding    = 3
	// gathered is the least distance of the times to which deliveries to push services that are
	// not proven are put off for long, so that they come together.
	gathered = 5 * time.Second
)

// Deliveries is the handler of deliver tasks: each stands for an event, or a burst of
// events, and a device.
//
// # What is promised, and why
//
// A batch goes through these steps:
//
//	look     what decides about each device is read, by one statement
//	send     all that is to go is sent at once, and answered
//	receipt  what was accepted is written, by one statement
//	finish   the queue deletes the tasks, or schedules them for later
//
// At least once: a task ends only after the commit of receipts for all that it stands for: that
// the message was accepted, that the push service refused it for good, that the device is gone,
// or why [Decide] does not send it. Whatever happens before, its lease runs out, or it is
// scheduled, and it is done again. So an event is accepted for a device, or a receipt says why
// not; and what is pending of a burst has a task.
//
// At most once, unless an answer was lost, or the process died, or the database was away,
// between the answer and the commit of the receipt. From the commit on, a look finds that the
// event was accepted, in whichever process. Before it, no other goroutine of this process
// sends the same (see reserve), and no other process has the task while its lease holds. While
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
// # No push service holds up another
//
// A batch waits for the slowest of its messages at most for Patience, and for those to push
// services that accepted nothing lately, or owe an answer for longer than that, only
// briefly. The messages that are not answered by then go on without it, they are detached:
// their tasks are scheduled for when they have ended for sure, and their results recorded
// when they come. The task then finds that its event was accepted, or sends it again. A
// push service that fails is left alone, and those that members may have made up share a
// quota: see breakers.
type Deliveries struct {
	DeliveryOptions
	breakers *breakers
	lines    *outage.Lines

	mu       sync.Mutex
	reserved map[deliveryKey]bool // what is being sent, or was, and has no receipt yet
	standing map[uint64][]uint64  // by device that never accepted anything, the newest tasks, ascending

	detached sync.WaitGroup  // batches with messages that go on, or with receipts to be written
	owing    atomic.Int64    // receipts that could not be written in time
	ending   context.Context // ends when receipts that cannot be written are given up
	giveUp   context.CancelFunc
}

var _ queue.Handler = (*Deliveries)(nil)

// deliveryKey is an event, or a burst of events, for a device.
type deliveryKey struct {
	device uint64
	event  uint64   // 0: a burst
	burst  [16]byte // zero: an event
}

// NewDeliveries returns the handler of deliver tasks.
func NewDeliveries(o DeliveryOptions) *Deliveries {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	d := &Deliveries{DeliveryOptions: o, breakers: newBreakers(), reserved: make(map[deliveryKey]bool), lines: outage.NewLines(o.Log), standing: make(map[uint64][]uint64)}
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

// delivery is the work of one task.
type delivery struct {
	task       queue.Task
	payload    Delivery
	burst      [16]byte     // of the payload, or else of the event; zero: the event has no collapse key
	event      *StoredEvent // of the task; nil: it was deleted, or lost
	key        deliveryKey
	reserved   bool           // Deliveries.reserved has its key
	events     []*StoredEvent // that are looked at, in the order in which they were enqueued: of a burst those that are pending
	old        []uint64       // of a burst, those that are too many to be looked at
	shown      []*StoredEvent // of a burst, those that the device was notified of: see runningBurst
	counted    int            // of those of the burst that were accepted, how many the message counts
	send       []*StoredEvent // that the message stands for, in the same order
	text       *StoredEvent   // the newest that the message counts
	later      time.Duration  // when others are to be sent; 0: there are none
	looked     time.Time      // when the last look began, by the clock of this process
	unanswered bool           // an earlier attempt sent some of it
	silent     time.Time      // as in Facts
	heard      bool           // likewise
	message    Message
	pass       pass
	accepted   bool
	marked     bool // a receipt that says that it is not answered is to be written
	doubles    bool // that its receipt was not written in time is counted
	outcome    queue.Outcome
}

// batch is the work on tasks that were claimed together.
type batch struct {
	*Deliveries
	ctx       context.Context // of the handler
	all       []*delivery
	jitter    float64   // of the pauses: one for all, so that they are few
	lookedAt  time.Time // when the last look began, by the clock of this process
	now       time.Time // then, by the database's
	results   chan answer
	inFlight  map[*delivery]bool // sent, and not answered
	awaited   int                // of these, those that are likely to be answered soon
	detached  bool               // it goes on without the handler
	receipts  []Receipt          // to be written, the last one of a device and an event last
	unwritten map[*delivery]bool // whose receipts these are
	owed      int                // of these, counted by Deliveries.owing: they could not be written in time
	taken     int                // of these, accepted
	gone      []Pruned
	heard     []uint64 // devices that accepted a message for the first time
	silent    []uint64 // devices that did not accept their first one, or whose push service failed for long before it
}

// answer is the result of the message of a delivery.
type answer struct {
	*delivery
	Result
}

const (
	// reasonStale is that of a message that did not leave, as its look was too long ago.
	reasonStale = "stale"
	// reasonUnanswered is that of the receipt of a message that was sent, and that its batch
	// did not wait for. It is replaced when the message is answered, or given up: so it is
	// found only when the process that sent the message has died.
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
	errRejected = errors.New("the newest event of the burst was refused, and older ones may be accepted")
	errOwed     = errors.New("the database did not take the receipt yet")
)

// Handle implements [queue.Handler].
func (d *Deliveries) Handle(ctx context.Context, tasks []queue.Task) []queue.Outcome {
	b := &batch{
		Deliveries: d, ctx: ctx, all: make([]*delivery, len(tasks)), jitter: rand.Float64(), inFlight: make(map[*delivery]bool),
		results: make(chan answer, len(tasks)), unwritten: make(map[*delivery]bool),
	}
	for i, t := range tasks {
		b.all[i] = &delivery{task: t}
	}
	defer func() { // of a panic
		if !b.detached {
			for one := range b.inFlight {
				d.breakers.release(one.pass)
			}
			clear(b.inFlight)
			b.forget()
		}
	}()
	for some := range byLook(b.begin()) { //nolint:contextcheck // what has left is answered after the end of ctx, too
		if err := b.look(some); err != nil {
			some = failAll(some, err)
		}
		for _, one := range some {
			b.launch(one)
		}
	}
	b.collect(ctx.Done(), d.Patience, briefPatience) //nolint:contextcheck // and what was accepted is recorded
	b.mark()
	b.flushInTime() //nolint:contextcheck // likewise
	outcomes := make([]queue.Outcome, len(tasks))
	for i, one := range b.all {
		switch {
		case b.inFlight[one]:
			postponed.WithLabelValues(slow).Inc()
			wait := rounded(d.Timeout + detachedMargin)
			if silence := b.silence(one); silence > wait {
				wait = b.gather(b.pause(silence, b.left(one)), b.left(one))
			}
			one.outcome.Err = queue.Later(wait, errSlow)
		case b.unwritten[one] && one.outcome.Err == nil:
			one.outcome.Err = queue.Later(recordAgain, errOwed)
		}
		outcomes[i] = one.outcome
	}
	b.detached = true
	b.release()
	if len(b.inFlight) > 0 || len(b.receipts) > 0 {
		d.detached.Go(b.goOn)
	}
	return outcomes
}

// goOn is what is left of a batch whose handler has returned: messages without an answer, and
// receipts that the database did not take.
func (b *batch) goOn() {
	b.collect(nil, b.Timeout+detachedMargin/2, b.Timeout+detachedMargin/2)
	b.abandon()
	b.flush(b.ending)
	if len(b.receipts) > 0 { // the tasks that they belong to come again
		b.Log.WarnContext(b.ctx, "receipts of notifications lost", "count", len(b.receipts), "cause", "the process ends, and the database is away")
	}
	b.forget()
}

// mark has receipts written for the messages that the batch waits for no longer.
func (b *batch) mark() {
	for one := range b.inFlight {
		b.breakers.detach(&one.pass)
		one.marked = true
		for _, e := range one.send {
			b.record(one, one.receipt(e.Number, StatePending, reasonUnanswered))
		}
	}
}

// record has a receipt written.
func (b *batch) record(one *delivery, r Receipt) {
	b.receipts = append(b.receipts, r)
	b.unwritten[one] = true
}

// begin reads what the tasks are about, and returns those that are to be looked at.
func (b *batch) begin() (some []*delivery) {
	all := b.all
	if b.owing.Load() >= maxOwed { // what is sent could not be recorded either
		return failAll(all, queue.Later(recordAgain, errOwed))
	}
	var numbers []uint64
	for _, one := range all {
		if one.read() {
			numbers = append(numbers, one.payload.Event)
		}
	}
	if err := b.readEvents(all, numbers); err != nil {
		return failAll(all, err)
	}
	var bursts []*delivery
	for _, one := range all {
		if one.payload.Event == 0 || one.event == nil && one.burst == [16]byte{} { // it is invalid, or has ended
			continue
		}
		if !b.reserve(one) {
			postponed.WithLabelValues(sameInFlight).Inc()
			one.outcome.Err = queue.Later(2*time.Second, errInFlight)
			continue
		}
		if one.burst == [16]byte{} {
			one.events = []*StoredEvent{one.event}
		} else { // also without its event: it has absorbed the deliveries of others
			bursts = append(bursts, one)
		}
		some = append(some, one)
	}
	if err := b.readBursts(bursts); err != nil {
		return failAll(some, err)
	}
	return some
}

// readEvents reads the events of the tasks.
func (b *batch) readEvents(all []*delivery, numbers []uint64) error {
	events, err := b.Store.Events(b.ctx, numbers)
	if err != nil {
		return err
	}
	isAnother := func(one *delivery) bool {
		e := events[one.payload.Event]
		return e != nil && !e.isOf(one.payload.Task)
	}
	if slices.ContainsFunc(all, isAnother) { // or the cache is old
		if events, err = b.Store.CurrentEvents(b.ctx, numbers); err != nil {
			return err
		}
	}
	for _, one := range all {
		switch e := events[one.payload.Event]; {
		case one.payload.Event == 0: // it is invalid
		case isAnother(one):
			b.countSkip(Lost)
		case e == nil: // it was forgotten, long after it expired
			b.countSkip(Expired)
		default:
			one.event = e
			if e.Collapse != "" && one.burst == [16]byte{} {
				one.burst = e.Burst()
			}
		}
	}
	return nil
}

// read reads the task, and reports whether it makes sense.
func (one *delivery) read() bool {
	var payload Delivery
	err := json.Unmarshal(one.task.Payload, &payload)
	if err == nil && (payload.Event == 0 || payload.Member == 0 || one.task.Key == 0) {
		err = errors.New("it names no event, no member or no device")
	}
	if n, _ := hex.Decode(one.burst[:], []byte(payload.Burst[:min(len(payload.Burst), 32)])); err == nil && payload.Burst != "" && n < len(one.burst) {
		err = errors.New("the burst is no hash")
	}
	if err != nil {
		one.outcome.Err = queue.Permanent(fmt.Errorf("%w: %w", queue.ErrInvalid, err))
		return false
	}
	one.payload = payload
	return true
}

// failAll makes an error the outcome of deliveries that have none, and returns that none are
// left.
func failAll(some []*delivery, err error) []*delivery {
	for _, one := range some {
		if one.outcome.Err == nil {
			one.outcome.Err = err
		}
	}
	return nil
}

// readBursts reads which events of the bursts are pending.
func (b *batch) readBursts(bursts []*delivery) error {
	if len(bursts) == 0 {
		return nil
	}
	asked := make([]BurstDevice, len(bursts))
	for i, one := range bursts {
		asked[i] = BurstDevice{Burst: one.key.burst, Member: one.payload.Member, Device: one.task.Key}
	}
	pending, err := b.Store.Pending(b.ctx, asked)
	if err != nil {
		return err
	}
	var numbers []uint64
	for i, one := range bursts {
		if n := len(pending[i]) - maxBurst; n > 0 {
			one.old, pending[i] = pending[i][:n], pending[i][n:]
		}
		numbers = append(numbers, pending[i]...)
	}
	events, err := b.Store.Events(b.ctx, numbers)
	if err != nil {
		return err
	}
	var waiting []*delivery
	for i, one := range bursts {
		for _, n := range pending[i] {
			if e := events[n]; e != nil {
				one.events = append(one.events, e)
			} else { // it was forgotten, long after it expired
				b.skip(one, n, Expired)
			}
		}
		// Several workers target the events of one actor, and number them as they come.
		slices.SortStableFunc(one.events, older)
		if len(pending[i]) == 0 && one.event != nil { // another task of the burst sent them
			b.countSkip(Doubled)
		}
		if len(one.events) > 0 {
			waiting = append(waiting, one)
		}
	}
	return b.readShown(waiting)
}

// older compares events by when they were enqueued.
func older(a, b *StoredEvent) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Task, b.Task))
}

// readShown reads what of the running bursts the devices were notified of. The message to come
// has the collapse id of theirs and takes their place, so it has to count them.
func (b *batch) readShown(bursts []*delivery) error {
	asked, since := make([]BurstDevice, len(bursts)), make([]time.Time, len(bursts))
	for i, one := range bursts {
		asked[i] = BurstDevice{Burst: one.key.burst, Member: one.payload.Member, Device: one.task.Key}
		since[i] = burstBegins(one.events)
	}
	accepted, err := b.Store.AcceptedSince(b.ctx, asked, since)
	if err != nil {
		return err
	}
	var numbers []uint64
	for _, list := range accepted {
		for _, r := range list {
			numbers = append(numbers, r.Event)
		}
	}
	if len(numbers) == 0 {
		return nil
	}
	events, err := b.Store.Events(b.ctx, numbers)
	if err != nil {
		return err
	}
	for i, one := range bursts {
		one.shown = runningBurst(since[i], accepted[i], events)
		one.shown = one.shown[:min(len(one.shown), maxBurst-len(one.events))]
	}
	return nil
}

// burstBegins returns since when the acceptance of another event makes these events part of one
// burst with it.
func burstBegins(events []*StoredEvent) time.Time {
	first := events[0].Created
	for _, e := range events {
		if e.Created.Before(first) {
			first = e.Created
		}
	}
	return first.Add(-burstPause)
}

// runningBurst returns the events that belong to one burst with those that are pending: an
// event continues the burst of each that was accepted at most burstPause before it was created,
// or later. accepted are receipts, the last one first; since is what burstBegins says of what
// is pending.
func runningBurst(since time.Time, accepted []Receipt, events map[uint64]*StoredEvent) (shown []*StoredEvent) {
	for _, r := range accepted {
		if r.At.Before(since) {
			break
		}
		e := events[r.Event]
		if e == nil { // it was forgotten
			continue
		}
		shown = append(shown, e)
		if begins := e.Created.Add(-burstPause); begins.Before(since) {
			since = begins
		}
	}
	return shown
}

// byLook divides deliveries by how many candidates one look may have.
func byLook(all []*delivery) func(yield func([]*delivery) bool) {
	return func(yield func([]*delivery) bool) {
		for len(all) > 0 {
			n, candidates := 1, all[0].candidates()
			for n < len(all) && candidates+all[n].candidates() <= maxLook {
				candidates += all[n].candidates()
				n++
			}
			if !yield(all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

// candidates is how many events are looked at for the delivery.
func (one *delivery) candidates() int { return len(one.events) + len(one.shown) }

// look is the last look: it decides what is sent for each of some deliveries.
func (b *batch) look(some []*delivery) error {
	var candidates []Candidate
	for _, one := range some {
		for _, e := range slices.Concat(one.events, one.shown) {
			candidates = append(candidates, Candidate{Event: e.Number, Member: one.payload.Member, Device: one.task.Key})
		}
	}
	if len(candidates) == 0 {
		return nil
	}
	at := time.Now()
	facts, err := b.Store.Look(b.ctx, candidates)
	if err != nil {
		return err
	}
	found := make([]*Facts, len(candidates))
	for i := range facts {
		found[facts[i].Candidate] = &facts[i]
		b.lookedAt, b.now = at, facts[i].Now
	}
	next := 0
	for _, one := range some {
		one.looked = at
		for _, e := range one.events {
			b.decide(one, e, found[next])
			next++
		}
		for _, e := range one.shown {
			if f := found[next]; f != nil {
				one.count(e, *f)
			}
			next++
		}
	}
	return nil
}

// decide decides on an event of a delivery; f is nil if the device is not there.
func (b *batch) decide(one *delivery, e *StoredEvent, f *Facts) {
	if f == nil {
		b.skip(one, e.Number, NoDevice)
		return
	}
	one.count(e, *f)
	if q := f.Settings.Quiet; q.From != q.To {
		if err := q.Check(); err != nil { // SQL wrote them, or activityd of before
			b.logOften(b.ctx, slog.LevelWarn, "", "quiet hours cannot be kept", "member", f.Device.Member, "error", err)
		}
	}
	switch decision := Decide(e, *f); {
	case decision.Skip != "":
		b.skip(one, e.Number, decision.Skip)
	case !decision.NotBefore.IsZero():
		one.wait(max(decision.NotBefore.Sub(f.Now).Truncate(time.Second), 0) + time.Second)
	default:
		one.send = append(one.send, e)
		one.unanswered = one.unanswered || f.Unanswered
		one.silent, one.heard = f.Silent, f.Heard
		one.message.Device = f.Device
		one.shows(e, *f)
	}
}

// shows takes note that the message counts an event. It has the text of the newest, also if that
// was accepted before: those of a process that died are targeted after those that came later.
func (one *delivery) shows(e *StoredEvent, f Facts) {
	if one.text == nil || older(one.text, e) <= 0 {
		one.text, one.message.Notification = e, Notification{Title: f.Actor}
	}
}

// count counts an event of a burst that was accepted before, unless it is not to be shown any
// more: a count must not tell of a photo that is private by now.
func (one *delivery) count(e *StoredEvent, f Facts) {
	if f.Accepted && e.Collapse != "" {
		f.Accepted = false
		if Decide(e, f).Skip == "" {
			one.counted++
			one.shows(e, f)
		}
	}
}

// launch sends the message of a delivery, if it has one and its push service takes any.
func (b *batch) launch(one *delivery) {
	one.waitForOthers()
	if len(one.send) == 0 {
		if one.later > 0 {
			postponed.WithLabelValues(quietHours).Inc()
		}
		return
	}
	device := one.message.Device
	newest, left := one.newest(), b.left(one)
	sender := b.Senders[device.Platform]
	if sender == nil { // another process may have its keys
		if left <= 2*lastTry {
			b.skipAll(one, Off)
			return
		}
		postponed.WithLabelValues(noKeys).Inc()
		one.outcome.Err = queue.Later(b.pause(noKeysPause(b.age(newest)), left), errNoKeys)
		return
	}
	if b.silence(one) >= maxSilentPause && !b.stands(one) {
		b.skipAll(one, Silent)
		return
	}
	pass, wait, why := b.breakers.admit(device, sender.Origin(device), 2*b.Timeout)
	if wait > 0 {
		b.putOff(one, pass, wait, why)
		return
	}
	one.pass = pass
	one.message.ID = messageID(newest.Number, device.ID)
	one.message.Notification = notification(one.text, device, one.message.Title, len(one.send)+one.counted)
	for _, e := range one.send {
		one.message.Urgent = one.message.Urgent || e.Urgent
	}
	if one.task.Attempts > 1 || one.unanswered {
		doublesPossible.WithLabelValues(string(device.Platform), takenOver).Inc()
	}
	b.inFlight[one] = true
	if !pass.brief {
		b.awaited++
	}
	messagesInFlight.Inc()
	ctx := context.WithoutCancel(b.ctx) // what has left is answered, also when the lease is lost
	go func() {
		defer messagesInFlight.Dec()
		b.results <- answer{one, b.send(ctx, sender, one)}
	}()
}

// putOff schedules a delivery that its push service is not sent yet, for a pause and a reason of
// [breakers.admit].
func (b *batch) putOff(one *delivery, left pass, wait time.Duration, why string) {
	postponed.WithLabelValues(why).Inc()
	device, until, err := one.message.Device, b.left(one), errLeft
	if why == quota {
		wait, err = max(wait, retryPause(b.age(one.newest()))), errQuota
	}
	if left.vain && !one.heard && one.silent.IsZero() { // as if it had been sent to
		b.silent = append(b.silent, device.ID)
	}
	if why == quota || left.vain {
		if whose := b.breakers.standing(); whose != nil {
			b.logOften(b.ctx, slog.LevelWarn, device.Platform, "push services that accept nothing hold up messages", whose...)
		}
	}
	wait = b.pause(max(wait, b.silence(one)), until)
	if why == quota || !one.silent.IsZero() {
		wait = b.gather(wait, until)
	}
	one.outcome.Err = queue.Later(wait, err)
}

// send sends a message. A panic of the sender is no answer.
func (d *Deliveries) send(ctx context.Context, sender Sender, one *delivery) (r Result) {
	if time.Since(one.looked) > maxStale {
		return Result{Outcome: Wait, Reason: reasonStale}
	}
	m := one.message
	defer func() {
		if value := recover(); value != nil {
			r = Result{Outcome: Ambiguous, Reason: "panic"}
			d.logOften(ctx, slog.LevelError, m.Device.Platform, "sender of notifications panicked", "panic", value, "stack", string(debug.Stack()))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	return sender.Send(ctx, m)
}

// collect takes the answers to messages until all have come, or the end of a context, but for at
// most patience, and for those that are not likely to be answered soon a shorter time.
func (b *batch) collect(end <-chan struct{}, patience, unlikely time.Duration) {
	if len(b.inFlight) == 0 {
		return
	}
	enough := time.NewTimer(patience)
	defer enough.Stop()
	brief := time.NewTimer(unlikely)
	defer brief.Stop()
	var flush <-chan time.Time
	for all := true; len(b.inFlight) > 0 && (all || b.awaited > 0); {
		select {
		case a := <-b.results:
			b.settle(a)
		case <-flush:
			flush = nil
			b.flushInTime()
		case <-brief.C:
			all = false
		case <-enough.C:
			return
		case <-end:
			return
		}
		switch {
		case b.taken == 0 && b.owed == 0:
			flush = nil
		case flush == nil:
			flush = time.After(flushAfter)
		}
	}
}

// abandon is the end of messages whose sender does not return.
func (b *batch) abandon() {
	for one := range b.inFlight {
		b.settle(answer{one, Result{Outcome: Ambiguous, Reason: "timeout"}})
	}
}

// settle takes note of what became of a message.
func (b *batch) settle(a answer) {
	delete(b.inFlight, a.delivery)
	if !a.pass.brief {
		b.awaited--
	}
	device := a.message.Device
	newest := a.newest()
	var left time.Duration
	if a.Reason == reasonStale { // which says nothing about the push service
		b.breakers.release(a.pass)
	} else {
		var opened bool
		if left, opened = b.breakers.report(a.pass, a.Result); opened {
			b.logOpened(a, left)
		}
	}
	countResult(device.Platform, a.Result, b.age(newest))
	pause := retryPause(b.age(newest))
	vain, drop := b.hear(a)
	if vain {
		pause = max(pause, b.silence(a.delivery))
	}
	v := judge(a.Result, pause, left, b.left(a.delivery))
	if drop {
		v = verdict{state: StateFailed, reason: string(Silent), prune: true}
		devicesGone.WithLabelValues(string(device.Platform), string(Silent)).Inc()
	}
	if v.state == "" {
		a.outcome.Err = queue.Later(b.pause(v.after, b.left(a.delivery)), fmt.Errorf("%s: %s (%s)", device.Platform, clip(v.reason), a.Outcome))
		b.unmark(a, a.send, v.reason)
		return
	}
	countByType(newest.Type, device.Platform, string(v.state))
	if a.accepted = v.state == StateAccepted; a.accepted {
		b.taken++
	}
	if v.prune {
		b.gone = append(b.gone, Pruned{Device: device.ID, Reason: v.reason, Since: a.GoneSince})
	}
	if a.Outcome == Rejected && len(a.send)+len(a.old) > 1 { // its content: that of the others may be accepted
		b.record(a.delivery, a.receipt(newest.Number, v.state, v.reason))
		b.unmark(a, a.send[:len(a.send)-1], v.reason)
		a.outcome.Err = queue.Later(minRetryPause, errRejected)
		return
	}
	for _, e := range a.send {
		r := a.receipt(e.Number, v.state, v.reason)
		if v.state == StateAccepted {
			r.ProviderID = a.ID
			if e != a.text {
				r.Reason = string(Doubled)
			}
		}
		b.record(a.delivery, r)
	}
	for _, number := range a.old {
		b.record(a.delivery, a.receipt(number, v.state, string(Doubled)))
	}
}

// hear takes note of whether a subscription accepts anything. If it never did, vain says that this
// message was not accepted either, and drop that this has been so for long. A subscription is not
// dropped while its push service accepts messages to others: then it may fail for a moment. Only
// those of browsers are judged, as members can make up no others.
func (b *batch) hear(a answer) (vain, drop bool) {
	device := a.message.Device
	switch {
	case device.Platform != WebPush || a.heard:
	case a.Outcome == Accepted:
		b.heard = append(b.heard, device.ID)
		b.mu.Lock()
		delete(b.standing, device.ID)
		b.mu.Unlock()
	case a.Outcome != Ambiguous && a.Outcome != Wait, a.Reason == reasonStale, a.Reason == ReasonGoAway, a.Reason == ReasonRefused:
	case a.silent.IsZero():
		b.silent = append(b.silent, device.ID)
	default:
		return true, a.pass.unproven && b.clock().Sub(a.silent) > maxSilence
	}
	return false, false
}

// silence is how long a delivery waits for a device that was sent to in vain and never accepted
// anything; 0: it is none.
func (b *batch) silence(one *delivery) time.Duration {
	if one.silent.IsZero() {
		return 0
	}
	return min(b.clock().Sub(one.silent), maxSilentPause)
}

// stands reports whether the delivery is one of the newest of its device, of those that came by
// here.
func (d *Deliveries) stands(one *delivery) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	list, known := d.standing[one.task.Key]
	if !known && len(d.standing) >= maxOrigins {
		for other := range d.standing {
			delete(d.standing, other)
			break
		}
	}
	if !slices.Contains(list, one.task.ID) {
		list = slices.Sorted(slices.Values(append(list, one.task.ID)))
		list = list[max(0, len(list)-maxStanding):]
		d.standing[one.task.Key] = list
	}
	return slices.Contains(list, one.task.ID)
}

// unmark replaces what mark wrote, of events that are sent again.
func (b *batch) unmark(a answer, again []*StoredEvent, reason string) {
	if !a.marked {
		return
	}
	for _, e := range again {
		b.record(a.delivery, a.receipt(e.Number, StatePending, reason))
	}
}

// wait takes note that one of the events is not to be sent before so long.
func (one *delivery) wait(d time.Duration) {
	if one.later == 0 || d < one.later {
		one.later = d
	}
}

// waitForOthers schedules the task for the events that are not sent now, unless what
// becomes of the others says otherwise.
func (one *delivery) waitForOthers() {
	switch {
	case one.later > 0:
		one.outcome.Err = queue.Later(one.later, errQuiet)
	case len(one.send) == 0 && len(one.old) > 0:
		one.outcome.Err = queue.Later(time.Second, errMore)
	}
}

func (one *delivery) receipt(event uint64, state State, reason string) Receipt {
	return Receipt{Event: event, Member: one.payload.Member, Device: one.task.Key, State: state, Reason: reason, Burst: one.key.burst}
}

// newest is the newest event that the message stands for.
func (one *delivery) newest() *StoredEvent { return one.send[len(one.send)-1] }

// skip takes note that an event is not for the device. That it was accepted before, its
// receipt says.
func (b *batch) skip(one *delivery, number uint64, reason Skip) {
	b.countSkip(reason)
	if reason != Doubled {
		b.record(one, one.receipt(number, StateSkipped, string(reason)))
	}
}

// skipAll is the end of a delivery whose events are not to be sent.
func (b *batch) skipAll(one *delivery, reason Skip) {
	for _, e := range one.send {
		b.skip(one, e.Number, reason)
	}
	for _, number := range one.old {
		b.skip(one, number, reason)
	}
}

func (b *batch) countSkip(reason Skip) { skipped.WithLabelValues(atDelivery, string(reason)).Inc() }

// clock is the database's clock.
func (b *batch) clock() time.Time { return b.now.Add(time.Since(b.lookedAt)) }

// age is how long ago the event was created.
func (b *batch) age(e *StoredEvent) time.Duration { return b.clock().Sub(e.Created) }

// left is how long it is until the last of the events that the message stands for expires.
func (b *batch) left(one *delivery) (left time.Duration) {
	for i, e := range one.send {
		if l := e.Expires.Sub(b.clock()); i == 0 || l > left {
			left = l
		}
	}
	return left
}

// pause returns how long a delivery waits whose events expire in left: a little longer than d, by
// chance, and the same for many deliveries of a batch. If d is too long for that, it waits until lastTry
// before the events expire; and in their last moments until they have expired, which the last
// look then finds.
func (b *batch) pause(d, left time.Duration) time.Duration {
	if spread := rounded(d + time.Duration(b.jitter*float64(d/4))); spread < left {
		return spread
	}
	if left > 2*lastTry {
		return (left - lastTry).Truncate(time.Second)
	}
	return rounded(max(left, 1))
}

// gather returns a pause that ends a little later, with others, unless it is short or the events
// expire.
func (b *batch) gather(d, left time.Duration) time.Duration {
	step := gathered
	for d > 8*step {
		step *= 2
	}
	if d < 2*step || d+step >= left {
		return d
	}
	return b.now.Add(d).Truncate(step).Add(step).Sub(b.now) // the same for all of a batch
}

// flushInTime is flush, as long as the lease of the tasks lasts. A handler does not try again what
// failed.
func (b *batch) flushInTime() {
	if b.owed > 0 && !b.detached {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), recordTime)
	defer cancel()
	if !b.detached {
		defer context.AfterFunc(b.ctx, func() {
			_ = retry.Sleep(ctx, recordLate)
			cancel()
		})()
	}
	b.flush(ctx)
}

// flush writes the receipts, and then ends the devices that are gone. It tries again until ctx
// ends; receipts that are not written by then are kept, with the reservations of what they are
// about.
func (b *batch) flush(ctx context.Context) {
	if len(b.receipts) > 0 {
		if err := persist(ctx, func(ctx context.Context) error { return b.Store.WriteReceipts(ctx, b.receipts) }); err != nil {
			b.owe(err)
			return
		}
		b.owes(0)
		b.receipts, b.taken = nil, 0
		clear(b.unwritten)
		if b.detached {
			b.release()
		}
	}
	if len(b.gone) > 0 {
		ctx, cancel := context.WithTimeout(ctx, recordTime)
		defer cancel()
		if err := persist(ctx, func(ctx context.Context) error { _, err := b.Store.Prune(ctx, b.gone); return err }); err != nil {
			b.logOften(ctx, slog.LevelWarn, "", "devices that are gone not pruned", "count", len(b.gone), "error", err)
		}
		b.gone = nil
	}
	if len(b.heard)+len(b.silent) > 0 { // if that fails, the next messages say it again
		ctx, cancel := context.WithTimeout(ctx, recordTime)
		defer cancel()
		if err := b.Store.Hear(ctx, b.heard, b.silent); err != nil {
			b.logOften(ctx, slog.LevelWarn, "", "what devices accept not noted", "error", err)
		}
		b.heard, b.silent = nil, nil
	}
}

// owe takes note that the receipts could not be written in time: from now on, another process
// may have the tasks.
func (b *batch) owe(err error) {
	for one := range b.unwritten {
		if (one.accepted || one.marked && b.inFlight[one]) && !one.doubles {
			one.doubles = true
			doublesPossible.WithLabelValues(string(one.message.Device.Platform), noReceipt).Inc()
		}
	}
	b.owes(len(b.receipts))
	b.logOften(b.ctx, slog.LevelWarn, "", "receipts of notifications not written yet", "count", len(b.receipts), "error", err)
}

// owes says how many receipts of the batch could not be written in time.
func (b *batch) owes(n int) {
	b.owing.Add(int64(n - b.owed))
	b.owed = n
}

// forget is the end of the batch, whatever was not written.
func (b *batch) forget() {
	b.owes(0)
	clear(b.unwritten)
	b.release()
}

// persist writes until that succeeds, or ctx ends.
func persist(ctx context.Context, write func(ctx context.Context) error) error {
	for try := 1; ; try++ {
		bounded, cancel := context.WithTimeout(ctx, recordTime)
		err := write(bounded)
		cancel()
		if err == nil || retry.Sleep(ctx, retry.Backoff(try, 50*time.Millisecond, 500*time.Millisecond)) != nil {
			return err
		}
	}
}

// reserve reports whether nothing else of this process sends the same, and keeps it so
// until release.
func (d *Deliveries) reserve(one *delivery) bool {
	one.key = deliveryKey{device: one.task.Key, burst: one.burst}
	if one.burst == [16]byte{} {
		one.key.event = one.event.Number
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reserved[one.key] {
		return false
	}
	d.reserved[one.key], one.reserved = true, true
	return true
}

// release is the end of the deliveries that are answered, and whose receipts are written.
func (b *batch) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.all {
		if one.reserved && !b.inFlight[one] && !b.unwritten[one] {
			delete(b.reserved, one.key)
			one.reserved = false
		}
	}
}

// KeysChanged is to be told that the sender of a platform has other keys: push services that
// refused those before are not left alone any longer.
func (d *Deliveries) KeysChanged(p Platform) { d.breakers.forgetKeys(p) }

// logOpened says that a push service is left alone, unless it may be one that a member made
// up: see breakers.
func (b *batch) logOpened(a answer, pause time.Duration) {
	if a.pass.unproven {
		return
	}
	about := []any{"origin", a.pass.origin, "outcome", a.Outcome, "reason", a.Reason, "status", a.Status, "for", pause.Round(time.Millisecond)}
	if a.Outcome == Credentials {
		b.logOften(b.ctx, slog.LevelError, a.pass.platform, "push service refuses our keys", about...)
		return
	}
	b.logOften(b.ctx, slog.LevelWarn, a.pass.platform, "push service fails and is left alone", about...)
}

// logOften writes a message, once a minute for each platform.
func (d *Deliveries) logOften(ctx context.Context, level slog.Level, p Platform, message string, about ...any) {
	if p != "" {
		about = append([]any{"platform", string(p)}, about...)
	}
	d.lines.Log(ctx, level, string(p), message, about...)
}
