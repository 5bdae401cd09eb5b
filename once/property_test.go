package once_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/testing/oncetest"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/once"
)

// plan has the parameters of a history.
type plan struct {
	seed      uint64
	processes int
	attempts  int     // max
	names     int     // that every process works on
	success   float64 // probability that an attempt succeeds
	faulty    float64 // that an operation fails
	crash     float64 // that an attempt ends its process
}

// history is a run of a plan, with the checks of its invariants.
type history struct {
	plan

	memory    *oncetest.Memory
	notifiers []*notify.Notifier // of the processes
	begin     time.Time

	mu      sync.Mutex
	random  *rand.Rand
	working map[string]once.Attempt // with a lease that is valid
	fence   map[string]once.Fence   // the highest that worked
	did     map[string]int          // calls that reported success
	success map[string]int          // works that succeeded
	ended   map[string]int          // attempts that were neither handed back nor cut off
	errs    []error
}

func (h *history) errorf(format string, args ...any) {
	h.errs = append(h.errs, fmt.Errorf("after %v: "+format, append([]any{time.Since(h.begin)}, args...)...))
}

// chance reports true with a probability.
func (h *history) chance(p float64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.random.Float64() < p
}

// upTo returns a random time.
func (h *history) upTo(d time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Duration(h.random.Int64N(int64(d)))
}

// calm is when the faults end.
const calm = 20 * lease

func (h *history) isCalm() bool { return time.Since(h.begin) > calm }

// network is the way to the store for a single life of a process.
func (h *history) network() *faulty {
	f := &faulty{Store: h.memory}
	var away time.Time // until when nothing reaches the store
	f.fault = func(int, once.Operation) fault {
		switch {
		case h.isCalm():
			return fault{}
		case time.Now().Before(away):
			return fault{refuse: true}
		case !h.chance(h.faulty):
			return fault{}
		}
		switch h.upTo(7) {
		case 0:
			return fault{refuse: true}
		case 1:
			return fault{before: h.upTo(lease)}
		case 2:
			return fault{after: h.upTo(lease)}
		case 3:
			return fault{before: h.upTo(lease), lose: true}
		case 4:
			return fault{late: h.upTo(lease)}
		case 5:
			away = time.Now().Add(h.upTo(3 * lease))
			return fault{after: h.upTo(lease / 4)}
		default:
			return fault{lose: true}
		}
	}
	return f
}

// process does the work under a name until it is known to be done or exhausted. It crashes,
// and is started again.
func (h *history) process(ctx context.Context, i int, name string) {
	crashed := errors.New("crashed")
	for ctx.Err() == nil {
		life, crash := context.WithCancelCause(ctx)
		network := h.network()
		o := once.New(network, once.Options{Notifier: h.notifiers[i]})
		did, err := o.Do(life, once.Key{Name: name, Attempts: h.attempts}, func(ctx context.Context, a once.Attempt) error {
			return h.work(ctx, name, a, func() {
				network.mu.Lock()
				defer network.mu.Unlock()
				network.fault = func(int, once.Operation) fault { return fault{refuse: true} }
				crash(crashed)
			})
		})
		crash(nil)
		network.late.Wait()
		h.mu.Lock()
		if did {
			h.did[name]++
		}
		h.mu.Unlock()
		if err == nil || errors.Is(err, once.ErrExhausted) {
			return
		}
		pass(h.upTo(2 * lease))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.errorf("process %d: %s is stuck: %+v", i, name, h.state(name))
}

func (h *history) state(name string) once.State {
	r, _ := h.memory.Get(context.Background(), name)
	return r.State
}

// work is an attempt: no other attempt has a valid lease at that time, and its fence is higher
// than all before.
func (h *history) work(ctx context.Context, name string, a once.Attempt, crash func()) error {
	h.mu.Lock()
	if other, ok := h.working[name]; ok {
		h.errorf("%s: %+v begins while %+v works", name, a, other)
	}
	if h.fence[name] >= a.Fence {
		h.errorf("%s: %+v begins after fence %d", name, a, h.fence[name])
	}
	if a.Number > h.attempts || a.Last != (a.Number == h.attempts) {
		h.errorf("%s: %+v of %d", name, a, h.attempts)
	}
	h.working[name], h.fence[name] = a, a.Fence
	h.mu.Unlock()
	leave := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.working[name] == a {
			delete(h.working, name)
		}
	}
	defer leave()
	defer context.AfterFunc(ctx, leave)()
	select {
	case <-time.After(h.upTo(3 * lease)):
	case <-ctx.Done():
		if h.chance(0.5) {
			return ctx.Err()
		}
		pass(h.upTo(2 * lease)) // it ignores its context
	}
	if !h.isCalm() && h.chance(h.crash) {
		crash()
		return ctx.Err()
	}
	succeeded := h.chance(h.plan.success)
	h.mu.Lock()
	defer h.mu.Unlock()
	if succeeded {
		h.success[name]++
		return nil
	}
	if ctx.Err() == nil {
		h.ended[name]++
	}
	return errWork
}

// run runs a plan, and returns the invariants that it broke.
func (p plan) run(t *testing.T) error {
	h := &history{
		plan: p, memory: oncetest.NewMemory(time.Now), begin: time.Now(), random: rand.New(rand.NewPCG(p.seed, 0)),
		working: make(map[string]once.Attempt), fence: make(map[string]once.Fence),
		did: make(map[string]int), success: make(map[string]int), ended: make(map[string]int),
	}
	for range p.processes {
		n := &notify.Notifier{}
		n.Forward(func(names []string) { // some get lost
			for _, other := range h.notifiers {
				if other != n && !h.chance(h.faulty) {
					other.NotifyLocal(names...)
				}
			}
		})
		h.notifiers = append(h.notifiers, n)
	}
	ctx, stop := context.WithTimeout(t.Context(), calm+time.Duration(100*p.attempts)*lease)
	defer stop()
	var running sync.WaitGroup
	for i := range p.processes {
		for n := range p.names {
			running.Go(func() { h.process(ctx, i, fmt.Sprint("name", n)) })
		}
	}
	running.Wait()
	for n := range p.names {
		name := fmt.Sprint("name", n)
		s := h.state(name)
		switch {
		case s.Phase != once.Done && s.Phase != once.Exhausted:
			h.errorf("%s is %+v", name, s)
		case h.did[name] > 1 || h.did[name] > h.success[name]:
			h.errorf("%s: %d calls did it, and %d works", name, h.did[name], h.success[name])
		case s.Phase == once.Done && h.success[name] == 0, s.Phase == once.Exhausted && (h.did[name] > 0 || s.Attempt != p.attempts):
			h.errorf("%s is %+v after %d successes, known to %d calls", name, s, h.success[name], h.did[name])
		case h.ended[name] > s.Attempt, s.Attempt > p.attempts:
			h.errorf("%s: %d attempts failed, and %d are counted of %d", name, h.ended[name], s.Attempt, p.attempts)
		case p.faulty == 0 && p.crash == 0 && s.Phase == once.Done && (h.did[name] != 1 || h.success[name] != 1 || h.ended[name] != s.Attempt-1):
			h.errorf("%s without faults: %+v, %d did it, %d successes, %d failures", name, s, h.did[name], h.success[name], h.ended[name])
		}
	}
	return errors.Join(h.errs...)
}

// Several processes fail, crash and do not hear their store. They do every work once, or as
// often as is allowed, and never two at a time. None is stuck.
func TestPropertyDo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		p := plan{
			seed:      rapid.Uint64().Draw(r, "seed"),
			processes: rapid.IntRange(1, 4).Draw(r, "processes"),
			attempts:  rapid.IntRange(1, 8).Draw(r, "attempts"),
			names:     rapid.IntRange(1, 3).Draw(r, "names"),
			success:   rapid.SampledFrom([]float64{0.15, 0.5, 1}).Draw(r, "success"),
			faulty:    rapid.SampledFrom([]float64{0, 0.1, 0.5}).Draw(r, "faulty"),
			crash:     rapid.SampledFrom([]float64{0, 0.1, 0.5}).Draw(r, "crash"),
		}
		var err error
		synctest.Test(t, func(t *testing.T) { err = p.run(t) })
		if err != nil {
			r.Fatalf("%+v: %v", p, err)
		}
	})
}
