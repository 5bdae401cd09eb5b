package queue

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Permanent marks an error that no repetition will cure: the task is dead at
// once, with the error as its reason.
func Permanent(err error) error { return &permanentError{err} }

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Later marks an error that is not the task's fault, such as a server that
// cannot be reached: the task runs again after d and the attempt is not counted,
// so that no outage, however long, makes a task dead.
func Later(d time.Duration, err error) error { return &laterError{d, err} }

type laterError struct {
	after time.Duration
	err   error
}

func (e *laterError) Error() string { return e.err.Error() }
func (e *laterError) Unwrap() error { return e.err }

// Result is what became of one claimed task. A nil Err says that it is done.
type Result struct {
	Task Task
	Err  error
}

// verdict is what a queue does with a result.
type verdict struct {
	kind    verdictKind
	after   time.Duration // postpone, retry: not before
	message string        // for people; empty when done
}

type verdictKind int

const (
	done     verdictKind = iota // forget the task, or keep it for a while
	retry                       // again after a while, this attempt counted
	postpone                    // again after a while or at once, this attempt not counted
	bury                        // dead, kept with its reason
)

// state returns the state in which the verdict leaves a task, if it is kept.
func (v verdict) state() State {
	switch {
	case v.kind == done:
		return Done
	case v.kind == bury:
		return Dead
	case v.after == 0:
		return Waiting
	}
	return Scheduled
}

// judge decides on a result. Both implementations of the queue use it, so that
// they differ in storage only.
func judge(r Result) verdict {
	var later *laterError
	var permanent *permanentError
	switch {
	case r.Err == nil:
		return verdict{kind: done}
	case errors.As(r.Err, &later):
		return verdict{postpone, later.after, clip(r.Err.Error())}
	case errors.As(r.Err, &permanent):
		return verdict{bury, 0, clip(r.Err.Error())}
	case r.Task.Attempts >= r.Task.MaxAttempts:
		return verdict{bury, 0, clip(r.Err.Error())}
	}
	return verdict{retry, backoff(r.Task.Attempts), clip(r.Err.Error())}
}

// queuesOfReturned returns the queues of the tasks that wait again at once: those
// of a process that stops, say.
func queuesOfReturned(results []Result) []string {
	seen := make(map[string]bool)
	for _, r := range results {
		if judge(r).state() == Waiting {
			seen[r.Task.Queue] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

const (
	firstBackoff = 500 * time.Millisecond
	mostBackoff  = 5 * time.Minute
)

// backoff returns the wait after the n-th attempt failed, n from 1: doubling up
// to a bound, then between half and all of that, so that tasks that failed
// together do not come back together.
func backoff(n int) time.Duration {
	d := mostBackoff
	if shift := max(n-1, 0); shift < 20 {
		d = min(firstBackoff<<shift, mostBackoff)
	}
	return Jitter(d)
}

// Jitter returns a duration between half of d and d.
func Jitter(d time.Duration) time.Duration {
	if d <= 1 {
		return d
	}
	return d/2 + rand.N(d/2)
}

// mostMessage is how much of an error is kept with a task, in bytes.
const mostMessage = 1000

func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD") // MySQL would refuse the rest, and with it the result
	if len(s) <= mostMessage {
		return s
	}
	cut := mostMessage
	for cut > 0 && s[cut]&0xC0 == 0x80 { // not within a character
		cut--
	}
	return s[:cut] + "…"
}
