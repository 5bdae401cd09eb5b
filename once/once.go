package once

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/notify"
)

// The defaults of a [Key].
const (
	DefaultLease    = 30 * time.Second
	DefaultKeep     = 24 * time.Hour
	DefaultAttempts = 5
)

// Key is a name, and how the work under it is to be done.
type Key struct {
	Name string // see [CheckName]
	// Attempts is how many attempts there may be, in all processes; 0: [DefaultAttempts].
	// [Once.Hold] has no limit.
	Attempts int
	// Lease is how long other processes wait for a process that died; 0: [DefaultLease]. Do and
	// Hold extend the lease in the background, so the work may take longer. It is cut to
	// milliseconds.
	Lease time.Duration
	// Margin is how long before the end of its lease the context of the work ends, if the lease
	// could not be extended. It is at least a millisecond and at most half of the lease; 0: a
	// tenth of the lease. It has to cover the time that the work needs to stop, and the difference
	// in speed, over a lease, between the clocks of this process and of the store.
	Margin time.Duration
	// Keep is how long it is known that the work was done, or that all attempts failed; 0:
	// [DefaultKeep].
	Keep time.Duration
	// Wait is how long Do and Hold wait for their turn, or for the end of the work, before they
	// return [ErrBusy]; 0: as long as it takes. After an attempt of their own that failed they
	// wait as long again.
	Wait time.Duration
	// NoWait makes Do and Hold return [ErrBusy] while another process works, also after an
	// attempt of their own that failed.
	NoWait bool
}

// Attempt is the attempt that the work runs in.
type Attempt struct {
	Number int   // 1 for the first attempt
	Last   bool  // there is none after it
	Fence  Fence // for the resources that the work changes
}

// Errors of [Once.Do] and [Once.Hold], beside the errors of the store and of the work.
var (
	// ErrBusy: another process works, and [Key].NoWait is set or [Key].Wait has passed.
	ErrBusy = errors.New("another process works on it")
	// ErrExhausted: all attempts failed.
	ErrExhausted = errors.New("all attempts failed")
	// ErrLost: the lease was lost, or could not be extended in time. Another process may be at
	// work. The cause with which the context of the work ends matches it, too.
	ErrLost = errors.New("the lease was lost")
)

// LostError is an [ErrLost]: the cause with which the context of the work ends.
type LostError struct {
	// Ends is the end of the lease, by the monotonic clock of this process: the work is
	// alone until then. It is zero if the lease is another's already.
	Ends time.Time
	why  string
}

func (e *LostError) Error() string { return ErrLost.Error() + e.why }

// Is reports whether target is [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Hooks are called by Do and Hold; a hook may be nil. A hook must not block, because the lease
// goes on meanwhile, nor panic. Hooks are called concurrently: by several calls of Do and Hold,
// and within a call by the extension of the lease beside the work.
type Hooks struct {
	// Acquired is called before the work begins.
	Acquired func(name string, a Attempt)
	// Locked is called when another process holds the name: once for each of its attempts
	// that a call meets.
	Locked func(name string, s State)
	// Error is called when the work failed, or the store could not be asked and is asked
	// again.
	Error func(name string, err error)
	// Status is called after each answer of the store.
	Status func(name string, s State)
	// Exhausted is called when all attempts failed, by the process that noticed it first. If an
	// answer of the store was lost, another process may call it, too.
	Exhausted func(name string, s State)
}

// Options configure a [Once].
type Options struct {
	// Notifier tells waiters in this process, and in other processes if it is relayed, that an
	// attempt has ended; nil: waiters of this Once alone. Without a notification a waiter of
	// [Once.Do] looks again within a second, and a waiter of [Once.Hold] when the lease that it
	// knows of ends.
	Notifier *notify.Notifier
	// Registerer gets the metrics; nil: there are none. Several Onces may share a registerer: they
	// count together.
	Registerer prometheus.Registerer
	Hooks      Hooks
}

// Once does work under names. It is safe for concurrent use.
type Once struct {
	store    Store
	notifier *notify.Notifier
	hooks    Hooks
	metrics  *metrics
}

// New returns a Once whose states are in store. It asks the store nothing. It panics if store is nil.
func New(store Store, o Options) *Once {
	if store == nil {
		panic("once: New: store is nil")
	}
	if o.Notifier == nil {
		o.Notifier = &notify.Notifier{}
	}
	h := o.Hooks
	if h.Acquired == nil {
		h.Acquired = func(string, Attempt) {}
	}
	if h.Error == nil {
		h.Error = func(string, error) {}
	}
	for _, hook := range []*func(string, State){&h.Locked, &h.Status, &h.Exhausted} {
		if *hook == nil {
			*hook = func(string, State) {}
		}
	}
	return &Once{store: store, notifier: o.Notifier, hooks: h, metrics: newMetrics(o.Registerer)}
}

// newCall checks a key and completes it. Attempts is that of the store: 0 for no limit.
func (o *Once) newCall(k Key, attempts int) (*call, error) {
	k.Lease = cmp.Or(k.Lease, DefaultLease).Truncate(time.Millisecond)
	k.Margin = cmp.Or(k.Margin, k.Lease/10)
	c := &call{Once: o, key: k, began: time.Now(), terms: Terms{Lease: k.Lease, Keep: cmp.Or(k.Keep, DefaultKeep), Attempts: attempts}}
	if err := (Operation{Action: Acquire, Owner: "-", Terms: c.terms}).Check(k.Name); err != nil {
		return nil, err
	}
	if k.Attempts < 0 {
		return nil, fmt.Errorf("%w number of attempts %d: want 1 to %d", ErrInvalid, k.Attempts, MaxAttempts)
	}
	// The store cuts its clock to milliseconds, so a lease may be shorter by almost a millisecond.
	if k.Margin < time.Millisecond || k.Margin > k.Lease/2 {
		return nil, fmt.Errorf("%w margin %v: want %v to half of the lease, %v", ErrInvalid, k.Margin, time.Millisecond, k.Lease/2)
	}
	return c, nil
}

// Do does the work of a key unless the work is done. It waits for its turn, and returns when
// this or another process has done the work, or when all attempts failed. did reports whether
// this call did the work.
//
// While another process is in an attempt, Do asks the store every 0.5 to 1 s, when the lease
// ends, and when it is notified. It begins an attempt when no process is in an attempt. After a
// failed attempt of its own Do begins no further attempt for 1 to 2 s, twice as long after each
// further failure, at most 30 s. A process that waits takes the next attempt meanwhile.
//
// The context of the work ends with a cause that matches [ErrLost] before its lease can have run
// out at the store, and with the cause of ctx. Do extends the lease until the work has returned,
// so work that takes its time to stop is still alone. If ctx has ended and the work then returns
// an error, the attempt is handed back, and does not count: a time limit for the work belongs
// into the work. When ctx ends during an acquisition, Do returns within two seconds: it waits a
// second for the answer, and takes at most another second to release the name. (A Redis client
// that waits for an answer notices deadlines only, and else waits for its read timeout.) When
// the work panics or calls [runtime.Goexit], the attempt has failed, and Do passes that on. Do
// leaves no goroutine.
//
// The error matches
//   - [ErrInvalid]: nothing was done;
//   - [ErrExhausted], and the error of the work if this call made the last attempt;
//   - [ErrBusy];
//   - [ErrLost]: the lease was lost, and the work failed with it; or the work succeeded, and
//     that could not be recorded any more, so that it may be done again;
//   - the cause of ctx;
//   - an error of the store, and nothing was done: the store did not answer for some seconds at
//     the beginning, or answered three times so late that the lease left no time for the work;
//   - an error of the store, and the work may be done again: for a minute the store could not
//     record that the work is done.
//
// While Do waits or works, it asks a store that is away until the store is back.
func (o *Once) Do(ctx context.Context, k Key, work func(context.Context, Attempt) error) (did bool, err error) {
	c, err := o.newCall(k, cmp.Or(k.Attempts, DefaultAttempts))
	if err != nil {
		return false, err
	}
	c.look = maxLook
	for failures := 1; ; failures++ {
		l, err := c.acquire(ctx)
		if l == nil || err != nil {
			return false, err
		}
		again, err := l.attemptTo(ctx, work)
		if !again {
			return err == nil, err
		}
		if err := c.rest(ctx, retry.Backoff(failures, firstPause, maxPause)); err != nil {
			return false, err
		}
	}
}

// attemptTo does the work in an attempt, and records how the attempt ended. again reports
// whether this call stands by for the next attempt.
func (l *lease) attemptTo(ctx context.Context, work func(context.Context, Attempt) error) (again bool, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		p, reason := recover(), "the work ended its goroutine"
		if p != nil {
			reason = fmt.Sprint("panic: ", p)
		}
		_, _ = l.end(ctx, Fail, reason, recordTimeout)
		if p != nil {
			panic(p)
		}
	}()
	lost, err := l.run(ctx, work)
	returned = true
	name := l.key.Name
	switch {
	case err == nil:
		r, err := l.end(ctx, Finish, "", finishTimeout)
		if err != nil {
			return false, fmt.Errorf("%s is done, but that could not be recorded; it may be done again: %w", name, err)
		}
		if r.Outcome != OK {
			return false, fmt.Errorf("%s is done, but %w before that was recorded; it may be done again", name, ErrLost)
		}
		return false, nil
	case lost != nil:
		err = withCause(err, lost)
		l.hooks.Error(name, err)
		_, _ = l.end(ctx, Fail, err.Error(), abandonTimeout)
		return false, fmt.Errorf("%s: %w", name, err)
	case ctx.Err() != nil:
		_, _ = l.end(ctx, Release, "", recordTimeout)
		return false, withCause(err, context.Cause(ctx))
	}
	l.hooks.Error(name, err)
	l.failed, l.failure = l.attempt.Fence, err
	// The answer may be that to a repeated operation, after another process made the last attempt.
	if r, _ := l.end(ctx, Fail, err.Error(), recordTimeout); r.State.Phase == Exhausted && r.Outcome == OK && r.State.Owner == l.owner {
		return false, fmt.Errorf("%s: %w, %d of them: %w", name, ErrExhausted, r.State.Attempt, err)
	}
	return true, nil
}

// withCause returns the error of work with the cause that ended its context.
func withCause(err, cause error) error {
	if errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// Hold does work in a single process at a time, for as long as the work lives. It waits for its
// turn, runs work, hands the name back when work has returned (or panicked, or called
// [runtime.Goexit]), and returns the error of the work. There is no limit of attempts, and the
// work is never done. Since Hold may wait for days, it asks the store only when the lease that
// it knows of ends, and when it is notified. In all else Hold is like [Once.Do]. After the loss
// of its lease it returns an [ErrLost] even if the work returned nil.
//
// Hold and Do must not share a name: Hold returns an [ErrInvalid] if the name is done, and an
// [ErrExhausted] if all attempts of the name failed.
func (o *Once) Hold(ctx context.Context, k Key, work func(context.Context, Attempt) error) error {
	c, err := o.newCall(k, 0)
	if err != nil {
		return err
	}
	l, err := c.acquire(ctx)
	switch {
	case err != nil:
		return err
	case l == nil:
		return fmt.Errorf("%w name %s for Hold: its work is done", ErrInvalid, k.Name)
	}
	timeout := recordTimeout
	defer func() { _, _ = l.end(ctx, Release, "", timeout) }()
	lost, err := l.run(ctx, work)
	if lost != nil {
		timeout = abandonTimeout
	}
	switch {
	case lost == nil:
		return err
	case err == nil:
		return fmt.Errorf("%s: %w", k.Name, lost)
	}
	return fmt.Errorf("%s: %w", k.Name, withCause(err, lost))
}

// Forget removes the state of a name, as [Store].Forget does, and notifies its waiters. A
// process that works under the name loses its lease.
func (o *Once) Forget(ctx context.Context, name string, force bool) (forgotten bool, err error) {
	defer o.notifier.Notify(topic(name)) // also after an error: it may be forgotten
	return o.store.Forget(ctx, name, force)
}
