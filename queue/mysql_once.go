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
	"sync"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// keyEnd is when keys were written that are forgotten by now.
var keyEnd = now + " - " + strconv.FormatInt(KeyTTL.Milliseconds(), 10)

// keyLimit keeps the number of idempotency keys near MaxKeys. Once a minute it looks
// how old the first one too many is, in a sample: the hashes are spread evenly, so of
// every 256 keys one has a hash that begins with a zero byte. To read them all would
// take as long as a sweep must not.
type keyLimit struct {
	most   int
	mu     sync.Mutex
	before uint64 // when the newest key was made that is too many; 0: none is
	again  time.Time
}

const (
	keyLook         = time.Minute
	keySample       = 256
	firstKeyTooMany = "SELECT created_at FROM task_keys FORCE INDEX (PRIMARY) WHERE key_hash < X'01' ORDER BY created_at DESC LIMIT ?, 1"
)

func (l *keyLimit) look(ctx context.Context, db *sql.DB) (before uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.again) {
		return l.before, nil
	}
	err = db.QueryRowContext(ctx, firstKeyTooMany, l.most/keySample).Scan(&before)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	l.before, l.again = before, time.Now().Add(keyLook)
	return before, nil
}

// EnqueueOnce is Enqueue for a client that may have to repeat itself: a batch that was
// enqueued under the same key before is not enqueued again, the ids are those of then and
// replayed is true. Another batch under that key fails with [ErrKeyReused]. Keys are
// remembered for [KeyTTL], the newest [MaxKeys] of them.
//
// The key is written first: of two that come at once, the second waits for the commit of
// the first one, and then finds its ids.
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
	var found []uint64
	for range 2 { // a key can be forgotten between the two looks at it
		err = mysql.Transact(ctx, q.db, fmt.Sprintf("enqueue %d tasks once", len(batch)), func(tx *sql.Tx) (err error) {
			found, done, err = once.enqueue(ctx, tx, q.options.Kinds, batch)
			return err
		})
		if !errors.Is(err, sql.ErrNoRows) {
			break
		}
	}
	if err != nil {
		return nil, false, err
	}
	if done == nil {
		return found, true, nil
	}
	q.committed(batch, done)
	return done.ids, false, nil
}

// once is a batch with the hashes of its key and of itself.
type once struct{ key, batch [sha256.Size]byte }

// enqueue enqueues the batch, or returns the ids that were found under the key.
func (o once) enqueue(ctx context.Context, tx *sql.Tx, kinds Kinds, batch []New) (found []uint64, done *enqueuing, err error) {
	_, err = tx.ExecContext(ctx, "INSERT INTO task_keys (key_hash, batch_hash) VALUES (?, ?)", o.key[:], o.batch[:])
	if mysql.IsDuplicate(err) {
		found, err = o.replay(ctx, tx)
		return found, nil, err
	}
	if err == nil {
		done, err = enqueue(ctx, tx, kinds, batch, false)
	}
	if err != nil {
		return nil, nil, err
	}
	ids, err := json.Marshal(done.ids)
	if err == nil {
		_, err = tx.ExecContext(ctx, "UPDATE task_keys SET task_ids = ? WHERE key_hash = ?", string(ids), o.key[:])
	}
	return nil, done, err
}

// replay returns the ids that the key got when it was first used.
func (o once) replay(ctx context.Context, tx *sql.Tx) (ids []uint64, err error) {
	var batch, list []byte
	err = tx.QueryRowContext(ctx, "SELECT batch_hash, task_ids FROM task_keys WHERE key_hash = ?", o.key[:]).Scan(&batch, &list)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(batch, o.batch[:]) {
		return nil, ErrKeyReused
	}
	err = json.Unmarshal(list, &ids)
	return ids, err
}
