package endtoend_test

import (
	"testing"
)

// clock is that of the queue.
const clock = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)"

// ledger records the fate of each task inside the database and in the same transactions: triggers write
// task_events, so that no statement can forget to.
type ledger struct{ *ground }

// open makes the tables and triggers, which start empty.
//
// An event says that a task came ("committed"), began ("running"), went back ("returned", or "freed" when its
// lease ran out), died ("dead"), or is there no more ("finished", or "left" if it did not run).
func (l ledger) open(t *testing.T) {
	t.Helper()
	const into = "INSERT INTO task_events (task_id, type, event, owner) "
	for _, statement := range []string{
		// No primary key: a counter would be a further lock to wait for.
		"CREATE TABLE task_events (task_id BIGINT UNSIGNED NOT NULL, type VARCHAR(32) NOT NULL, event VARCHAR(16) NOT NULL," +
			" owner VARCHAR(64) NULL, KEY (task_id, event))",
		"CREATE VIEW task_fates AS SELECT task_id, MAX(type) AS type, SUM(event = 'finished') AS finished, SUM(event = 'dead') AS died," +
			" SUM(event = 'committed') - SUM(event IN ('left', 'finished')) AS places FROM task_events WHERE type <> 'check_range' GROUP BY task_id",
		"CREATE TRIGGER note_insert AFTER INSERT ON tasks FOR EACH ROW " + into + "VALUES (NEW.id, NEW.type, 'committed', NULL)",
		"CREATE TRIGGER note_delete AFTER DELETE ON tasks FOR EACH ROW " + into +
			"VALUES (OLD.id, OLD.type, IF(OLD.state = 'running', 'finished', 'left'), OLD.lease)",
		"CREATE TRIGGER note_change AFTER UPDATE ON tasks FOR EACH ROW IF NEW.lease <> OLD.lease THEN " + into +
			"VALUES (NEW.id, NEW.type, CASE WHEN NEW.state = 'running' THEN 'running' WHEN NEW.state = 'dead' THEN 'dead'" +
			" WHEN NEW.lost > OLD.lost THEN 'freed' ELSE 'returned' END, IF(NEW.state = 'running', NEW.lease, OLD.lease)); END IF",
	} {
		l.exec(t, statement)
	}
}

// number returns the single number of a query.
func (g *ground) number(t *testing.T, query string, args ...any) (n int) {
	t.Helper()
	if err := g.db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (l ledger) events(t *testing.T, event string) int {
	t.Helper()
	return l.number(t, "SELECT COUNT(*) FROM task_events WHERE event = ?", event)
}

// check: every task was finished once, or was an upload that another upload of the same member stood for. Reads and
// losses of Redis may ask for tasks that are committed by now.
func (l ledger) check(t *testing.T) {
	t.Helper()
	eventually(t, "no task is left, and none vanished that no other stands for", func() bool {
		return l.number(t, "SELECT COUNT(*) FROM task_fates WHERE places <> 0 OR finished = 0 AND type <> 'upload'") == 0
	})
	if n := l.number(t, "SELECT COUNT(*) FROM task_fates WHERE died > 0 OR finished > 1"); n > 0 {
		t.Errorf("%d tasks died, or were finished more than once", n)
	}
}
