package index

import (
	"errors"
	"time"
)

// Observer is told what happens to the sets, for metrics. Its methods are called
// from many goroutines, must be quick, and must not call back.
type Observer interface {
	// Called: an operation on Redis ended after took, with what it returned.
	Called(op Operation, took time.Duration, err error)
	// Added: n additions of one [Index.Add] had that outcome.
	Added(outcome AddOutcome, n int)
	// Trimmed: n members were cut off the low end of sets that held too many.
	Trimmed(n int)
}

// Operation names a method of [Index].
type Operation string

// The operations.
const (
	OpCandidates Operation = "candidates"
	OpAdd        Operation = "add"
	OpBegin      Operation = "begin"
	OpApply      Operation = "apply"
	OpCheck      Operation = "check"
	OpProbe      Operation = "probe"
	OpLook       Operation = "look"
)

// AddOutcome says what one addition did to its set.
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

// Unobserved is an [Observer] that does nothing.
type Unobserved struct{}

// Called implements [Observer].
func (Unobserved) Called(Operation, time.Duration, error) {}

// Added implements [Observer].
func (Unobserved) Added(AddOutcome, int) {}

// Trimmed implements [Observer].
func (Unobserved) Trimmed(int) {}

// observe tells the observer of an operation that began at start, and notes a
// refusal. One by an ACL may be about a single key: the probe finds out whether it
// is about all.
func (ix *Index) observe(op Operation, start time.Time, err error) {
	if op != OpProbe && errors.Is(err, ErrRefused) && !isDenied(err) {
		ix.note(err)
	}
	ix.options.Observer.Called(op, time.Since(start), err)
}
