package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// activityd is its queue with the real handlers, as a service with default settings
// runs them.
type activityd struct {
	*backend
	notifier *notify.Notifier
	queue    *queue.Queue
	store    *contacts.MySQL
	pool     queue.PoolOptions
}

func newActivityd(b *backend) *activityd {
	notifier := &notify.Notifier{}
	q := queue.NewQueue(b.db, queue.Options{Kinds: tasks.Kinds(), Notifier: notifier, Owner: "bench"})
	return &activityd{
		backend: b, notifier: notifier, queue: q, store: contacts.NewMySQL(b.db), pool: queue.PoolOptions{Kinds: tasks.Kinds(), Workers: tasks.DefaultWorkers()},
	}
}

// work implements [system].
func (a *activityd) work(ctx context.Context, done *countdown) (stop func() error, err error) {
	handlers := tasks.Handlers(a.index, a.store, a.queue, tasks.HandlerOptions{})
	return a.workWith(ctx, finishing{a.queue, done}, handlers), nil
}

// workWith starts a pool over a queue in front of the real one.
func (a *activityd) workWith(ctx context.Context, q queue.Store, handlers map[string]queue.Handler) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	o := a.pool
	o.Log, o.Notifier = a.log, a.notifier
	pool := queue.NewPool(q, handlers, o)
	go func() { ended <- pool.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// leftTasks counts the tasks that are not done, those of a lease as one.
const leftTasks = "SELECT (SELECT COUNT(*) FROM tasks) + (SELECT COUNT(*) FROM task_leases) + (SELECT COUNT(*) FROM parked_tasks WHERE state <> 'done')"

// left implements [system].
func (a *activityd) left(ctx context.Context) (n int, err error) {
	err = a.db.QueryRowContext(ctx, leftTasks).Scan(&n)
	return n, err
}

// finishing counts tasks once their end is committed, and their follow-ups as still to do.
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
				finished += 1 - len(r.Next)
			}
		}
		f.done.done(finished - lost)
	}
	return lost, err
}

// enqueue enqueues a task for each pair, in one call of the Go API.
func (a *activityd) enqueue(ctx context.Context, pairs []contacts.Pair) error {
	batch := make([]queue.New, len(pairs))
	for i, p := range pairs {
		batch[i] = tasks.NewAddContact(p.User, p.Contact)
	}
	_, err := a.queue.Enqueue(ctx, batch)
	return err
}

// insertTask is what a site adds to the transaction of its change.
const insertTask = "INSERT INTO tasks (type, subject, args) VALUES ('add_contact', ?, JSON_OBJECT('contact_id', ?))"

// insert inserts tasks with plain SQL, a transaction each.
func (a *activityd) insert(ctx context.Context, pairs []contacts.Pair) error {
	for _, p := range pairs {
		if _, err := a.db.ExecContext(ctx, insertTask, p.User, p.Contact); err != nil {
			return err
		}
		a.notifier.Notify(tasks.QueueDefault)
	}
	return nil
}

// insertWithChange inserts contacts and their tasks, a transaction for each pair.
func (a *activityd) insertWithChange(ctx context.Context, pairs []contacts.Pair) error {
	for _, p := range pairs {
		err := inTransaction(ctx, a.db, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, insertContact, p.User, p.Contact, time.Now().Unix()); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, insertTask, p.User, p.Contact)
			return err
		})
		if err != nil {
			return err
		}
		a.notifier.Notify(tasks.QueueDefault)
	}
	return nil
}

// insertContact is the change that an add_contact task is about.
const insertContact = "INSERT INTO contacts (user_id, contact_id, created_at) VALUES (?, ?, ?)"

// inTransaction commits what do does, or rolls it back.
func inTransaction(ctx context.Context, db *sql.DB, do func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback() // the error of do is the one to report
		return err
	}
	return tx.Commit()
}
