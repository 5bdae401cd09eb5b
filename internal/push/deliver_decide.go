package push

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/queue"
)

// job is the work of one task.
type job struct {
	task    queue.Task
	payload Delivery
	event   *StoredEvent   // nil: it was forgotten, or lost
	waiting []*StoredEvent // of a burst task: the events that wait, and that the device shows
	more    bool           // there may be more
	err     error          // of the task as a whole
	fates   []fate
}

func jobsOf(tasks []queue.Task) []*job {
	jobs := make([]*job, len(tasks))
	for i, t := range tasks {
		jobs[i] = &job{task: t}
	}
	return jobs
}

func (j *job) isBurst() bool { return j.task.Kind == Burst }

func (j *job) burstDevice() BurstDevice { return BurstDevice{j.payload.Burst, j.payload.To[0]} }

// parse reads the task. An error says that it makes no sense.
func (j *job) parse() error {
	err := json.Unmarshal(j.task.Payload, &j.payload)
	p := &j.payload
	if err == nil && (p.Event == 0 || len(p.To) == 0 || slices.ContainsFunc(p.To, func(r Recipient) bool { return r.Member == 0 || r.Device == 0 })) {
		err = errors.New("it names no event, no member or no device")
	}
	if err == nil && j.isBurst() && (p.Burst == BurstID{} || len(p.To) > 1) {
		err = errors.New("it names no burst, or more than one device")
	}
	if err != nil {
		return queue.Permanent(fmt.Errorf("%w: %w", queue.ErrInvalid, err))
	}
	return nil
}

// delivery is an event of a task, for a device.
type delivery struct {
	job   *job
	event *StoredEvent
	to    Recipient
}

// asked may become one message: an event, or the events of a burst that are together in a batch, for a device.
type asked struct {
	deliveries []delivery // the oldest first
}

// ask returns all that the jobs ask for.
func ask(jobs []*job) (all []*asked) {
	bursts := make(map[BurstDevice]*asked)
	add := func(p delivery) {
		key := BurstDevice{p.event.Burst(), p.to}
		one := bursts[key]
		if one == nil || p.event.Collapse == "" {
			one = &asked{}
			bursts[key] = one
			all = append(all, one)
		}
		one.deliveries = append(one.deliveries, p)
	}
	for _, j := range jobs {
		switch {
		case j.err != nil:
		case j.isBurst():
			for _, e := range j.waiting {
				add(delivery{j, e, j.payload.To[0]})
			}
		case j.event != nil:
			for _, to := range j.payload.To {
				add(delivery{j, j.event, to})
			}
		}
	}
	for _, one := range all { // several workers number the events of one actor as they come
		slices.SortStableFunc(one.deliveries, func(a, b delivery) int {
			return cmp.Or(a.event.Created.Compare(b.event.Created), cmp.Compare(a.event.Task, b.event.Task))
		})
	}
	return all
}

// byLook divides a list by how many candidates a look may have.
func byLook(all []*asked) func(yield func([]*asked) bool) {
	return func(yield func([]*asked) bool) {
		for len(all) > 0 {
			n, candidates := 1, len(all[0].deliveries)
			for n < len(all) && candidates+len(all[n].deliveries) <= maxLook {
				candidates += len(all[n].deliveries)
				n++
			}
			if !yield(all[:n]) {
				return
			}
			all = all[n:]
		}
	}
}

func candidatesOf(all []*asked) (list []Candidate) {
	for _, one := range all {
		for _, p := range one.deliveries {
			list = append(list, Candidate{Event: p.event, Member: p.to.Member, Device: p.to.Device})
		}
	}
	return list
}

// message goes to a device, and stands for some events.
type message struct {
	deliveries []delivery // the newest last
	shown      int        // events that it replaces on the device
	device     Device
	actor      string    // the username of the newest's
	now        time.Time // of the look, by the database's clock
	again      bool      // an attempt before may have sent it
	visit      atomic.Pointer[visit]
}

func (m *message) newest() *StoredEvent { return m.deliveries[len(m.deliveries)-1].event }

func (m *message) age() time.Duration { return m.now.Sub(m.newest().Created) }

// left is how long it is until the last of the events expires.
func (m *message) left() (left time.Duration) {
	for _, p := range m.deliveries {
		left = max(left, p.event.Expires.Sub(m.now))
	}
	return left
}

// Message returns it as a sender takes it: the newest text, with the number of the events, also of the events that it replaces.
func (m *message) Message() Message {
	e := m.newest()
	n := notification(e, m.device, m.actor, len(m.deliveries)+m.shown)
	for _, p := range m.deliveries {
		n.Urgent = n.Urgent || p.event.Urgent
	}
	return Message{ID: messageID(e.Number, m.device.ID), Device: m.device, Notification: n}
}

// all returns a fate for all of the events.
func (m *message) all(f fate) []fate {
	list := make([]fate, len(m.deliveries))
	for i, p := range m.deliveries {
		list[i] = f
		list[i].delivery = p
	}
	return list
}

// plan is the decision by a look: the messages to send, and the fates of the rest.
type plan struct {
	sends  []*message
	urgent bool // a message is
	fates  []fate
}

const (
	// burstPause is how long a burst is left alone for a device after an event of it was accepted.
	burstPause = time.Minute
	maxShown   = 100 // events that a device shows, and that are counted
)

// running returns the receipts of a burst that wait, and the accepted receipts that belong to it still: the device was
// not left alone for much longer than burstPause since.
func running(all []BurstReceipt) (list []BurstReceipt) {
	slices.SortFunc(all, func(a, b BurstReceipt) int { return b.At.Compare(a.At) })
	var last time.Time // of an accepted event
	shown := 0
	for _, r := range all {
		switch {
		case !r.Accepted:
		case shown == maxShown || !last.IsZero() && last.Sub(r.At) > 2*burstPause:
			shown = maxShown
			continue
		default:
			last = r.At
			shown++
		}
		list = append(list, r)
	}
	return list
}

// decideAll decides on all that was asked for.
func decideAll(all []*asked, facts []Facts, mustShow map[Platform]bool) (p plan) {
	of := make(map[int]*Facts, len(facts))
	for i := range facts {
		of[facts[i].Candidate] = &facts[i]
	}
	next := 0
	for _, one := range all {
		list := make([]*Facts, len(one.deliveries))
		for i := range list {
			list[i] = of[next+i]
		}
		next += len(list)
		m, fates := decide(one, list, mustShow)
		if m != nil {
			p.sends, p.urgent = append(p.sends, m), p.urgent || m.newest().Urgent
		}
		p.fates = append(p.fates, fates...)
	}
	return p
}

// decide decides on a message by the facts of its events; they are nil where the device is not there. An event that is
// to wait for the burst is pending: a burst task sends it, and nothing else does from then on. m is nil if nothing is
// to be sent now.
func decide(one *asked, facts []*Facts, mustShow map[Platform]bool) (m *message, fates []fate) {
	var now []delivery
	var last *Facts // of now
	shown := 0
	for i, p := range one.deliveries {
		f := facts[i]
		if f == nil {
			fates = append(fates, fate{delivery: p, state: StateSkipped, reason: string(NoDevice)})
			continue
		}
		switch d := Decide(p.event, *f, mustShow); {
		case d.Skip == Doubled && f.Accepted && p.job.isBurst(): // the message replaces it, if it may be shown still
			shownStill := *f
			shownStill.Accepted = false
			if Decide(p.event, shownStill, mustShow).Skip == "" {
				shown++
			}
		case d.Skip == Doubled:
			fates = append(fates, fate{delivery: p, reason: string(Doubled)})
		case d.Skip != "":
			fates = append(fates, fate{delivery: p, state: StateSkipped, reason: string(d.Skip)})
		case f.Pending && !p.job.isBurst():
			fates = append(fates, fate{delivery: p, state: StatePending, again: max(0, f.burstLeft()), why: errBurst})
		case !d.NotBefore.IsZero():
			fates = append(fates, fate{delivery: p, again: d.NotBefore.Sub(f.Now).Truncate(time.Second) + time.Second, why: errQuiet})
		default:
			now, last = append(now, p), f
		}
	}
	if len(now) == 0 {
		return nil, fates
	}
	m = &message{deliveries: now, shown: shown, device: last.Device, actor: last.Actor, now: last.Now}
	if wait := last.burstLeft(); wait > 0 && wait < m.left() && !m.Message().Urgent {
		return nil, append(fates, m.all(fate{state: StatePending, again: wait, why: errBurst})...)
	}
	m.again = slices.ContainsFunc(now, func(p delivery) bool { return p.job.task.Attempts > 1 })
	return m, fates
}

// burstLeft is how long the burst is left alone from now on.
func (f *Facts) burstLeft() time.Duration {
	if f.Burst.IsZero() {
		return 0
	}
	return f.Burst.Add(burstPause).Sub(f.Now)
}
