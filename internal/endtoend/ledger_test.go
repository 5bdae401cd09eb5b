package endtoend_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
)

// clock is that of the queue.
const clock = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)"

// ledger records the site's changes and the fate of each task, inside the database and in the same
// transactions. The site writes changes; triggers write task_events, so that no statement can forget to.
type ledger struct{ *ground }

// open makes the tables and triggers, which start empty.
//
// An event says that a task came ("committed"), began ("running"), went back ("returned", or "freed" when its
// lease ran out), died ("dead"), or is there no more ("finished", or "left" if it did not run).
func (l ledger) open(t *testing.T) {
	t.Helper()
	const into = "INSERT INTO task_events (task_id, type, event, owner, due_at, at) "
	for _, statement := range []string{
		"CREATE TABLE changes (id BIGINT UNSIGNED PRIMARY KEY, task_id BIGINT UNSIGNED NULL)",
		// No primary key: a counter would be one more lock to wait for.
		"CREATE TABLE task_events (task_id BIGINT UNSIGNED NOT NULL, type VARCHAR(32) NOT NULL, event VARCHAR(16) NOT NULL," +
			" owner VARCHAR(64) NULL, due_at BIGINT UNSIGNED NULL, at BIGINT UNSIGNED NOT NULL, KEY (task_id, event))",
		"CREATE VIEW task_fates AS SELECT task_id, MAX(type) AS type, SUM(event = 'finished') AS finished, SUM(event = 'dead') AS died," +
			" SUM(event = 'committed') - SUM(event IN ('left', 'finished')) AS places FROM task_events WHERE type <> 'check_range' GROUP BY task_id",
		"CREATE TRIGGER note_insert AFTER INSERT ON tasks FOR EACH ROW " + into + "VALUES (NEW.id, NEW.type, 'committed', NULL, NEW.run_at, " + clock + ")",
		"CREATE TRIGGER note_delete AFTER DELETE ON tasks FOR EACH ROW " + into + "VALUES (OLD.id, OLD.type, IF(OLD.state = 'running', 'finished', 'left'), OLD.lease, OLD.run_at, " + clock + ")",
		"CREATE TRIGGER note_change AFTER UPDATE ON tasks FOR EACH ROW IF NEW.lease <> OLD.lease THEN " + into +
			"VALUES (NEW.id, NEW.type, CASE WHEN NEW.state = 'running' THEN 'running' WHEN NEW.state = 'dead' THEN 'dead' WHEN NEW.lost > OLD.lost THEN 'freed' ELSE 'returned' END," +
			" IF(NEW.state = 'running', NEW.lease, OLD.lease), IF(NEW.state = 'running', NEW.run_at, OLD.run_at), " + clock + "); END IF",
	} {
		l.exec(t, statement)
	}
}

// number returns the single number of a query.
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

// absorbed is how many tasks are gone that were not finished.
func (l ledger) absorbed(t *testing.T) int {
	t.Helper()
	return l.number(t, "SELECT COUNT(*) FROM task_fates WHERE places = 0 AND finished = 0")
}

// check: every committed change has a task, every task was finished, or was an
// upload that another upload of the same member stood for; and none is left.
func (l ledger) check(t *testing.T) {
	t.Helper()
	// The last reads may have asked for a refill that is committed by now.
	eventually(t, "every task that was committed is done", func() bool {
		return l.number(t, "SELECT "+leftTasks) == 0
	})
	for _, wrong := range []struct{ what, query string }{
		{"changes have no task", "SELECT COUNT(*) FROM changes c WHERE NOT EXISTS (SELECT 1 FROM task_events e WHERE e.task_id = c.task_id)"},
		{"tasks vanished that no other stands for", "SELECT COUNT(*) FROM task_fates WHERE finished = 0 AND type <> 'upload'"},
		{"tasks died", "SELECT COUNT(*) FROM task_fates WHERE died > 0"},
		{"tasks were finished more than once", "SELECT COUNT(*) FROM task_fates WHERE finished > 1"},
		{"tasks came more often than they went, or less", "SELECT COUNT(*) FROM task_fates WHERE places <> 0"},
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
	defer func() { _ = rows.Close() }() // rows.Err returns the error
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
		_ = tx.Rollback() // err is the error to return
		return err
	}
	return tx.Commit()
}

// change is a change of the site that emits a task.
type change struct {
	id     uint64
	do     func(context.Context, *sql.Tx) error // makes the change
	task   task
	byHTTP bool // the task is enqueued through the API, after the commit
}

// task is a task as a producer names it.
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
