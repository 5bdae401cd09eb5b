package shadow

import (
	"errors"
	"math"
	"slices"
	"time"
)

// Kind is a class with its cause.
type Kind struct {
	Class Class
	Cause Cause
}

// Found is how often a kind of difference was found.
type Found struct {
	Count   int
	Example *Difference // the smallest
}

// Tally is what a run found. It holds a few numbers for each comparison, and one example of each kind of difference.
type Tally struct {
	Sample  int // members that were chosen
	Reads   int // comparisons
	Same    int
	Gone    int // members that were deleted since they were chosen
	TooSlow int // comparisons whose site's statement reached the time limit
	Failed  int // others that failed
	Kinds   map[Kind]*Found
	Walks   map[string]int // of ours, by the reason
	Took    time.Duration
	Ours    Costs
	Theirs  Costs

	began time.Time
}

func newTally(now time.Time) *Tally {
	return &Tally{Kinds: map[Kind]*Found{}, Walks: map[string]int{}, began: now}
}

func (t *Tally) add(c Comparison) {
	t.Reads++
	t.Ours.add(c.Ours)
	t.Theirs.add(c.Theirs)
	if c.Walked != "" {
		t.Walks[c.Walked]++
	}
	d := c.Difference
	if d == nil {
		t.Same++
		return
	}
	kind := Kind{d.Class, d.Cause}
	f := t.Kinds[kind]
	if f == nil {
		f = &Found{}
		t.Kinds[kind] = f
	}
	f.Count++
	if f.Example == nil || d.size() < f.Example.size() {
		f.Example = d
	}
}

func (t *Tally) fail(err error) {
	if errors.Is(err, ErrTooSlow) {
		t.TooSlow++
	} else {
		t.Failed++
	}
}

// Of returns how many differences there are of a class.
func (t *Tally) Of(c Class) (n int) {
	for kind, f := range t.Kinds {
		if kind.Class == c {
			n += f.Count
		}
	}
	return n
}

// Harmful is how many differences there are that are not harmless.
func (t *Tally) Harmful() (n int) {
	for kind, f := range t.Kinds {
		if !kind.Class.IsHarmless() {
			n += f.Count
		}
	}
	return n
}

// Bound is the share of members below which, with 95 % confidence, those lie for whom there is a difference of which none was
// found in n: the rule of three (Hanley and Lippman-Hand, "If nothing goes wrong, is everything all right?",
// JAMA 249(13), 1983). It is above the exact bound, 1 - 0.05^(1/n).
func Bound(n int) float64 { return min(1, 3/float64(max(n, 1))) }

// Costs are those of many answers: 12 bytes for each.
type Costs struct {
	took []time.Duration
	rows []uint32
	Rows int // of all together
}

func (c *Costs) add(one Cost) {
	c.took = append(c.took, one.Took)
	c.rows = append(c.rows, uint32(min(one.Rows, math.MaxUint32)))
	c.Rows += one.Rows
}

// Quantile returns the time and the rows that a share q of the answers do not exceed; 0 without answers.
func (c *Costs) Quantile(q float64) Cost {
	if len(c.took) == 0 {
		return Cost{}
	}
	slices.Sort(c.took)
	slices.Sort(c.rows)
	at := int(math.Ceil(q*float64(len(c.took)))) - 1
	return Cost{c.took[max(at, 0)], int(c.rows[max(at, 0)])}
}
