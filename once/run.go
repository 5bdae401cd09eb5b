package once

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

const (
	firstAway = 100 * time.Millisecond // the pause after a failure of the store; it doubles
	maxAway   = 2 * time.Second

	// The pauses of a call of Do whose own attempt failed. The first pause lasts at least half of
	// firstPause, and a waiting call looks again within that time: so another process gets the
	// next attempt if it waits, also without a notification.
	firstPause = 2 * time.Second
	maxPause   = 30 * time.Second
	maxLook    = firstPause / 2 // between two looks of a call of Do that waits

	applyTimeout  = 10 * time.Second // of an operation
	recordTimeout = 15 * time.Second // of recording the end of an attempt
	finishTimeout = time.Minute      // of recording that the work is done
	// Of the answer to an acquisition whose context has ended, of the release after it, and of
	// recording the end of an attempt whose lease was lost: the store is probably away, and the
	// lease ends soon.
	abandonTimeout = time.Second

	// firstTimeout is how long a call asks a store that has not answered it yet. A single broken
	// connection is no reason to give up, and a wrong address has to be noticed. The last request
	// within it may take applyTimeout more.
	firstTimeout = 5 * time.Second

	maxTooLate = 3 // acquisitions in a wait whose answers come too late to work
)

// call is a call of [Once.Do] or [Once.Hold].
type call struct {
	*Once

	key      Key
	terms    Terms
	began    time.Time
	answered bool          // the store has answered this call
	look     time.Duration // a waiter looks again after at most so long; 0: when the lease ends

	// A fence tells attempts apart. The number of an attempt does not: it is used again after an
	// attempt was handed back, and after the name was forgotten.
	seen    Fence // of the attempt that Hooks.Locked was called for
	failed  Fence // of the last attempt of this call that failed
	failure error // of that attempt, for the case that the name was exhausted by it
}

// lease is a name that this process holds.
type lease struct {
	*call

	owner   string
	attempt Attempt
	// sent is when the acquisition or the last extension was sent, by the monotonic clock
	// of this process: the lease at the store began no earlier.
	sent time.Time
}

// process names this process for people: by its host, its id, and about when it began.
var process = func() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%.40s/%d@%s", host, os.Getpid(), time.Now().UTC().Format(time.RFC3339))
}()

// newOwner returns an owner that no other attempt has: its random part has 128 bits at least.
func newOwner() string { return process + "/" + rand.Text() }

// processOf returns the part of an owner that names the process, as in
// "web3/4711@2026-11-22T07:19:02Z".
func processOf(owner string) string {
	if i := strings.LastIndexByte(owner, '/'); i >= 0 {
		return owner[:i]
	}
	return owner
}

// topic is the topic of the notifications for the waiters of a name.
func topic(name string) string { return "once:" + name }

// apply sends an operation without repetition, and counts it, unless ctx ends. No answer within
// timeout is an [ErrUnavailable].
func (o *Once) apply(ctx context.Context, name string, op Operation, timeout time.Duration) (Reply, error) {
	limited, cancel := limit(ctx, op.Action, timeout)
	defer cancel()
	r, err := o.store.Apply(limited, name, op)
	if err != nil {
		if ctx.Err() == nil { // else it was cut off
			o.metrics.countOperation(op.Action, "error")
			if limited.Err() != nil {
				err = fmt.Errorf("%w: no answer within %v: %w", ErrUnavailable, timeout, err)
			}
		}
		return Reply{}, fmt.Errorf("%s %s: %w", op.Action, name, err)
	}
	o.metrics.countOperation(op.Action, string(r.Outcome))
	o.hooks.Status(name, r.State)
	return r, nil
}

// limit returns a context that ends after timeout, or with ctx, or when the function is called.
//
// That of an acquisition ends abandonTimeout after ctx. A server carries out a statement whose
// client has gone, perhaps after the release that was sent next: the name would be held for a
// lease by a call that has returned. Its deadline is that of ctx and so much: the Redis client
// goes by deadlines alone.
func limit(ctx context.Context, a Action, timeout time.Duration) (context.Context, context.CancelFunc) {
	if a != Acquire || ctx.Done() == nil {
		return context.WithTimeout(ctx, timeout)
	}
	end := time.Now().Add(timeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(abandonTimeout).Before(end) {
		end = deadline.Add(abandonTimeout)
	}
	longer, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	stop := context.AfterFunc(ctx, func() {
		_ = retry.Sleep(longer, abandonTimeout)
		cancel()
	})
	return longer, func() { stop(); cancel() }
}

// send sends an operation until the store answers or ctx ends. A store that has not
// answered this call before is an error when firstTimeout has passed since the call began.
func (l *lease) send(ctx context.Context, op Operation) (Reply, error) {
	op.Owner = l.owner
	for failures := 1; ; failures++ {
		l.sent = time.Now()
		r, err := l.apply(ctx, l.key.Name, op, applyTimeout)
		if err == nil {
			l.answered = true
			l.noticeExhausted(op.Action, r, failures > 1)
			return r, nil
		}
		if !errors.Is(err, ErrUnavailable) || !l.answered && time.Since(l.began) >= firstTimeout {
			return Reply{}, err
		}
		if l.answered {
			l.hooks.Error(l.key.Name, err)
		}
		if retry.Sleep(ctx, retry.Backoff(failures, firstAway, maxAway)) != nil {
			return Reply{}, err
		}
	}
}

// noticeExhausted counts an operation that exhausted the name, and calls the hook. That is
// either the recording of this call's own failure, or an acquisition that found the lease of
// the last attempt expired. Again reports that the operation was sent before and its answer
// was lost: then an acquisition that finds the name exhausted may have exhausted it.
func (l *lease) noticeExhausted(a Action, r Reply, again bool) {
	if r.State.Phase == Exhausted && (a == Fail && r.Outcome == OK && r.State.Owner == l.owner || a == Acquire && (r.Changed || again)) {
		l.metrics.exhausted.Inc()
		l.hooks.Exhausted(l.key.Name, r.State)
	}
}

// acquire waits until this process holds the name. It returns neither a lease nor an
// error when the work is done.
func (c *call) acquire(ctx context.Context) (*lease, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	name := c.key.Name
	notified, cancel := c.notifier.Subscribe(topic(name)) // before the store is asked: see package notify
	defer cancel()
	l := &lease{call: c, owner: newOwner()}
	waiting, stop := c.bound(ctx)
	defer stop()
	for tooLate := 0; ; {
		r, err := l.send(waiting, Operation{Action: Acquire, Terms: c.terms})
		if ctx.Err() != nil && (err != nil || r.Outcome == OK) {
			err = context.Cause(ctx)
		}
		if err != nil {
			l.abandon(ctx)
			if l.answered && ctx.Err() == nil && waiting.Err() != nil {
				err = fmt.Errorf("%w: %w", context.Cause(waiting), err)
			}
			return nil, err
		}
		switch r.Outcome {
		case OK:
			if l.remaining() > 0 {
				n := r.State.Attempt
				l.attempt = Attempt{Number: n, Last: c.terms.Attempts > 0 && n >= c.terms.Attempts, Fence: r.State.Fence}
				c.hooks.Acquired(name, l.attempt)
				return l, nil
			}
			tooLate++
			err = l.giveUp(waiting, tooLate)
			l.owner = newOwner()
		case Lost: // it was acquired by a request whose answer was lost, and the lease has ended since
			err = l.handBack(waiting)
			l.owner = newOwner()
		case AlreadyDone:
			return nil, nil
		case OutOfAttempts:
			return nil, c.exhaustedBy(r.State)
		default:
			err = c.await(waiting, notified, r)
		}
		if err != nil {
			return nil, err
		}
	}
}

// bound returns a context that ends when the call has waited for its turn for Key.Wait.
func (c *call) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.key.Wait <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, c.key.Wait, fmt.Errorf("%s: %w, for longer than %v", c.key.Name, ErrBusy, c.key.Wait))
}

// exhaustedBy returns the error of a name whose attempts all failed. It wraps the error of the
// work if this call made the last attempt.
func (c *call) exhaustedBy(s State) error {
	err := fmt.Errorf("%s: %w, %d of them", c.key.Name, ErrExhausted, s.Attempt)
	if c.failure != nil && c.failed == s.Fence {
		return fmt.Errorf("%w: %w", err, c.failure)
	}
	return fmt.Errorf("%w: %s", err, s.Reason)
}

// await waits until the attempt of another owner may have ended. Notifications may be lost,
// and come from other processes only through a relay, so there is a timer, too.
func (c *call) await(ctx context.Context, notified <-chan struct{}, r Reply) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.State.Fence != c.seen {
		c.seen = r.State.Fence
		c.hooks.Locked(c.key.Name, r.State)
	}
	if c.key.NoWait {
		return fmt.Errorf("%s: %w: %s, in attempt %d", c.key.Name, ErrBusy, processOf(r.State.Owner), r.State.Attempt)
	}
	wait := r.State.Until.Sub(r.Now)
	if c.look > 0 {
		wait = min(wait, retry.Jitter(c.look))
	}
	return sleep(ctx, notified, wait)
}

// sleep waits for d, a notification, or the end of ctx, whose cause it then returns.
func sleep(ctx context.Context, notified <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-notified:
	case <-timer.C:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

// rest pauses after a failure of this call, so that other processes get the next attempt. It
// ends early when the work is done or no attempt is left.
func (c *call) rest(ctx context.Context, pause time.Duration) error {
	notified, cancel := c.notifier.Subscribe(topic(c.key.Name))
	defer cancel()
	for end := time.Now().Add(pause); ; {
		if err := sleep(ctx, notified, min(time.Until(end), retry.Jitter(c.look))); err != nil {
			return err
		}
		if !time.Now().Before(end) || c.isOver(ctx) {
			return nil
		}
	}
}

// isOver reports whether it is known that the work is done, or all attempts failed.
func (c *call) isOver(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	r, err := c.store.Get(ctx, c.key.Name)
	return err == nil && (r.State.Phase == Done || r.State.Phase == Exhausted)
}

// giveUp hands back a lease that came too late to work, and pauses. It returns an error after
// maxTooLate of them, or if ctx has ended.
func (l *lease) giveUp(ctx context.Context, tooLate int) error {
	err := fmt.Errorf("acquire %s: %w: it takes longer to answer (%v) than the lease of %v, less a margin of %v, lasts: give a longer lease",
		l.key.Name, ErrUnavailable, time.Since(l.sent).Round(time.Millisecond), l.terms.Lease, l.key.Margin)
	l.hooks.Error(l.key.Name, err)
	if err := l.handBack(ctx); err != nil {
		return err
	}
	if tooLate == maxTooLate {
		return err
	}
	return retry.Sleep(ctx, retry.Backoff(tooLate, firstAway, maxAway))
}

// handBack releases a name whose lease came too late to work. It returns the cause of ctx if ctx
// has ended.
func (l *lease) handBack(ctx context.Context) error {
	releasing, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	_, _ = l.send(releasing, Operation{Action: Release})
	l.notifier.Notify(topic(l.key.Name)) // also after an error: it may have been applied
	if ctx.Err() != nil {
		l.abandon(ctx)
		return context.Cause(ctx)
	}
	return nil
}

// abandon releases the name after an acquisition whose answer is unknown, or came too late. If
// the release fails, too, the lease expires.
func (l *lease) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer cancel()
	_, _ = l.send(ctx, Operation{Action: Release})
	l.notifier.Notify(topic(l.key.Name))
}

// end records the end of an attempt, counts it, and notifies the waiters. It tries until timeout
// has passed, even if ctx has ended. If it cannot record the end, waiters have to wait until the
// lease ends.
func (l *lease) end(ctx context.Context, a Action, reason string, timeout time.Duration) (Reply, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	r, err := l.send(ctx, Operation{Action: a, Reason: CutReason(reason)})
	l.notifier.Notify(topic(l.key.Name)) // also after an error: it may have been applied
	l.metrics.countAttempt(a, err == nil && r.Outcome == OK)
	return r, err
}

// remaining is how long the work may go on without an extension.
func (l *lease) remaining() time.Duration {
	return time.Until(l.sent.Add(l.terms.Lease - l.key.Margin))
}

// run does the work, and extends the lease until the work has returned, even if its
// context has ended before. lost is the cause, if that was the loss of the lease.
func (l *lease) run(ctx context.Context, work func(context.Context, Attempt) error) (lost, err error) {
	working, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer l.keepUp(ctx, end)()
	err = work(working, l.attempt)
	if working.Err() != nil && ctx.Err() == nil {
		lost = context.Cause(working)
	}
	return lost, err
}

// keepUp extends the lease from a third of it on, until stop is called, also after ctx has
// ended. Work that is done by then costs a timer. Until then no deadline is needed: there is a
// sixth of the lease at least between the two.
func (l *lease) keepUp(ctx context.Context, end context.CancelCauseFunc) (stop func()) {
	extender := make(chan context.CancelFunc, 1) // has the function that stops it; closed when it has stopped
	first := time.AfterFunc(time.Until(l.sent.Add(l.terms.Lease/3)), func() {
		defer close(extender)
		extending, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		extender <- cancel
		l.extend(extending, end)
	})
	return func() {
		if first.Stop() {
			return
		}
		cancel := <-extender
		cancel()
		<-extender
	}
}

// endWork ends the work a margin before the end of the lease, unless the timer is stopped.
func (l *lease) endWork(end context.CancelCauseFunc) *time.Timer {
	ends := l.sent.Add(l.terms.Lease)
	return time.AfterFunc(l.remaining(), func() {
		end(&LostError{Ends: ends, why: fmt.Sprintf(": it was not extended for %v", l.terms.Lease-l.key.Margin)})
	})
}

// extend extends the lease at once and until ctx ends: three times in a lease, and soon again
// after an error. Each extension replaces the deadline; when the lease is another's, end ends
// the work.
func (l *lease) extend(ctx context.Context, end context.CancelCauseFunc) {
	deadline := l.endWork(end)
	defer func() { deadline.Stop() }()
	lease, failures := l.terms.Lease, 0
	for pause := time.Duration(0); retry.Sleep(ctx, pause) == nil; {
		sent := time.Now()
		r, err := l.apply(ctx, l.key.Name, Operation{Action: Extend, Owner: l.owner}, min(applyTimeout, lease/4))
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			l.hooks.Error(l.key.Name, err)
			failures++
			pause = retry.Backoff(failures, min(firstAway, lease/20), min(maxAway, lease/6))
		case r.Outcome != OK:
			end(lostTo(r.State, l.owner))
			return
		default:
			l.sent = sent
			deadline.Stop()
			deadline = l.endWork(end)
			pause, failures = time.Until(sent.Add(lease/3)), 0
		}
	}
}

// lostTo returns the error of a lease that is no longer that of owner.
func lostTo(s State, owner string) error {
	switch {
	case s.Phase == "":
		return &LostError{why: ": the name was forgotten"}
	case s.Owner == owner:
		return &LostError{why: ": it expired"}
	}
	return &LostError{why: fmt.Sprintf(" to %s, which began attempt %d", processOf(s.Owner), s.Attempt)}
}
