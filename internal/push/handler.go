package push

import (
	"context"
	"slices"
	"time"

	"github.com/activityd/activityd/queue"
)

// Handler is the handler of the tasks of all kinds. An event for few devices is sent by the task that targets it,
// by the look that found them: no deliver task is made for it, and nothing is looked at twice.
//
// That is so if no further page follows, and no more than maxTo devices are to be sent it now, or few of a burst. Others have
// deliver tasks: the devices of larger events, whose pages follow each other and must not wait for answers; what waits for the
// end of quiet hours, or for others of its burst; and what the push service does not take at once.
//
// Of a burst, the page writes the pending receipts of what it may send as marked by its task, as [MySQL.Take] marks those of a task
// for the burst, and reads what there is of others of the burst afterwards: of two pages, one at least sees the other. If there is
// something, it leaves its own to a task for the burst, and takes the mark off. While the mark lasts, no other task sends
// what has it. Nor does the same task when it is done again: it leaves what an attempt before has left to a task for the burst.
//
// # A crash loses nothing, and repeats no more than that of a delivery
//
// The task ends only after the receipts of what it has sent, as one that delivers does. If it is done again, it finds
// its own event, and its look finds what was accepted, by the receipt of the device or by the run of the task. What
// the batch stopped waiting for has a pending receipt, and gets a delivery also if the event has expired by then, or the device is
// gone. Of an event that this attempt has stored, soon after its claim, nothing was sent before: neither runs nor pending receipts are
// looked for. In a process that still sends what such an attempt has left, it waits: a look that began before the receipt of that,
// and a message that left after it, would be a double. A device that was removed and registered again between two attempts has another id, and so no receipt: it is sent the
// event again.
type Handler struct {
	Targeting  *Targeting
	Deliveries *Deliveries
}

var _ queue.Handler = Handler{}

// Handle implements [queue.Handler]. Events are targeted while what the deliver tasks have sent is answered.
func (h Handler) Handle(ctx context.Context, tasks []queue.Task) []queue.Outcome {
	if h.Deliveries.owing.Load() >= maxOwed { // what is sent could not be recorded either
		return slices.Repeat([]queue.Outcome{{Err: queue.Later(recordAgain, errOwed)}}, len(tasks))
	}
	marked := 0 // messages of bursts, at most
	if h.Targeting != nil {
		marked = len(tasks) * h.Targeting.few()
	}
	b := h.Deliveries.newBatch(ctx, marked)
	defer b.end() // see settled
	jobs, pages := make([]*job, len(tasks)), make([]*page, len(tasks))
	var targeted []*page
	for i, t := range tasks {
		if t.Kind == Deliver {
			jobs[i] = &job{task: t}
			b.jobs = append(b.jobs, jobs[i])
			continue
		}
		pages[i] = &page{task: t}
		targeted = append(targeted, pages[i])
	}
	if len(b.jobs) > 0 {
		b.deliver(b.begin()) // what has left is answered after the end of ctx, too
	}
	h.Targeting.handle(ctx, targeted, b)
	b.settled() // and what was accepted is recorded
	outcomes := make([]queue.Outcome, len(tasks))
	for i, j := range jobs {
		if p := pages[i]; p == nil {
			outcomes[i] = j.outcome
		} else {
			outcomes[i] = p.whole()
		}
	}
	return outcomes
}

// whole is the outcome of a page with that of what it has sent.
func (p *page) whole() queue.Outcome {
	switch {
	case p.sent == nil:
		return p.outcome
	case p.sent.outcome.Err != nil:
		return p.sent.outcome
	}
	return queue.Outcome{Next: append(p.outcome.Next, p.sent.outcome.Next...)}
}

// now divides the sends into those that may be sent at once, and those that wait.
func (p *page) now() (now, wait []send) {
	for _, s := range p.sends {
		if s.byBurst || s.isKept || p.start(s).After(s.Now) {
			wait = append(wait, s)
		} else {
			now = append(now, s)
		}
	}
	return now, wait
}

// free returns the pages of whose tasks this process sends nothing. The others wait: an attempt that has lost its lease sends some of
// theirs. What is accepted of that has a receipt before its reservation ends, so the look, which comes after this, finds it.
// An attempt that has looked, and not reserved yet, is not seen here.
func (b *batch) free(pages []*page) []*page {
	if !slices.ContainsFunc(pages, func(p *page) bool { return !p.isNew }) {
		return pages
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	sending := make(map[uint64]bool)
	for _, task := range b.reserved {
		sending[task] = true
	}
	return slices.DeleteFunc(pages, func(p *page) bool {
		if !sending[p.task.ID] {
			return false
		}
		postponed.WithLabelValues(sameInFlight).Inc()
		p.outcome.Err = queue.Later(inFlightPause, errInFlight)
		return true
	})
}

// maySend reports whether a page sends these itself.
func (b *batch) maySend(p *page, now []send) bool {
	if len(now) == 0 || p.marks {
		return len(now) > 0
	}
	if p.event.Collapse != "" || p.more || len(now) > maxTo || len(b.inFlight)+len(now) > maxFlight {
		return false
	}
	// Later, another process may have had the task before the look, which reads no runs, and sent it.
	return !p.isNew || now[0].Now.Sub(p.task.Claimed) <= maxStale
}

// sendNow sends what a page found by a look that began at a time, if that is few, and leaves the page what waits.
func (b *batch) sendNow(p *page, at time.Time) {
	now, wait := p.now()
	if !b.maySend(p, now) {
		return
	}
	j := &job{task: p.task, event: p.event, payload: Delivery{Event: p.event.Number, Task: p.event.Task}}
	j.task.Queue, j.task.Priority = p.event.queueOf(), p.priority() // of what follows it
	if p.marks {
		j.burst = p.event.Burst()
	}
	for _, s := range now {
		one := j.ask(Recipient{s.Device.Member, s.Device.ID})
		one.events, one.byBurst = []*StoredEvent{p.event}, p.marks
	}
	b.jobs, p.sent = append(b.jobs, j), j
	if !b.reserve(j) {
		return
	}
	p.sends = wait
	b.lookedAt, b.now = at, now[0].Now
	for i, one := range j.all {
		l := &looked{asked: one, at: at}
		if one.again == nil {
			b.decide(l, []*Facts{&now[i].Facts}, nil)
		}
		if len(l.send) > 0 {
			if s := b.admit(l); s != nil {
				b.launch(s)
			}
		}
		if p.marks && one.again != nil { // it was not sent
			b.record(one, one.receipt(p.event.Number, StatePending, ""))
		}
	}
}
