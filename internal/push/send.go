package push

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

const (
	// maxStale is how long ago a look may have begun when a message leaves. It is longer ago in a process that was stopped for
	// a while: another process may have the task by now; and where the message waits for a connection.
	maxStale = 3 * time.Second
	// recordEvery is how long an answer waits for further answers before its receipt is written.
	recordEvery = 20 * time.Millisecond
	// recordAgain is the pause between two tries to write receipts: less than another process needs to find that a lease
	// ran out.
	recordAgain = 100 * time.Millisecond
	// lateMargin is how long after the end of a message that its handler did not wait for its task comes again.
	lateMargin = 5 * time.Second
)

// answer is the result of a message.
type answer struct {
	*message
	Result
	sent bool          // else it did not leave
	left time.Duration // for how long its push service is left alone
}

// flight is the messages that were sent together.
type flight struct {
	results chan answer
	open    map[*message]bool // not answered
	leaves  func(n int)       // makes room for messages
	stepped time.Time         // when the last step ended; zero: there was none
}

// sendAll sends messages, by a look that began at a time.
func (h *Handler) sendAll(ctx context.Context, sends []*message, at time.Time) *flight {
	if ctx.Err() != nil { // the handler is to stop
		at = time.Time{} // so they are stale, urgent messages, too
	}
	f := &flight{results: make(chan answer, len(sends)), open: make(map[*message]bool, len(sends)), leaves: func(int) {}}
	if !slices.ContainsFunc(sends, func(m *message) bool { return m.newest().Urgent }) {
		if h.room.Acquire(ctx, int64(len(sends))) != nil {
			at = time.Time{}
		} else {
			f.leaves = func(n int) { h.room.Release(int64(n)) }
		}
	}
	ctx = context.WithoutCancel(ctx) // a message that has left is answered, also when the lease is lost
	for _, m := range sends {
		f.open[m] = true
		go func() { f.results <- h.send(ctx, m, at) }()
	}
	return f
}

// send sends a message, if its push service takes any.
func (h *Handler) send(ctx context.Context, m *message, at time.Time) answer {
	sender := h.Senders[m.device.Platform]
	if sender == nil { // another process may have its keys
		return m.postponed(noKeys, noKeysPause(m.age()))
	}
	visit, wait := h.origins.admit(m.device.Platform, sender.Origin(m.device), m.device.Member)
	if wait > 0 {
		return m.postponed(breakerOpen, wait)
	}
	if time.Since(at) > maxStale {
		h.origins.release(visit)
		return m.postponed(stale, minRetryPause)
	}
	if m.again {
		doublesPossible.WithLabelValues(string(m.device.Platform), takenOver).Inc()
	}
	messagesInFlight.Inc()
	defer messagesInFlight.Dec()
	r := h.ask(ctx, sender, m, at.Add(maxStale))
	countResult(m.device.Platform, r, m.age()+time.Since(at))
	return answer{message: m, Result: r, sent: true, left: h.origins.report(visit, r)}
}

// postponed is the answer to a message that did not leave.
func (m *message) postponed(why string, wait time.Duration) answer {
	postponed.WithLabelValues(why).Inc()
	return answer{message: m, Result: Result{Outcome: Wait, Reason: why, After: wait}}
}

// ask has the sender send a message, if it can before a time. A panic is no answer.
func (h *Handler) ask(ctx context.Context, sender Sender, m *message, before time.Time) (r Result) {
	defer func() {
		if value := recover(); value != nil {
			r = Result{Outcome: Ambiguous, Reason: "panic"}
			h.lines.Log(ctx, slog.LevelError, string(m.device.Platform), "sender of notifications panicked",
				"platform", m.device.Platform, "panic", value, "stack", string(debug.Stack()))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	out := m.Message()
	out.Before = before
	return sender.Send(ctx, out)
}

// steps yields answers, until all are there, patience is over, or ctx ends. An answer waits for further answers for
// recordEvery at most.
func (f *flight) steps(ctx context.Context, patience time.Duration) func(yield func([]answer) bool) {
	return func(yield func([]answer) bool) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		for len(f.open) > 0 && ctx.Err() == nil {
			if some := f.step(ctx.Done()); len(some) > 0 && !yield(some) {
				return
			}
		}
	}
}

func (f *flight) step(end <-chan struct{}) (some []answer) {
	defer func() { f.stepped = time.Now() }()
	got := func(a answer) {
		some = append(some, a)
		delete(f.open, a.message)
		f.leaves(1)
	}
	var soon <-chan time.Time
	for len(f.open) > 0 {
		select {
		case a := <-f.results:
			if got(a); soon == nil {
				wait := recordEvery
				if !f.stepped.IsZero() { // it may have waited for the receipts before
					wait -= time.Since(f.stepped)
				}
				soon = time.After(wait)
			}
		case <-soon:
			for range len(f.results) {
				got(<-f.results)
			}
			return some
		case <-end:
			return some
		}
	}
	return some
}

// leave leaves the messages that are not answered to the background, which records their ends, and returns
// that their tasks come again afterwards.
func (h *Handler) leave(f *flight) (fates []fate) {
	if len(f.open) == 0 {
		return nil
	}
	f.leaves(len(f.open))
	f.leaves = func(int) {}
	for m := range f.open {
		postponed.WithLabelValues(slow).Inc()
		fates = append(fates, m.all(fate{again: rounded(h.Timeout + lateMargin), why: errSlow})...)
	}
	h.background.Go(func() {
		for answers := range f.steps(context.Background(), h.Timeout+lateMargin/2) { // a sender may not return
			done := judgeAll(answers, 0)
			done = slices.DeleteFunc(done, func(f fate) bool { return f.state == "" })
			h.persist(receiptsOf(done), goneOf(done))
		}
	})
	return fates
}

// record writes the receipts of fates, and drops devices that are gone. When ctx ends before that has succeeded, it goes on
// in the background, and the fates are that the tasks are done again: none ends without its receipts.
func (h *Handler) record(ctx context.Context, fates []fate) []fate {
	receipts, gone := receiptsOf(fates), goneOf(fates)
	if len(receipts)+len(gone) == 0 {
		return fates
	}
	written := make(chan struct{})
	h.background.Go(func() {
		defer close(written)
		h.persist(receipts, gone)
	})
	select {
	case <-written:
		return fates
	case <-ctx.Done():
		all := make([]fate, len(fates))
		for i, f := range fates {
			all[i] = fate{delivery: f.delivery, again: rounded(lateMargin), why: errUnwritten}
		}
		return all
	}
}

// persist writes receipts, and then ends devices that are gone, until that has succeeded or the process ends.
func (h *Handler) persist(receipts []Receipt, gone []Pruned) {
	try := func(what string, count int, do func(ctx context.Context) error) {
		for count > 0 {
			ctx, cancel := context.WithTimeout(h.ending, lateMargin)
			err := do(ctx)
			cancel()
			if err == nil {
				return
			}
			h.lines.Log(h.ending, slog.LevelWarn, "", what, "count", count, "error", err)
			if retry.Sleep(h.ending, recordAgain) != nil {
				return
			}
		}
	}
	try("receipts of notifications not written yet", len(receipts), func(ctx context.Context) error { return h.Store.Record(ctx, receipts) })
	try("devices that are gone not pruned yet", len(gone), func(ctx context.Context) error { _, err := h.Store.Prune(ctx, gone); return err })
}

var (
	errSlow      = errors.New("the push service has not answered yet")
	errQuiet     = errors.New("quiet hours")
	errBurst     = errors.New("one of the burst was sent less than a minute ago")
	errUnwritten = errors.New("the database did not take the receipt yet")
)

// whyAgain is the error of a task whose message was not accepted, and is tried again.
func whyAgain(p Platform, r Result) error {
	return fmt.Errorf("%s: %s (%s)", p, clip(because(r)), r.Outcome)
}
