package tasks

import "time"

// SetMostKeys makes the queue remember fewer keys, and look at once how many there are.
func (q *MySQLQueue) SetMostKeys(most int) {
	q.keyLimit.most, q.keyLimit.again = most, time.Time{}
}

// SetMostKeys makes the queue remember fewer keys.
func (q *MemoryQueue) SetMostKeys(most int) { q.mostKeys = most }

// Forge makes a row of what a producer may write: it changes a task as no queue
// would, and leaves the dedupe key with it. A time of 0 stands for none.
func (q *MemoryQueue) Forge(id uint64, state State, dueAt int64, queue string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.open[id]
	r.state, r.dueAt, r.Queue = state, dueAt, queue
}

// HotStatements returns the statements that run all the time, with the index that
// each of them must use.
func HotStatements() map[string]string {
	hot := map[string]string{
		selectDueTasks + inTheirTurn:            "claim",
		selectDueTasks + fromMark + inTheirTurn: "claim",
		"SELECT DISTINCT subject FROM tasks FORCE INDEX (chains) WHERE type = ? AND subject IN (?) AND " + isPart: "chains",
		"SELECT dedupe_key, id FROM tasks WHERE dedupe_key IN (?, ?) FOR UPDATE":                                  "dedupe",
		countWaiting:      "timers",
		countTypes:        "claim",
		waitingPriorities: "claim",
		firstWaiting:      "claim",
		distinctQueues:    "claim",
	}
	for _, c := range chores(0) {
		if c.count != nil {
			hot[c.find+" LIMIT ? FOR UPDATE SKIP LOCKED"] = "timers"
		}
	}
	return hot
}
