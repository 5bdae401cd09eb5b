package push

import (
	"log/slog"
	"time"
)

// looked is a delivery of which the last look found something to send.
type looked struct {
	*asked
	at         time.Time // when the look began, by the clock of this process
	device     Device
	send       []*StoredEvent // that the message stands for, in the order in which they were enqueued
	text       *StoredEvent   // the newest that the message counts
	actor      string         // of text
	counted    int            // of those of the burst that were accepted, how many the message counts
	unanswered bool           // an earlier attempt sent some of it
	silent     time.Time      // as in Facts
	heard      bool           // likewise
}

// byLook divides jobs by how many candidates one look may have.
func byLook(all []*job) func(yield func([]*job) bool) {
	return func(yield func([]*job) bool) {
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

// candidates is how many events are looked at for the job.
func (j *job) candidates() (n int) {
	for _, one := range j.all {
		n += len(one.events) + len(one.shown)
	}
	return n
}

// addTo adds what is looked at for the delivery: what was shown first.
func (one *asked) addTo(candidates []Candidate) []Candidate {
	c := Candidate{Member: one.to.Member, Device: one.to.Device}
	for _, e := range one.shown {
		c.Event = e.Number
		candidates = append(candidates, c)
	}
	if len(one.all) > 1 {
		c.Task = one.task.ID
	}
	for _, e := range one.events {
		c.Event = e.Number
		candidates = append(candidates, c)
	}
	return candidates
}

// look is the last look: it decides what is sent for each of some jobs.
func (b *batch) look(some []*job) (found []*looked, err error) {
	var candidates []Candidate
	for _, j := range some {
		for _, one := range j.all {
			candidates = one.addTo(candidates)
		}
	}
	at := time.Now()
	var list []Facts
	if len(candidates) > 0 {
		if list, err = b.Store.Look(b.ctx, candidates); err != nil {
			return nil, err
		}
	}
	facts := make([]*Facts, len(candidates))
	for i := range list {
		facts[list[i].Candidate] = &list[i]
		b.lookedAt, b.now = at, list[i].Now
	}
	for _, j := range some {
		for _, one := range j.all {
			l := &looked{asked: one, at: at}
			shown, all := len(one.shown), len(one.shown)+len(one.events)
			b.decide(l, facts[shown:all], facts[:shown])
			facts = facts[all:]
			if len(l.send) > 0 {
				found = append(found, l)
			}
		}
	}
	return found, nil
}

// decide decides on a delivery by the facts of its events, and of those that were shown before; they are nil where
// the device is not there.
func (b *batch) decide(l *looked, facts, shown []*Facts) {
	var quiet time.Duration // until others are to be sent; 0: there are none
	for i, e := range l.events {
		f := facts[i]
		if f == nil {
			b.skip(l.asked, e.Number, NoDevice)
			continue
		}
		l.count(e, *f, b.MustShow)
		b.checkQuiet(*f)
		switch decision := Decide(e, *f, b.MustShow); {
		case decision.Skip != "":
			b.skip(l.asked, e.Number, decision.Skip)
		case !decision.NotBefore.IsZero():
			until := max(decision.NotBefore.Sub(f.Now).Truncate(time.Second), 0) + time.Second
			if quiet == 0 || until < quiet {
				quiet = until
			}
		default:
			l.send = append(l.send, e)
			l.unanswered = l.unanswered || f.Unanswered
			l.silent, l.heard, l.device = f.Silent, f.Heard, f.Device
			l.shows(e, *f)
		}
	}
	for i, e := range l.shown {
		if f := shown[i]; f != nil {
			f.Accepted = true // the look knows no run of another task
			l.count(e, *f, b.MustShow)
		}
	}
	switch { // unless what becomes of the others says otherwise
	case quiet > 0:
		l.later(quiet, errQuiet)
		if len(l.send) == 0 {
			postponed.WithLabelValues(quietHours).Inc()
		}
	case len(l.send) == 0 && len(l.old) > 0:
		l.later(time.Second, errMore)
	}
}

// checkQuiet logs if quiet hours cannot be kept: SQL wrote them, or activityd of before.
func (b *batch) checkQuiet(f Facts) {
	q := f.Settings.Quiet
	if q.From == q.To {
		return
	}
	if err := q.Check(); err != nil {
		b.logOften(b.ctx, slog.LevelWarn, "", "quiet hours cannot be kept", "member", f.Device.Member, "error", err)
	}
}

// shows takes note that the message counts an event. It has the text of the newest, also if that
// was accepted before: those of a process that died are targeted after those that came later.
func (l *looked) shows(e *StoredEvent, f Facts) {
	if l.text == nil || older(l.text, e) <= 0 {
		l.text, l.actor = e, f.Actor
	}
}

// count counts an event of a burst that was accepted before, unless it is not to be shown any
// more: a count must not tell of a photo that is private by now.
func (l *looked) count(e *StoredEvent, f Facts, mustShow map[Platform]bool) {
	if f.Accepted && e.Collapse != "" {
		f.Accepted = false
		if Decide(e, f, mustShow).Skip == "" {
			l.counted++
			l.shows(e, f)
		}
	}
}

// newest is the newest event that the message stands for.
func (l *looked) newest() *StoredEvent { return l.send[len(l.send)-1] }

// skip takes note that an event is not for the device. That it was accepted before, its
// receipt says.
func (b *batch) skip(one *asked, number uint64, reason Skip) {
	b.countSkips(reason, 1)
	if reason != Doubled {
		b.record(one, one.receipt(number, StateSkipped, string(reason)))
	}
}

// skipAll is the end of a delivery whose events are not to be sent.
func (b *batch) skipAll(l *looked, reason Skip) {
	for _, e := range l.send {
		b.skip(l.asked, e.Number, reason)
	}
	for _, number := range l.old {
		b.skip(l.asked, number, reason)
	}
	if l.more {
		l.later(minRetryPause, errMore)
	}
}

func (b *batch) countSkips(reason Skip, n int) {
	skipped.WithLabelValues(atDelivery, string(reason)).Add(float64(n))
}

// clock is the database's clock.
func (b *batch) clock() time.Time { return b.now.Add(time.Since(b.lookedAt)) }

// age is how long ago the event was created.
func (b *batch) age(e *StoredEvent) time.Duration { return b.clock().Sub(e.Created) }

// left is how long it is until the last of the events that the message stands for expires.
func (b *batch) left(l *looked) (left time.Duration) {
	for i, e := range l.send {
		if until := e.Expires.Sub(b.clock()); i == 0 || until > left {
			left = until
		}
	}
	return left
}
