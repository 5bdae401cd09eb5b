package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/queue"
)

// pair is the subject of a task: a reader's contact was changed.
type pair struct {
	User    int `json:"user"`
	Contact int `json:"contact"`
}

// pairOf is the i-th pair of a run: pairs of a run are different, and each is in the site.
func (s size) pairOf(i int) pair {
	user, k := i%s.readers, i/s.readers%circle
	return pair{firstMember + user, firstMember + (user*31+k*(s.members/circle+1))%s.members}
}

// work is the work of tasks: the contact's last upload is read, and written to the set.
func (b *bench) work(ctx context.Context, pairs []pair) error {
	args := make([]any, 0, 2*len(pairs))
	for _, p := range pairs {
		args = append(args, p.User, p.Contact)
	}
	rows, err := b.db.QueryContext(ctx, "SELECT c.user_id, c.contact_id, COALESCE(u.last_upload, 0) FROM contacts c JOIN users u ON u.id = c.contact_id"+
		" WHERE (c.user_id, c.contact_id) IN (("+strings.Repeat("?, ?), (", len(pairs)-1)+"?, ?))", args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	pipe := b.client.Pipeline()
	for rows.Next() {
		var user, contact int
		var lastUpload float64
		if err := rows.Scan(&user, &contact, &lastUpload); err != nil {
			return err
		}
		key := "bench_" + strconv.Itoa(user)
		pipe.ZAddGT(ctx, key, redis.Z{Score: lastUpload, Member: strconv.Itoa(contact)})
		pipe.ZRemRangeByRank(ctx, key, 0, -(stars + 1))
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if pipe.Len() != 2*len(pairs) {
		return fmt.Errorf("%d of %d pairs are contacts", pipe.Len()/2, len(pairs))
	}
	_, err = pipe.Exec(ctx)
	return err
}

// tasks is a queue with its workers, and a way to enqueue.
type tasks struct {
	name    string
	atOnce  int // pairs that a call enqueues
	callers int // goroutines that enqueue
	// start starts workers; done is called with the number of tasks that were done. The queue is usable until stop.
	start func(ctx context.Context, done func(int)) (enqueue func(context.Context, []pair) error, stop func() error, err error)
	// sync is how Redis syncs its file; "": each second.
	sync string
}

// contender runs tasks end to end: workers wait when the first is enqueued.
func (t *tasks) contender(b *bench) contender {
	return contender{
		name:    t.name,
		prepare: func(ctx context.Context) error { return b.setSync(ctx, t.sync) },
		run: func(ctx context.Context) (outcome, error) {
			var done atomic.Int64
			enqueue, stop, err := t.start(ctx, func(n int) { done.Add(int64(n)) })
			if err != nil {
				return outcome{}, err
			}
			n := b.size.tasks
			err = parallel(ctx, t.callers, (n+t.atOnce-1)/t.atOnce, func(ctx context.Context, _, i int) error {
				var pairs []pair
				for at := i * t.atOnce; at < min((i+1)*t.atOnce, n); at++ {
					pairs = append(pairs, b.size.pairOf(at))
				}
				return enqueue(ctx, pairs)
			})
			if err == nil {
				err = await(ctx, func(context.Context) (bool, error) { return done.Load() >= int64(n), nil })
			}
			return outcome{ops: n}, errors.Join(err, stop())
		},
	}
}

func (b *bench) setSync(ctx context.Context, sync string) error {
	if sync == "" {
		sync = "everysec"
	}
	return b.client.ConfigSet(ctx, "appendfsync", sync).Err()
}

// kind is that of activityd's tasks, with its default queue.
const kind = "pair"

// insertTask is the statement that a site adds to the transaction of its change.
const insertTask = "INSERT INTO tasks (type, subject, args) VALUES ('" + kind + "', ?, ?)"

// batches does the tasks of a claim at once.
type batches struct {
	*bench
	done func(int)
}

// Handle implements [queue.Handler].
func (w batches) Handle(ctx context.Context, list []queue.Task) []queue.Outcome {
	outcomes, pairs := make([]queue.Outcome, len(list)), make([]pair, len(list))
	var err error
	for i, t := range list {
		err = errors.Join(err, json.Unmarshal(t.Payload, &pairs[i]))
	}
	if err == nil {
		err = w.work(ctx, pairs)
	}
	for i := range outcomes {
		outcomes[i].Err = err
	}
	if err == nil {
		w.done(len(list))
	}
	return outcomes
}

// pool starts workers over a queue.
func (b *bench) pool(ctx context.Context, handler queue.Handler) (q *queue.Queue, stop func() error) {
	q = queue.NewQueue(b.db, queue.Options{Kinds: queue.Kinds{{Name: kind}}})
	p := queue.NewPool(q, map[string]queue.Handler{kind: handler}, queue.PoolOptions{Workers: []queue.Workers{{Queue: queue.DefaultQueue, Count: 2, Batch: 256}}})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	return q, func() error { cancel(); return <-ended }
}

// ours returns activityd's queue, with a way to enqueue.
func (b *bench) ours(name string, atOnce, callers int, enqueue func(ctx context.Context, q *queue.Queue, pairs []pair) error) *tasks {
	return &tasks{name: name, atOnce: atOnce, callers: callers, start: func(ctx context.Context, done func(int)) (func(context.Context, []pair) error, func() error, error) {
		q, stop := b.pool(ctx, batches{b, done})
		return func(ctx context.Context, pairs []pair) error { return enqueue(ctx, q, pairs) }, stop, nil
	}}
}

func inBatches(ctx context.Context, q *queue.Queue, pairs []pair) error {
	list := make([]queue.New, len(pairs))
	for i, p := range pairs {
		list[i] = queue.New{Kind: kind, Key: uint64(p.User), Args: p}
	}
	_, err := q.Enqueue(ctx, list)
	return err
}

func (b *bench) bySQL(ctx context.Context, q *queue.Queue, pairs []pair) error {
	text, err := json.Marshal(pairs[0])
	if err == nil {
		_, err = b.db.ExecContext(ctx, insertTask, pairs[0].User, string(text))
	}
	q.Notify(queue.DefaultQueue)
	return err
}

// withChange enqueues in the transaction of a change of the contact.
func (b *bench) withChange(ctx context.Context, q *queue.Queue, pairs []pair) error {
	tx, err := b.change(ctx, pairs[0])
	if err != nil {
		return err
	}
	if _, err = q.EnqueueTx(ctx, tx, queue.New{Kind: kind, Key: uint64(pairs[0].User), Args: pairs[0]}); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	err = tx.Commit()
	q.Notify(queue.DefaultQueue)
	return err
}

// change begins a transaction that changes a contact.
func (b *bench) change(ctx context.Context, p pair) (*sql.Tx, error) {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	if _, err = tx.ExecContext(ctx, "UPDATE contacts SET is_family = 1 - is_family WHERE user_id = ? AND contact_id = ?", p.User, p.Contact); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

// asynq returns asynq on the same Redis, where each task is done by itself. changes says that
// the change is committed before its task is enqueued: asynq cannot join the transaction.
func (b *bench) asynq(name string, changes bool, sync string) *tasks {
	return &tasks{name: name, atOnce: 1, callers: 16, sync: sync, start: func(_ context.Context, done func(int)) (func(context.Context, []pair) error, func() error, error) {
		return b.startAsynq(asynq.Config{Concurrency: 20, TaskCheckInterval: 10 * time.Millisecond}, changes, func(ctx context.Context, p pair) error {
			err := b.work(ctx, []pair{p})
			if err == nil {
				done(1)
			}
			return err
		})
	}}
}

func (b *bench) startAsynq(config asynq.Config, changes bool, work func(context.Context, pair) error) (enqueue func(context.Context, []pair) error, stop func() error, err error) {
	at := asynq.RedisClientOpt{Network: "unix", Addr: b.redis.Addr()}
	config.LogLevel = asynq.FatalLevel
	client, server := asynq.NewClient(at), asynq.NewServer(at, config)
	err = server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		var p pair
		if err := json.Unmarshal(task.Payload(), &p); err != nil {
			return errors.Join(err, asynq.SkipRetry)
		}
		return work(ctx, p)
	}))
	enqueue = func(ctx context.Context, pairs []pair) error {
		if changes {
			tx, err := b.change(ctx, pairs[0])
			if err == nil {
				err = tx.Commit()
			}
			if err != nil {
				return err
			}
		}
		text, err := json.Marshal(pairs[0])
		if err == nil {
			_, err = client.EnqueueContext(ctx, asynq.NewTask(kind, text))
		}
		return err
	}
	return enqueue, func() error { server.Shutdown(); return client.Close() }, err
}

// benchQueue compares activityd's queue with asynq, and how soon each starts a task.
func (b *bench) benchQueue(ctx context.Context) error {
	if err := b.makeSite(ctx); err != nil {
		return err
	}
	const one, after, always = "asynq", "asynq, after the change", "asynq, appendfsync always"
	const batch, single, joint = "activityd, 1000 at once", "activityd, by SQL, each for itself", "activityd, in the transaction of the change"
	var list []contender
	for _, t := range []*tasks{
		b.asynq(one, false, ""), b.asynq(after, true, ""), b.asynq(always, false, "always"),
		b.ours(batch, 1000, 1, inBatches), b.ours(single, 1, 16, b.bySQL), b.ours(joint, 1, 16, b.withChange),
	} {
		list = append(list, t.contender(b))
	}
	all, err := b.rounds(ctx, list...)
	if err != nil {
		return err
	}
	part := fmt.Sprintf("Runs of %d tasks, each of which reads a row and writes to a set", b.size.tasks)
	b.report.rates(part, "tasks/s", all, map[string]bound{batch: atLeast(2), single: atLeast(1.2)}, one, batch, single)
	b.report.rates(part+", each after a change", "tasks/s", all, nil, after, joint)
	b.report.rates(part+", each synced", "tasks/s", all, nil, always, batch)
	return errors.Join(b.benchWakes(ctx), b.setSync(ctx, ""))
}

// benchWakes measures the times from enqueuing to the start, while a worker is idle.
func (b *bench) benchWakes(ctx context.Context) error {
	started := make(chan time.Time, 1)
	wakes := func(ctx context.Context, enqueue func(context.Context, []pair) error) (o outcome, err error) {
		for ; o.ops < b.size.wakes; o.ops++ {
			select { // a worker is idle for a moment, of another length each time
			case <-time.After(time.Duration(100+o.ops*37%400) * time.Millisecond):
			case <-ctx.Done():
				return o, context.Cause(ctx)
			}
			began := time.Now()
			if err := enqueue(ctx, []pair{b.size.pairOf(o.ops)}); err != nil {
				return o, err
			}
			select {
			case at := <-started:
				o.times = append(o.times, milliseconds(at.Sub(began)))
			case <-ctx.Done():
				return o, context.Cause(ctx)
			}
		}
		return o, nil
	}
	const ours, theirs = "activityd", "asynq"
	all, err := b.rounds(ctx, contender{name: ours, run: func(ctx context.Context) (o outcome, err error) {
		q, stop := b.pool(ctx, queue.Handle(func(context.Context, queue.Task, pair) error { started <- time.Now(); return nil }))
		o, err = wakes(ctx, func(ctx context.Context, pairs []pair) error { return inBatches(ctx, q, pairs) })
		return o, errors.Join(err, stop())
	}}, contender{name: theirs, run: func(ctx context.Context) (o outcome, err error) {
		enqueue, stop, err := b.startAsynq(asynq.Config{Concurrency: 20}, false, func(context.Context, pair) error { started <- time.Now(); return nil })
		if err == nil {
			o, err = wakes(ctx, enqueue)
		}
		return o, errors.Join(err, stop())
	}})
	if err != nil {
		return err
	}
	for _, name := range []string{theirs, ours} {
		b.report.times("From enqueuing to the start, of an idle worker", all[name], name, nil)
	}
	return nil
}
