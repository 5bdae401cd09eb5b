package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// entrant is one of several that are measured in turn.
type entrant struct {
	name    string
	prepare func(context.Context) error                // before each run, not measured; nil: nothing
	run     func(context.Context) (ops int, err error) // returns how many operations it did
}

// sample is one run of an entrant.
type sample struct {
	Ops    int           `json:"operations"`
	Wall   time.Duration `json:"wall_ns"`
	CPU    cpuTimes      `json:"cpu_ns"`
	Counts counts        `json:"counts"`
}

func (s sample) rate() float64 { return float64(s.Ops) / s.Wall.Seconds() }

// micros is a processor time for one operation, in microseconds.
func (s sample) micros(d time.Duration) float64 {
	return float64(d.Nanoseconds()) / 1e3 / float64(s.Ops)
}

// samples are the runs of an entrant, one for each round.
type samples []sample

func (list samples) spread(figure func(sample) float64) spread {
	values := make([]float64, len(list))
	for i, s := range list {
		values[i] = figure(s)
	}
	return spreadOf(values)
}

// over compares figures round by round.
func (list samples) over(others samples, figure func(sample) float64) spread {
	values := make([]float64, len(list))
	for i, s := range list {
		values[i] = figure(s) / figure(others[i])
	}
	return spreadOf(values)
}

// alternate runs all entrants in each round, every other round backwards, so that
// what one leaves behind does not always meet the same other. The first round
// warms up and is thrown away, unless there is but one.
func (m *meter) alternate(ctx context.Context, rounds int, log io.Writer, list []entrant) (map[string]samples, error) {
	all := make(map[string]samples, len(list))
	first := 0
	if rounds == 1 {
		first = 1
	}
	for round := first; round <= rounds; round++ {
		turn := slices.Clone(list)
		if round%2 == 0 {
			slices.Reverse(turn)
		}
		for _, e := range turn {
			s, err := m.once(ctx, e)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", e.name, err)
			}
			fmt.Fprintf(log, "round %d, %s: %s/s, %s µs of CPU each\n", round, e.name, number(s.rate()), number(s.micros(s.CPU.sum())))
			if round > 0 {
				all[e.name] = append(all[e.name], s)
			}
		}
	}
	return all, nil
}

func (m *meter) once(ctx context.Context, e entrant) (s sample, err error) {
	if e.prepare != nil {
		if err := e.prepare(ctx); err != nil {
			return s, err
		}
	}
	s.Counts, err = m.counted(ctx, func() error {
		before, err := m.account.read()
		if err != nil {
			return err
		}
		start := time.Now()
		s.Ops, err = e.run(ctx)
		s.Wall = time.Since(start)
		if err != nil {
			return err
		}
		after, err := m.account.read()
		s.CPU = after.minus(before)
		return err
	})
	return s, err
}
