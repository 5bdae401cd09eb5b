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
//
// A task is in one place at a time. An event says that it came to a place ("committed", "waiting", "freed",
// "scheduled", "dead", "running"), or that it is there no more ("left", "returned", "finished").
func (l ledger) open(t *testing.T) {
	t.Helper()
	const into = "INSERT INTO task_events (task_id, type, event, owner, due_at, at) "
	// A bit of each task says whether the lease has it no more.
	done := func(row string) string {
		return "((ASCII(SUBSTRING(" + row + ".done, 1 + (t.i - 1) DIV 8, 1)) >> ((t.i - 1) % 8)) & 1)"
	}
	leased := func(row string) string {
		return " FROM JSON_TABLE(" + row + ".tasks, '$[*]' COLUMNS (i FOR ORDINALITY, id BIGINT UNSIGNED PATH '$[0]', type VARCHAR(32) PATH '$[1]')) t"
	}
	// What a lease has no more, and no other table has, is finished.
	ended := into + "SELECT t.id, t.type, IF(EXISTS (SELECT 1 FROM tasks o WHERE o.id = t.id) OR EXISTS (SELECT 1 FROM parked_tasks o WHERE o.id = t.id), 'returned', 'finished')," +
		" OLD.token, OLD.ends_at, " + clock + leased("OLD") + " WHERE NOT " + done("OLD")
	for _, statement := range []string{
		"CREATE TABLE changes (id BIGINT UNSIGNED PRIMARY KEY, task_id BIGINT UNSIGNED NULL)",
		// No key of its own: a counter would be one more thing to wait for.
		"CREATE TABLE task_events (task_id BIGINT UNSIGNED NOT NULL, type VARCHAR(32) NOT NULL, event VARCHAR(16) NOT NULL," +
			" owner VARCHAR(64) NULL, due_at BIGINT UNSIGNED NULL, at BIGINT UNSIGNED NOT NULL, KEY (task_id, event))",
		"CREATE VIEW task_fates AS SELECT task_id, MAX(type) AS type, SUM(event = 'finished') AS finished, SUM(event = 'dead') AS died," +
			" SUM(IF(event IN ('left', 'returned', 'finished'), -1, 1)) AS places FROM task_events WHERE type <> 'check_range' GROUP BY task_id",
		// What comes back says since when it is due.
		"CREATE TRIGGER note_insert AFTER INSERT ON tasks FOR EACH ROW " + into +
			"VALUES (NEW.id, NEW.type, IF(NEW.due_at <= " + clock + ", IF(NEW.lost, 'freed', 'waiting'), 'committed'), NULL, NEW.due_at, " + clock + ")",
		"CREATE TRIGGER note_delete AFTER DELETE ON tasks FOR EACH ROW " + into + "VALUES (OLD.id, OLD.type, 'left', NULL, OLD.due_at, " + clock + ")",
		"CREATE TRIGGER note_park AFTER INSERT ON parked_tasks FOR EACH ROW " + into + "VALUES (NEW.id, NEW.type, NEW.state, NULL, NEW.due_at, " + clock + ")",
		"CREATE TRIGGER note_unpark AFTER DELETE ON parked_tasks FOR EACH ROW " + into + "VALUES (OLD.id, OLD.type, 'left', NULL, OLD.due_at, " + clock + ")",
		"CREATE TRIGGER note_claim AFTER INSERT ON task_leases FOR EACH ROW " + into +
			"SELECT t.id, t.type, 'running', NEW.token, NEW.ends_at, " + clock + leased("NEW"),
		"CREATE TRIGGER note_finish AFTER UPDATE ON task_leases FOR EACH ROW IF NEW.done <> OLD.done THEN " + ended + " AND " + done("NEW") + "; END IF",
		"CREATE TRIGGER note_end AFTER DELETE ON task_leases FOR EACH ROW " + ended,
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
