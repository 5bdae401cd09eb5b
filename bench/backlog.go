package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
)

// operation is something that is asked of the queue again and again.
type operation struct {
	name string
	do   func(context.Context) error
}

// cost is what an operation took with so many waiting tasks.
type cost struct {
	Waiting int     `json:"waiting"`
	Millis  spread  `json:"ms"`
	Rows    float64 `json:"rows_read"` // the median of the rows and index entries that were read
}

// growth compares the costs of an operation with few waiting tasks and with many.
type growth struct {
	Name  string  `json:"name"`
	Few   cost    `json:"few"`
	Many  cost    `json:"many"`
	Ratio float64 `json:"ratio"` // of the median times
}

// backlogBench measures a queue in which many tasks wait, over one connection,
// whose own counters say how many rows were read.
type backlogBench struct {
	db      *sql.DB
	queue   *queue.MySQLQueue
	options options
	log     io.Writer
	silence float64 // what reading the counters itself adds to them

	made    uint64 // subjects of tasks so far
	claimed []queue.Task
}

// The sizes of what the operations are about, as in production.
const (
	backlogBatch = 100
	fullLimit    = 100_000
)

// measureBacklog returns the costs of each operation, and how the database
// answers each statement that they use.
func measureBacklog(ctx context.Context, g *ground, o options, log io.Writer) (list []growth, plans []plan, err error) {
	db, err := g.openDB(mysql.WithMaxOpen(1))
	if err != nil {
		return nil, nil, err
	}
	b := &backlogBench{db: db, queue: queue.NewMySQLQueue(db, queue.Options{Owner: "bench"}), options: o, log: log}
	costs := make(map[string][]cost)
	for _, n := range o.backlog {
		if err := b.fill(ctx, n); err != nil {
			return nil, nil, fmt.Errorf("make %d tasks wait: %w", n, err)
		}
		if err := b.measure(ctx, n, costs); err != nil {
			return nil, nil, err
		}
	}
	for _, op := range b.operations() {
		c := costs[op.name]
		list = append(list, growth{op.name, c[0], c[1], c[1].Millis.Median / c[0].Millis.Median})
	}
	plans, err = b.plans(ctx)
	return list, plans, err
}

// operations returns all that are measured, in an order in which each finds what
// it needs and leaves as many tasks as it found in the end.
func (b *backlogBench) operations() []operation {
	return []operation{
		{fmt.Sprintf("enqueue %d", backlogBatch), b.enqueue},
		{fmt.Sprintf("enqueue %d that wait already", backlogBatch), b.enqueueAgain},
		{fmt.Sprintf("claim %d", backlogBatch), b.claim},
		{fmt.Sprintf("extend %d", backlogBatch), b.extend},
		{fmt.Sprintf("finish %d", backlogBatch), b.finish},
		{"sweep", func(ctx context.Context) error { _, err := b.queue.Sweep(ctx); return err }},
		{"fanning out, 20 members", b.fanningOut},
		{fmt.Sprintf("full, limit %d", fullLimit), func(ctx context.Context) error { _, err := b.queue.Full(ctx, fullLimit); return err }},
		{"stats", func(ctx context.Context) error { _, err := b.queue.Stats(ctx); return err }},
	}
}

// measure runs the operations in turn, a few times to warm up and then as often
// as the options say.
func (b *backlogBench) measure(ctx context.Context, waiting int, costs map[string][]cost) error {
	const warmUp = 2
	times, rows := make(map[string][]float64), make(map[string][]float64)
	if err := b.listen(ctx); err != nil {
		return err
	}
	for i := range warmUp + b.options.repetitions {
		for _, op := range b.operations() {
			took, read, err := b.once(ctx, op)
			if err != nil {
				return fmt.Errorf("%s with %d waiting: %w", op.name, waiting, err)
			}
			if i >= warmUp {
				times[op.name], rows[op.name] = append(times[op.name], milliseconds(took)), append(rows[op.name], read)
			}
		}
	}
	for _, op := range b.operations() {
		c := cost{waiting, spreadOf(times[op.name]), spreadOf(rows[op.name]).Median}
		costs[op.name] = append(costs[op.name], c)
		fmt.Fprintf(b.log, "%d waiting, %s: %s ms, %s rows read\n", waiting, op.name, c.Millis, number(c.Rows))
	}
	return nil
}

// once returns how long the operation took and how many rows it read.
func (b *backlogBench) once(ctx context.Context, op operation) (took time.Duration, rows float64, err error) {
	before, err := b.rowsRead(ctx)
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if err := op.do(ctx); err != nil {
		return 0, 0, err
	}
	took = time.Since(start)
	after, err := b.rowsRead(ctx)
	return took, after - before - b.silence, err
}

// listen finds out what reading the counters adds to them.
func (b *backlogBench) listen(ctx context.Context) error {
	b.silence = 0
	_, rows, err := b.once(ctx, operation{"nothing", func(context.Context) error { return nil }})
	b.silence = rows
	return err
}

// rowsRead returns how many rows and index entries this connection has read.
func (b *backlogBench) rowsRead(ctx context.Context) (sum float64, err error) {
	rows, err := b.db.QueryContext(ctx, "SHOW SESSION STATUS LIKE 'Handler\\_read\\_%'")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var n float64
		if err := rows.Scan(&name, &n); err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, rows.Err()
}

// fresh returns tasks that nobody enqueued before.
func (b *backlogBench) fresh(n int) []queue.New {
	batch := make([]queue.New, n)
	for i := range batch {
		b.made++
		batch[i] = tasks.NewAddContact(member.ID(b.made), member.ID(b.made+1))
	}
	return batch
}

func (b *backlogBench) enqueue(ctx context.Context) error {
	_, err := b.queue.Enqueue(ctx, b.fresh(backlogBatch))
	return err
}

// enqueueAgain enqueues the tasks of the last call of enqueue.
func (b *backlogBench) enqueueAgain(ctx context.Context) error {
	b.made -= backlogBatch
	return b.enqueue(ctx)
}

func (b *backlogBench) claim(ctx context.Context) (err error) {
	b.claimed, err = b.queue.Claim(ctx, tasks.QueueDefault, backlogBatch, time.Minute)
	if err == nil && len(b.claimed) != backlogBatch {
		err = fmt.Errorf("claimed %d tasks, want %d", len(b.claimed), backlogBatch)
	}
	return err
}

func (b *backlogBench) extend(ctx context.Context) error {
	return orLost(b.queue.Extend(ctx, b.claimed, time.Minute))
}

func (b *backlogBench) finish(ctx context.Context) error {
	results := make([]queue.Result, len(b.claimed))
	for i, t := range b.claimed {
		results[i].Task = t
	}
	return orLost(b.queue.Finish(ctx, results))
}

// orLost makes an error of leases that were lost.
func orLost(lost int, err error) error {
	if err == nil && lost > 0 {
		err = fmt.Errorf("%d leases were lost", lost)
	}
	return err
}

func (b *backlogBench) fanningOut(ctx context.Context) error {
	keys := make([]uint64, 20)
	for i := range keys {
		keys[i] = uint64(i + 1)
	}
	_, err := b.queue.Active(ctx, tasks.FanOut, keys)
	return err
}
