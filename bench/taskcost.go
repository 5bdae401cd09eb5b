package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// costRun moves tasks without a key and without work through a queue.
type costRun struct {
	*suite
	queue             *queue.Queue
	db                *sql.DB
	workers, inserted int // goroutines of each kind, 0: first all are inserted, then worked off; tasks in each INSERT
	tasks             int
}

// costBatch is how many tasks a claim takes, as a worker's of the queue "default".
const costBatch = 256

// add inserts n tasks in one statement.
func (f *costRun) add(ctx context.Context, n int) error {
	args := make([]any, 0, 2*n)
	for i := range n {
		args = append(args, i+1, i+2)
	}
	head, values, _ := strings.Cut(insertTask, "VALUES ")
	_, err := f.db.ExecContext(ctx, head+"VALUES "+strings.TrimSuffix(strings.Repeat(values+",", n), ","), args...)
	return err
}

// work claims tasks and ends them, and returns how many.
func (f *costRun) work(ctx context.Context) (int, error) {
	claimed, err := f.queue.Claim(ctx, tasks.QueueDefault, costBatch, time.Minute)
	if err != nil || len(claimed) == 0 {
		return 0, err
	}
	results := make([]queue.Result, len(claimed))
	for i, t := range claimed {
		results[i].Task = t
	}
	return len(results), orLost(f.queue.Finish(ctx, results))
}

// The phases of the tasks of one connection.
const (
	inserting = "INSERT"
	working   = "claim and end"
	purging   = "purge"
)

// wholeCost is all of them.
const wholeCost = "whole"

// inTurn returns a contender that inserts all tasks, then works them off, and waits until they are purged.
func (f *costRun) inTurn() contender {
	return contender{name: inserting, prepare: f.purged, run: f.insertAll, next: &contender{name: working, run: f.workAll, next: &contender{
		name: purging, run: func(ctx context.Context) (int, error) { return f.tasks, f.purged(ctx) },
	}}}
}

func (f *costRun) insertAll(ctx context.Context) (int, error) {
	for left := f.tasks; left > 0; left -= f.inserted {
		if err := f.add(ctx, min(left, f.inserted)); err != nil {
			return 0, err
		}
	}
	return f.tasks, nil
}

func (f *costRun) workAll(ctx context.Context) (int, error) {
	for left := f.tasks; left > 0; {
		n, err := f.work(ctx)
		if err != nil {
			return 0, err
		}
		left -= n
	}
	return f.tasks, nil
}

// atOnce inserts tasks and works them off at the same time.
func (f *costRun) atOnce(ctx context.Context) (int, error) {
	group, ctx := errgroup.WithContext(ctx)
	var left atomic.Int64
	left.Store(int64(f.tasks))
	for range f.workers {
		group.Go(func() error {
			for n := f.tasks / f.workers; n > 0; n -= f.inserted {
				if err := f.add(ctx, min(n, f.inserted)); err != nil {
					return err
				}
			}
			return nil
		})
		group.Go(func() error {
			for left.Load() > 0 {
				n, err := f.work(ctx)
				if n == 0 && err == nil {
					err = retry.Sleep(ctx, time.Millisecond)
				}
				if err != nil {
					return err
				}
				left.Add(int64(-n))
			}
			return nil
		})
	}
	return f.tasks, group.Wait()
}

// purged waits until the database has purged what was deleted, and does nothing any more.
func (s *suite) purged(ctx context.Context) error {
	const still, most = 5, 300
	for i, n := 0, 0; i < most && n < still; i++ {
		before, err := processTime(s.meter.account.mysql)
		if err == nil {
			err = retry.Sleep(ctx, 100*time.Millisecond)
		}
		if err != nil {
			return err
		}
		after, err := processTime(s.meter.account.mysql)
		if err != nil {
			return err
		}
		if n++; after-before > tick {
			n = 0
		}
	}
	return nil
}

// costRun returns a run with a number of workers; 0: with one connection.
func (s *suite) costRun(workers, inserted int) (*costRun, error) {
	b := *s.backend
	if workers == 0 {
		var err error
		if b.db, err = s.openDB(mysql.WithMaxOpen(1)); err != nil {
			return nil, err
		}
	}
	return &costRun{suite: s, queue: newActivityd(&b).queue, db: b.db, workers: workers, inserted: inserted, tasks: s.options.tasks / 16 * 16}, nil
}

// benchCost measures what a task costs the database.
func (s *suite) benchCost(ctx context.Context) error {
	single, err := s.costRun(0, 200)
	if err != nil {
		return err
	}
	list := []contender{single.inTurn()}
	crowds := []string{"8 workers and 8 inserters at once, INSERTs of 1", "8 workers and 8 inserters at once, INSERTs of 200"}
	for i, inserted := range []int{1, 200} {
		crowd, err := s.costRun(8, inserted)
		if err != nil {
			return err
		}
		list = append(list, contender{name: crowds[i], prepare: s.purged, run: crowd.atOnce})
	}
	all, err := s.runs(ctx, list)
	if err != nil {
		return err
	}
	s.addCost(all)
	for _, name := range crowds {
		s.results.rates("Many workers and inserters", all, name, "tasks/s", "", nil)
	}
	return nil
}

// addCost adds what a task costs MySQL, by phase and as a whole.
func (s *suite) addCost(all map[string]samples) {
	micros := func(s sample) float64 { return float64(s.CPU.MySQL.Nanoseconds()) / 1e3 / float64(s.Ops) }
	redo := func(s sample) float64 { return s.Counts.Redo / float64(s.Ops) }
	whole := make(samples, len(all[inserting]))
	time := figure{Part: "What a task costs MySQL, from its INSERT to its purge", Unit: "µs"}
	bytes := figure{Part: time.Part + ": bytes of redo log", Exact: true}
	add := func(what string, list samples) {
		time.Name, time.Value, time.Each, time.Samples = what, list.spread(micros), list.expense(), list
		bytes.Name, bytes.Value = time.Name, list.spread(redo)
		s.results.add(time)
		s.results.add(bytes)
	}
	for _, phase := range []string{inserting, working, purging} {
		for i, one := range all[phase] {
			whole[i] = whole[i].plus(one)
			whole[i].Ops = one.Ops
		}
		add(phase, all[phase])
	}
	time.Aim, bytes.Aim = atMost(50), atMost(320)
	if strings.Contains(s.mysql.Version(), "MariaDB") {
		time.Aim = atMost(25)
	}
	add(wholeCost, whole)
}

// snapshotRate is how many tasks a second are offered beside a snapshot.
const snapshotRate = 2000

// benchSnapshot measures what a transaction costs the queue that holds a snapshot, so that nothing is purged.
func (s *suite) benchSnapshot(ctx context.Context) (err error) {
	f, err := s.costRun(1, 1)
	if err != nil {
		return err
	}
	var done atomic.Int64
	offering, stop := context.WithCancel(ctx)
	group, running := errgroup.WithContext(ctx)
	defer func() {
		stop()
		err = errors.Join(err, group.Wait())
	}()
	group.Go(func() error { return f.offer(running, offering.Done()) })
	group.Go(func() error {
		for {
			n, err := f.work(running)
			done.Add(int64(n))
			if err == nil && n == 0 && offering.Err() != nil {
				return nil
			}
			if err == nil {
				err = retry.Sleep(running, 5*time.Millisecond)
			}
			if err != nil {
				return err
			}
		}
	})
	const windows = 5
	window := s.options.snapshot / windows
	measured := func(name string) (sample, error) {
		return s.meter.once(ctx, &contender{name: name, run: func(context.Context) (int, error) {
			before := done.Load()
			err := retry.Sleep(running, window)
			return max(1, int(done.Load()-before)), err // it divides
		}}, false)
	}
	const without = "no snapshot"
	if err := retry.Sleep(ctx, window/4); err != nil {
		return err
	}
	first, err := measured(without)
	if err != nil {
		return err
	}
	s.addWindow(without, "", first, first)
	holder, err := s.db.Conn(ctx) // of which the pool does not see that it gets old
	if err != nil {
		return err
	}
	began := done.Load()
	for _, text := range []string{"SET SESSION wait_timeout = 86400", "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT"} {
		if _, err := holder.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	for i := range windows {
		name := fmt.Sprintf("held for %v", time.Duration(i+1)*window)
		held, err := measured(name)
		if err != nil {
			return err
		}
		s.addWindow(name, without, held, first)
		fmt.Fprintf(s.out, "%s: %s tasks/s\n", name, number(held.rate()))
	}
	var unpurged int
	if err := holder.QueryRowContext(ctx, "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'").Scan(&unpurged); err != nil {
		return err
	}
	if least := int(done.Load()-began) / costBatch; unpurged < least {
		return fmt.Errorf("%d transactions were not purged, want at least %d: the snapshot was not held", unpurged, least)
	}
	s.results.notef("%d transactions were not purged at the end of the snapshot of %v.", unpurged, s.options.snapshot)
	_, err = holder.ExecContext(ctx, "ROLLBACK")
	return errors.Join(err, holder.Close())
}

// offer inserts tasks by the clock, whether or not others are worked off, until it is to end.
func (f *costRun) offer(ctx context.Context, end <-chan struct{}) error {
	began, made := time.Now(), 0
	for every := time.Tick(10 * time.Millisecond); ; {
		select {
		case <-end:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-every:
		}
		if due := int(time.Since(began).Seconds()*snapshotRate) - made; due > 0 {
			n := min(due, 200)
			if err := f.add(ctx, n); err != nil {
				return err
			}
			made += n
		}
	}
}

// addWindow adds what was measured in a time beside the snapshot.
func (s *suite) addWindow(name, against string, now, first sample) {
	part := fmt.Sprintf("%d tasks a second beside a snapshot that is held", snapshotRate)
	list, before := samples{now}, samples{first}
	rate := figure{Part: part, Name: name, Unit: "tasks/s", Value: list.spread(sample.rate), Against: against, Each: list.expense(), Samples: list}
	rows := func(s sample) float64 { return s.Counts.RowsRead / float64(s.Ops) }
	pages := func(s sample) float64 { return s.Counts.Pages / float64(s.Ops) }
	read := figure{Part: part + ": rows read for a task", Name: name, Exact: true, Value: list.spread(rows), Against: against}
	requested := figure{Part: part + ": pages looked at for a task", Name: name, Exact: true, Value: list.spread(pages), Against: against}
	if against != "" {
		rate.Ratio, rate.Aim = list.over(before, sample.rate), atLeast(0.9)
		read.Ratio, read.Aim = list.over(before, rows), atMost(1.1)
		requested.Ratio = list.over(before, pages)
	}
	s.results.add(rate)
	s.results.add(read)
	s.results.add(requested)
}
