package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

// marked is an error with a mark, of which the outermost counts.
type marked struct {
	error
	permanent, uncounted bool
	after                time.Duration
}

func (e *marked) Unwrap() error { return e.error }

// markOf returns the mark of an error; the zero value: there is none.
func markOf(err error) marked {
	if is, ok := errors.AsType[*marked](err); ok {
		return *is
	}
	return marked{}
}

// Permanent marks an error that no repetition will cure: the task is dead at once, with the error as its reason. Permanent of nil
// is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &marked{error: err, permanent: true}
}

// Later marks an error that is not the fault of the task, as while a server cannot be reached: the task runs again after d, and the
// attempt does not count, so that no outage makes a task dead. Later needs no error.
func Later(d time.Duration, err error) error {
	return &marked{error: cmp.Or(err, errors.New("to be done later")), uncounted: true, after: d}
}

// RetryAfter marks an error with the pause before the next attempt, in the place of the backoff. The attempt counts. RetryAfter of
// nil is nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &marked{error: err, after: d}
}

// Outcome is the outcome of the work of a task.
type Outcome struct {
	// Err is nil when the task is done. A plain error uses up an attempt; see [Permanent], [Later] and [RetryAfter].
	Err error
	// Next are follow-up tasks. They are enqueued in the transaction that records the outcome, if the task is done or dead by it and
	// its lease holds: a crash neither loses nor repeats them, so they need no dedupe key. If the task runs again they are left
	// out, as it returns its own then.
	Next []New
}

// Result is the outcome of a claimed task.
type Result struct {
	Task Task
	Err  error // see [Outcome]
	Next []New
}

// Verdict is the end of an attempt.
type Verdict struct {
	State     State         // Done; Waiting or Scheduled, to run again; Dead
	After     time.Duration // Scheduled: it runs again no sooner
	Uncounted bool          // the attempt does not count
	Message   string        // why it is not done
}

// FollowUps returns the follow-up tasks that are enqueued with the result: Next if the task is done or dead by it.
func (r Result) FollowUps() []New {
	if v := Judge(r); v.State == Done || v.State == Dead {
		return r.Next
	}
	return nil
}

// Judge returns the verdict on a result, by its error and the attempts of its task.
func Judge(r Result) Verdict {
	if r.Err == nil {
		return Verdict{State: Done}
	}
	v, mark := Verdict{State: Scheduled, Message: clip(r.Err.Error())}, markOf(r.Err)
	switch v.After = mark.after; {
	case mark.uncounted && mark.after == 0:
		v.State, v.Uncounted = Waiting, true
	case mark.uncounted:
		v.Uncounted = true
	case mark.permanent || r.Task.Attempts >= r.Task.MaxAttempts:
		v.State, v.After = Dead, 0
	case mark.after == 0:
		first := cmp.Or(r.Task.Backoff, firstBackoff)
		v.After = retry.Backoff(r.Task.Attempts, first, max(first, maxBackoff))
	}
	return v
}

// label is the verdict as a label of the metrics.
func (v Verdict) label() string {
	switch {
	case v.State == Done:
		return "done"
	case v.State == Dead:
		return "died"
	case v.Uncounted:
		return "postponed"
	}
	return "retried"
}

// The defaults of tasks whose row and kind have no number. The pause doubles with each further failure, up to maxBackoff, with jitter.
const (
	defaultAttempts = 25
	firstBackoff    = 500 * time.Millisecond
	maxBackoff      = 5 * time.Minute
)

// maxMessage is how much of an error is kept with a task, in bytes.
const maxMessage = 1000

// clip returns the first bytes of a text, without bytes that are no UTF-8: MySQL would refuse them, and with them the result.
func clip(s string) string {
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}

// Handle returns a handler that calls work for a task at a time, with its payload decoded into Args. An error of work, or a panic, is the
// outcome of its task alone: see [Permanent] and [Later]. A payload that does not decode is a permanent error, and work is not called;
// fields that Args does not have are ignored.
//
// The tasks of a claim have the same context, which ends after [PoolOptions].Limit. With [Workers].Batch 1, a claim has a single task.
func Handle[Args any](work func(ctx context.Context, t Task, args Args) error) Handler {
	return eachOf[Args](work)
}

// eachOf is a handler that decodes the payload of each task.
type eachOf[Args any] func(ctx context.Context, t Task, args Args) error

// Handle implements [Handler].
func (work eachOf[Args]) Handle(ctx context.Context, batch []Task) []Outcome {
	all := make([]Outcome, len(batch))
	for i := range batch {
		all[i].Err = work.do(ctx, batch[i])
	}
	return all
}

func (work eachOf[Args]) do(ctx context.Context, t Task) (err error) {
	if ctx.Err() != nil {
		return Later(0, fmt.Errorf("not begun: %w", context.Cause(ctx)))
	}
	defer func() {
		if value := recover(); value != nil {
			err = newPanicError(value)
		}
	}()
	var args Args
	if err := json.Unmarshal(t.Payload, &args); err != nil {
		return Permanent(fmt.Errorf("%w: payload: %w", ErrInvalid, err))
	}
	return work(ctx, t, args)
}
