// Command go is a shop whose receipts are mailed by tasks, and that counts its orders once a minute.
// DSN names its database, as in user:password@tcp(127.0.0.1:3306)/shop. It works until it is interrupted.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/activityd/activityd/once"
	"github.com/activityd/activityd/queue"
)

// receipt is the payload of the kind of task of that name.
type receipt struct {
	Order int64 `json:"order"`
}

func mail(_ context.Context, t queue.Task, r receipt) error {
	if t.Attempts == 1 { // the queue tries again, in half a second
		return errors.New("the mail server is away")
	}
	fmt.Printf("mailed the receipt of order %d in attempt %d\n", r.Order, t.Attempts)
	return nil
}

// order writes an order and its task, both or neither.
func order(ctx context.Context, db *sql.DB, q *queue.Queue) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after the commit it does nothing
	res, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES ()")
	if err != nil {
		return err
	}
	id, _ := res.LastInsertId() // this driver's has no error
	if _, err := q.EnqueueTx(ctx, tx, queue.New{Kind: "receipt", Args: receipt{id}}); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	q.Notify(queue.DefaultQueue) // else a worker finds it within a second
	return nil
}

// count counts the orders once in each minute, in one of all processes.
func count(ctx context.Context, db *sql.DB) {
	o := once.New(once.NewMySQL(db), once.Options{})
	for ctx.Err() == nil {
		minute := time.Now().UTC().Truncate(time.Minute)
		_, err := o.Do(ctx, once.Key{Name: minute.Format("count/2006-01-02T15:04"), Attempts: 3}, func(ctx context.Context, a once.Attempt) error {
			var n int
			err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM orders").Scan(&n)
			fmt.Printf("counted %d orders in attempt %d\n", n, a.Number)
			return err
		})
		if err != nil && ctx.Err() == nil {
			log.Print(err) // all attempts failed: the next minute is another name
		}
		select {
		case <-time.After(time.Until(minute.Add(time.Minute))):
		case <-ctx.Done():
		}
	}
}

func run(ctx context.Context, dsn string) error {
	db, err := queue.OpenDB(dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id BIGINT AUTO_INCREMENT PRIMARY KEY)")
	if err := errors.Join(err, queue.Migrate(ctx, db), once.Migrate(ctx, db)); err != nil {
		return err
	}
	q := queue.NewQueue(db, queue.Options{Kinds: queue.Kinds{{Name: "receipt"}}})
	if err := order(ctx, db, q); err != nil {
		return err
	}
	var counting sync.WaitGroup
	defer counting.Wait() // before the database is closed
	counting.Go(func() { count(ctx, db) })
	handlers := map[string]queue.Handler{"receipt": queue.Handle(mail)}
	return queue.NewPool(q, handlers, queue.PoolOptions{Workers: []queue.Workers{{Queue: queue.DefaultQueue, Count: 4}}}).Run(ctx)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv("DSN"))
	stop()
	if err != nil {
		log.Fatal(err)
	}
}
