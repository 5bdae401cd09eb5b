package queue

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

// Permanent marks an error that no repetition will cure: the task is dead at
// once, with the error as its reason. Permanent of nil is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Later marks an error that is not the task's fault, such as a server that
// cannot be reached: the task runs again after d and the attempt is not counted,
// so that no outage, however long, makes a task dead. Later needs no error.
func Later(d time.Duration, err error) error { return &laterError{d, cmp.Or(err, errLater)} }

var errLater = errors.New("to be done later")

type laterError struct {
	after time.Duration
	err   error
}

func (e *laterError) Error() string { return e.err.Error() }
func (e *laterError) Unwrap() error { return e.err }

// Outcome is what became of the work of a task.
type Outcome struct {
	// Err is nil when the task is done; [Permanent] and [Later] say what a plain error
	// does not.
	Err error
	// Next are follow-up tasks. They are enqueued in the transaction that records the
	// outcome, if the task is done or dead by it and its lease still holds: a crash
	// neither loses nor repeats them. Those of a task that runs again are left out: it
	// returns its own then. Nothing repeats one, so it needs no dedupe key: without one, it
	// costs less, and no other task stands for it.
	Next []New
}

// Result is the outcome of one claimed task.
type Result struct {
	Task Task
	Err  error // see [Outcome]
	Next []New
}

// Verdict is what becomes of a task that was run.
type Verdict struct {
	State     State         // Done; Waiting or Scheduled, to be run again; Dead
	After     time.Duration // Scheduled: it runs again no sooner
	Uncounted bool          // the attempt does not count
	Message   string        // why it is not done, for people
	Next      []New         // follow-up tasks that are enqueued with it
}

// Judge decides on a result. Both implementations of the queue use it, so that
// they differ in storage only.
func Judge(r Result) Verdict {
	if r.Err == nil {
		return Verdict{State: Done, Next: r.Next}
	}
	message := clip(r.Err.Error())
	if later, ok := errors.AsType[*laterError](r.Err); ok {
		if later.after == 0 {
			return Verdict{State: Waiting, Uncounted: true, Message: message}
		}
		return Verdict{State: Scheduled, After: later.after, Uncounted: true, Message: message}
	}
	if _, ok := errors.AsType[*permanentError](r.Err); ok || r.Task.Attempts >= r.Task.MaxAttempts {
		return Verdict{State: Dead, Message: message, Next: r.Next}
	}
	if again, ok := errors.AsType[*againError](r.Err); ok {
		return Verdict{State: Scheduled, After: again.after, Message: message}
	}
	first := cmp.Or(r.Task.Backoff, firstBackoff)
	return Verdict{State: Scheduled, After: retry.Backoff(r.Task.Attempts, first, max(first, maxBackoff)), Message: message}
}

// label is the verdict as a label of the metrics.
func (v Verdict) label() string {
	switch {
	case v.State == Done:
		return outcomeDone
	case v.State == Dead:
		return outcomeDied
	case v.Uncounted:
		return outcomePostponed
	}
	return outcomeRetried
}

// What holds for tasks of which neither the row nor the kind says more. The pause doubles with each further failure, up to
// maxBackoff, with jitter.
const (
	defaultAttempts = 25
	firstBackoff    = 500 * time.Millisecond
	maxBackoff      = 5 * time.Minute
)

// maxMessage is how much of an error is kept with a task, in bytes.
const maxMessage = 1000

func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD") // MySQL would refuse the rest, and with it the result
	if len(s) <= maxMessage {
		return s
	}
	cut := maxMessage
	for cut > 0 && s[cut]&0xC0 == 0x80 { // not within a character
		cut--
	}
	return s[:cut] + "…"
}
