// Package backlog says how many more tasks of package queue may come before a limit of them waits, without
// counting them each time.
package backlog

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

const now = mysql.Now

// Backlog is what waits in the queue's tables. It is safe for concurrent use.
type Backlog struct{ db *sql.DB }

// New returns the backlog of the queue in a database.
func New(db *sql.DB) *Backlog { return &Backlog{db} }

// waitingCount is the last count of waiting tasks. All processes share it, in the row of
// task_keys whose hash no key has. No task that waits can be missed by it for long: at most
// Waiting + (the highest id now - LastID) wait, but for older ones that became waiting since.
type waitingCount struct {
	Waiting uint64 `json:"waiting"` // Limit at most
	LastID  uint64 `json:"last_id"` // the highest id before the count
	Limit   uint64 `json:"limit"`

	begun uint64        // when the last count was begun, by the database's clock
	age   time.Duration // since then
}

const (
	// countPause is the least time between two counts, of all processes together. A count
	// reads up to twice as many index entries as the limit says.
	countPause = 15 * time.Second
	// countEvery is how old a count may become: older tasks, which have been scheduled or
	// running, become waiting, too.
	countEvery = time.Minute
)

// countKey is the hash that stands for the count. It begins with no zero byte: the sample of keys has it not.
var countKey = bytes.Repeat([]byte{0xFF}, 32)

// The queries of a count read index entries alone.
const (
	idsOfTasks   = "SELECT COALESCE(MIN(id), 1), COALESCE(MAX(id), 0) FROM tasks"
	waitingAt    = "SELECT 1 FROM tasks FORCE INDEX (subjects) WHERE subject >= 0 LIMIT ?, 1"
	countWaiting = "SELECT COUNT(*) FROM tasks FORCE INDEX (subjects) WHERE subject >= 0"
	lastCount    = "SELECT task_ids, created_at, IF(created_at < " + now + ", " + now + " - created_at, 0) FROM task_keys WHERE key_hash = ?"
)

// Room returns how many more tasks may come before most may wait: there wait at most as many as
// the last count found, and all ids since. It reads a few rows, however many wait. If stale,
// [Backlog.CountWaiting] is to be called: in good time before the ids since fill up the room, so
// that it is reached only by tasks that wait, or by a count that fails.
func (b *Backlog) Room(ctx context.Context, most int) (room int, stale bool, err error) {
	defer func() { err = mysql.Translate(ctx, "look how many tasks wait", err) }()
	limit := uint64(max(most, 1))
	var first, last uint64
	err = b.db.QueryRowContext(ctx, idsOfTasks).Scan(&first, &last)
	ids := last - first + 1
	if err != nil || ids < limit/2 {
		return int(limit - min(ids, limit)), false, err
	}
	c, err := b.lastCount(ctx, limit)
	if err != nil {
		return 0, false, err
	}
	atMost := min(ids, c.Waiting+last-min(last, c.LastID))
	stale = c.age >= countEvery || c.age >= countPause && atMost >= (c.Waiting+limit)/2
	return int(limit - min(atMost, limit)), stale, nil
}

// lastCount returns the last count for a limit. Where there is none that succeeded, no task is
// found to wait at the id 0.
func (b *Backlog) lastCount(ctx context.Context, limit uint64) (c waitingCount, err error) {
	var found []byte
	var begun uint64
	var age int64
	err = b.db.QueryRowContext(ctx, lastCount, countKey).Scan(&found, &begun, &age)
	if errors.Is(err, sql.ErrNoRows) {
		return waitingCount{age: countEvery}, nil
	}
	if json.Unmarshal(found, &c) != nil || c.Limit != limit {
		c = waitingCount{}
	}
	c.begun, c.age = begun, time.Duration(age)*time.Millisecond
	return c, err
}

// CountWaiting counts the waiting tasks for [Backlog.Room], unless another process does or
// just did. If it fails, Room goes on with the count before.
func (b *Backlog) CountWaiting(ctx context.Context, most int) (err error) {
	defer func() { err = mysql.Translate(ctx, "count waiting tasks", err) }()
	limit := uint64(max(most, 1))
	before, err := b.lastCount(ctx, limit)
	if err != nil || before.age < countPause {
		return err
	}
	if ours, err := b.beginCount(ctx, before); err != nil || !ours {
		return err
	}
	var first uint64
	c := waitingCount{Limit: limit}
	if err := b.db.QueryRowContext(ctx, idsOfTasks).Scan(&first, &c.LastID); err != nil {
		return err
	}
	if c.Waiting, err = b.waitingUpTo(ctx, limit); err != nil {
		return err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	_, err = b.db.ExecContext(ctx, "UPDATE task_keys SET task_ids = ? WHERE key_hash = ?", string(text), countKey)
	return err
}

// beginCount reports whether no other process began a count since the last one was read.
func (b *Backlog) beginCount(ctx context.Context, before waitingCount) (ours bool, err error) {
	text, args := "UPDATE task_keys FORCE INDEX (PRIMARY) SET created_at = "+now+" WHERE key_hash = ? AND created_at = ?", []any{countKey, before.begun}
	if before.begun == 0 {
		text, args = "INSERT IGNORE INTO task_keys (key_hash, batch_hash) VALUES (?, ?)", []any{countKey, countKey}
	}
	n, err := mysql.Affected(b.db.ExecContext(ctx, text, args...))
	return n > 0, err
}

// waitingUpTo counts the waiting tasks, or stops at limit. It reads what is not committed, too:
// for any other view the server looks up the row of each entry of a page that has just changed.
func (b *Backlog) waitingUpTo(ctx context.Context, limit uint64) (n uint64, err error) {
	tx, err := b.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadUncommitted})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, tx.Commit()) }()
	var one int
	err = tx.QueryRowContext(ctx, waitingAt, limit-1).Scan(&one)
	if err == nil {
		return limit, nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, countWaiting).Scan(&n)
	return min(n, limit), err
}
