package once

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

const (
	firstPause      = 100 * time.Millisecond // after an error of the store or an own failure; it doubles
	maxPause        = 10 * time.Second
	handBackTimeout = time.Second     // for the release of what may have been acquired
	recordTimeout   = 5 * time.Second // for the end of an attempt
	finishTimeout   = time.Minute     // for that of one whose work is done
)

// call is one call of [Once.Do] or [Once.Hold].
type call struct {
	*Once

	key      Key
	terms    Terms
	answered bool  // the store has answered this call
	seen     Fence // of the owner that Hooks.Locked was called for
}

// lease is a name that this process holds.
type lease struct {
	*call

	owner   string
	attempt Attempt
	sent    time.Time // when the acquisition or the last extension was sent: before the store's lease began
}

// newOwner returns an owner that no other attempt has. It names the process for people.
func newOwner() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%.40s/%d/%s", host, os.Getpid(), rand.Text())
}

// topic is the name under which waiters of a name are notified.
func topic(name string) string { return "once:" + name }

// apply sends one operation, and counts it.
func (o *Once) apply(ctx context.Context, name string, op Operation) (Reply, error) {
	r, err := o.store.Apply(ctx, name, op)
	if err != nil {
		operations.WithLabelValues(string(op.Action), "error").Inc()
		return Reply{}, fmt.Errorf("%s %s: %w", op.Action, name, err)
	}
	operations.WithLabelValues(string(op.Action), string(r.Outcome)).Inc()
	if r.Changed && r.State.Phase == Exhausted {
		exhausted.Inc()
		o.hooks.Exhausted(name, r.State)
	}
	o.hooks.Status(name, r.State)
	return r, nil
}

// acquire waits until this process holds the name. It returns neither a lease nor an
// error when the work is done.
func (c *call) acquire(ctx context.Context) (*lease, error) {
	notified, cancel := c.notifier.Subscribe(topic(c.key.Name))
	defer cancel()
	l := &lease{call: c, owner: newOwner()}
	for {
		r, err := l.ask(ctx)
		if err != nil {
			l.handBack(ctx)
			return nil, err
		}
		switch r.Outcome {
		case OK:
			n := r.State.Attempt
			l.attempt = Attempt{Number: n, Last: c.terms.Attempts > 0 && n >= c.terms.Attempts, Fence: r.State.Fence}
			c.hooks.Acquired(c.key.Name, l.attempt)
			return l, nil
		case AlreadyDone:
			return nil, nil
		case OutOfAttempts:
			return nil, fmt.Errorf("%s: %w, %d of them: %s", c.key.Name, ErrExhausted, r.State.Attempt, r.State.Reason)
		}
		if c.key.NoWait {
			return nil, fmt.Errorf("%s: %w: %s, in attempt %d", c.key.Name, ErrBusy, r.State.Owner, r.State.Attempt)
		}
		if r.State.Fence != c.seen {
			c.seen = r.State.Fence
			c.hooks.Locked(c.key.Name, r.State)
		}
		timer := time.NewTimer(r.State.Until.Sub(r.Now)) // the net, for a holder that died
		select {
		case <-notified:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// ask tries to acquire once. A store that has answered this call before, and is away now, it
// asks until it answers again.
func (l *lease) ask(ctx context.Context) (Reply, error) {
	for failures := 1; ; failures++ {
		l.sent = time.Now()
		r, err := l.apply(ctx, l.key.Name, Operation{Action: Acquire, Owner: l.owner, Terms: l.terms})
		switch {
		case err == nil:
			l.answered = true
			return r, nil
		case ctx.Err() != nil:
			return Reply{}, context.Cause(ctx)
		case !l.answered || !errors.Is(err, ErrUnavailable):
			return Reply{}, err
		}
		l.hooks.Error(l.key.Name, err)
		if err := retry.Sleep(ctx, retry.Backoff(failures, firstPause, maxPause)); err != nil {
			return Reply{}, err
		}
	}
}

// handBack releases what an acquisition whose answer was lost may have acquired. If that
// fails, too, the lease expires.
func (l *lease) handBack(ctx context.Context) {
	_, _ = l.record(ctx, Operation{Action: Release, Owner: l.owner}, handBackTimeout)
}

// record sends the end of an attempt until the store answers, or for at most so long, even
// if ctx has ended, and notifies the waiters.
func (l *lease) record(ctx context.Context, op Operation, atMost time.Duration) (r Reply, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), atMost)
	defer cancel()
	defer l.notifier.Notify(topic(l.key.Name)) // it may have been applied, even with an error
	for failures := 1; ; failures++ {
		r, err = l.apply(ctx, l.key.Name, op)
		if err == nil || !errors.Is(err, ErrUnavailable) || retry.Sleep(ctx, retry.Backoff(failures, firstPause, maxPause)) != nil {
			return r, err
		}
		l.hooks.Error(l.key.Name, err)
	}
}

// remaining is how long the work may go on without an extension.
func (l *lease) remaining() time.Duration {
	return time.Until(l.sent.Add(l.terms.Lease - l.key.Margin))
}

// run does the work, and extends the lease meanwhile. Its context ends with [ErrLost]
// before the lease.
func (l *lease) run(ctx context.Context, work func(context.Context, Attempt) error) error {
	ctx, end := context.WithCancelCause(ctx)
	lost := time.AfterFunc(l.remaining(), func() { end(fmt.Errorf("%w: it could not be extended for %v", ErrLost, l.terms.Lease)) })
	var extending sync.WaitGroup
	extending.Go(func() { l.extend(ctx, lost, end) })
	defer func() {
		lost.Stop()
		end(nil)
		extending.Wait()
	}()
	if err := work(ctx, l.attempt); err != nil {
		if lost := context.Cause(ctx); errors.Is(lost, ErrLost) {
			return fmt.Errorf("%w: %w", lost, err)
		}
		return err
	}
	return nil
}

// extend extends the lease until ctx ends: three times in a lease, and soon again after
// an error.
func (l *lease) extend(ctx context.Context, lost *time.Timer, end context.CancelCauseFunc) {
	pause, failures := l.terms.Lease/3, 0
	for retry.Sleep(ctx, pause) == nil {
		sent := time.Now()
		r, err := l.apply(ctx, l.key.Name, Operation{Action: Extend, Owner: l.owner})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			l.hooks.Error(l.key.Name, err)
			failures++
			pause = retry.Backoff(failures, min(firstPause, l.terms.Lease/20), l.terms.Lease/6)
		case r.Outcome != OK:
			end(fmt.Errorf("%w: %s has it, in attempt %d", ErrLost, r.State.Owner, r.State.Attempt))
			return
		default:
			l.sent = sent
			lost.Reset(l.remaining())
			pause, failures = l.terms.Lease/3, 0
		}
	}
}
