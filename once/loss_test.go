package once_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/once"
)

// An answer that is lost changes nothing but the time it takes, whatever it was to.
func TestLostAnswers(t *testing.T) {
	for _, action := range []once.Action{once.Extend, once.Finish, once.Fail} {
		for _, loses := range []bool{true, false} {
			t.Run(string(action)+map[bool]string{true: " lost", false: " refused"}[loses], func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					w.network.fault = func(n int, op once.Operation) fault {
						bad := op.Action == action && n%3 != 0 // two of three
						return fault{lose: bad && loses, refuse: bad && !loses}
					}
					var attempts, exhausted int
					o := once.New(w.network, once.Options{Hooks: once.Hooks{Exhausted: func(string, once.State) { exhausted++ }}})
					did, err := o.Do(t.Context(), once.Key{Name: "k", Attempts: 3}, func(ctx context.Context, a once.Attempt) error {
						attempts++
						pass(3 * lease)
						switch {
						case ctx.Err() != nil:
							t.Errorf("its context ended: %v", context.Cause(ctx))
						case a.Number != attempts:
							t.Errorf("attempt %d, want %d", a.Number, attempts)
						case action == once.Fail:
							return errWork
						}
						return nil
					})
					if action == once.Fail {
						if did || !errors.Is(err, once.ErrExhausted) || !errors.Is(err, errWork) || exhausted != 1 {
							t.Errorf("%v, %v, and told %d times", did, err, exhausted)
						}
						w.is(once.Exhausted, 3)
						return
					}
					if !did || err != nil || exhausted != 0 {
						t.Errorf("%v, %v, and told %d times", did, err, exhausted)
					}
					w.is(once.Done, 1)
				})
			})
		}
	}
}

// A lost answer to an acquisition is asked for again, and is the same attempt. If all are
// lost for seconds at the beginning, that is an error, and uses up no attempt.
func TestLostAcquisition(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.network.fault = func(_ int, op once.Operation) fault {
			return fault{lose: op.Action == once.Acquire}
		}
		if did, err := w.process().Do(t.Context(), once.Key{Name: "k"}, never(t)); did || !errors.Is(err, once.ErrUnavailable) {
			t.Errorf("%v, %v", did, err)
		}
		w.is(once.Free, 0)
		before := w.network.sent(once.Acquire)
		w.network.fault = func(n int, op once.Operation) fault {
			return fault{lose: op.Action == once.Acquire && n-before != 3 && n-before != 6}
		}
		begin := time.Now()
		did, err := w.process().Do(t.Context(), once.Key{Name: "k"}, func(_ context.Context, a once.Attempt) error {
			if a.Number == 1 {
				return errWork
			}
			return nil
		})
		if !did || err != nil || time.Since(begin) > 3*time.Second {
			t.Errorf("%v, %v after %v", did, err, time.Since(begin))
		}
		w.is(once.Done, 2)
	})
}

// The loss of the answer that exhausts a name does not keep the hook from being called.
func TestLostExhaustion(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.apply(once.Operation{Action: once.Acquire, Owner: "dead"})
		pass(lease)
		w.apply(once.Operation{Action: once.Acquire, Owner: "dead, too"})
		w.network.fault = func(n int, op once.Operation) fault { return fault{lose: op.Action == once.Acquire && n == 2} }
		told := 0
		o := once.New(w.network, once.Options{Hooks: once.Hooks{Exhausted: func(string, once.State) { told++ }}})
		if _, err := o.Do(t.Context(), once.Key{Name: "k", Attempts: 2}, never(t)); !errors.Is(err, once.ErrExhausted) || told != 1 {
			t.Errorf("%v, told %d times", err, told)
		}
	})
}

// Do tries again to release an attempt that it began, or may have begun.
func TestLostRelease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.network.fault = func(n int, op once.Operation) fault { return fault{refuse: op.Action == once.Release && n < 4} }
		ctx, stop := context.WithTimeout(t.Context(), lease)
		defer stop()
		if _, err := w.process().Do(ctx, once.Key{Name: "k"}, untilEnd); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w.is(once.Free, 0)
		w.network.fault = func(_ int, op once.Operation) fault { return fault{lose: op.Action == once.Release} }
		begin := time.Now()
		ctx, stop = context.WithTimeout(t.Context(), lease)
		defer stop()
		if err := w.process().Hold(ctx, once.Key{Name: "k"}, untilEnd); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w.is(once.Free, 0)
		if took := time.Since(begin) - lease; took > 16*time.Second {
			t.Errorf("it took %v to release", took)
		}
	})
}

// A store that is away at the beginning is asked again for some seconds, and is an error then.
func TestStoreAwayAtTheBeginning(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, to := range []fault{{refuse: true}, {before: forever}} {
			w.network.fault = func(int, once.Operation) fault { return to }
			begin := time.Now()
			if did, err := w.process().Do(t.Context(), once.Key{Name: "k"}, never(t)); did || !errors.Is(err, once.ErrUnavailable) {
				t.Errorf("%v, %v", did, err)
			}
			if took := time.Since(begin); took > 11*time.Second || to.refuse && (took < 4*time.Second || took > 8*time.Second) {
				t.Errorf("%+v: it took %v", to, took)
			}
		}
	})
}

// Do asks a store that goes away while a process waits, or whose epoch is lost, until it is
// back.
func TestStoreAwayWhileWaiting(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.apply(once.Operation{Action: once.Acquire, Owner: "dead"})
		w.leave(10 * lease)
		w.network.fault = func(n int, _ once.Operation) fault { return fault{refuse: n > 1 && w.isAway()} }
		if did, err := w.process().Do(t.Context(), once.Key{Name: "k"}, succeeds); !did || err != nil {
			t.Errorf("%v, %v", did, err)
		}
		if late := w.late(); late < 0 || late > 2*time.Second {
			t.Errorf("%v after the store was back", late)
		}
		w.is(once.Done, 2)
	})
}

// When the lease cannot be extended, the context ends before the lease can have run out,
// whether the store refuses, hangs, or applies and does not answer.
func TestStoreAwayWhileWorking(t *testing.T) {
	for name, to := range map[string]fault{"refuses": {refuse: true}, "hangs": {before: forever}, "applies": {after: forever}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				away := time.Now().Add(5*lease + 7*time.Second)
				time.AfterFunc(time.Until(away), func() { w.leave(forever) })
				w.network.fault = func(_ int, op once.Operation) fault {
					switch {
					case w.isAway():
						return to
					case op.Action == once.Extend:
						return fault{after: 4 * time.Second}
					}
					return fault{}
				}
				var ended time.Time
				_, err := w.process().Do(t.Context(), once.Key{Name: "k"}, func(ctx context.Context, _ once.Attempt) error {
					<-ctx.Done()
					ended = time.Now()
					w.leave(0) // it is back
					if s := w.state(); s.Until.Sub(ended) < margin-time.Millisecond {
						t.Errorf("the context ended %v before the lease", s.Until.Sub(ended))
					}
					if cause := context.Cause(ctx); !errors.Is(cause, once.ErrLost) {
						t.Errorf("cause %v", cause)
					}
					return ctx.Err()
				})
				if !errors.Is(err, once.ErrLost) || !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if after := ended.Sub(away); after < lease-margin-lease/3-5*time.Second || after > lease-margin {
					t.Errorf("the context ended %v after the store went away", after)
				}
				w.is(once.Free, 1) // the failure was recorded, since the store was back
			})
		})
	}
}

// A single answer that is lost, or late, costs no lease.
func TestAHiccupCostsNothing(t *testing.T) {
	for name, to := range map[string]fault{"refuses": {refuse: true}, "hangs": {before: forever}, "applies": {after: forever}, "slow": {before: 3 * time.Second, after: 3 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.network.fault = func(n int, op once.Operation) fault {
					if op.Action == once.Extend && n%2 == 1 {
						return to
					}
					return fault{}
				}
				for _, l := range []time.Duration{lease, once.MinLease, 24 * time.Hour} {
					w.process().Forget(t.Context(), "k", false)
					if did, err := w.process().Do(t.Context(), once.Key{Name: "k", Lease: l}, func(ctx context.Context, _ once.Attempt) error {
						pass(10 * l)
						return ctx.Err()
					}); !did || err != nil {
						t.Errorf("lease %v: %v, %v", l, did, err)
					}
				}
			})
		})
	}
}

// Done is recorded as soon as the store is back; if that takes too long, it is an error
// that says so.
func TestStoreAwayWhileRecording(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.network.fault = func(_ int, op once.Operation) fault { return fault{refuse: op.Action != once.Acquire && w.isAway()} }
		work := func(context.Context, once.Attempt) error {
			w.leave(lease + lease/2) // nobody else wants it
			return nil
		}
		if did, err := w.process().Do(t.Context(), once.Key{Name: "k"}, work); !did || err != nil || w.late() > 2*time.Second {
			t.Errorf("%v, %v, %v after it was back", did, err, w.late())
		}
		w.is(once.Done, 1)
		w.process().Forget(t.Context(), "k", false)

		begin := time.Now()
		did, err := w.process().Do(t.Context(), once.Key{Name: "k"}, func(context.Context, once.Attempt) error {
			w.leave(time.Hour)
			return nil
		})
		if did || !errors.Is(err, once.ErrUnavailable) || !strings.Contains(err.Error(), "it may be done again") {
			t.Errorf("%v, %v", did, err)
		}
		if took := time.Since(begin); took < 55*time.Second || took > time.Minute {
			t.Errorf("it tried for %v, want a minute", took)
		}
	})
}

// After a failure that cannot be recorded the next attempt begins when the lease ends. The
// error of the work is known all the same.
func TestAFailureThatCannotBeRecorded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.network.fault = func(_ int, op once.Operation) fault { return fault{refuse: op.Action == once.Fail} }
		begin := time.Now()
		_, err := w.process().Do(t.Context(), once.Key{Name: "k", Attempts: 2}, fails)
		if !errors.Is(err, once.ErrExhausted) || !errors.Is(err, errWork) {
			t.Error(err)
		}
		if took := time.Since(begin); took.Truncate(time.Second) != 2*lease {
			t.Errorf("it took %v, want two leases", took)
		}
		w.is(once.Exhausted, 2)
	})
}

// When the lease was lost because the store hangs, the call returns soon after the work has,
// and does not wait for the failure to be recorded.
func TestAStoreThatHangsAfterALoss(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.network.fault = func(_ int, op once.Operation) fault {
			return fault{before: map[bool]time.Duration{true: forever}[op.Action != once.Acquire]}
		}
		for _, name := range []string{"Do", "Hold"} {
			var ended time.Time
			work := func(ctx context.Context, a once.Attempt) error {
				defer func() { ended = time.Now() }()
				return untilEnd(ctx, a)
			}
			var err error
			if name == "Do" {
				_, err = w.process().Do(t.Context(), once.Key{Name: "k"}, work)
			} else {
				err = w.process().Hold(t.Context(), once.Key{Name: "leader"}, work)
			}
			if took := time.Since(ended); !errors.Is(err, once.ErrLost) || took > time.Second {
				t.Errorf("%s: %v, %v after the work", name, err, took)
			}
		}
	})
}

// Work that ignores its context keeps nobody from working, and its success does not count
// when another has the name.
func TestWorkThatIgnoresItsContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		mute := &faulty{Store: w.memory, fault: func(_ int, op once.Operation) fault { return fault{refuse: op.Action == once.Extend} }}
		deaf := do(t.Context(), once.New(mute, once.Options{}), once.Key{Name: "k"}, func(ctx context.Context, _ once.Attempt) error {
			pass(3 * lease)
			if !errors.Is(context.Cause(ctx), once.ErrLost) {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return nil
		})
		synctest.Wait()
		begin := time.Now()
		next := <-do(t.Context(), w.process(), once.Key{Name: "k"}, func(context.Context, once.Attempt) error {
			pass(10 * lease)
			return nil
		})
		if !next.did || next.err != nil || next.at.Sub(begin).Truncate(time.Millisecond) != 11*lease {
			t.Errorf("the next: %v, %v after %v", next.did, next.err, next.at.Sub(begin))
		}
		if r := <-deaf; r.did || !errors.Is(r.err, once.ErrLost) || r.at.Sub(begin) != 3*lease {
			t.Errorf("the deaf one: %v, %v after %v", r.did, r.err, r.at.Sub(begin))
		}
		w.is(once.Done, 2)
	})
}

// Work that succeeds although its lease was lost is done, if nobody else began. Hold tells.
func TestSuccessAfterALoss(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.network.fault = func(_ int, op once.Operation) fault { return fault{refuse: op.Action == once.Extend} }
		work := func(context.Context, once.Attempt) error { pass(3 * lease); return nil }
		if err := w.process().Hold(t.Context(), once.Key{Name: "k"}, work); !errors.Is(err, once.ErrLost) {
			t.Errorf("Hold: %v", err)
		}
		w.is(once.Free, 0)
		if did, err := w.process().Do(t.Context(), once.Key{Name: "k"}, work); !did || err != nil {
			t.Errorf("Do: %v, %v", did, err)
		}
		w.is(once.Done, 1)
	})
}

// A lease that another took is noticed with the next extension, and said whose it is.
func TestALeaseThatIsTaken(t *testing.T) {
	for what, c := range map[string]struct {
		take func(w *world)
		want string
	}{
		"forgotten": {func(w *world) { _, _ = w.memory.Forget(w.t.Context(), "k", true) }, "the lease was lost: the name was forgotten"},
		"expired":   {func(w *world) { w.ahead.Store(int64(lease)) }, "the lease was lost: it expired"}, // the store's clock is put forward
		"taken": {func(w *world) {
			_, _ = w.memory.Forget(w.t.Context(), "k", true)
			w.apply(once.Operation{Action: once.Acquire, Owner: "another"})
		}, "the lease was lost to another, which began attempt 1"},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				time.AfterFunc(5*lease+time.Second, func() { c.take(w) })
				begin := time.Now()
				_, err := w.process().Do(t.Context(), once.Key{Name: "k"}, untilEnd)
				if !errors.Is(err, once.ErrLost) || !strings.Contains(err.Error(), c.want) || time.Since(begin) > 5*lease+lease/3 {
					t.Errorf("%v after %v, want %s", err, time.Since(begin), c.want)
				}
			})
		})
	}
}

// A process that is stopped for longer than its lease (SIGSTOP, a paused machine) carries on
// where it was; only its fence can stop it. It finds its lease lost.
func TestAProcessThatIsPaused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		const pause = 10 * lease
		stopped := once.New(w.network, once.Options{Hooks: once.Hooks{
			Status: func(_ string, s once.State) { // within the first extension
				if time.Since(s.Until.Add(-lease)) == 0 && w.network.sent(once.Extend) == 1 {
					pass(pause)
				}
			},
		}})
		var resource atomic.Uint64
		change := func(f once.Fence) bool {
			if uint64(f) < resource.Load() {
				return false
			}
			resource.Store(uint64(f))
			return true
		}
		first := do(t.Context(), stopped, once.Key{Name: "k"}, func(ctx context.Context, a once.Attempt) error {
			pass(pause)
			if change(a.Fence) || !errors.Is(context.Cause(ctx), once.ErrLost) {
				t.Errorf("a change with %v; the context: %v", a.Fence, context.Cause(ctx))
			}
			return ctx.Err()
		})
		synctest.Wait()
		begin := time.Now()
		second := <-do(t.Context(), w.process(), once.Key{Name: "k"}, func(_ context.Context, a once.Attempt) error {
			if !change(a.Fence) {
				t.Errorf("no change with %v", a.Fence)
			}
			return nil
		})
		if !second.did || second.err != nil || second.at.Sub(begin).Truncate(time.Millisecond) != lease/3+lease {
			t.Errorf("the second: %v, %v after %v", second.did, second.err, second.at.Sub(begin))
		}
		if r := <-first; r.did || !errors.Is(r.err, once.ErrLost) {
			t.Errorf("the first: %v, %v", r.did, r.err)
		}
		w.is(once.Done, 2)
	})
}

// An answer that leaves no time for the work uses up no attempt, whether the lease is over or
// not. After three of them the error says how to avoid it.
func TestAStoreThatIsSlowerThanTheLease(t *testing.T) {
	for _, delay := range []time.Duration{950 * time.Millisecond, 1500 * time.Millisecond, 5 * time.Second} {
		for what, releases := range map[string]bool{"acquisitions": false, "all": true} {
			t.Run(fmt.Sprint(what, delay), func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					owners := make(map[string]bool)
					w.network.fault = func(_ int, op once.Operation) fault {
						if op.Action == once.Acquire {
							owners[op.Owner] = true
						}
						return fault{after: map[bool]time.Duration{true: delay}[releases || op.Action == once.Acquire]}
					}
					k := once.Key{Name: "k", Lease: time.Second, Attempts: 2}
					did, err := w.process().Do(t.Context(), k, never(t))
					if did || !errors.Is(err, once.ErrUnavailable) || !strings.Contains(err.Error(), "it takes longer to answer ("+delay.String()+") than the lease of 1s") {
						t.Errorf("Do: %v, %v", did, err)
					}
					w.is(once.Free, 0)
					if err := w.process().Hold(t.Context(), k, never(t)); !errors.Is(err, once.ErrUnavailable) {
						t.Errorf("Hold: %v", err)
					}
					w.is(once.Free, 0)
					if n := w.network.sent(once.Acquire); n != 6 || len(owners) != 6 {
						t.Errorf("%d acquisitions by %d owners, want 3 of each call, each by another one", n, len(owners))
					}
					ctx, stop := context.WithTimeout(t.Context(), delay+10*time.Millisecond)
					defer stop()
					if did, err := w.process().Do(ctx, k, never(t)); did || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("the end of the context: %v, %v", did, err)
					}
					w.is(once.Free, 0)

					w.network.fault = nil
					if did, err := w.process().Do(t.Context(), k, succeeds); !did || err != nil {
						t.Errorf("a store that is fast again: %v, %v", did, err)
					}
				})
			})
		}
	}
}

// A request for an attempt that arrives once more when the attempt has ended begins no other:
// no process would run it.
func TestAnAcquisitionThatArrivesTwice(t *testing.T) {
	for name, again := range map[string]time.Duration{"after its attempt": 1500 * time.Millisecond, "after the next one": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.network.fault = func(n int, op once.Operation) fault {
					return fault{again: map[bool]time.Duration{true: again}[op.Action == once.Acquire && n == 1]}
				}
				begin, attempts := time.Now(), 0
				did, err := w.process().Do(t.Context(), once.Key{Name: "k", Attempts: 3}, func(_ context.Context, a once.Attempt) error {
					attempts++
					if a.Number != attempts {
						t.Errorf("attempt %d, want %d", a.Number, attempts)
					}
					if a.Number < 3 {
						pass(time.Second)
						return errWork
					}
					return nil
				})
				if took := time.Since(begin); !did || err != nil || took > lease {
					t.Errorf("%v, %v after %v", did, err, took)
				}
				w.network.late.Wait()
				w.is(once.Done, 3)
			})
		})
	}
}

// An attempt that was granted, and whose lease ended before its answer came, is handed back.
func TestAnAcquisitionThatExpiredUnanswered(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.apply(once.Operation{Action: once.Acquire, Owner: "other"})
		granted := false
		w.network.fault = func(_ int, op once.Operation) fault {
			if op.Action == once.Acquire && w.state().Phase == once.Free && !granted {
				granted = true
				w.leave(2 * lease)
				return fault{lose: true}
			}
			return fault{refuse: w.isAway()}
		}
		done := do(t.Context(), w.process(), once.Key{Name: "k"}, func(_ context.Context, a once.Attempt) error {
			if a.Number != 1 {
				t.Errorf("attempt %d: the one that no process knew of counted", a.Number)
			}
			return nil
		})
		pass(5 * time.Second)
		w.apply(once.Operation{Action: once.Release, Owner: "other"})
		if r := <-done; !r.did || r.err != nil || !granted {
			t.Errorf("%+v", r)
		}
		w.is(once.Done, 1)
	})
}

// The answer to a repeated failure may show that another process has exhausted the name since.
// Only that process says so.
func TestAFailureThatIsAnsweredLate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var first string // the owner
		w.network.fault = func(n int, op once.Operation) fault {
			if op.Action == once.Fail && n == 1 {
				first = op.Owner
				return fault{lose: true}
			}
			return fault{refuse: op.Action == once.Fail && op.Owner == first && w.state().Phase != once.Exhausted}
		}
		told := 0
		hooks := once.Hooks{Exhausted: func(string, once.State) { told++ }}
		k := once.Key{Name: "k", Attempts: 2}
		one := do(t.Context(), once.New(w.network, once.Options{Hooks: hooks}), k, fails)
		two := do(t.Context(), once.New(w.network, once.Options{Hooks: hooks}), k, fails)
		for _, r := range []result{<-one, <-two} {
			if r.did || !errors.Is(r.err, once.ErrExhausted) {
				t.Errorf("%+v", r)
			}
		}
		if told != 1 {
			t.Errorf("told %d times", told)
		}
		w.is(once.Exhausted, 2)
	})
}

// Work does not begin with a lease that is over, because the answer came too late.
func TestALateAcquisition(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.network.fault = func(n int, op once.Operation) fault {
			if op.Action == once.Acquire && n <= 2 {
				return fault{after: []time.Duration{95 * time.Millisecond, 150 * time.Millisecond}[n-1]}
			}
			return fault{}
		}
		did, err := w.process().Do(t.Context(), once.Key{Name: "k", Lease: 100 * time.Millisecond}, func(ctx context.Context, a once.Attempt) error {
			if ctx.Err() != nil || a.Number != 1 { // the earlier attempts were handed back
				t.Errorf("%v in attempt %+v", ctx.Err(), a)
			}
			return nil
		})
		if !did || err != nil {
			t.Errorf("%v, %v", did, err)
		}
	})
}

// At every point Do returns the cause of the caller's context, and leaves the name to other
// processes.
func TestContextEnds(t *testing.T) {
	enough := errors.New("enough")
	for what, c := range map[string]struct {
		fault  func(n int, op once.Operation) fault
		held   bool // by another
		noWait bool
		work   func(ctx context.Context, a once.Attempt) error
		phase  once.Phase
		took   time.Duration // after the end of the context
	}{
		"while acquiring": {fault: func(int, once.Operation) fault { return fault{before: 4 * time.Second} }, took: 2 * time.Second},
		"while the store is slow": {fault: func(_ int, op once.Operation) fault {
			return fault{slow: map[bool]time.Duration{true: 2900 * time.Millisecond}[op.Action == once.Acquire]}
		}, phase: once.Free, took: 900 * time.Millisecond},
		"while the store is too slow": {fault: func(_ int, op once.Operation) fault {
			return fault{slow: map[bool]time.Duration{true: 3100 * time.Millisecond}[op.Action == once.Acquire]}
		}, phase: once.Held, took: time.Second}, // for a lease: its answer was not awaited
		"while it is busy, and slow": {
			fault: func(int, once.Operation) fault { return fault{after: 2900 * time.Millisecond} },
			held:  true, noWait: true, phase: once.Held, took: 900 * time.Millisecond,
		},
		"while the store is away": {fault: func(n int, _ once.Operation) fault { return fault{refuse: n > 1} }, held: true, phase: once.Held, took: time.Second},
		"while the answer is coming": {fault: func(_ int, op once.Operation) fault {
			return fault{after: map[bool]time.Duration{true: 4 * time.Second}[op.Action == once.Acquire]}
		}, phase: once.Free, took: time.Second},
		"while waiting":              {held: true, phase: once.Held},
		"in the work":                {work: untilEnd, phase: once.Free},
		"in the work, which is rude": {work: func(ctx context.Context, _ once.Attempt) error { <-ctx.Done(); return errWork }, phase: once.Free},
		"in the work, which is slow": {work: func(context.Context, once.Attempt) error { pass(10 * lease); return errWork }, phase: once.Free, took: 10 * lease},
		"between attempts":           {work: func(context.Context, once.Attempt) error { pass(1960 * time.Millisecond); return errWork }, phase: once.Free},
		"while a failure is recorded": {fault: func(_ int, op once.Operation) fault {
			return fault{refuse: op.Action == once.Fail && time.Now().UnixMilli()%60_000 < 4000}
		}, work: fails, phase: once.Free, took: 4 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				if c.held {
					w.apply(once.Operation{Action: once.Acquire, Owner: "other"})
				}
				w.network.fault = c.fault
				if c.work == nil {
					c.work = never(t)
				}
				ctx, stop := context.WithCancelCause(t.Context())
				time.AfterFunc(2*time.Second, func() { stop(enough) })
				begin := time.Now()
				did, err := w.process().Do(ctx, once.Key{Name: "k", NoWait: c.noWait}, c.work)
				if took := time.Since(begin) - 2*time.Second; did || !errors.Is(err, enough) || took < 0 || took > c.took {
					t.Errorf("%v, %v, %v after the end", did, err, took)
				}
				w.network.late.Wait()
				if s := w.state(); s.Phase != c.phase {
					t.Errorf("it is %q, want %q", s.Phase, c.phase)
				}
			})
		})
	}
}

// Nothing is sent with a context that has ended.
func TestContextHasEnded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if did, err := w.process().Do(ctx, once.Key{Name: "k"}, never(t)); did || !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", did, err)
		}
		if n := w.network.total(); n != 0 {
			t.Errorf("%d operations", n)
		}
	})
}

// Work that takes its time to stop is alone until it has stopped. If it succeeds all the same,
// it is done.
func TestSlowToStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(lease, stop)
		stopping := do(ctx, w.process(), once.Key{Name: "k"}, func(context.Context, once.Attempt) error {
			pass(10 * lease)
			return nil
		})
		synctest.Wait()
		begin := time.Now()
		other := <-do(t.Context(), w.process(), once.Key{Name: "k"}, never(t))
		if other.did || other.err != nil || other.at.Sub(begin) != 10*lease {
			t.Errorf("the other: %v, %v after %v", other.did, other.err, other.at.Sub(begin))
		}
		if r := <-stopping; !r.did || r.err != nil {
			t.Errorf("it: %v, %v", r.did, r.err)
		}
		w.is(once.Done, 1)
	})
}

// The loss of the lease of outer work ends the inner work, too, and costs the inner work no
// attempt.
func TestNested(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		time.AfterFunc(lease, func() { _, _ = w.memory.Forget(t.Context(), "k", true) })
		_, err := w.process().Do(t.Context(), once.Key{Name: "k"}, func(ctx context.Context, _ once.Attempt) error {
			did, err := w.process().Do(ctx, once.Key{Name: "inner"}, untilEnd)
			if did || !errors.Is(err, once.ErrLost) {
				t.Errorf("inner: %v, %v", did, err)
			}
			return err
		})
		if !errors.Is(err, once.ErrLost) {
			t.Error(err)
		}
		if r, _ := w.memory.Get(t.Context(), "inner"); r.State.Phase != once.Free || r.State.Attempt != 0 {
			t.Errorf("inner: %+v", r.State)
		}

		// For the outer work an ErrLost of the inner work is an ordinary error.
		runs := 0
		did, err := w.process().Do(t.Context(), once.Key{Name: "k"}, func(context.Context, once.Attempt) error {
			runs++
			if runs == 1 {
				return once.ErrLost
			}
			return nil
		})
		if !did || err != nil || runs != 2 {
			t.Errorf("%v, %v after %d runs", did, err, runs)
		}
	})
}
