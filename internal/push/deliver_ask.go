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
}

// asked is a delivery as its task asks for it: an event, or what is pending of a burst, for a device.
type asked struct {
	*job
	to     Recipient
	key    deliveryKey
	events []*StoredEvent // that are looked at, in the order in which they were enqueued: of a burst those that are pending
	old    []uint64       // of a burst, those that are too many to be looked at
	shown  []*StoredEvent // of a burst, those that the device was notified of: see runningBurst

	again *again // what is left of it has to be done later; nil: nothing is
}

// again is when a delivery is to be done again, and why.
type again struct {
	after time.Duration
	why   error
}

// deliveryKey is an event, or a burst of events, for a device.
type deliveryKey struct {
	device uint64
	event  uint64   // 0: a burst
	burst  [16]byte // zero: an event
}

// begin reads what the tasks are about, and returns the jobs that there are to do.
func (b *batch) begin() []*job {
	if b.owing.Load() >= maxOwed { // what is sent could not be recorded either
		return failAll(b.jobs, queue.Later(recordAgain, errOwed))
	}
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
		j.all = make([]*asked, len(j.payload.To))
		for i, to := range j.payload.To {
			one := &asked{job: j, to: to, key: deliveryKey{device: to.Device, burst: j.burst}}
			j.all[i] = one
			if j.burst == [16]byte{} {
				one.key.event = j.event.Number
			}
			switch {
			case !b.reserve(one):
			case j.burst == [16]byte{}:
				one.events = []*StoredEvent{j.event}
			default: // also without its event: it has absorbed the deliveries of others
				bursts = append(bursts, one)
			}
		}
		some = append(some, j)
	}
	if err := b.readBursts(bursts); err != nil {
		return failAll(some, err)
	}
	return some
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
	var waiting []*asked
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
			b.countSkips(Doubled, 1)
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
func (b *batch) readShown(bursts []*asked) error {
	about, since := make([]BurstDevice, len(bursts)), make([]time.Time, len(bursts))
	for i, one := range bursts {
		about[i] = BurstDevice{Burst: one.key.burst, Member: one.to.Member, Device: one.to.Device}
		since[i] = burstBegins(one.events)
	}
	accepted, err := b.Store.AcceptedSince(b.ctx, about, since)
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
