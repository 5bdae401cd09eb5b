package queue

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// KeyTTL is how long the key of [Queue.EnqueueOnce] is remembered.
const KeyTTL = 24 * time.Hour

// ErrKeyReused says that a key of [Queue.EnqueueOnce] stands for another batch.
var ErrKeyReused = errors.New("the idempotency key was used for other tasks")

// EnqueueOnce is [Queue.Enqueue] for a client that may have to repeat itself. A batch that was enqueued under the same key within
// [KeyTTL] is not enqueued again: its ids are those of the first time, and replayed is true. Another batch under the key fails with
// [ErrKeyReused]. Of two calls at once, the second waits for the commit of the first.
func (q *Queue) EnqueueOnce(ctx context.Context, key string, batch []New) (ids []uint64, replayed bool, err error) {
	batch, err = q.options.Kinds.Validate(batch)
	if err != nil {
		return nil, false, err
	}
	raw, err := json.Marshal(batch)
	if err != nil {
		return nil, false, fmt.Errorf("batch of %d tasks: %w", len(batch), err)
	}
	once := once{sha256.Sum256([]byte(key)), sha256.Sum256(raw)}
	var done *enqueuing
	for range 2 { // a key can be forgotten between the two looks at it
		err = mysql.Transact(ctx, q.db, fmt.Sprintf("enqueue %d tasks once", len(batch)), func(tx *sql.Tx) (err error) {
			ids, done, err = once.enqueue(ctx, tx, q.options.Kinds, batch)
			return err
		})
		if !errors.Is(err, sql.ErrNoRows) {
			break
		}
	}
	if err != nil {
		return nil, false, err
	}
	if done != nil {
		q.committed(batch, done)
	}
	return ids, done == nil, nil
}

// once is a batch with the hashes of its key and of itself.
type once struct{ key, batch [sha256.Size]byte }

// enqueue enqueues the batch, or returns the ids that were stored under the key, and no enqueuing. It writes the key first.
func (o once) enqueue(ctx context.Context, tx *sql.Tx, kinds Kinds, batch []New) (ids []uint64, done *enqueuing, err error) {
	_, err = tx.ExecContext(ctx, "INSERT INTO idempotency_keys (key_hash, batch_hash) VALUES (?, ?)", o.key[:], o.batch[:])
	if mysql.IsDuplicate(err) {
		ids, err = o.replay(ctx, tx)
		return ids, nil, err
	}
	if err == nil {
		done, err = enqueue(ctx, tx, kinds, batch, false)
	}
	if err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal(done.ids)
	if err == nil {
		_, err = tx.ExecContext(ctx, "UPDATE idempotency_keys SET task_ids = ? WHERE key_hash = ?", string(text), o.key[:])
	}
	return done.ids, done, err
}

// replay returns the ids that the key got when it was first used.
func (o once) replay(ctx context.Context, tx *sql.Tx) (ids []uint64, err error) {
	var batch, list []byte
	err = tx.QueryRowContext(ctx, "SELECT batch_hash, task_ids FROM idempotency_keys WHERE key_hash = ?", o.key[:]).Scan(&batch, &list)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(batch, o.batch[:]) {
		return nil, ErrKeyReused
	}
	err = json.Unmarshal(list, &ids)
	return ids, err
}

// forgetKeys deletes idempotency keys that are too old and not locked.
func (q *Queue) forgetKeys(ctx context.Context) (more bool, err error) {
	old := "created_at <= " + now + " - " + strconv.FormatInt(KeyTTL.Milliseconds(), 10)
	var n int
	err = mysql.Transact(ctx, q.db, "forget idempotency keys", func(tx *sql.Tx) error {
		keys, err := mysql.Select(ctx, tx, mysql.Column[any], "SELECT key_hash FROM idempotency_keys FORCE INDEX (created) WHERE "+old+" ORDER BY created_at LIMIT ? FOR UPDATE SKIP LOCKED", sweepSize)
		if n = len(keys); err == nil && n > 0 {
			_, err = tx.ExecContext(ctx, "DELETE idempotency_keys FROM idempotency_keys FORCE INDEX (PRIMARY) WHERE "+old+" AND key_hash IN ("+mysql.Marks(n)+")", keys...)
		}
		return err
	})
	return n == sweepSize, err
}
