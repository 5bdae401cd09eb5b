package once_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/testing/oncetest"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/once"
)

// The terms of most tests: a lease of 30 s with a margin of 3 s.
const (
	lease  = once.DefaultLease
	margin = lease / 10
)

var errWork = errors.New("the work failed")

// world is the world of a test: a store, the network to it, and processes.
type world struct {
	t        *testing.T
	begin    time.Time
	memory   *oncetest.Memory
	network  *faulty
	notifier notify.Notifier
	ahead    atomic.Int64 // of the clock of the store, in ns
	back     atomic.Int64 // when a store that is away is back, in Unix ns
}

// isAway reports whether the store is away.
func (w *world) isAway() bool { return time.Now().UnixNano() < w.back.Load() }

// since is how long after the beginning of the world a moment is.
func (w *world) since(at time.Time) time.Duration { return at.Sub(w.begin) }

// leave makes the store be away for so long.
func (w *world) leave(d time.Duration) { w.back.Store(time.Now().Add(d).UnixNano()) }

// late is how long ago the store came back.
func (w *world) late() time.Duration { return time.Since(time.Unix(0, w.back.Load())) }

// inWorld runs a test in a world whose time is not ours.
func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, begin: time.Now()}
		w.memory = oncetest.NewMemory(func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) })
		w.network = &faulty{Store: w.memory}
		test(t, w)
	})
}

// process returns a Once of another process on the network.
func (w *world) process() *once.Once { return once.New(w.network, once.Options{Notifier: &w.notifier}) }

// state returns that of the name k.
func (w *world) state() once.State {
	w.t.Helper()
	r, err := w.memory.Get(w.t.Context(), "k")
	if err != nil {
		w.t.Fatal(err)
	}
	return r.State
}

// is expects a state.
func (w *world) is(p once.Phase, attempt int) {
	w.t.Helper()
	if s := w.state(); s.Phase != p || s.Attempt != attempt {
		w.t.Errorf("it is %s in attempt %d (%s), want %s in attempt %d", s.Phase, s.Attempt, s.Reason, p, attempt)
	}
}

// apply applies an operation of an owner in a test.
func (w *world) apply(op once.Operation) once.Reply {
	w.t.Helper()
	op.Terms = once.Terms{Lease: lease, Keep: time.Hour, Attempts: 2}
	r, err := w.memory.Apply(w.t.Context(), "k", op)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// result is the result of a call, and its time.
type result struct {
	did bool
	err error
	at  time.Time
}

// do calls Do in the background.
func do(ctx context.Context, o *once.Once, k once.Key, work func(context.Context, once.Attempt) error) <-chan result {
	c := make(chan result, 1)
	go func() {
		did, err := o.Do(ctx, k, work)
		c <- result{did, err, time.Now()}
	}()
	return c
}

// hold calls Hold in the background.
func hold(ctx context.Context, o *once.Once, work func(context.Context, once.Attempt) error) <-chan result {
	c := make(chan result, 1)
	go func() {
		err := o.Hold(ctx, once.Key{Name: "k"}, work)
		c <- result{err: err, at: time.Now()}
	}()
	return c
}

// succeeds and fails are work that takes no time.
func succeeds(context.Context, once.Attempt) error { return nil }
func fails(context.Context, once.Attempt) error    { return errWork }

// never is work that must not be done.
func never(t *testing.T) func(context.Context, once.Attempt) error {
	return func(_ context.Context, a once.Attempt) error {
		t.Errorf("the work is done in attempt %+v", a)
		return nil
	}
}

// untilEnd is work that ends with its context.
func untilEnd(ctx context.Context, _ once.Attempt) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// Work that fails is attempted again, until it is done, and then never again.
func TestDo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var seen []once.Attempt
		work := func(_ context.Context, a once.Attempt) error {
			seen = append(seen, a)
			pass(10 * lease)
			if a.Number < 3 {
				return errWork
			}
			return nil
		}
		for i, want := range []bool{true, false} {
			if did, err := w.process().Do(t.Context(), once.Key{Name: "k", Attempts: 3}, work); did != want || err != nil {
				t.Errorf("call %d: %v, %v, want %v", i, did, err, want)
			}
		}
		want := []once.Attempt{{Number: 1, Fence: 1}, {Number: 2, Fence: 2}, {Number: 3, Fence: 3, Last: true}}
		if !slices.Equal(seen, want) {
			t.Errorf("attempts %+v, want %+v", seen, want)
		}
		if n := w.network.sent(once.Extend); n < 60 || n > 120 {
			t.Errorf("%d extensions in 30 leases, want 3 a lease", n)
		}
		w.is(once.Done, 3)
	})
}

// Until a third of the lease nothing extends it. The test is not parallel: it counts the
// goroutines of the process.
func TestShortWorkCostsNoGoroutine(t *testing.T) {
	network := &faulty{Store: oncetest.NewMemory(time.Now)}
	o := once.New(network, once.Options{})
	before := runtime.NumGoroutine()
	did, err := o.Do(t.Context(), once.Key{Name: "k", Lease: time.Hour}, func(context.Context, once.Attempt) error {
		if n := runtime.NumGoroutine(); n > before {
			t.Errorf("%d goroutines, want %d as before", n, before)
		}
		return nil
	})
	if !did || err != nil || network.sent(once.Extend) != 0 || network.total() != 2 {
		t.Errorf("%v, %v, with %d operations", did, err, network.total())
	}
}

// When the last attempt fails, the error is both: no attempt is left, and why.
func TestExhausted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		k := once.Key{Name: "k", Attempts: 2}
		other := do(t.Context(), w.process(), k, fails)
		did, err := w.process().Do(t.Context(), k, fails)
		theirs := <-other
		for _, r := range []result{{did: did, err: err}, theirs} {
			if r.did || !errors.Is(r.err, once.ErrExhausted) || !strings.Contains(r.err.Error(), errWork.Error()) {
				t.Errorf("%v, %v", r.did, r.err)
			}
		}
		if !errors.Is(err, errWork) && !errors.Is(theirs.err, errWork) {
			t.Errorf("the error of the work is in neither %v nor %v", err, theirs.err)
		}
		w.is(once.Exhausted, 2)
		if _, err := w.process().Do(t.Context(), k, never(t)); !errors.Is(err, once.ErrExhausted) || errors.Is(err, errWork) {
			t.Errorf("a later call: %v", err)
		}
		if err := w.process().Hold(t.Context(), k, never(t)); !errors.Is(err, once.ErrExhausted) {
			t.Errorf("Hold: %v", err)
		}
	})
}

// A waiter begins at the moment in which an attempt fails, is handed back or forgotten, and
// learns at once that the work is done. The process that failed leaves it the attempt.
func TestTakeover(t *testing.T) {
	for name, c := range map[string]struct {
		ends  func(w *world, stop func()) error
		phase once.Phase
		err   error
	}{
		"fail":    {func(*world, func()) error { return errWork }, once.Done, nil},
		"release": {func(_ *world, stop func()) error { stop(); return errWork }, once.Done, context.Canceled},
		"done":    {func(*world, func()) error { return nil }, once.Done, nil},
		"forget": {func(w *world, _ func()) error {
			if forgotten, err := w.process().Forget(w.t.Context(), "k", true); !forgotten || err != nil {
				w.t.Errorf("forget: %v, %v", forgotten, err)
			}
			return nil
		}, once.Done, once.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				begin := time.Now()
				first := do(ctx, w.process(), once.Key{Name: "k"}, func(context.Context, once.Attempt) error {
					pass(time.Second)
					return c.ends(w, stop)
				})
				synctest.Wait()
				second := <-do(t.Context(), w.process(), once.Key{Name: "k"}, succeeds)
				if second.did != (name != "done") || second.err != nil || second.at.Sub(begin) != time.Second {
					t.Errorf("the waiter: %v, %v after %v", second.did, second.err, second.at.Sub(begin))
				}
				if r := <-first; !errors.Is(r.err, c.err) {
					t.Errorf("the first: %v, want %v", r.err, c.err)
				}
				if s := w.state(); s.Phase != c.phase {
					t.Errorf("state %+v", s)
				}
			})
		})
	}
}

// Without a notification a waiter begins when the lease of a process that died ends. Until
// then Do looks about once a second, and Hold does not.
func TestTakeoverWithoutANotification(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.apply(once.Operation{Action: once.Acquire, Owner: "dead"})
		held := <-hold(t.Context(), w.process(), succeeds)
		if n := w.network.sent(once.Acquire); held.err != nil || w.since(held.at) != lease || n != 2 {
			t.Errorf("Hold: %v after %v and %d acquisitions, want 2 in a lease", held.err, w.since(held.at), n)
		}
		w.apply(once.Operation{Action: once.Acquire, Owner: "dead, too"})
		did, err := w.process().Do(t.Context(), once.Key{Name: "k"}, succeeds)
		// It looks at a time between two of the store's milliseconds.
		if took := w.since(time.Now()) - lease; !did || err != nil || took.Truncate(time.Millisecond) != lease {
			t.Errorf("Do: %v, %v after %v, want true after a lease", did, err, took)
		}
		w.is(once.Done, 3)
		if n := w.network.sent(once.Acquire) - 2; n < 31 || n > 62 {
			t.Errorf("Do: %d acquisitions, want one in 0.5 to 1 s", n)
		}
	})
}

// Without a notification, too, a waiting process gets the attempt after a failure, and every
// waiter learns soon that the work is done.
func TestTurnsWithoutANotification(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		alone := func() *once.Once { return once.New(w.network, once.Options{}) } // with a notifier of its own
		var failed, done time.Time
		bad := do(t.Context(), alone(), once.Key{Name: "k", Attempts: 3}, func(_ context.Context, a once.Attempt) error {
			if a.Number != 1 {
				t.Errorf("the process that failed has attempt %d", a.Number)
			}
			pass(10 * time.Second)
			failed = time.Now()
			return errWork
		})
		synctest.Wait()
		good := do(t.Context(), alone(), once.Key{Name: "k", Attempts: 3}, func(_ context.Context, a once.Attempt) error {
			if took := time.Since(failed); a.Number != 2 || took > time.Second {
				t.Errorf("the waiter has attempt %d after %v", a.Number, took)
			}
			pass(10 * time.Second)
			done = time.Now()
			return nil
		})
		if r := <-good; !r.did || r.err != nil {
			t.Errorf("the waiter: %v, %v", r.did, r.err)
		}
		if r := <-bad; r.did || r.err != nil || r.at.Sub(done) > time.Second {
			t.Errorf("the process that failed: %v, %v, %v after the work was done", r.did, r.err, r.at.Sub(done))
		}
	})
}

// A process that pauses after its own failure learns within a second that another process has
// done the work, and at once if it is notified.
func TestThePauseEndsWithTheWork(t *testing.T) {
	for name, within := range map[string]time.Duration{"notified": 0, "alone": time.Second} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				bad, good := w.process(), w.process()
				if name == "alone" { // each with a notifier of its own
					bad, good = once.New(w.network, once.Options{}), once.New(w.network, once.Options{})
				}
				ended := do(t.Context(), bad, once.Key{Name: "k", Attempts: 20}, func(context.Context, once.Attempt) error { return errWork })
				pass(35 * time.Second) // its pauses are of 8 s and more now
				synctest.Wait()
				if did, err := good.Do(t.Context(), once.Key{Name: "k", Attempts: 20}, func(context.Context, once.Attempt) error { return nil }); !did || err != nil {
					t.Errorf("the work of the other: %v, %v", did, err)
				}
				done := time.Now()
				if r := <-ended; r.did || r.err != nil || r.at.Sub(done) > within {
					t.Errorf("%v, %v, %v after the work was done, want %v", r.did, r.err, r.at.Sub(done), within)
				}
			})
		})
	}
}

// The pauses of a process whose attempts fail grow, but not for ever.
func TestPauses(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		last, pause := time.Now(), time.Duration(0)
		_, err := w.process().Do(t.Context(), once.Key{Name: "k", Attempts: 8}, func(context.Context, once.Attempt) error {
			if took := time.Since(last); took < pause/2 || took > pause {
				t.Errorf("a pause of %v, want %v to %v", took, pause/2, pause)
			}
			last, pause = time.Now(), min(max(2*time.Second, 2*pause), 30*time.Second)
			return errWork
		})
		if !errors.Is(err, once.ErrExhausted) {
			t.Error(err)
		}
	})
}

// A name that is held by a process that died is taken, or found exhausted.
func TestExpired(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, owner := range []string{"dead", "dead, too"} {
			w.apply(once.Operation{Action: once.Acquire, Owner: owner})
			pass(lease)
		}
		var told []string
		o := once.New(w.network, once.Options{Hooks: once.Hooks{Exhausted: func(name string, s once.State) { told = append(told, name+": "+s.Reason) }}})
		for range 2 {
			_, err := o.Do(t.Context(), once.Key{Name: "k", Attempts: 2}, never(t))
			if !errors.Is(err, once.ErrExhausted) || !strings.Contains(err.Error(), "the lease of attempt 2 expired") {
				t.Errorf("error %v", err)
			}
		}
		if want := []string{"k: the lease of attempt 2 expired"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		if did, err := o.Do(t.Context(), once.Key{Name: "other"}, succeeds); !did || err != nil {
			t.Errorf("another name: %v, %v", did, err)
		}
	})
}

// Nobody waits with NoWait, also after a failure of its own.
func TestNoWait(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		k := once.Key{Name: "k", NoWait: true}
		if did, err := w.process().Do(t.Context(), k, func(_ context.Context, a once.Attempt) error {
			if a.Number < 3 {
				return errWork
			}
			return nil
		}); !did || err != nil {
			t.Errorf("alone: %v, %v", did, err)
		}
		w.process().Forget(t.Context(), "k", false)

		runs := 0
		_, err := w.process().Do(t.Context(), k, func(context.Context, once.Attempt) error {
			runs++
			if runs == 1 {
				time.AfterFunc(time.Millisecond, func() { w.apply(once.Operation{Action: once.Acquire, Owner: "other"}) })
			}
			return errWork
		})
		if !errors.Is(err, once.ErrBusy) || !strings.Contains(err.Error(), "other, in attempt 2") || runs != 1 {
			t.Errorf("%v after %d runs", err, runs)
		}
		begin := time.Now()
		if err := w.process().Hold(t.Context(), k, never(t)); !errors.Is(err, once.ErrBusy) || time.Since(begin) != 0 {
			t.Errorf("Hold: %v after %v", err, time.Since(begin))
		}
	})
}

// With Wait it is waited for so long, and no longer; an attempt takes as long as it takes.
func TestWait(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		k := once.Key{Name: "k", Wait: lease * 3 / 4}
		w.apply(once.Operation{Action: once.Acquire, Owner: "other"})
		begin := time.Now()
		if _, err := w.process().Do(t.Context(), k, never(t)); !errors.Is(err, once.ErrBusy) || time.Since(begin) != k.Wait {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		begin = time.Now() // the lease ends before it has waited as long again
		did, err := w.process().Do(t.Context(), k, func(ctx context.Context, _ once.Attempt) error {
			pass(3 * k.Wait)
			return context.Cause(ctx)
		})
		if !did || err != nil || time.Since(begin) < 3*k.Wait {
			t.Errorf("%v, %v after %v", did, err, time.Since(begin))
		}
	})
}

// Hold hands over when the work returns, panics, ends its goroutine or is stopped, and has
// no limit of attempts.
func TestHold(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		begin := time.Now()
		for i, c := range []struct {
			end  func(stop func())
			want error
		}{
			{func(func()) {}, errWork},
			{func(stop func()) { stop() }, errWork},
			{func(func()) { panic("oh") }, nil},
			{func(func()) { runtime.Goexit() }, nil},
		} {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				var err error
				defer func() { recover(); ended <- err }()
				err = w.process().Hold(ctx, once.Key{Name: "k", Attempts: 1}, func(context.Context, once.Attempt) error {
					pass(5 * lease)
					c.end(stop)
					return errWork
				})
			}()
			synctest.Wait()
			if i%2 == 0 {
				w.is(once.Held, 1)
			}
			second := <-hold(t.Context(), w.process(), func(_ context.Context, a once.Attempt) error {
				if a.Number != 1 || a.Last {
					t.Errorf("case %d: attempt %+v", i, a)
				}
				return nil
			})
			if took := second.at.Sub(begin); second.err != nil || took != time.Duration(i+1)*5*lease {
				t.Errorf("case %d: %v after %v", i, second.err, took)
			}
			if err := <-ended; !errors.Is(err, c.want) {
				t.Errorf("case %d: error %v, want %v", i, err, c.want)
			}
			stop()
			w.is(once.Free, 0)
		}
	})
}

// Hold refuses a name under which work is done.
func TestHoldOfADoneName(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if _, err := w.process().Do(t.Context(), once.Key{Name: "k"}, succeeds); err != nil {
			t.Fatal(err)
		}
		if err := w.process().Hold(t.Context(), once.Key{Name: "k"}, never(t)); !errors.Is(err, once.ErrInvalid) {
			t.Errorf("error %v", err)
		}
	})
}

// Work that panics or ends its goroutine has failed, and the panic goes on.
func TestPanic(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		panicked := func(work func()) (p any, returned bool) {
			var running sync.WaitGroup
			running.Go(func() {
				defer func() { p = recover() }()
				_, _ = w.process().Do(t.Context(), once.Key{Name: "k"}, func(context.Context, once.Attempt) error {
					work()
					return nil
				})
				returned = true
			})
			running.Wait()
			return p, returned
		}
		if p, returned := panicked(func() { panic("oh") }); p != "oh" || returned || w.state().Reason != "panic: oh" {
			t.Errorf("panic %v, returned %v, reason %q", p, returned, w.state().Reason)
		}
		w.is(once.Free, 1)
		if p, returned := panicked(runtime.Goexit); p != nil || returned || w.state().Reason != "the work ended its goroutine" {
			t.Errorf("panic %v, returned %v, reason %q", p, returned, w.state().Reason)
		}
		w.is(once.Free, 2)
		if p, returned := panicked(func() { panic(nil) }); p == nil || returned { //nolint:govet // on purpose
			t.Errorf("panic %v, returned %v", p, returned)
		}
		w.is(once.Free, 3)
	})
}

// The hooks report a call, in order.
func TestHooks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var told []string
		tell := func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }
		o := once.New(w.network, once.Options{Notifier: &w.notifier, Hooks: once.Hooks{
			Acquired:  func(name string, a once.Attempt) { tell("acquired %s %d %v", name, a.Number, a.Last) },
			Locked:    func(name string, s once.State) { tell("locked %s by %s", name, s.Owner) },
			Error:     func(name string, err error) { tell("error %s: %v", name, err) },
			Status:    func(name string, s once.State) { tell("status %s %s %d", name, s.Phase, s.Attempt) },
			Exhausted: func(name string, s once.State) { tell("exhausted %s: %s", name, s.Reason) },
		}})
		w.apply(once.Operation{Action: once.Acquire, Owner: "other"})
		time.AfterFunc(lease/2, func() { w.apply(once.Operation{Action: once.Extend, Owner: "other"}) })
		w.network.fault = func(n int, op once.Operation) fault { return fault{refuse: op.Action == once.Acquire && n == 2} }
		_, err := o.Do(t.Context(), once.Key{Name: "k", Attempts: 2}, fails)
		told = slices.Compact(told) // of many looks
		want := []string{
			"status k held 1", "locked k by other", // at 0
			"error k: acquire k: the store of locks is unavailable: connection refused",
			"status k held 1", // until the lease ends: the holder has extended it
			"status k held 2", "acquired k 2 true",
			"error k: the work failed",
			"status k exhausted 2", "exhausted k: the work failed",
		}
		if !slices.Equal(told, want) || !errors.Is(err, once.ErrExhausted) {
			t.Errorf("%v, told\n%s\nwant\n%s", err, strings.Join(told, "\n"), strings.Join(want, "\n"))
		}
	})
}

// A key that is out of bounds is refused before anything is sent.
func TestInvalid(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for what, k := range map[string]once.Key{
			"an empty name":         {},
			"a long name":           {Name: strings.Repeat("x", 10<<10)},
			"a space":               {Name: "a b"},
			"negative attempts":     {Name: "k", Attempts: -1},
			"too many attempts":     {Name: "k", Attempts: once.MaxAttempts + 1},
			"a short lease":         {Name: "k", Lease: once.MinLease - 1},
			"a negative lease":      {Name: "k", Lease: -time.Second},
			"a lease of a year":     {Name: "k", Lease: 365 * 24 * time.Hour},
			"a short time to keep":  {Name: "k", Keep: time.Millisecond},
			"a long time to keep":   {Name: "k", Keep: once.MaxKeep + 1},
			"a negative margin":     {Name: "k", Margin: -1},
			"less than the clock's": {Name: "k", Margin: time.Millisecond - 1},
			"most of the lease":     {Name: "k", Margin: lease/2 + 1},
		} {
			if did, err := w.process().Do(t.Context(), k, never(t)); did || !errors.Is(err, once.ErrInvalid) {
				t.Errorf("%s: %v, %v", what, did, err)
			}
			if k.Attempts > 0 {
				continue // Hold has none
			}
			if err := w.process().Hold(t.Context(), k, never(t)); !errors.Is(err, once.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := w.process().Forget(t.Context(), "a b", true); !errors.Is(err, once.ErrInvalid) {
			t.Errorf("Forget: %v", err)
		}
		if n := w.network.total(); n != 0 {
			t.Errorf("%d operations were sent", n)
		}
	})
}

// Forget leaves a held name, unless force is set. A forgotten name is as new.
func TestForget(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.apply(once.Operation{Action: once.Acquire, Owner: "other"})
		if forgotten, err := w.process().Forget(t.Context(), "k", false); forgotten || !errors.Is(err, once.ErrHeld) {
			t.Errorf("%v, %v", forgotten, err)
		}
		waiter := do(t.Context(), w.process(), once.Key{Name: "k"}, func(_ context.Context, a once.Attempt) error {
			if a.Number != 1 || a.Fence != 2 {
				t.Errorf("attempt %+v", a)
			}
			return nil
		})
		synctest.Wait()
		begin := time.Now()
		if forgotten, err := w.process().Forget(t.Context(), "k", true); !forgotten || err != nil {
			t.Errorf("%v, %v", forgotten, err)
		}
		if r := <-waiter; !r.did || r.err != nil || r.at != begin {
			t.Errorf("the waiter: %v, %v after %v", r.did, r.err, r.at.Sub(begin))
		}
		if r := w.apply(once.Operation{Action: once.Finish, Owner: "other"}); r.Outcome != once.Lost {
			t.Errorf("the forgotten owner: %s", r.Outcome)
		}
	})
}
