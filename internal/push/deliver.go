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
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/retry"
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
	// recordTime bounds the writing of receipts: then the lease of the tasks may be over.
	recordTime = 4 * time.Second
	// unprovenPatience is how long a batch waits for messages to origins that are not
	// proven: see breakers.
	unprovenPatience = 250 * time.Millisecond
	// detachedMargin is how long after the end of a message that its batch did not wait for
	// its task comes again.
	detachedMargin = 5 * time.Second
	// maxStale is how long ago a look may have begun when a message leaves for its sender. It
	// is longer in a process that was stopped for a while: another one may have the task by
	// now.
	maxStale = 3 * time.Second
	logEvery = time.Minute // each message of the log, for each platform
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
// At least once: a task ends only after its message was accepted, or after a receipt says that
// the push service refused it for good, that the device is gone, or why [Decide] does not send
// it. Whatever happens before, its lease runs out, or it is scheduled, and it is done again. So
// an event is accepted for a device, or a receipt says why not.
//
// At most once, unless an answer was lost, or the process or the database failed between
// the answer and the commit of the receipt. From the commit on, a look finds that the
// event was accepted, in whichever process. Before it, no other goroutine of this process
// sends the same (see reserve), and no other process has the task while its lease holds. What
// was sent twice nevertheless was sent under the same [Message].Collapse, and is counted when
// it may have happened, by activityd_push_doubles_possible_total: when there was no
// answer, when an acceptance could not be recorded, and when a process takes over a task
// whose message another one may have sent before it died: the lease of the task ran out, or
// a receipt says that the message was sent and not answered.
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
// services that accepted nothing lately only briefly. The messages that are not answered by
// then go on without it, they are detached: their tasks are scheduled for when they have ended
// for sure, and their results recorded when they come. The task then finds that its event was
// accepted, or sends it again. A push service that fails is left alone, and those that members
// may have made up share a quota: see breakers.
type Deliveries struct {
	DeliveryOptions
	breakers *breakers

	mu       sync.Mutex
	reserved map[deliveryKey]bool // what is being sent
	logged   map[string]time.Time // when a message of the log was last written, by platform

	detached sync.WaitGroup // batches with messages that go on
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
	return &Deliveries{DeliveryOptions: o, breakers: newBreakers(), reserved: make(map[deliveryKey]bool), logged: make(map[string]time.Time)}
}

// Wait waits for messages that no batch waits for, whose results are still to be recorded:
// for the end of the process, after that of the pool. It takes a little more than Timeout
// at most.
func (d *Deliveries) Wait() { d.detached.Wait() }

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
	later      time.Duration  // when others are to be sent; 0: there are none
	looked     time.Time      // when the last look began, by the clock of this process
	unanswered bool           // an earlier attempt sent some of it
	message    Message
	pass       pass
	accepted   bool
	marked     bool // a receipt that says that it is not answered is to be written
	outcome    queue.Outcome
}

// batch is the work on tasks that were claimed together.
type batch struct {
	*Deliveries
	ctx       context.Context // of the handler
	jitter    float64         // of the pauses: one for all, so that they are few
	lookedAt  time.Time       // when the last look began, by the clock of this process
	now       time.Time       // then, by the database's
	results   chan answer
	inFlight  map[*delivery]bool // sent, and not answered
	proven    int                // of these, to push services that are proven
	detached  bool               // it waits for what is in flight without the handler
	receipts  []Receipt          // to be written
	unwritten map[*delivery]bool // whose receipts these are
	taken     int                // of these, accepted
	gone      []Pruned
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
)

// Handle implements [queue.Handler].
func (d *Deliveries) Handle(ctx context.Context, tasks []queue.Task) []queue.Outcome {
	b := &batch{
		Deliveries: d, ctx: ctx, jitter: rand.Float64(), inFlight: make(map[*delivery]bool),
		results: make(chan answer, len(tasks)), unwritten: make(map[*delivery]bool),
	}
	all := make([]*delivery, len(tasks))
	for i, t := range tasks {
		all[i] = &delivery{task: t}
	}
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	attached := context.AfterFunc(ctx, cancel)
	defer func() { // also of a panic
		if !b.detached {
			attached()
			cancel()
			for one := range b.inFlight {
				d.breakers.release(one.pass)
			}
			b.release(all)
		}
	}()
	for some := range byLook(b.begin(all)) {
		if err := b.look(some); err != nil {
			some = failAll(some, err)
		}
		for _, one := range some {
			b.launch(sending, one)
		}
	}
	b.collect(d.Patience, unprovenPatience) //nolint:contextcheck // what was accepted is recorded after the end of ctx, too
	detach := len(b.inFlight) > 0 && ctx.Err() == nil
	if detach {
		b.mark()
	} else {
		b.collect(d.Timeout, d.Timeout) //nolint:contextcheck // likewise
		b.abandon()
	}
	b.flush() //nolint:contextcheck // likewise
	outcomes := make([]queue.Outcome, len(all))
	for i, one := range all {
		if b.inFlight[one] {
			postponed.WithLabelValues(slow).Inc()
			one.outcome.Err = queue.Later(rounded(d.Timeout+detachedMargin), errSlow)
		}
		outcomes[i] = one.outcome
	}
	if detach {
		attached()
		b.detached = true
		b.release(all)
		d.detached.Go(func() { //nolint:contextcheck // likewise
			defer cancel()
			b.collect(d.Timeout+detachedMargin/2, d.Timeout+detachedMargin/2)
			b.abandon()
			b.flush()
			b.release(all)
		})
	}
	return outcomes
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
func (b *batch) begin(all []*delivery) (some []*delivery) {
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
		slices.SortStableFunc(one.events, func(a, b *StoredEvent) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Task, b.Task))
		})
		if len(pending[i]) == 0 && one.event != nil { // another task of the burst sent them
			b.countSkip(Doubled)
		}
		if len(one.events) > 0 {
			waiting = append(waiting, one)
		}
	}
	return b.readShown(waiting)
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
	switch decision := Decide(e, *f); {
	case decision.Skip != "":
		b.skip(one, e.Number, decision.Skip)
	case !decision.NotBefore.IsZero():
		one.wait(max(decision.NotBefore.Sub(f.Now).Truncate(time.Second), 0) + time.Second)
	default:
		one.send = append(one.send, e)
		one.unanswered = one.unanswered || f.Unanswered
		one.message.Device = f.Device
		one.message.Notification = Notification{Title: f.Actor}
	}
}

// count counts an event of a burst that was accepted before, unless it is not to be shown any
// more: a count must not tell of a photo that is private by now.
func (one *delivery) count(e *StoredEvent, f Facts) {
	if f.Accepted && e.Collapse != "" {
		f.Accepted = false
		if Decide(e, f).Skip == "" {
			one.counted++
		}
	}
}

// launch sends the message of a delivery, if it has one and its push service takes any.
func (b *batch) launch(ctx context.Context, one *delivery) {
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
			for _, e := range one.send {
				b.skip(one, e.Number, Off)
			}
			return
		}
		postponed.WithLabelValues(noKeys).Inc()
		one.outcome.Err = queue.Later(b.pause(noKeysPause(b.age(newest)), left), errNoKeys)
		return
	}
	pass, wait, why := b.breakers.admit(device.Platform, sender.Origin(device), 2*b.Timeout)
	if wait > 0 {
		postponed.WithLabelValues(why).Inc()
		err := errLeft
		if why == quota {
			wait, err = max(wait, retryPause(b.age(newest))), errQuota
		}
		one.outcome.Err = queue.Later(b.pause(wait, left), err)
		return
	}
	one.pass = pass
	one.message.ID = messageID(newest.Number, device.ID)
	one.message.Notification = notification(newest, one.message.Title, len(one.send)+one.counted)
	for _, e := range one.send {
		one.message.Urgent = one.message.Urgent || e.Urgent
	}
	if one.task.Attempts > 1 || one.unanswered {
		doublesPossible.WithLabelValues(string(device.Platform), takenOver).Inc()
	}
	b.inFlight[one] = true
	if !pass.unproven {
		b.proven++
	}
	messagesInFlight.Inc()
	go func() {
		defer messagesInFlight.Dec()
		b.results <- answer{one, b.send(ctx, sender, one)}
	}()
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

// collect takes the answers to messages until all have come, but for at most patience, and for
// those of push services that are not proven a shorter time.
func (b *batch) collect(patience, unproven time.Duration) {
	if len(b.inFlight) == 0 {
		return
	}
	enough := time.NewTimer(patience)
	defer enough.Stop()
	brief := time.NewTimer(unproven)
	defer brief.Stop()
	var flush <-chan time.Time
	for all := true; len(b.inFlight) > 0 && (all || b.proven > 0); {
		select {
		case a := <-b.results:
			b.settle(a)
		case <-flush:
			b.flush()
		case <-brief.C:
			all = false
		case <-enough.C:
			return
		}
		switch {
		case b.taken == 0:
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
	if !a.pass.unproven {
		b.proven--
	}
	device := a.message.Device
	newest := a.newest()
	var left time.Duration
	cancelled := b.ctx.Err() != nil && !b.detached && (a.Outcome == Wait || a.Outcome == Ambiguous)
	if cancelled || a.Reason == reasonStale { // which says nothing about the push service
		b.breakers.release(a.pass)
	} else {
		var opened bool
		if left, opened = b.breakers.report(a.pass, a.Result); opened {
			b.logOpened(a, left)
		}
	}
	countResult(device.Platform, a.Result, b.age(newest))
	v := judge(a.Result, retryPause(b.age(newest)), left, b.left(a.delivery))
	if v.state == "" {
		a.outcome.Err = queue.Later(b.pause(v.after, b.left(a.delivery)), fmt.Errorf("%s: %s (%s)", device.Platform, clip(v.reason, MaxReason), a.Outcome))
		b.unmark(a, a.send, v.reason)
		return
	}
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
			if e != newest {
				r.Reason = string(Doubled)
			}
		}
		b.record(a.delivery, r)
	}
	for _, number := range a.old {
		b.record(a.delivery, a.receipt(number, v.state, string(Doubled)))
	}
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

// pause returns how long a delivery waits that has so much time left: a little longer than d,
// and for a batch one of few; until lastTry before its events expire, if that is too long; and if
// that is over, until they have expired, as the last look finds then.
func (b *batch) pause(d, left time.Duration) time.Duration {
	if spread := rounded(d + time.Duration(b.jitter*float64(d/4))); spread < left {
		return spread
	}
	if left > 2*lastTry {
		return (left - lastTry).Truncate(time.Second)
	}
	return rounded(max(left, 1))
}

// flush writes the receipts and ends the devices that are gone. It goes on after the end
// of the handler's context: what was accepted, was. If the receipts cannot be written, the
// tasks that nothing was accepted for fail, so that they come again.
func (b *batch) flush() {
	if len(b.receipts) == 0 && len(b.gone) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), recordTime)
	defer cancel()
	if err := persist(ctx, func() error { return b.Store.WriteReceipts(ctx, b.receipts) }); err != nil {
		for one := range b.unwritten {
			switch {
			case one.accepted, one.marked && b.inFlight[one]:
				doublesPossible.WithLabelValues(string(one.message.Device.Platform), noReceipt).Inc()
			case one.outcome.Err == nil:
				one.outcome.Err = err
			}
		}
		b.logOften(ctx, slog.LevelWarn, "", "receipts of notifications not written", "count", len(b.receipts), "error", err)
	}
	if len(b.gone) > 0 {
		if err := persist(ctx, func() error { _, err := b.Store.Prune(ctx, b.gone); return err }); err != nil {
			b.logOften(ctx, slog.LevelWarn, "", "devices that are gone not pruned", "count", len(b.gone), "error", err)
		}
	}
	b.receipts, b.gone, b.taken = nil, nil, 0
	clear(b.unwritten)
}

// persist tries again until ctx ends while the database is away.
func persist(ctx context.Context, write func() error) error {
	for try := 1; ; try++ {
		err := write()
		if err == nil || !errors.Is(err, mysql.ErrUnavailable) || retry.Sleep(ctx, retry.Backoff(try, 100*time.Millisecond, time.Second)) != nil {
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
func (b *batch) release(all []*delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range all {
		if one.reserved && (!b.detached || !b.inFlight[one]) {
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
	key := string(p) + " " + message
	d.mu.Lock()
	now := time.Now()
	due := now.Sub(d.logged[key]) >= logEvery
	if due {
		d.logged[key] = now
	}
	d.mu.Unlock()
	if !due {
		return
	}
	if p != "" {
		about = append([]any{"platform", string(p)}, about...)
	}
	d.Log.Log(ctx, level, message, about...)
}
