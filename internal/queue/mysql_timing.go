package queue

// timing is the part of a waiting or scheduled task that absorbing can change.
// Times are unix milliseconds; 0 stands for at once, and for never.
type timing struct {
	priority         int
	runAt, expiresAt int64
}

// timingOf returns the timing of a task that is enqueued at now.
func timingOf(n New, now int64) timing {
	t := timing{priority: n.Priority}
	if n.Delay > 0 {
		t.runAt = now + n.Delay.Milliseconds()
	}
	if n.Life > 0 {
		t.expiresAt = now + n.Life.Milliseconds()
	}
	return t
}

// keyHolder is a row that has the dedupe key of a task to be enqueued.
type keyHolder struct {
	Task
	state            State
	dedupeKey        string
	dueAt, expiresAt int64
	now              int64 // by the database's clock
}

func (r keyHolder) timing() timing {
	t := timing{priority: r.Priority, expiresAt: r.expiresAt}
	if r.state == Scheduled || r.dueAt > r.now { // else it has come back, or is due by now
		t.runAt = r.dueAt
	}
	return t
}

// absorbs reports whether the row, which has the dedupe key of n, does the work of
// n when it starts. A producer may have written that key into any row: one that is
// over, or about something else.
func (r keyHolder) absorbs(n New, kinds Kinds) bool {
	notStarted := r.Attempts == 0 && (r.state == Scheduled || r.state == Waiting)
	return notStarted && r.ID != 0 && r.Queue == n.Queue && kinds.SameWork(n, r.Kind, r.Key, r.Payload)
}

// absorbing returns the timing of a task that absorbs one of another timing.
func (t timing) absorbing(o timing) timing {
	out := timing{priority: min(t.priority, o.priority), runAt: min(t.runAt, o.runAt)}
	if t.expiresAt != 0 && o.expiresAt != 0 {
		out.expiresAt = max(t.expiresAt, o.expiresAt)
	}
	return out
}
