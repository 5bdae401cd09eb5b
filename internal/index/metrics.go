package index

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
	// The buckets reach from a round trip to a server nearby, to the second that a large Redis
	// stalls when it forks.
	callSeconds = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "activityd_index_call_seconds", Help: "Time of an operation on Redis; candidates is one read, add, begin and apply are batches of up to thousands of sets.",
		Buckets: []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5},
	}, []string{"operation"})
	callErrors = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_index_errors_total", Help: "Operations on Redis that failed, also for some of their sets; refused: it answers and refuses, unknown: its data may be old.",
	}, []string{"operation", "reason"})
	adds = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_adds_total", Help: "Additions of a contact to a set; trimmed: the lowest member was cut off, outside: older than all of a full set, missing: there is no set.",
	}, []string{"outcome"})
	trims = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_trims_total", Help: "Members cut off sets that held too many.",
	})
)

// operation names a method of [Index] in its metrics.
type operation string

const (
	opCandidates operation = "candidates"
	opAdd        operation = "add"
	opBegin      operation = "begin"
	opApply      operation = "apply"
	opCheck      operation = "check"
	opLook       operation = "look"
)

// AddOutcome is the outcome of an addition to a set.
type AddOutcome string

// The outcomes of an addition, as addScript answers them.
const (
	AddTaken     AddOutcome = "added"     // the contact is a new member, or its score rose
	AddUnchanged AddOutcome = "unchanged" // it was a member already, with that score
	AddBelow     AddOutcome = "below"     // it was a member already, with a higher score
	AddTrimmed   AddOutcome = "trimmed"   // added, and the lowest member was cut off
	AddOutside   AddOutcome = "outside"   // refused: older than all of a set that may be cut off and is not full
	AddMissing   AddOutcome = "missing"   // refused: there is no set
)

func init() { // the known series begin with 0
	for _, op := range []operation{opCandidates, opAdd, opBegin, opApply, opCheck, opLook} {
		callSeconds.WithLabelValues(string(op))
		for _, reason := range []string{"unavailable", "refused", "timeout", "unknown"} {
			callErrors.WithLabelValues(string(op), reason)
		}
	}
	for _, outcome := range []AddOutcome{AddTaken, AddUnchanged, AddBelow, AddTrimmed, AddOutside, AddMissing} {
		adds.WithLabelValues(string(outcome))
	}
}

// observe counts an operation that began at start.
func (ix *Index) observe(op operation, start time.Time, err error) {
	callSeconds.WithLabelValues(string(op)).Observe(time.Since(start).Seconds())
	if err == nil {
		return
	}
	if reason := failure(err); reason != "" {
		callErrors.WithLabelValues(string(op), reason).Inc()
	}
}

// failure returns the reason why an operation failed, "" if it did not.
func failure(err error) string {
	switch {
	case errors.Is(err, ErrMissing), errors.Is(err, ErrBehind), errors.Is(err, context.Canceled):
		return "" // a set that is missing or behind is an answer; the caller cancelled
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, ErrRefused):
		return "refused"
	case errors.Is(err, ErrUnknown):
		return "unknown"
	case errors.Is(err, ErrUnavailable):
		return "unavailable"
	case errors.Is(err, ErrSettings):
		return "settings"
	case errors.Is(err, ErrMalformed):
		return "malformed"
	}
	return "other"
}
