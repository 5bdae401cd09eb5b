package stream

import (
	"time"

	"github.com/activityd/activityd/queue"
)

// LeaseTime makes m lose its turn after d without a step. It waits no longer in Redis, and has a minute to stop.
func (m *Mover) LeaseTime(d time.Duration) {
	m.lease, m.block, m.finish = d, min(d, maxBlock), time.Minute
}

// The bounds of a batch, in entries, and of a task, in bytes.
const (
	MaxBatch = maxBatch
	MaxTask  = maxTask
)

// Dead returns the copy of an entry that makes no sense, and the reason; nil if it makes sense.
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

// HoldHash names the script of holding: a process takes its turn by it.
var HoldHash = holdScript.Hash()
