package main

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
)

// ours is activityd's queue with the real handlers, as a service with default
// settings runs them.
type ours struct {
	*ground
	notifier *queue.Notifier
	queue    *queue.MySQLQueue
	store    *contacts.MySQL
	pool     queue.PoolOptions
}

func newOurs(g *ground) *ours {
	notifier := &queue.Notifier{}
	q := queue.NewMySQLQueue(g.db, queue.Options{Notifier: notifier, Owner: "bench"})
	return &ours{ground: g, notifier: notifier, queue: q, store: contacts.NewMySQL(g.db), pool: queue.PoolOptions{Workers: tasks.DefaultWorkers()}}
}

// work implements [side].
func (o *ours) work(ctx context.Context, done *countdown) (stop func() error, err error) {
	handlers := tasks.Handlers(o.index, o.store, o.queue, tasks.HandlerOptions{})
	return o.workWith(ctx, finishing{o.queue, done}, handlers), nil
}

// workWith starts a pool over a queue that stands before the real one.
func (o *ours) workWith(ctx context.Context, q queue.Store, handlers map[string]queue.Handler) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	pool := queue.NewPool(q, o.notifier, handlers, o.log, o.pool)
	go func() { ended <- pool.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// left implements [side].
func (o *ours) left(ctx context.Context) (n int, err error) {
	err = o.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks").Scan(&n)
	return n, err
}

// finishing counts tasks once their end is committed.
type finishing struct {
	queue.Store
	done *countdown
}

// Finish implements [queue.Store].
func (f finishing) Finish(ctx context.Context, results []queue.Result) (lost int, err error) {
	lost, err = f.Store.Finish(ctx, results)
	if err == nil {
		finished := 0
		for _, r := range results {
			if r.Err == nil {
				finished++
			}
		}
		f.done.done(finished - lost)
	}
	return lost, err
}

// inBatches enqueues through the Go API, n tasks at a time.
func (o *ours) inBatches(n int) func(context.Context, []contacts.Pair) error {
	return func(ctx context.Context, pairs []contacts.Pair) error {
		for some := range slices.Chunk(pairs, n) {
			batch := make([]queue.New, len(some))
			for i, p := range some {
				batch[i] = tasks.NewAddContact(p.User, p.Contact)
			}
			if _, err := o.queue.Enqueue(ctx, batch); err != nil {
				return err
			}
		}
		return nil
	}
}

// insertTask is what a site adds to the transaction of its change.
const insertTask = "INSERT INTO tasks (type, subject, args) VALUES ('add_contact', ?, JSON_OBJECT('contact_id', ?))"

// oneByOne inserts tasks by plain SQL, a transaction each.
func (o *ours) oneByOne(producers int) func(context.Context, []contacts.Pair) error {
	return func(ctx context.Context, pairs []contacts.Pair) error {
		return inParallel(ctx, producers, pairs, func(ctx context.Context, p contacts.Pair) error {
			_, err := o.db.ExecContext(ctx, insertTask, p.User, p.Contact)
			o.notifier.Notify(tasks.QueueDefault)
			return err
		})
	}
}

// withChange inserts a contact and its task in one transaction each.
func (o *ours) withChange(producers int) func(context.Context, []contacts.Pair) error {
	return func(ctx context.Context, pairs []contacts.Pair) error {
		return inParallel(ctx, producers, pairs, func(ctx context.Context, p contacts.Pair) error {
			err := inTransaction(ctx, o.db, func(tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, insertContact, p.User, p.Contact, time.Now().Unix()); err != nil {
					return err
				}
				_, err := tx.ExecContext(ctx, insertTask, p.User, p.Contact)
				return err
			})
			o.notifier.Notify(tasks.QueueDefault)
			return err
		})
	}
}

// insertContact is the change that an add_contact task is about.
const insertContact = "INSERT INTO contacts (user_id, contact_id, created_at) VALUES (?, ?, ?)"

// inTransaction commits what do does, or undoes it.
func inTransaction(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback() // the error to tell is the first one
		return err
	}
	return tx.Commit()
}
