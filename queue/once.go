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
	ofKey, ofBatch := sha256.Sum256([]byte(key)), sha256.Sum256(raw)
	err = mysql.Transact(ctx, q.db, fmt.Sprintf("enqueue %d tasks once", len(batch)), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO idempotency_keys (key_hash, batch_hash) VALUES (?, ?)", ofKey[:], ofBatch[:])
		if replayed = mysql.IsDuplicate(err); replayed { // its row is locked by that
			ids, err = replay(ctx, tx, ofKey[:], ofBatch[:])
			return err
		}
		if err == nil {
			ids, err = enqueue(ctx, tx, q.options.Kinds, batch, false)
		}
		if err != nil {
			return err
		}
		text, err := json.Marshal(ids)
		if err == nil {
			_, err = tx.ExecContext(ctx, "UPDATE idempotency_keys SET task_ids = ? WHERE key_hash = ?", string(text), ofKey[:])
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if !replayed {
		q.committed(batch)
	}
	return ids, replayed, nil
}

// replay returns the ids that a key got when it was first used.
func replay(ctx context.Context, tx *sql.Tx, ofKey, ofBatch []byte) (ids []uint64, err error) {
	var batch, list []byte
	err = tx.QueryRowContext(ctx, "SELECT batch_hash, task_ids FROM idempotency_keys WHERE key_hash = ?", ofKey).Scan(&batch, &list)
	switch {
	case err != nil:
		return nil, err
	case !bytes.Equal(batch, ofBatch):
		return nil, ErrKeyReused
	}
	err = json.Unmarshal(list, &ids)
	return ids, err
}

// forgetKeys deletes idempotency keys that are too old and not locked.
func (q *Queue) forgetKeys(ctx context.Context) (more bool, err error) {
	old := "created_at <= " + now + " - " + strconv.FormatInt(KeyTTL.Milliseconds(), 10)
	err = mysql.Transact(ctx, q.db, "forget idempotency keys", func(tx *sql.Tx) error {
		keys, err := mysql.Select(ctx, tx, mysql.Column[any], "SELECT key_hash FROM idempotency_keys FORCE INDEX (created) WHERE "+old+
			" ORDER BY created_at LIMIT ? FOR UPDATE SKIP LOCKED", sweepSize)
		if more = len(keys) == sweepSize; err == nil && len(keys) > 0 {
			_, err = tx.ExecContext(ctx, "DELETE idempotency_keys FROM idempotency_keys FORCE INDEX (PRIMARY) WHERE "+old+" AND key_hash IN ("+mysql.Marks(len(keys))+")", keys...)
		}
		return err
	})
	return more, err
}
