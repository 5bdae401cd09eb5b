package push

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/activityd/activityd/queue"
)

// sent is a delivery whose message has left.
type sent struct {
	*looked
	message  Message
	pass     pass
	marked   bool // a receipt that says that it is not answered is to be written
	accepted bool
	doubles  bool // that its receipt was not written in time is counted
}

// answer is the result of a message.
type answer struct {
	*sent
	Result
}

// admit returns the message of a delivery, if its push service takes any; else nil.
func (b *batch) admit(l *looked) *sent {
	newest, left := l.newest(), b.left(l)
	sender := b.Senders[l.device.Platform]
	if sender == nil { // another process may have its keys
		if left <= 2*lastTry {
			b.skipAll(l, Off)
			return nil
		}
		postponed.WithLabelValues(noKeys).Inc()
		l.later(b.pause(noKeysPause(b.age(newest)), left), errNoKeys)
		return nil
	}
	if b.silence(l, false) >= maxSilentPause && !b.stands(l) {
		b.skipAll(l, Silent)
		return nil
	}
	pass, wait, why := b.breakers.admit(l.device, sender.Origin(l.device), 2*b.Timeout)
	if wait > 0 {
		b.putOff(l, pass, wait, why)
		return nil
	}
	s := &sent{looked: l, pass: pass, message: Message{
		ID: messageID(newest.Number, l.device.ID), Device: l.device, Notification: notification(l.text, l.device, l.actor, min(len(l.send)+l.counted, maxBurst)),
	}}
	for _, e := range l.send {
		s.message.Urgent = s.message.Urgent || e.Urgent
	}
	return s
}

// take marks what is to be sent of bursts that were pending, and returns what is to be sent now. There may be several
// tasks for a burst and a device: one that has begun and has to wait has no dedupe key any more, so another is enqueued
// beside it, and an outage makes both due at once. So they contend for the receipts. What another one has marked waits until
// that is answered, or its process has died: the same task may go on with its own mark, when it is claimed again.
func (b *batch) take(ready []*sent) []*sent {
	var of []*sent
	var receipts [][]Receipt
	for _, s := range ready {
		if !s.isBurst() {
			continue
		}
		one := make([]Receipt, len(s.send))
		for i, e := range s.send {
			one[i] = s.receipt(e.Number, StatePending, markOf(s.task))
		}
		of, receipts = append(of, s), append(receipts, one)
	}
	if len(of) == 0 {
		return ready
	}
	taken, err := b.Store.Take(b.ctx, receipts, maxStale+b.Timeout+recordTime)
	left := make(map[*sent]bool)
	for i, s := range of {
		if err == nil && taken[i] {
			continue
		}
		left[s] = true
		b.breakers.release(s.pass)
		if err != nil {
			s.later(minRetryPause, err)
			continue
		}
		postponed.WithLabelValues(sameInFlight).Inc()
		pause := rivalPause
		if s.message.Urgent {
			pause = urgentPause
		}
		s.later(pause, errInFlight)
	}
	return slices.DeleteFunc(ready, func(s *sent) bool { return left[s] })
}

// markOf is the reason of the receipts that a task has marked.
func markOf(t queue.Task) string { return fmt.Sprint(reasonUnanswered, ": task ", t.ID) }

// launch sends a message.
func (b *batch) launch(s *sent) {
	l := s.looked
	if l.task.Attempts > 1 || l.unanswered {
		doublesPossible.WithLabelValues(string(l.device.Platform), takenOver).Inc()
	}
	b.inFlight[l.asked] = s
	b.expect(s.pass, 1)
	messagesInFlight.Inc()
	ctx := context.WithoutCancel(b.ctx) // what has left is answered, also when the lease is lost
	go func() {
		defer messagesInFlight.Dec()
		b.results <- answer{s, b.send(ctx, b.Senders[l.device.Platform], s)}
	}()
}

// putOff schedules a delivery that its push service is not sent yet, for a pause and a reason of
// [breakers.admit].
func (b *batch) putOff(l *looked, left pass, wait time.Duration, why string) {
	postponed.WithLabelValues(why).Inc()
	until, err := b.left(l), errLeft
	if why == quota {
		wait, err = max(wait, retryPause(b.age(l.newest()))), errQuota
	}
	if left.vain && l.silent.IsZero() { // as if it had been sent to
		b.silent = append(b.silent, l.device.ID)
	}
	if why == quota || left.vain {
		if whose := b.breakers.standing(); whose != nil {
			b.logOften(b.ctx, slog.LevelWarn, l.device.Platform, "push services that accept nothing hold up messages", whose...)
		}
	}
	wait = b.pause(max(wait, b.silence(l, false)), until)
	if why == quota || !l.silent.IsZero() {
		wait = b.gather(wait, until)
	}
	l.later(wait, err)
}

// send sends a message. A panic of the sender is no answer.
func (d *Deliveries) send(ctx context.Context, sender Sender, s *sent) (r Result) {
	if time.Since(s.at) > maxStale {
		return Result{Outcome: Wait, Reason: reasonStale}
	}
	defer func() {
		if value := recover(); value != nil {
			r = Result{Outcome: Ambiguous, Reason: "panic"}
			d.logOften(ctx, slog.LevelError, s.device.Platform, "sender of notifications panicked", "panic", value, "stack", string(debug.Stack()))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	return sender.Send(ctx, s.message)
}

// collect takes the answers to messages until no more than most are in flight, or the end of a context, but for at
// most patience, and briefly for those to push services that members name; for unlikely ones likewise, if asked to.
func (b *batch) collect(end <-chan struct{}, most int, patience, briefly time.Duration, unlikely bool) {
	if len(b.inFlight) <= most {
		return
	}
	enough := time.NewTimer(patience)
	defer enough.Stop()
	brief := time.NewTimer(briefly)
	defer brief.Stop()
	var flush <-chan time.Time
	for soon := true; len(b.inFlight) > most && (b.awaited > 0 || soon && (unlikely || b.browsers > 0)); {
		select {
		case a := <-b.results:
			b.settle(a)
		case <-flush:
			flush = nil
			b.flushInTime()
		case <-brief.C:
			soon = false
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

// drain takes the answers that are there, and writes what was accepted.
func (b *batch) drain() {
	for {
		select {
		case a := <-b.results:
			b.settle(a)
			continue
		default:
		}
		if b.taken > 0 {
			b.flushInTime()
		}
		return
	}
}

// abandon is the end of messages whose sender does not return.
func (b *batch) abandon() {
	for _, s := range b.inFlight {
		b.settle(answer{s, Result{Outcome: Ambiguous, Reason: "timeout"}})
	}
}

// mark has receipts written for the messages that the batch waits for no longer.
func (b *batch) mark() {
	for _, s := range b.inFlight {
		if s.marked {
			continue
		}
		b.breakers.detach(&s.pass, b.waited || !s.pass.unlikely)
		s.marked = true
		b.recordAll(s, s.send, StatePending, reasonUnanswered)
	}
}

// unmark replaces what mark, take or a page wrote, of events that are sent again.
func (b *batch) unmark(s *sent, of []*StoredEvent, reason string) {
	if s.marked || s.isBurst() || s.byBurst {
		b.recordAll(s, of, StatePending, reason)
	}
}

// settle takes note of what became of a message.
func (b *batch) settle(a answer) {
	delete(b.inFlight, a.sent.asked)
	b.expect(a.pass, -1)
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
	countResult(a.device.Platform, a.Result, b.age(newest))
	pause := retryPause(b.age(newest))
	vain, drop := b.hear(a)
	if vain {
		pause = max(pause, b.silence(a.looked, a.pass.unproven))
	}
	v := judge(a.Result, pause, left, b.left(a.looked))
	if drop {
		v = verdict{state: StateFailed, reason: string(Silent), prune: true}
		devicesGone.WithLabelValues(string(a.device.Platform), string(Silent)).Inc()
	}
	if v.state == "" {
		a.later(b.pause(v.after, b.left(a.looked)), fmt.Errorf("%s: %s (%s)", a.device.Platform, clip(v.reason), a.Outcome))
		b.unmark(a.sent, a.send, v.reason)
		return
	}
	if a.accepted = v.state == StateAccepted; a.accepted {
		b.taken++
	}
	if v.prune {
		b.gone = append(b.gone, Pruned{Device: a.device.ID, Reason: v.reason, Since: a.GoneSince})
	}
	if a.Outcome == Rejected && len(a.send)+len(a.old) > 1 { // its content: that of the others may be accepted
		b.recordAll(a.sent, a.send[len(a.send)-1:], v.state, v.reason)
		b.unmark(a.sent, a.send[:len(a.send)-1], v.reason)
		a.later(minRetryPause, errRejected)
		return
	}
	b.recordEnd(a, v)
	if a.more {
		a.later(minRetryPause, errMore)
	}
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
