package push

import (
	"cmp"
	"slices"
	"time"
)

// delivery is an event of a task, for a device or for a member.
type delivery struct {
	job   *job
	event *StoredEvent
	to    Recipient
	facts *Facts // nil: there is no such device
}

// ask returns all that jobs ask for.
func ask(jobs []*job) (all []delivery) {
	for _, j := range jobs {
		for _, e := range j.waiting {
			all = append(all, delivery{job: j, event: e, to: j.payload.To[0]})
		}
		if j.task.Kind != Burst {
			for _, to := range j.payload.To {
				all = append(all, delivery{job: j, event: j.event, to: to})
			}
		}
	}
	return all
}

func candidatesOf(all []delivery) []Candidate {
	list := make([]Candidate, len(all))
	for i, one := range all {
		list[i] = Candidate{Event: one.event, Member: one.to.Member, Device: one.to.Device}
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
	sends []*message
	fates []fate
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

// decideAll decides on all that was asked for, by facts that are in the order of the candidates. The events of a burst for a device
// may become one message.
func decideAll(asked []delivery, facts []Facts, mustShow map[Platform]bool) (p plan) {
	type place struct {
		burst  BurstID
		device uint64
	}
	var messages [][]delivery
	at := make(map[place]int) // in messages
	next := 0
	for i, one := range asked {
		if next == len(facts) || facts[next].Candidate > i {
			p.fates = append(p.fates, one.deviceless())
		}
		for ; next < len(facts) && facts[next].Candidate == i; next++ {
			f := &facts[next]
			one.to, one.facts = Recipient{f.Device.Member, f.Device.ID}, f
			to := place{one.event.Burst(), f.Device.ID}
			if place, known := at[to]; known && one.event.Collapse != "" {
				messages[place] = append(messages[place], one)
				continue
			}
			at[to] = len(messages)
			messages = append(messages, []delivery{one})
		}
	}
	for _, one := range messages {
		m, fates := decide(one, mustShow)
		if m != nil {
			p.sends = append(p.sends, m)
		}
		p.fates = append(p.fates, fates...)
	}
	return p
}

// deviceless is the fate of an event for a device, or a member, that is not there. Followers without a device are only counted.
func (d delivery) deviceless() fate {
	if d.event.Followers && d.to.Device == 0 {
		return fate{delivery: d, reason: string(NoDevice)}
	}
	return fate{delivery: d, state: StateSkipped, reason: string(NoDevice)}
}

// decide decides on a message about an event, or about the events of a burst, for a device. An event that is to wait for the burst is
// pending: a burst task sends it, and nothing else does from then on. m is nil if nothing is to be sent now.
func decide(all []delivery, mustShow map[Platform]bool) (m *message, fates []fate) {
	slices.SortStableFunc(all, func(a, b delivery) int { // tasks of one actor are done as workers get them
		return cmp.Or(a.event.Created.Compare(b.event.Created), cmp.Compare(a.event.Number, b.event.Number))
	})
	var now []delivery
	shown := 0
	for _, p := range all {
		f, isBurst := p.facts, p.job.task.Kind == Burst
		switch d := Decide(p.event, *f, mustShow); {
		case d.Skip == Doubled && f.Accepted && isBurst: // the message replaces it, if it may be shown still
			shownStill := *f
			shownStill.Accepted = false
			if Decide(p.event, shownStill, mustShow).Skip == "" {
				shown++
			}
		case d.Skip == Doubled:
			fates = append(fates, fate{delivery: p, reason: string(Doubled)})
		case d.Skip != "":
			fates = append(fates, fate{delivery: p, state: StateSkipped, reason: string(d.Skip)})
		case f.Pending && !isBurst:
			fates = append(fates, fate{delivery: p, state: StatePending, again: max(0, f.burstLeft()), why: errBurst})
		case !d.NotBefore.IsZero():
			fates = append(fates, fate{delivery: p, again: d.NotBefore.Sub(f.Now).Truncate(time.Second) + time.Second, why: errQuiet})
		default:
			now = append(now, p)
		}
	}
	if len(now) == 0 {
		return nil, fates
	}
	last := now[len(now)-1].facts
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
