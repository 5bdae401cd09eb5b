package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"time"

	waiting "github.com/activityd/activityd/internal/backlog"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// operation is a request to the queue that workers and producers repeat.
type operation struct {
	name string
	do   func(context.Context) error
}

// backlog is a queue in which many tasks wait, behind a single connection.
type backlog struct {
	db      *sql.DB
	queue   *queue.Queue
	out     io.Writer
	made    uint64 // number of tasks so far
	claimed []queue.Task
}

// The sizes of the operations, as in production.
const (
	backlogBatch = 100
	fullLimit    = 100_000
)

// benchBacklog measures each operation with few waiting tasks and with many, and
// explains its statements.
func (s *suite) benchBacklog(ctx context.Context) error {
	db, err := s.openDB(mysql.WithMaxOpen(1))
	if err != nil {
		return err
	}
	b := &backlog{db: db, queue: queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Owner: "bench"}), out: s.out}
	var measured [2]map[string]samples
	for i, n := range s.options.backlog {
		if err := b.fill(ctx, n); err != nil {
			return fmt.Errorf("make %d tasks wait: %w", n, err)
		}
		if measured[i], err = s.meter.alternate(ctx, schedule{rounds: s.options.repetitions, calls: 1, out: io.Discard}, []contender{b.contender()}); err != nil {
			return err
		}
	}
	const part = "The queue's operations, by the number of waiting tasks"
	for _, op := range b.operations() {
		first := measured[0][op.name]
		for i, n := range s.options.backlog {
			list := measured[i][op.name]
			f := figure{
				Part: part, Name: fmt.Sprintf("%s, %d waiting", op.name, n), Unit: "ms", Value: list.spread(sample.millis),
				Each: &expense{Counts: list.expense().Counts}, Samples: list,
			}
			if i > 0 {
				f.Against, f.Ratio = fmt.Sprintf("%s, %d waiting", op.name, s.options.backlog[0]), list.over(first, sample.millis)
			}
			s.results.add(f)
		}
	}
	s.results.Plans, err = b.plans(ctx)
	return err
}

// operations returns all that are measured, in an order in which each finds what
// it needs, and after which as many tasks wait as before.
func (b *backlog) operations() []operation {
	return []operation{
		{fmt.Sprintf("enqueue %d", backlogBatch), b.enqueue},
		{fmt.Sprintf("enqueue %d that wait already", backlogBatch), b.enqueueAgain},
		{fmt.Sprintf("claim %d", backlogBatch), b.claim},
		{fmt.Sprintf("extend %d", backlogBatch), b.extend},
		{fmt.Sprintf("finish %d", backlogBatch), b.finish},
		{"sweep", func(ctx context.Context) error { _, err := b.queue.Sweep(ctx); return err }},
		{"pending fan-outs of 20 members", b.pendingFanOuts},
		{fmt.Sprintf("full, limit %d", fullLimit), func(ctx context.Context) error { _, _, err := waiting.New(b.db).Room(ctx, fullLimit); return err }},
		{"stats", func(ctx context.Context) error { _, err := b.queue.Stats(ctx); return err }},
	}
}

// contender returns a contender that runs the operations in their order.
func (b *backlog) contender() (first contender) {
	at := &first
	for i, op := range b.operations() {
		if i > 0 {
			at.next = &contender{}
			at = at.next
		}
		at.name, at.run = op.name, func(ctx context.Context) (int, error) { return 1, op.do(ctx) }
	}
	return first
}

// fill makes n tasks wait, by doubling: contact changes, one in a hundred a part of
// a fan-out.
func (b *backlog) fill(ctx context.Context, n int) error {
	have := 0
	if err := b.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks").Scan(&have); err != nil {
		return err
	}
	if have == 0 {
		if err := b.enqueue(ctx); err != nil {
			return err
		}
		have = backlogBatch
	}
	for have < n {
		more := min(have, n-have)
		if _, err := b.db.ExecContext(ctx, copyTasks, more); err != nil {
			return mysql.Translate(ctx, fmt.Sprintf("insert %d tasks", more), err)
		}
		have += more
		fmt.Fprintf(b.out, "%d tasks wait\n", have)
	}
	_, err := b.db.ExecContext(ctx, "ANALYZE TABLE tasks")
	return err
}

// copyTasks inserts copies of a number of tasks, each under a key of its own.
const copyTasks = `
	INSERT INTO tasks (queue, type, subject, args, dedupe_key)
	SELECT IF(MOD(id, 100) = 0, 'fan_out', 'default'), IF(MOD(id, 100) = 0, 'fan_out', 'add_contact'),
		MOD(id * 7919, 1000003) + 1, args, CONCAT('pair:', UUID_SHORT(), ':', id)
	FROM tasks LIMIT ?`

// fresh returns tasks that were not enqueued before.
func (b *backlog) fresh(n int) []queue.New {
	batch := make([]queue.New, n)
	for i := range batch {
		b.made++
		batch[i] = tasks.NewAddContact(member.ID(b.made), member.ID(b.made+1))
	}
	return batch
}

func (b *backlog) enqueue(ctx context.Context) error {
	_, err := b.queue.Enqueue(ctx, b.fresh(backlogBatch))
	return err
}

// enqueueAgain enqueues the tasks of the last call of enqueue.
func (b *backlog) enqueueAgain(ctx context.Context) error {
	b.made -= backlogBatch
	return b.enqueue(ctx)
}

func (b *backlog) claim(ctx context.Context) (err error) {
	b.claimed, err = b.queue.Claim(ctx, tasks.QueueDefault, backlogBatch, time.Minute)
	if err == nil && len(b.claimed) != backlogBatch {
		err = fmt.Errorf("claimed %d tasks, want %d", len(b.claimed), backlogBatch)
	}
	return err
}

func (b *backlog) extend(ctx context.Context) error {
	return orLost(b.queue.Extend(ctx, b.claimed, time.Minute))
}

func (b *backlog) finish(ctx context.Context) error {
	results := make([]queue.Result, len(b.claimed))
	for i, t := range b.claimed {
		results[i].Task = t
	}
	return orLost(b.queue.Finish(ctx, results))
}

// orLost returns err, or an error if leases were lost.
func orLost(lost int, err error) error {
	if err == nil && lost > 0 {
		err = fmt.Errorf("%d leases were lost", lost)
	}
	return err
}

func (b *backlog) pendingFanOuts(ctx context.Context) error {
	keys := make([]uint64, 20)
	for i := range keys {
		keys[i] = uint64(i + 1)
	}
	_, err := b.queue.Active(ctx, tasks.FanOut, keys)
	return err
}
