package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// contender is a contender of a comparison.
type contender struct {
	name    string
	prepare func(context.Context) error // is not measured; nil: nothing
	run     func(context.Context) (outcome, error)
}

// outcome is the outcome of a run.
type outcome struct {
	ops   int
	times []float64 // of operations, in milliseconds; nil: they were not timed
}

// samples are the rounds of a contender.
type samples struct {
	rates  []float64            // operations a second
	micros []float64            // processor time of an operation, of all processes involved
	ours   []float64            // of activityd and the database among them
	times  map[string][]float64 // in milliseconds, by quantile
}

// quantiles are the quantiles of times that the report has.
var quantiles = map[string]float64{"p50": 0.5, "p99": 0.99}

// rounds runs all contenders in turn, with another contender first in each round.
func (b *bench) rounds(ctx context.Context, list ...contender) (map[string]*samples, error) {
	all := make(map[string]*samples)
	for round := range b.size.rounds {
		for i := range list {
			c := list[(round+i)%len(list)]
			s := all[c.name]
			if s == nil {
				s = &samples{times: make(map[string][]float64)}
				all[c.name] = s
			}
			if err := b.oneRound(ctx, c, s); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Fprintf(b.log, "  %s: %.0f/s, %.0f µs\n", c.name, s.rates[len(s.rates)-1], s.micros[len(s.micros)-1])
		}
	}
	return all, nil
}

func (b *bench) oneRound(ctx context.Context, c contender, s *samples) error {
	if c.prepare != nil {
		if err := c.prepare(ctx); err != nil {
			return err
		}
	}
	before, oursBefore, err := b.processorTime(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	o, err := c.run(ctx)
	took := time.Since(start)
	if err != nil {
		return err
	}
	after, oursAfter, err := b.processorTime(ctx)
	s.rates = append(s.rates, float64(o.ops)/took.Seconds())
	s.micros = append(s.micros, float64((after-before).Microseconds())/float64(max(1, o.ops)))
	s.ours = append(s.ours, float64((oursAfter-oursBefore).Microseconds())/float64(max(1, o.ops)))
	if o.times != nil {
		for name, q := range quantiles {
			s.times[name] = append(s.times[name], quantile(o.times, q))
		}
	}
	return err
}

// processorTime is the processor time, in steps of 10 ms, of the benchmark, of both servers, and
// of the program. The benchmark may be client, worker and push service. ours is that of the program and the database.
func (b *bench) processorTime(ctx context.Context) (sum, ours time.Duration, err error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, 0, err
	}
	sum = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	var file string
	if err := b.db.QueryRowContext(ctx, "SELECT @@pid_file").Scan(&file); err != nil {
		return 0, 0, err
	}
	text, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return 0, 0, err
	}
	pids := []string{strings.TrimSpace(string(text))}
	info, err := b.client.InfoMap(ctx, "server").Result()
	if err != nil {
		return 0, 0, err
	}
	redis := info["Server"]["process_id"]
	pids = append(pids, redis)
	if b.program != nil {
		pids = append(pids, strconv.Itoa(b.program.cmd.Process.Pid))
	}
	for _, pid := range pids {
		one, err := timeOfProcess(pid)
		if err != nil {
			return 0, 0, err
		}
		sum += one
		if pid != redis {
			ours += one
		}
	}
	return sum, ours, nil
}

// timeOfProcess reads /proc: a tick is a hundredth of a second on each Linux that Go supports.
func timeOfProcess(pid string) (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return 0, err
	}
	// The program's name, in parentheses, may have blanks. The first field after it is the third;
	// utime and stime are the 14th and 15th.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%s/stat: %q", pid, text)
	}
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, err
}

// quantile returns the q-th quantile of a list that is not empty, interpolated between two
// values.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below+1 == len(sorted) {
		return sorted[below]
	}
	return sorted[below] + (at-float64(below))*(sorted[below+1]-sorted[below])
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// parallel calls do with 0 up to n-1, from a number of goroutines; do gets the number of its
// goroutine, too.
func parallel(ctx context.Context, goroutines, n int, do func(ctx context.Context, worker, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for worker := range goroutines {
		group.Go(func() error {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, worker, i); err != nil {
					return err
				}
			}
			return context.Cause(ctx)
		})
	}
	return group.Wait()
}

// await looks each millisecond until a condition holds.
func await(ctx context.Context, holds func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, fmt.Errorf("what was waited for did not come in 5 minutes"))
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := holds(ctx); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
