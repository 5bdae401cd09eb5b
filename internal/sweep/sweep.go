package sweep

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// Range is the members from First to Last, both included.
type Range struct{ First, Last member.ID }

// All is everybody.
var All = Range{First: 1, Last: math.MaxUint64}

// Counts tell how many there were of what.
type Counts map[string]int64

// Add adds other to c.
func (c Counts) Add(other Counts) {
	for name, n := range other {
		c[name] += n
	}
}

// State is how far a sweep is: its position, and what was counted up to it. A
// sweep that was stopped goes on from its state.
type State struct {
	Position member.ID // everybody in the range up to this one is done; 0: nobody
	Counts   Counts
}

func (s State) clone() State { return State{s.Position, maps.Clone(s.Counts)} }

// Source lists members.
type Source interface {
	// Members returns up to limit ids of members above after, ascending; an
	// empty result is the end.
	Members(ctx context.Context, after member.ID, limit int) ([]member.ID, error)
}

// Gate lets batches in, one call for each. Enter fails only when ctx ends.
type Gate interface {
	Enter(ctx context.Context) (leave func(), err error)
}

// Visit does the work for some members. It returns what it counted for those who
// are done, and with an error those who are left; an error with nobody left
// concerns them all. It must be idempotent and safe for concurrent use.
type Visit func(ctx context.Context, users []member.ID) (done Counts, left []member.ID, err error)

// Fault says what an error means for those on whom a visit failed.
type Fault int

// The faults.
const (
	// Fatal errors end the sweep: nothing would come right.
	Fatal Fault = iota
	// Away is a server that cannot be used now. It is waited for as long as it
	// takes.
	Away
	// Own errors may be due to one of the members. They are visited again in
	// smaller batches, and who fails alone, again and again, is given up.
	Own
)

// Failed is the name under which members who were given up are counted.
const Failed = "failed"

// Options say how a sweep works; the zero value of a number stands for its
// default.
type Options struct {
	Range  Range
	Source Source
	Gate   Gate
	Visit  Visit
	// Judge tells what an error of Visit or Source means.
	Judge func(error) Fault

	// Batch is how many members a visit is for. Default 256.
	Batch int
	// Limit is how long one visit may take before it is cancelled, which counts
	// as an error of the members' own. Default 2 minutes.
	Limit time.Duration
	// Grace is how long visits under way may go on when the sweep is stopped.
	// Default 10 s.
	Grace time.Duration

	// Moved is told of members that were done, wherever they stand; nil: nobody.
	Moved func(n int)
	// Saved is given each new state; its error ends the sweep. Nil: nobody.
	Saved func(State) error
	// Trouble is told of each error that is not fatal; nil: nobody. Unlike the two
	// before, which only the goroutine of Run calls, it and GaveUp are called by many.
	Trouble func(error)
	// GaveUp is told of each member who was given up, and why; nil: nobody.
	GaveUp func(user member.ID, err error)
}

// ErrStopped is what [Run] returns when its context ended first.
var ErrStopped = errors.New("the sweep was stopped")

// Run sweeps on from a state, the zero State for the beginning, and returns how
// far it came: also with an error, which is [ErrStopped] or says what failed. That
// some were given up is no error, unless they are very many: see [Failed].
func Run(ctx context.Context, from State, o Options) (State, error) {
	o.Batch = cmp.Or(o.Batch, 256)
	o.Limit = cmp.Or(o.Limit, 2*time.Minute)
	o.Grace = cmp.Or(o.Grace, 10*time.Second)
	if o.Trouble == nil {
		o.Trouble = func(error) {}
	}
	if o.GaveUp == nil {
		o.GaveUp = func(member.ID, error) {}
	}
	if o.Moved == nil {
		o.Moved = func(int) {}
	}
	if o.Saved == nil {
		o.Saved = func(State) error { return nil }
	}
	r := newRun(ctx, from, o)
	err := r.run(ctx)
	return r.ledger.state.clone(), err
}
