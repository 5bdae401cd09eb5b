package main

import (
	"fmt"
	"math"
	"slices"
)

// spread is what several measurements of one thing gave.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	return spread{quantile(sorted, 0.5), sorted[0], sorted[len(sorted)-1]}
}

// quantilesOf returns quantiles of values, which need not be sorted.
func quantilesOf(values []float64, qs ...float64) []float64 {
	sorted, out := slices.Sorted(slices.Values(values)), make([]float64, len(qs))
	for i, q := range qs {
		out[i] = quantile(sorted, q)
	}
	return out
}

// quantile returns the q-th quantile, q from 0 to 1, of sorted values: between
// two of them, what lies between.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below+1 == len(sorted) {
		return sorted[below]
	}
	return sorted[below] + (at-float64(below))*(sorted[below+1]-sorted[below])
}

// noisyFactor is how far apart the largest and the smallest measurement may be
// for their median to be worth printing.
const noisyFactor = 2

// noisy tells whether the measurements say nothing but that the machine was busy
// with something else.
func (s spread) noisy() bool { return s.Max > noisyFactor*s.Min }

// String returns the median with its range.
func (s spread) String() string {
	if s.noisy() {
		return fmt.Sprintf("too noisy (%s..%s)", number(s.Min), number(s.Max))
	}
	return fmt.Sprintf("%s (%s..%s)", number(s.Median), number(s.Min), number(s.Max))
}

// exact writes a spread of counts, which no noise can spoil.
func (s spread) exact() string {
	if s.Min == s.Max {
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s..%s)", number(s.Median), number(s.Min), number(s.Max))
}

// number writes a figure with about three digits, for no measurement here is
// better than that.
func number(x float64) string {
	if x == 0 {
		return "0"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(x)))))
	scale := math.Pow10(2 - int(math.Floor(math.Log10(math.Abs(x)))))
	return fmt.Sprintf("%.*f", digits, math.Round(x*scale)/scale)
}
