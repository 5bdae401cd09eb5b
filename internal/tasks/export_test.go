package tasks

// HotStatements returns the statements that run all the time, with the index that
// each of them must use.
func HotStatements() map[string]string {
	hot := map[string]string{
		selectDueTasks + inTheirTurn:            "claim",
		selectDueTasks + fromMark + inTheirTurn: "claim",
		"SELECT DISTINCT subject FROM tasks FORCE INDEX (chains) WHERE type = ? AND subject IN (?) AND state IN ('waiting', 'running')": "chains",
		"SELECT dedupe_key, id FROM tasks WHERE dedupe_key IN (?, ?) FOR UPDATE":                                                        "dedupe",
		countWaiting:      "timers",
		countTypes:        "claim",
		waitingPriorities: "claim",
		firstWaiting:      "claim",
		distinctQueues:    "claim",
		longestDue:        "timers",
	}
	for _, c := range chores() {
		if c.count != nil {
			hot[c.find+" LIMIT ? FOR UPDATE SKIP LOCKED"] = "timers"
		}
	}
	return hot
}
