package stream

import (
	"context"
	"time"

	"github.com/activityd/activityd/queue"
)

// ClaimAfter makes c claim what others did nothing with for d, and delete consumers that
// did nothing for so long. It waits no longer in Redis, and has a minute to stop.
func (c *Consumer) ClaimAfter(d time.Duration) {
	c.idle, c.gone, c.block, c.finish = d, d, min(d, maxBlock), time.Minute
}

// Chore does the chores once.
func (c *Consumer) Chore(ctx context.Context) error { return c.chore(ctx) }

// MaxBatch is how many entries are moved at once.
const MaxBatch = maxBatch

// MaxTask is how many bytes the JSON of a task may have.
const MaxTask = maxTask

// ClaimIdle is for how long a consumer may do nothing with what it holds.
const ClaimIdle = claimAfter

// Dead returns what is kept of an entry that makes no sense, and why it makes none; nil if
// it makes sense.
func Dead(id string, fields []string) (kept []any, err error) {
	e := entry{id, fields}
	if _, err := e.task(time.Now()); err != nil {
		return e.dead(err), err
	}
	return nil, nil
}

// Task returns the task that an entry with the field task becomes.
func Task(id, task string, now time.Time) (queue.New, error) {
	return entry{id, []string{Field, task}}.task(now)
}

// SettleHash is what the script is called that takes entries out.
var SettleHash = settleScript.Hash()
