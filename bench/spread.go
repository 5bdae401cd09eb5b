package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// spread is what several measurements of one thing gave, in the unit of its figure.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(values ...float64) *spread {
	if len(values) == 0 {
		return &spread{}
	}
	return &spread{quantile(values, 0.5), slices.Min(values), slices.Max(values)}
}

// milliseconds returns d in the unit of most times in the results.
func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// quantile returns the q-th quantile, q from 0 to 1, of at least one value,
// interpolated between two of them.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below+1 == len(sorted) {
		return sorted[below]
	}
	return sorted[below] + (at-float64(below))*(sorted[below+1]-sorted[below])
}

// noisyFactor is the largest ratio of the largest measurement to the smallest at
// which their median is printed.
const noisyFactor = 2

// noisy reports whether the measurements are too far apart for their median to mean
// anything: the machine was busy with something else. Differences, which may be below 0, are
// never noisy.
func (s *spread) noisy() bool { return s.Min >= 0 && s.Max > noisyFactor*s.Min }

// String returns the median with its range, if there is one.
func (s *spread) String() string {
	if s.noisy() {
		return fmt.Sprintf("too noisy (%s..%s)", number(s.Min), number(s.Max))
	}
	return s.exact()
}

// exact formats a spread of counts, which are never noisy.
func (s *spread) exact() string {
	if s.Min == s.Max {
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s..%s)", number(s.Median), number(s.Min), number(s.Max))
}

// number formats x with about three digits: no measurement here is more precise.
func number(x float64) string {
	if x == 0 {
		return "0"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(x)))))
	scale := math.Pow10(2 - int(math.Floor(math.Log10(math.Abs(x)))))
	return fmt.Sprintf("%.*f", digits, math.Round(x*scale)/scale)
}
