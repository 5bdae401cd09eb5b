package once_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/activityd/activityd/internal/testing/oncetest"
	"github.com/activityd/activityd/once"
)

func Example() {
	o := once.New(oncetest.NewMemory(time.Now), once.Options{}) // or once.NewMySQL(db), once.NewRedis(client, …)
	digest := once.Key{Name: "digest/2026-11-22", Attempts: 3, Keep: 48 * time.Hour}
	for range 2 { // as two processes would
		did, err := o.Do(context.Background(), digest, func(_ context.Context, a once.Attempt) error {
			if a.Number == 1 {
				return errors.New("the mail server is away")
			}
			fmt.Printf("sent in attempt %d\n", a.Number)
			return nil
		})
		fmt.Println(did, err)
	}
	// Output:
	// sent in attempt 2
	// true <nil>
	// false <nil>
}

// A process that was paused for longer than its lease does not know that another attempt has
// begun. A resource that keeps the highest fence it has seen refuses its changes:
//
//	UPDATE … SET …, fence = ?
//	WHERE id = ? AND fence <= ?
//
// The resource has to count the rows that match, as connections of package mysql do, not the
// rows that change (clientFoundRows=true).
func ExampleAttempt_fence() {
	db, mock, _ := sqlmock.New() // stands for the database of the resource
	defer func() { _ = db.Close() }()
	mock.ExpectExec("UPDATE").WillReturnResult(sqlmock.NewResult(0, 0)) // the row has a higher fence

	o := once.New(oncetest.NewMemory(time.Now), once.Options{})
	_, err := o.Do(context.Background(), once.Key{Name: "invoice/7", Attempts: 1}, func(ctx context.Context, a once.Attempt) error {
		return pay(ctx, db, 7, a.Fence)
	})
	fmt.Println(err)
	// Output: invoice/7: all attempts failed, 1 of them: a later attempt has begun
}

// pay changes an invoice, unless a later attempt has changed it.
func pay(ctx context.Context, db *sql.DB, id int, fence once.Fence) error {
	result, err := db.ExecContext(ctx,
		"UPDATE invoices SET paid = 1, fence = ? WHERE id = ? AND fence <= ?", fence, id, fence)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(errors.New("a later attempt has begun"), err)
	}
	return nil
}

// A leader works until it is stopped, or loses its lease; then another leader begins.
func ExampleOnce_Hold() {
	o := once.New(oncetest.NewMemory(time.Now), once.Options{})
	for leader := range 2 {
		ctx, stop := context.WithCancelCause(context.Background())
		err := o.Hold(ctx, once.Key{Name: "leader"}, func(ctx context.Context, a once.Attempt) error {
			fmt.Printf("leader %d begins with fence %d\n", leader, a.Fence)
			stop(errors.New("deployed"))
			<-ctx.Done()
			return context.Cause(ctx)
		})
		fmt.Println(err)
	}
	// Output:
	// leader 0 begins with fence 1
	// deployed
	// leader 1 begins with fence 2
	// deployed
}

// With NoWait a process leaves at once when another process works.
func ExampleKey_noWait() {
	o := once.New(oncetest.NewMemory(time.Now), once.Options{})
	k := once.Key{Name: "nightly", NoWait: true}
	work := func(context.Context, once.Attempt) error {
		_, err := o.Do(context.Background(), k, nil) // as another process would
		fmt.Println(errors.Is(err, once.ErrBusy))
		return nil
	}
	fmt.Println(o.Do(context.Background(), k, work))
	// Output:
	// true
	// true <nil>
}
