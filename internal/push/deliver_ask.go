package push

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/activityd/activityd/queue"
)

// job is the work of one task: the deliveries of an event, or the one of a burst.
type job struct {
	task    queue.Task
	payload Delivery
	burst   [16]byte     // of the payload, or else of the event; zero: the event has no collapse key
	event   *StoredEvent // nil: it was deleted, or lost
	all     []*asked     // what there is to do
	err     error        // of the task as a whole
	outcome queue.Outcome
}

// isBurst reports whether the task is for what is pending of a burst, for a device.
func (j *job) isBurst() bool { return j.payload.Burst != "" }

// isOfBurst reports whether it is for what is pending of a burst, or for an event of one.
func (j *job) isOfBurst() bool { return j.burst != [16]byte{} }

// asked is a delivery as its task asks for it: an event, or what is pending of a burst, for a device.
type asked struct {
	*job
	to     Recipient
	key    deliveryKey
	events []*StoredEvent // that are looked at, in the order in which they were enqueued: of a burst those that are pending
	old    []uint64       // of a burst, those that are too many to be looked at
	more   bool           // there may be newer ones
	shown  []*StoredEvent // of a burst, those that the device was notified of: see runningBurst

	again   *again // what is left of it has to be done later; nil: nothing is
	byBurst bool   // by a task for the burst: it has a pending receipt
}

// again is when a delivery is to be done again, and why.
type again struct {
	after time.Duration
	why   error
}

// deliveryKey is an event, or a burst of events, for a device: two of one burst are not sent at once.
type deliveryKey struct {
	device uint64
	event  uint64   // 0: a burst
	burst  [16]byte // zero: an event
}

// begin reads what the tasks are about, and returns the jobs that there are to do.
func (b *batch) begin() []*job {
	var numbers []uint64
	for _, j := range b.jobs {
		if j.err = j.read(); j.err == nil {
			numbers = append(numbers, j.payload.Event)
		}
	}
	if err := b.readEvents(numbers); err != nil {
		return failAll(b.jobs, err)
	}
	var some []*job
	var bursts []*asked
	for _, j := range b.jobs {
		if j.err != nil || j.event == nil && j.burst == [16]byte{} { // it has ended
			continue
		}
		for _, to := range j.payload.To {
			j.ask(to)
		}
		if !b.reserve(j) {
			continue
		}
		for _, one := range j.all {
			switch {
			case one.again != nil:
			case j.isOfBurst(): // one for the burst also without its event: it has absorbed the deliveries of others
				bursts = append(bursts, one)
			default:
				one.events = []*StoredEvent{j.event}
			}
		}
		some = append(some, j)
	}
	if err := b.readBursts(bursts); err != nil {
		return failAll(some, err)
	}
	return some
}

// ask adds a delivery of the task's event, or burst.
func (j *job) ask(to Recipient) *asked {
	one := &asked{job: j, to: to, key: deliveryKey{device: to.Device, burst: j.burst}}
	if !j.isOfBurst() {
		one.key.event = j.event.Number
	}
	j.all = append(j.all, one)
	return one
}

// read reads the task. An error says that it makes no sense.
func (j *job) read() error {
	err := json.Unmarshal(j.task.Payload, &j.payload)
	p := &j.payload
	if err == nil && (p.Event == 0 || len(p.To) == 0 || slices.ContainsFunc(p.To, func(r Recipient) bool { return r.Member == 0 || r.Device == 0 })) {
		err = errors.New("it names no event, no member or no device")
	}
	if n, _ := hex.Decode(j.burst[:], []byte(p.Burst[:min(len(p.Burst), 2*len(j.burst))])); err == nil && p.Burst != "" && (n < len(j.burst) || len(p.To) > 1) {
		err = errors.New("the burst is no hash, or for more than one device")
	}
	if err != nil {
		return queue.Permanent(fmt.Errorf("%w: %w", queue.ErrInvalid, err))
	}
	return nil
}

// readEvents reads the events of the jobs.
func (b *batch) readEvents(numbers []uint64) error {
	events, err := b.Store.Events(b.ctx, numbers)
	if err != nil {
		return err
	}
	isAnother := func(j *job) bool {
		e := events[j.payload.Event]
		return e != nil && !e.isOf(j.payload.Task)
	}
	if slices.ContainsFunc(b.jobs, isAnother) { // or the cache is old
		if events, err = b.Store.CurrentEvents(b.ctx, numbers); err != nil {
			return err
		}
	}
	for _, j := range b.jobs {
		switch e := events[j.payload.Event]; {
		case j.err != nil: // it is invalid
		case isAnother(j):
			b.countSkips(Lost, len(j.payload.To))
		case e == nil: // it was forgotten, long after it expired
			b.countSkips(Expired, len(j.payload.To))
		default:
			j.event = e
			if e.Collapse != "" && j.burst == [16]byte{} {
				j.burst = e.Burst()
			}
		}
	}
	return nil
}

// failAll makes an error that of jobs that have none, and returns that none are left.
func failAll(some []*job, err error) []*job {
	for _, j := range some {
		j.err = cmp.Or(j.err, err)
	}
	return nil
}

// later has the delivery done again.
func (one *asked) later(after time.Duration, why error) { one.again = &again{after, why} }

// readBursts reads which events of the bursts are pending.
func (b *batch) readBursts(bursts []*asked) error {
	if len(bursts) == 0 {
		return nil
	}
	about := make([]BurstDevice, len(bursts))
	for i, one := range bursts {
		about[i] = BurstDevice{Burst: one.key.burst, Member: one.to.Member, Device: one.to.Device}
	}
	pending, err := b.Store.Pending(b.ctx, about)
	if err != nil {
		return err
	}
	var numbers []uint64
	var waiting []*asked
	for i, one := range bursts {
		switch {
		case one.isBurst():
			one.more = len(pending[i]) >= maxPending
			if n := len(pending[i]) - maxBurst; n > 0 {
				one.old, pending[i] = pending[i][:n], pending[i][n:]
			}
			numbers = append(numbers, pending[i]...)
		case len(pending[i]) > 0: // others of the burst wait, or an attempt before this one found that it has to
			one.later(rivalPause, errTogether)
			b.leave(one, slices.Contains(pending[i], one.event.Number))
		default:
			one.events = []*StoredEvent{one.event}
			waiting = append(waiting, one)
		}
	}
	events, err := b.Store.Events(b.ctx, numbers)
	if err != nil {
		return err
	}
	for i, one := range bursts {
		if one.isBurst() {
			b.takeAll(one, pending[i], events)
			if len(one.events) > 0 {
				waiting = append(waiting, one)
			}
		}
	}
	return b.readShown(waiting)
}

// takeAll takes the events of a burst that are pending.
func (b *batch) takeAll(one *asked, pending []uint64, events map[uint64]*StoredEvent) {
	for _, n := range pending {
		if e := events[n]; e != nil {
			one.events = append(one.events, e)
		} else { // it was forgotten, long after it expired
			b.skip(one, n, Expired)
		}
	}
	// Several workers target the events of one actor, and number them as they come.
	slices.SortStableFunc(one.events, older)
	if len(pending) == 0 && one.event != nil { // another task of the burst sent them
		b.countSkips(Doubled, 1)
	}
}

// older compares events by when they were enqueued.
func older(a, b *StoredEvent) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Task, b.Task))
}

// leave leaves a delivery of an event, later, to a task for its burst, which sends what has a pending receipt.
func (b *batch) leave(one *asked, isPending bool) {
	one.byBurst = true
	switch {
	case isPending:
	case one.task.Attempts > 1: // an attempt before this one may have sent it
		b.record(one, one.receipt(one.event.Number, StatePending, reasonUnanswered))
	default:
		b.record(one, one.receipt(one.event.Number, StatePending, ""))
	}
}

// leaveWaiting leaves deliveries to tasks for their bursts that have to wait until others of the
// burst may be due, so that one message is sent for all of them. Until then these wait for the
// page, see LastSent; so what waits for less is left to a task for many devices.
func (b *batch) leaveWaiting() {
	for _, j := range b.jobs {
		if j.err != nil || j.isBurst() || j.burst == [16]byte{} {
			continue
		}
		for _, one := range j.all {
			switch {
			case one.byBurst:
			case b.inFlight[one] != nil: // mark has its receipt written
				b.leave(one, true)
			case one.again != nil && j.task.Claimed.Add(one.again.after).After(j.event.Created.Add(burstPause)):
				b.leave(one, false)
			}
		}
	}
}

// readShown reads what of the running bursts the devices were notified of. The message to come
// has the collapse id of theirs and takes their place, so it has to count them. Of what is pending, it leaves out what
// a run says was accepted: a process that had been stopped found it to be waiting, after another one had sent it.
func (b *batch) readShown(bursts []*asked) error {
	all := bursts
	since := make(map[*asked]time.Time, len(bursts))
	for _, one := range bursts {
		since[one] = burstBegins(one.events)
	}
	for len(bursts) > 0 {
		about := make([]BurstDevice, len(bursts))
		for i, one := range bursts {
			about[i] = BurstDevice{Burst: one.key.burst, Member: one.to.Member, Device: one.to.Device, Since: since[one]}
		}
		accepted, err := b.Store.AcceptedSince(b.ctx, about)
		if err != nil {
			return err
		}
		events, err := b.eventsOf(accepted)
		if err != nil {
			return err
		}
		var longer []*asked // what was accepted shows that the burst is older
		for i, one := range bursts {
			shown, begins := runningBurst(since[one], accepted[i], events)
			one.shown = shown
			if begins.Before(since[one]) && len(shown) < maxBurst {
				since[one], longer = begins, append(longer, one)
			}
		}
		bursts = longer
	}
	for _, one := range all {
		b.leaveOut(one)
	}
	return nil
}

// eventsOf reads those of receipts.
func (b *batch) eventsOf(receipts [][]Receipt) (map[uint64]*StoredEvent, error) {
	var numbers []uint64
	for _, r := range slices.Concat(receipts...) {
		numbers = append(numbers, r.Event)
	}
	if len(numbers) == 0 {
		return nil, nil // none is in it
	}
	return b.Store.Events(b.ctx, numbers)
}

// leaveOut leaves out of what is asked for what was shown, and of that what is too many.
func (b *batch) leaveOut(one *asked) {
	one.events = slices.DeleteFunc(one.events, func(e *StoredEvent) bool {
		if !slices.ContainsFunc(one.shown, func(other *StoredEvent) bool { return other.Number == e.Number }) {
			return false
		}
		b.countSkips(Doubled, 1)
		if one.isBurst() { // its row says that it is pending
			b.record(one, one.receipt(e.Number, StateAccepted, string(Doubled)))
		}
		return true
	})
	// The newest is looked at in any case: what is pending may be older.
	one.shown = one.shown[:min(len(one.shown), max(1, maxBurst-len(one.events)))]
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
// is pending, and begins what it says of all.
func runningBurst(since time.Time, accepted []Receipt, events map[uint64]*StoredEvent) (shown []*StoredEvent, begins time.Time) {
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
	return shown, since
}
