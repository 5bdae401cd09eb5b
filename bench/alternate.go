package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// contender is one of several things that are measured in turn.
type contender struct {
	name    string
	prepare func(context.Context) error                // before each run, not measured; may be nil
	run     func(context.Context) (ops int, err error) // returns how many operations it did
	after   func(context.Context) error                // after each run, even one that failed, not measured; may be nil
	times   func() []float64                           // of single operations of the last run, in milliseconds; may be nil
	next    *contender                                 // measured right after it, on what it left; may be nil
}

// schedule says how often contenders run.
type schedule struct {
	rounds    int
	calls     int           // runs of each contender in a round, in turn
	longest   time.Duration // no run starts in a round that took so long; 0: no limit
	timesOnly bool          // runs are too short for processor times and counts
	out       io.Writer     // progress
}

// sample is what the runs of a contender in one round were, taken together.
type sample struct {
	Ops    int           `json:"operations"`
	Wall   time.Duration `json:"wall_ns"`
	CPU    cpuTimes      `json:"cpu_ns"`
	Counts counts        `json:"counts"`
	times  []float64     // of single operations, in milliseconds
}

func (s sample) rate() float64 { return float64(s.Ops) / s.Wall.Seconds() }

// micros is the processor time of one operation, in microseconds.
func (s sample) micros() float64 { return float64(s.CPU.sum().Nanoseconds()) / 1e3 / float64(s.Ops) }

// millis is the time of one operation, in milliseconds.
func (s sample) millis() float64 { return milliseconds(s.Wall) / float64(s.Ops) }

// atQuantile returns a function that takes the q-th quantile of the times of calls.
func atQuantile(q float64) func(sample) float64 {
	return func(s sample) float64 { return quantile(s.times, q) }
}

func (s sample) plus(t sample) sample {
	return sample{s.Ops + t.Ops, s.Wall + t.Wall, s.CPU.plus(t.CPU), s.Counts.plus(t.Counts, 1), append(s.times, t.times...)}
}

// samples are those of a contender, one for each round.
type samples []sample

func (list samples) spread(figure func(sample) float64) *spread {
	values := make([]float64, len(list))
	for i, s := range list {
		values[i] = figure(s)
	}
	return spreadOf(values...)
}

// over compares figures round by round.
func (list samples) over(others samples, figure func(sample) float64) *spread {
	values := make([]float64, len(list))
	for i, s := range list {
		values[i] = figure(s) / figure(others[i])
	}
	return spreadOf(values...)
}

// less subtracts figures round by round.
func (list samples) less(others samples, figure func(sample) float64) *spread {
	values := make([]float64, len(list))
	for i, s := range list {
		values[i] = figure(s) - figure(others[i])
	}
	return spreadOf(values...)
}

// alternate runs all contenders in each round, every other round backwards, so that
// what one leaves behind does not always meet the same other one. The first round
// warms up and is thrown away, unless there is only one.
func (m *meter) alternate(ctx context.Context, s schedule, list []contender) (map[string]samples, error) {
	if err := m.calibrate(ctx); err != nil {
		return nil, err
	}
	all := make(map[string]samples)
	first := 0
	if s.rounds == 1 {
		first = 1
	}
	for round := first; round <= s.rounds; round++ {
		turn := slices.Clone(list)
		if round%2 == 0 {
			slices.Reverse(turn)
		}
		measured, err := m.round(ctx, s, turn)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(measured)) {
			fmt.Fprintf(s.out, "round %d, %s: %s/s\n", round, name, number(measured[name].rate()))
			if round > 0 {
				all[name] = append(all[name], measured[name])
			}
		}
	}
	return all, nil
}

// round returns the samples of one round by contender.
func (m *meter) round(ctx context.Context, s schedule, turn []contender) (map[string]sample, error) {
	measured := make(map[string]sample)
	start := time.Now()
	for call := range s.calls {
		if call > 0 && s.longest > 0 && time.Since(start) > s.longest {
			break
		}
		for i := range turn {
			for c := &turn[i]; c != nil; c = c.next {
				one, err := m.once(ctx, c, s.timesOnly)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", c.name, err)
				}
				measured[c.name] = measured[c.name].plus(one)
			}
		}
	}
	return measured, nil
}

func (m *meter) once(ctx context.Context, c *contender, timesOnly bool) (s sample, err error) {
	if c.prepare != nil {
		if err := c.prepare(ctx); err != nil {
			return s, err
		}
	}
	if c.after != nil {
		defer func() { err = errors.Join(err, c.after(ctx)) }()
	}
	run := func() (err error) {
		start := time.Now()
		s.Ops, err = c.run(ctx)
		s.Wall = time.Since(start)
		if c.times != nil {
			s.times = c.times()
		}
		return err
	}
	if timesOnly {
		err := run()
		s.times = []float64{milliseconds(s.Wall)}
		return s, err
	}
	s.Counts, err = m.counted(ctx, func() error {
		before, err := m.account.read()
		if err != nil {
			return err
		}
		if err := run(); err != nil {
			return err
		}
		after, err := m.account.read()
		s.CPU = after.minus(before)
		return err
	})
	return s, err
}
