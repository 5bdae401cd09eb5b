package once

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/notify"
	"github.com/activityd/activityd/internal/retry"
)

// The defaults of a [Key].
const (
	DefaultLease    = 30 * time.Second
	DefaultKeep     = 24 * time.Hour
	DefaultAttempts = 5
)

// Key is a name, and how the work under it is to be done.
type Key struct {
	Name string
	// Attempts is how many attempts there may be, in all processes; 0: [DefaultAttempts].
	// [Once.Hold] has no limit.
	Attempts int
	// Lease is how long another process waits for one that died; 0: [DefaultLease]. It is
	// extended in the background, so the work may take longer.
	Lease time.Duration
	// Margin is how long before the end of a lease that could not be extended the context
	// of the work ends; 0: a tenth of the lease.
	Margin time.Duration
	// Keep is how long it is known that the work was done, or that all attempts failed; 0:
	// [DefaultKeep].
	Keep time.Duration
	// NoWait makes Do and Hold return [ErrBusy] while another process works.
	NoWait bool
}

// Attempt is the attempt that the work runs in.
type Attempt struct {
	Number int   // 1 for the first one
	Last   bool  // there is none after it
	Fence  Fence // for the resources that the work changes
}

// Errors of [Once.Do] and [Once.Hold], beside those of the store and of the work.
var (
	// ErrBusy: another process works, and [Key].NoWait is set.
	ErrBusy = errors.New("another process works on it")
	// ErrExhausted: all attempts failed.
	ErrExhausted = errors.New("all attempts failed")
	// ErrLost: the lease was lost, or could not be extended in time. Another process may
	// be at work. It is also the cause with which the context of the work ends.
	ErrLost = errors.New("the lease was lost")
)

// Hooks are called at what happens; each may be nil. They must not block, and may be
// called concurrently for different names.
type Hooks struct {
	Acquired  func(name string, a Attempt) // the work begins
	Locked    func(name string, s State)   // another process holds the name; once for each of its attempts
	Error     func(name string, err error) // the work failed, or the store could not be asked and is asked again
	Status    func(name string, s State)   // after each answer of the store
	Exhausted func(name string, s State)   // this process noticed first that all attempts failed
}

// Options configure a [Once].
type Options struct {
	// Notifier tells waiters in this process, and in others if it is relayed, that an
	// attempt has ended; nil: waiters of this Once alone. Without a notification they
	// look again when the lease that they know of ends.
	Notifier *notify.Notifier
	Hooks    Hooks
}

// Once does work under names. It is safe for concurrent use.
type Once struct {
	store    Store
	notifier *notify.Notifier
	hooks    Hooks
}

// New returns a Once whose states are in store.
func New(store Store, o Options) *Once {
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
	return &Once{store: store, notifier: o.Notifier, hooks: h}
}

// newCall checks a key and completes it. Attempts is that of the store: 0 for no limit.
func (o *Once) newCall(k Key, attempts int) (*call, error) {
	k.Lease = cmp.Or(k.Lease, DefaultLease)
	k.Margin = cmp.Or(k.Margin, k.Lease/10)
	c := &call{Once: o, key: k, terms: Terms{Lease: k.Lease, Keep: cmp.Or(k.Keep, DefaultKeep), Attempts: attempts}}
	if err := (Operation{Action: Acquire, Owner: "-", Terms: c.terms}).Check(k.Name); err != nil {
		return nil, err
	}
	if k.Attempts < 0 {
		return nil, fmt.Errorf("%w number of attempts %d: want 1 to %d", ErrInvalid, k.Attempts, MaxAttempts)
	}
	if k.Margin < 0 || k.Margin > k.Lease/2 {
		return nil, fmt.Errorf("%w margin %v: want at most half of the lease, %v", ErrInvalid, k.Margin, k.Lease/2)
	}
	return c, nil
}

// Do does work unless it is done, waiting for its turn: it returns when the work is done,
// by this process or by another one, or when all attempts failed. did reports whether
// this call did it. It begins an attempt whenever no other process is in one; after
// an attempt of its own that failed it leaves the next one to others for a moment.
//
// The context of the work ends with the cause [ErrLost] before its lease can have run out
// at the store, and with the cause of ctx. An attempt whose work returns an error after
// ctx ended is handed back, and does not count. When the work panics, the attempt has
// failed, and Do panics. Do returns when the work has returned, and leaves no goroutine.
//
// The error matches [ErrExhausted], and the error of the work if the last attempt was
// that of this call; [ErrBusy]; [ErrLost]; [ErrInvalid]; the cause of ctx; or an error of
// the store, if it cannot be asked at the beginning, or cannot record that the work is
// done, which may then be done again.
func (o *Once) Do(ctx context.Context, k Key, work func(context.Context, Attempt) error) (did bool, err error) {
	c, err := o.newCall(k, cmp.Or(k.Attempts, DefaultAttempts))
	if err != nil {
		return false, err
	}
	for failures := 1; ; failures++ {
		l, err := c.acquire(ctx)
		if l == nil || err != nil {
			return false, err
		}
		again, err := l.attemptTo(ctx, work)
		if !again {
			return err == nil, err
		}
		if err := retry.Sleep(ctx, retry.Backoff(failures, firstPause, maxPause)); err != nil {
			return false, err
		}
	}
}

// attemptTo does the work in one attempt, and records how it ended. again reports whether
// there is a next attempt, of this call or of another process.
func (l *lease) attemptTo(ctx context.Context, work func(context.Context, Attempt) error) (again bool, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		p := recover() // nil: it ended its goroutine
		l.fail(ctx, fmt.Sprintf("panic: %v", p))
		if p != nil {
			panic(p)
		}
	}()
	err = l.run(ctx, work)
	returned = true
	name := l.key.Name
	switch {
	case err == nil:
		r, err := l.record(ctx, Operation{Action: Finish, Owner: l.owner}, finishTimeout)
		if err != nil {
			return false, fmt.Errorf("%s is done, but that could not be recorded: it may be done again: %w", name, err)
		}
		if r.Outcome != OK {
			return false, fmt.Errorf("%s is done, but %w before that was recorded: it may be done again", name, ErrLost)
		}
		attempts.WithLabelValues(outcomeDone).Inc()
		return false, nil
	case ctx.Err() != nil:
		l.handBack(ctx)
		attempts.WithLabelValues(outcomeReleased).Inc()
		return false, err
	case errors.Is(err, ErrLost):
		l.fail(ctx, err.Error())
		return false, fmt.Errorf("%s: %w", name, err)
	}
	l.hooks.Error(name, err)
	if r := l.fail(ctx, err.Error()); r.State.Phase == Exhausted && r.Outcome == OK {
		return false, fmt.Errorf("%s: %w, %d of them: %w", name, ErrExhausted, r.State.Attempt, err)
	}
	return true, nil
}

// fail records that the attempt failed. If that cannot be recorded, its lease expires.
func (l *lease) fail(ctx context.Context, reason string) Reply {
	attempts.WithLabelValues(outcomeFailed).Inc()
	r, _ := l.record(ctx, Operation{Action: Fail, Owner: l.owner, Reason: reason}, recordTimeout)
	return r
}

// Hold does work for as long as it lives, in one process at a time: it waits for its turn,
// runs work, hands the name back when work returns, and returns the error of the work.
// There is no limit of attempts, and the work is never done. In all else it is like
// [Once.Do].
func (o *Once) Hold(ctx context.Context, k Key, work func(context.Context, Attempt) error) error {
	c, err := o.newCall(k, 0)
	if err != nil {
		return err
	}
	l, err := c.acquire(ctx)
	if l == nil || err != nil {
		return err
	}
	defer l.handBack(ctx)
	return l.run(ctx, work)
}

// Forget removes the state of a name, and notifies its waiters: see [Store].
func (o *Once) Forget(ctx context.Context, name string, force bool) (forgotten bool, err error) {
	forgotten, err = o.store.Forget(ctx, name, force)
	if forgotten {
		o.notifier.Notify(topic(name))
	}
	return forgotten, err
}
