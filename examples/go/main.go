// Command go is a shop whose receipts are mailed by tasks, and that counts its orders every ten seconds, in one of
// all processes. DSN names its database, as in user:password@tcp(127.0.0.1:3306)/shop. It works until it is interrupted.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

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

// count returns the handler of the task that counts the orders.
func count(db *sql.DB) queue.Handler {
	return queue.Handle(func(ctx context.Context, t queue.Task, _ struct{}) error {
		var n int
		err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM orders").Scan(&n)
		fmt.Printf("counted %d orders in attempt %d\n", n, t.Attempts)
		return err
	})
}

func run(ctx context.Context, dsn string) error {
	db, err := queue.OpenDB(dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id BIGINT AUTO_INCREMENT PRIMARY KEY)")
	if err := errors.Join(err, queue.Migrate(ctx, db)); err != nil {
		return err
	}
	q := queue.NewQueue(db, queue.Options{Kinds: queue.Kinds{{Name: "receipt"}, {Name: "count"}}})
	if err := order(ctx, db, q); err != nil {
		return err
	}
	var periodic sync.WaitGroup
	defer periodic.Wait() // before the database is closed
	periodic.Go(func() {
		every := queue.Periodic{Name: "count", Cron: "*/10 * * * * *", Task: func(time.Time) queue.New { return queue.New{Kind: "count", Key: 1} }}
		if err := q.RunPeriodic(ctx, slog.Default(), every); err != nil {
			log.Print(err)
		}
	})
	handlers := map[string]queue.Handler{"receipt": queue.Handle(mail), "count": count(db)}
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
