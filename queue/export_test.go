package queue

import (
	"context"
	"database/sql"
	"time"
)

// SetMaxKeys makes the queue remember fewer keys, and look at once how many there are.
func (q *Queue) SetMaxKeys(most int) {
	q.keyLimit.most, q.keyLimit.again = most, time.Time{}
}

// LookCheaply makes a claim that finds too few tasks look at the front of its queue, however
// long a busy machine takes for that.
func (q *Queue) LookCheaply() { q.cursors.cheapLook = time.Hour }

// EnqueueIn enqueues in a transaction that the test commits.
func (q *Queue) EnqueueIn(ctx context.Context, tx *sql.Tx, batch []New) ([]uint64, error) {
	batch, err := Validate(batch)
	if err != nil {
		return nil, err
	}
	done, err := enqueue(ctx, tx, q.options.Kinds, batch, false)
	if err != nil {
		return nil, err
	}
	return done.ids, nil
}
