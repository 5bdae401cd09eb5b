package queue_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/DATA-DOG/go-sqlmock"

	"github.com/activityd/activityd/queue"
)

// Resize is the payload of the kind of task that is named so.
type Resize struct {
	Photo string `json:"photo"`
	Width int    `json:"width"`
}

// A handler is a function of the payload. Its error decides on the task.
func ExampleHandle() {
	resize := queue.Handle(func(_ context.Context, t queue.Task, r Resize) error {
		switch {
		case r.Width == 0:
			return queue.Permanent(errors.New("no width")) // it is dead at once
		case t.Attempts > 1:
			return queue.Later(time.Minute, errors.New("the store is away")) // the attempt does not count
		}
		fmt.Printf("%s is %d wide\n", r.Photo, r.Width)
		return nil
	})
	all := resize.Handle(context.Background(), []queue.Task{ // as a pool does
		{Kind: "resize", Payload: []byte(`{"photo": "a.jpg", "width": 640}`), Attempts: 1},
		{Kind: "resize", Payload: []byte(`{"photo": "b.jpg"}`), Attempts: 1},
	})
	fmt.Println(all[1].Err)
	// Output:
	// a.jpg is 640 wide
	// no width
}

// The task is there if, and only if, the photo is.
func ExampleQueue_EnqueueTx() {
	db, mock, _ := sqlmock.New() // in the place of queue.OpenDB
	defer func() { _ = db.Close() }()
	mock.ExpectBegin()
	mock.ExpectExec("INSERT INTO photos").WillReturnResult(sqlmock.NewResult(7, 1))
	mock.ExpectExec("INSERT INTO tasks").WillReturnResult(sqlmock.NewResult(31, 1))
	mock.ExpectCommit()

	q := queue.NewQueue(db, queue.Options{Kinds: queue.Kinds{{Name: "resize"}}})
	id, err := upload(context.Background(), db, q, "a.jpg")
	fmt.Println(id, err, mock.ExpectationsWereMet())
	// Output: 31 <nil> <nil>
}

func upload(ctx context.Context, db *sql.DB, q *queue.Queue, name string) (task uint64, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // after the commit it does nothing
	if _, err := tx.ExecContext(ctx, "INSERT INTO photos (name) VALUES (?)", name); err != nil {
		return 0, err
	}
	ids, err := q.EnqueueTx(ctx, tx, queue.New{Kind: "resize", Args: Resize{name, 640}})
	if err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	q.Notify(queue.DefaultQueue) // workers of this process look at once
	return ids[0], nil
}

// The tasks of an album run one at a time, in the order of their ids, however many processes work on the queue.
func ExampleKeyOf() {
	kinds := queue.Kinds{{Name: "resize", Ordered: true}, {Name: "cover", Ordered: true}}
	album := queue.KeyOf("album/7")
	batch, err := kinds.Validate([]queue.New{
		{Kind: "resize", Key: album, Args: Resize{"a.jpg", 640}},
		{Kind: "cover", Key: album, DedupeKey: "cover:album/7"}, // a single waiting task is enough
	})
	fmt.Println(album, string(batch[0].Payload), err)
	// Output:
	// 4441072152545420252 {"photo":"a.jpg","width":640} <nil>
}
