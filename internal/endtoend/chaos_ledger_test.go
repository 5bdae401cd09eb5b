package endtoend_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
)

// clock is that of the queue.
const clock = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)"

// ledger writes down, inside the database and in the very transactions that it
// is about, what the site changed and what became of each task. changes is
// written by the site, task_events by triggers, so that nobody can forget to.
type ledger struct{ *ground }

// open makes the tables and triggers. What happened before is not in them.
func (l ledger) open(t *testing.T) {
	t.Helper()
	const event = "INSERT INTO task_events (task_id, type, event, owner, due_at, at) VALUES "
	for _, statement := range []string{
		"CREATE TABLE changes (id BIGINT UNSIGNED PRIMARY KEY, task_id BIGINT UNSIGNED NULL)",
		// No key of its own: a counter would be one more thing to wait for.
		"CREATE TABLE task_events (task_id BIGINT UNSIGNED NOT NULL, type VARCHAR(32) NOT NULL, event VARCHAR(16) NOT NULL," +
			" owner VARCHAR(64) NULL, due_at BIGINT UNSIGNED NULL, at BIGINT UNSIGNED NOT NULL, KEY (task_id, event))",
		"CREATE TRIGGER note_insert AFTER INSERT ON tasks FOR EACH ROW " +
			event + "(NEW.id, NEW.type, 'committed', NULL, NEW.due_at, " + clock + ")",
		// A worker that hands a task back takes its attempt back with it; a sweep
		// that frees it does not.
		"CREATE TRIGGER note_update AFTER UPDATE ON tasks FOR EACH ROW IF OLD.state <> NEW.state THEN " +
			event + "(NEW.id, NEW.type, IF(OLD.state = 'running' AND NEW.state = 'waiting' AND NEW.attempts = OLD.attempts, 'freed', NEW.state)," +
			" COALESCE(NEW.lease_owner, OLD.lease_owner), OLD.due_at, " + clock + "); END IF",
		"CREATE TRIGGER note_delete AFTER DELETE ON tasks FOR EACH ROW " +
			event + "(OLD.id, OLD.type, IF(OLD.state = 'running', 'finished', 'absorbed'), OLD.lease_owner, OLD.due_at, " + clock + ")",
	} {
		l.exec(t, statement)
	}
}

// number asks for one number.
func (l ledger) number(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	if err := l.db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (l ledger) events(t *testing.T, event string) int {
	t.Helper()
	return l.number(t, "SELECT COUNT(*) FROM task_events WHERE event = ?", event)
}

// check: every committed change has a task, every task was finished, or was an
// upload that another upload of the same member stood for; and none is left.
func (l ledger) check(t *testing.T) {
	t.Helper()
	// The last reads may have asked for a refill that is committed by now.
	eventually(t, "every task that was committed is done", func() bool {
		return l.number(t, "SELECT COUNT(*) FROM tasks") == 0 && l.number(t, "SELECT COUNT(*) FROM task_events c WHERE c.event = 'committed' AND NOT EXISTS"+
			" (SELECT 1 FROM task_events e WHERE e.task_id = c.task_id AND e.event IN ('finished', 'absorbed'))") == 0
	})
	for _, wrong := range []struct{ what, query string }{
		{"changes have no task", "SELECT COUNT(*) FROM changes WHERE task_id IS NULL"},
		{
			"changes have a task that nobody did", "SELECT COUNT(*) FROM changes c WHERE NOT EXISTS" +
				" (SELECT 1 FROM task_events e WHERE e.task_id = c.task_id AND e.event IN ('finished', 'absorbed'))",
		},
		{"tasks vanished that no other stands for", "SELECT COUNT(*) FROM task_events WHERE event = 'absorbed' AND type <> 'upload'"},
		{"tasks died", "SELECT COUNT(*) FROM task_events WHERE event = 'dead'"},
		{
			"tasks were finished more than once", "SELECT COUNT(*) FROM" +
				" (SELECT task_id FROM task_events WHERE event = 'finished' GROUP BY task_id HAVING COUNT(*) > 1) twice",
		},
	} {
		if n := l.number(t, wrong.query); n > 0 {
			t.Errorf("%d %s", n, wrong.what)
		}
	}
}

// checkHas: the database has each of the changes that it acknowledged.
func (l ledger) checkHas(t *testing.T, acked []uint64) {
	t.Helper()
	rows, err := l.db.QueryContext(t.Context(), "SELECT id FROM changes")
	must(t, err)
	defer func() { _ = rows.Close() }() // rows.Err says what matters
	has := make(map[uint64]bool)
	for rows.Next() {
		var id uint64
		must(t, rows.Scan(&id))
		has[id] = true
	}
	must(t, rows.Err())
	for _, id := range acked {
		if !has[id] {
			t.Errorf("LOST: change %d was acknowledged", id)
		}
	}
}

// commit makes a change together with its entry and, unless the site tells of it
// otherwise, its task.
func (l ledger) commit(ctx context.Context, c change) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := c.write(ctx, tx); err != nil {
		_ = tx.Rollback() // err says what matters
		return err
	}
	return tx.Commit()
}

// change is one of the site's that emits a task.
type change struct {
	id     uint64
	do     func(context.Context, *sql.Tx) error // what it changes
	task   task
	byHTTP bool // the task is enqueued through the API, after the commit
}

// task is one as a producer names it.
type task struct {
	Type    string `json:"type"`
	User    string `json:"user_id"`
	Contact string `json:"contact_id,omitempty"`
}

func (c change) write(ctx context.Context, tx *sql.Tx) error {
	if err := c.do(ctx, tx); err != nil {
		return err
	}
	var taskID any
	if !c.byHTTP {
		args := "{}"
		if c.task.Contact != "" {
			args = fmt.Sprintf(`{"contact_id": %q}`, c.task.Contact)
		}
		inserted, err := tx.ExecContext(ctx, "INSERT INTO tasks (type, subject, args) VALUES (?, ?, ?)", c.task.Type, c.task.User, args)
		if err != nil {
			return err
		}
		if taskID, err = inserted.LastInsertId(); err != nil {
			return err
		}
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO changes (id, task_id) VALUES (?, ?)", c.id, taskID)
	return err
}

// has reports whether a change was committed.
func (l ledger) has(ctx context.Context, id uint64) (committed bool, err error) {
	err = l.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM changes WHERE id = ?)", id).Scan(&committed)
	return committed, err
}
