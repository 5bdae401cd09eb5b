package queue

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// The statements of the life of a task. The ids of tasks that were read complete them, and never a range: a transaction may commit
// later that took an id in between. They name an index because servers scan the table to change a third of its rows, and
// wait for every locked row.
const (
	// selectNext locks the tasks that are next. It passes over tasks that another claim has locked, and tasks that stand for a change
	// which is about to commit; see unlocked, too.
	selectNext = "SELECT id, type, subject, " + boundedArgs + ", priority, LEAST(attempts, 65534) + 1, max_attempts, backoff, lost, COALESCE(expires_at, 0)," +
		" run_at, created_at, dedupe_key IS NOT NULL, " + now + " FROM tasks FORCE INDEX (claim) WHERE state = 'waiting' AND queue = ?" +
		" AND (SELECT COUNT(*) FROM paused_queues WHERE queue = ?) = 0"
	fromFront   = " AND priority = ? AND id >= ?"
	inTheirTurn = " ORDER BY priority, id LIMIT ? FOR UPDATE SKIP LOCKED"

	startTasks = update + "state = 'running', lease = ?, run_at = " + now + " + ?, started_at = " + now +
		", attempts = LEAST(attempts, 65534) + 1, max_attempts = ?, backoff = ?, dedupe_key = NULL WHERE id IN "
	extendTasks = update + "run_at = " + now + " + ? WHERE lease = ? AND state = 'running' AND id IN "
	// deleteTasks names its index in the form for several tables; it counts only if the condition has a column that the index lacks.
	deleteTasks = "DELETE tasks FROM tasks FORCE INDEX (PRIMARY) WHERE type IS NOT NULL AND id IN "
	endTasks    = update + "state = ?, run_at = " + now + " + ?, lease = '', lost = 0, attempts = attempts - IF(?, 1, 0), last_error = ? WHERE id IN "
	buryTasks   = bury + "? WHERE id IN "
	bury        = update + "state = 'dead', run_at = " + now + ", lease = '', dedupe_key = NULL, last_error = "
	letWait     = update + "state = 'waiting' WHERE id IN "
	putBehind   = update + "state = 'behind' WHERE id IN "
	schedule    = update + "state = 'scheduled' WHERE id IN "
	// endLeases makes tasks wait whose lease ran out, or buries them if they have no attempts left.
	endLeases = update + "state = IF(attempts >= max_attempts AND max_attempts > 0, 'dead', 'waiting'), lost = LEAST(lost, 254) + 1, run_at = " + now +
		", last_error = CONCAT('the lease of ', lease, ' ran out: it crashed, was stopped, or took too long'), lease = '' WHERE id IN "

	update = "UPDATE tasks FORCE INDEX (PRIMARY) SET "
	// boundedArgs selects the arguments of a task, at most a byte more than [MaxPayload].
	boundedArgs = "LEFT(args, 32769)"
)

var buryLong = bury + fmt.Sprintf("'more bytes of args: at most %d are read' WHERE id IN ", MaxPayload)

// payloadOf returns arguments as JSON: a JSON string where they are too long or invalid, as MariaDB stores more than JSON.
func payloadOf(args []byte) json.RawMessage {
	if len(args) > MaxPayload {
		args = fmt.Appendf(nil, "more bytes: at most %d are read", MaxPayload)
	}
	if json.Valid(args) {
		return args
	}
	quoted, _ := json.Marshal(string(args))
	return quoted
}

// latest is the end of the year 9999, in unix milliseconds. It stands for later times, as rows that make no sense may have them.
const latest = 253402300799999

// timeOf returns a time of the table; 0 is the zero time.
func timeOf(milliseconds uint64) time.Time {
	if milliseconds == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(min(milliseconds, latest)))
}

// hasID is a row of tasks.
type hasID interface{ id() uint64 }

func (t Task) id() uint64   { return t.ID }
func (r Result) id() uint64 { return r.Task.ID }

// rowID is an id alone.
type rowID uint64

func (r rowID) id() uint64 { return uint64(r) }

// idList returns the ids of a list, which must not be empty, as a list of SQL: numbers cost less than arguments.
func idList[T hasID](list []T) string {
	text := []byte("(")
	for _, row := range list {
		text = append(strconv.AppendUint(text, row.id(), 10), ',')
	}
	text[len(text)-1] = ')'
	return string(text)
}

// change runs a statement that the ids of rows complete, and returns the rows that were changed. If the server refuses it because of
// a row (a trigger or a constraint of the site), change tries each row alone, and buries a refused row with the reason. A row that
// cannot be buried either stays as it is.
func change[T hasID](ctx context.Context, tx *sql.Tx, list []T, statement string, args ...any) (changed []T, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	if _, err = tx.ExecContext(ctx, statement+idList(list), args...); err == nil {
		return list, nil
	}
	if !mysql.IsRowRefused(err) {
		return nil, err
	}
	for i := range list {
		row := list[i : i+1]
		_, err := tx.ExecContext(ctx, statement+idList(row), args...)
		if err == nil {
			changed = append(changed, list[i])
			continue
		}
		if mysql.IsRowRefused(err) {
			_, err = tx.ExecContext(ctx, buryTasks+idList(row), clip("the database refuses to change it: "+err.Error()))
		}
		if err != nil && !mysql.IsRowRefused(err) {
			return nil, err
		}
	}
	return changed, nil
}

// groupBy sorts a list into groups.
func groupBy[T any, K comparable](list []T, key func(T) K) map[K][]T {
	groups := make(map[K][]T)
	for _, row := range list {
		groups[key(row)] = append(groups[key(row)], row)
	}
	return groups
}
