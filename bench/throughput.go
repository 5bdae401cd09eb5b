package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/activityd/activityd/internal/contacts"
)

// run is one measurement: so many tasks took so long.
type run struct {
	Tasks int           `json:"tasks"`
	Wall  time.Duration `json:"wall_ns"`
	CPU   cpuTimes      `json:"cpu_ns"`
}

func (r run) rate() float64 { return float64(r.Tasks) / r.Wall.Seconds() }

// micros returns the processor time for each task, in microseconds.
func (r run) micros(d time.Duration) float64 { return float64(d.Microseconds()) / float64(r.Tasks) }

// phase is a part of the way of a task that is measured by itself.
type phase string

const (
	endToEnd    phase = "end to end"   // workers wait when the first task is enqueued
	enqueueOnly phase = "enqueue only" // nobody works
	workOffOnly phase = "work off"     // all tasks are there when the workers start
)

func phases() []phase { return []phase{endToEnd, enqueueOnly, workOffOnly} }

// throughput measures contenders, in turn within each round.
type throughput struct {
	ground  *ground
	world   world
	account accountant
	options options
	log     io.Writer
	runs    map[phase]map[string][]run // by contender, a run for each round
}

// measure runs all contenders in each round. The first round warms up the
// servers and is thrown away, unless there is but one.
func (t *throughput) measure(ctx context.Context, list []contender) error {
	t.runs = make(map[phase]map[string][]run)
	for _, p := range phases() {
		t.runs[p] = make(map[string][]run)
	}
	first := 0
	if t.options.rounds == 1 {
		first = 1
	}
	for round := first; round <= t.options.rounds; round++ {
		for _, c := range list {
			if err := t.round(ctx, c, round); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	return nil
}

// round measures each phase of one contender.
func (t *throughput) round(ctx context.Context, c contender, round int) error {
	if err := t.syncRedis(ctx, c.class == durable); err != nil {
		return err
	}
	pairs := t.world.pairs(t.options.tasks, uint64(round))
	if c.changes {
		pairs = t.world.strangers(t.options.tasks, uint64(round))
	}
	whole, err := t.endToEnd(ctx, c, pairs)
	if err != nil {
		return err
	}
	if err := t.undo(ctx, c, pairs); err != nil {
		return err
	}
	enqueued, err := t.enqueueOnly(ctx, c, pairs)
	if err != nil {
		return err
	}
	worked, err := t.workOff(ctx, c, len(pairs))
	if err != nil {
		return err
	}
	if err := t.undo(ctx, c, pairs); err != nil {
		return err
	}
	fmt.Fprintf(t.log, "round %d, %s: %s, %s and %s tasks/s\n", round, c.name, number(whole.rate()), number(enqueued.rate()), number(worked.rate()))
	if round > 0 {
		t.note(c, endToEnd, whole)
		t.note(c, enqueueOnly, enqueued)
		t.note(c, workOffOnly, worked)
	}
	return nil
}

// syncRedis chooses whether Redis answers before a write is on the disk.
func (t *throughput) syncRedis(ctx context.Context, always bool) error {
	mode := "everysec"
	if always {
		mode = "always"
	}
	return t.ground.client.ConfigSet(ctx, "appendfsync", mode).Err()
}

func (t *throughput) note(c contender, p phase, r run) {
	t.runs[p][c.name] = append(t.runs[p][c.name], r)
}

func (t *throughput) endToEnd(ctx context.Context, c contender, pairs []contacts.Pair) (run, error) {
	return t.working(ctx, c, len(pairs), func() error { return c.enqueue(ctx, pairs) })
}

func (t *throughput) workOff(ctx context.Context, c contender, n int) (run, error) {
	return t.working(ctx, c, n, func() error { return nil })
}

// working measures from the start of the workers, who have nothing to do before
// enqueue, to the last effect.
func (t *throughput) working(ctx context.Context, c contender, n int, enqueue func() error) (r run, err error) {
	done := newCountdown(n)
	var stop func() error
	r, err = t.timed(n, func() (err error) {
		if stop, err = c.side.work(ctx, done); err != nil {
			return err
		}
		if err := enqueue(); err != nil {
			return err
		}
		return done.wait(ctx)
	})
	if stop != nil {
		if stopErr := stop(); err == nil {
			err = stopErr
		}
	}
	if err != nil {
		return r, err
	}
	return r, t.checkEmpty(ctx, c)
}

func (t *throughput) enqueueOnly(ctx context.Context, c contender, pairs []contacts.Pair) (run, error) {
	r, err := t.timed(len(pairs), func() error { return c.enqueue(ctx, pairs) })
	if err != nil {
		return r, err
	}
	left, err := c.side.left(ctx)
	if err == nil && left != len(pairs) {
		err = fmt.Errorf("the queue holds %d tasks, want %d", left, len(pairs))
	}
	return r, err
}

func (t *throughput) timed(n int, do func() error) (run, error) {
	before, err := t.account.read()
	if err != nil {
		return run{}, err
	}
	start := time.Now()
	err = do()
	wall := time.Since(start)
	if err != nil {
		return run{}, err
	}
	after, err := t.account.read()
	return run{n, wall, after.minus(before)}, err
}

// checkEmpty makes sure that all tasks were done.
func (t *throughput) checkEmpty(ctx context.Context, c contender) error {
	left, err := c.side.left(ctx)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d tasks are left", left)
	}
	return err
}

// undo deletes the contacts that a contender added, so that it can add them
// again.
func (t *throughput) undo(ctx context.Context, c contender, pairs []contacts.Pair) error {
	if !c.changes {
		return nil
	}
	return inParallel(ctx, 4, pairs, func(ctx context.Context, p contacts.Pair) error {
		_, err := t.ground.db.ExecContext(ctx, "DELETE FROM contacts WHERE user_id = ? AND contact_id = ?", p.User, p.Contact)
		return err
	})
}
