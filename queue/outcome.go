package queue

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/retry"
)

// Permanent marks an error that no repetition will cure: the task is dead at once, with the error as its reason. Permanent of nil
// is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Later marks an error that is not the fault of the task, as while a server cannot be reached: the task runs again after d, and the
// attempt does not count, so that no outage makes a task dead. Later needs no error.
func Later(d time.Duration, err error) error { return &laterError{d, cmp.Or(err, errLater)} }

var errLater = errors.New("to be done later")

type laterError struct {
	after time.Duration
	err   error
}

func (e *laterError) Error() string { return e.err.Error() }
func (e *laterError) Unwrap() error { return e.err }

// Outcome is the outcome of the work of a task.
type Outcome struct {
	// Err is nil when the task is done. A plain error uses up an attempt; see [Permanent] and [Later].
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
	Next      []New         // follow-up tasks that are enqueued with it
}

// Judge returns the verdict on a result, by its error and the attempts of its task.
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

// The defaults of tasks whose row and kind have no number. The pause doubles with each further failure, up to maxBackoff, with jitter.
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
