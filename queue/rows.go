package queue

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// boundedArgs selects the arguments of a task, at most a byte more than [MaxPayload].
const boundedArgs = "LEFT(args, 32769)"

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

// update begins a change of tasks by ids that were read, and never by a range: a transaction may commit later that took an id in
// between. It names the index because servers scan the table to change a third of its rows, and wait for every locked row.
const update = "UPDATE tasks FORCE INDEX (PRIMARY) SET "

// deleteTasks is the same for a DELETE, which can name an index only in the form for several tables. The name counts only if the
// condition has a column that the index lacks.
const deleteTasks = "DELETE tasks FROM tasks FORCE INDEX (PRIMARY) WHERE type IS NOT NULL AND id IN "

// idList returns the ids of a list, which must not be empty, as a list of SQL: numbers cost less than arguments.
func idList[T any](list []T, id func(T) uint64) string {
	text := []byte("(")
	for i := range list {
		text = append(strconv.AppendUint(text, id(list[i]), 10), ',')
	}
	text[len(text)-1] = ')'
	return string(text)
}

func itself(id uint64) uint64 { return id }

// change runs a statement that the ids of rows complete, and returns the rows that were changed. If the server refuses it because of
// a row (a trigger or a constraint of the site), change tries each row alone, and buries a refused row with the reason. A row that
// cannot be buried either stays as it is.
func change[T any](ctx context.Context, tx *sql.Tx, list []T, id func(T) uint64, statement string, args ...any) (changed []T, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	_, err = tx.ExecContext(ctx, statement+idList(list, id), args...)
	if err == nil {
		return list, nil
	}
	if !mysql.IsRowRefused(err) {
		return nil, err
	}
	for i := range list {
		one := list[i : i+1]
		_, refused := tx.ExecContext(ctx, statement+idList(one, id), args...)
		if refused == nil {
			changed = append(changed, list[i])
			continue
		}
		why := clip("the database refuses to change it: " + refused.Error())
		_, err := tx.ExecContext(ctx, update+buried+" WHERE id IN "+idList(one, id), why)
		if err = cmp.Or(notRefused(refused), notRefused(err)); err != nil {
			return nil, err
		}
	}
	return changed, nil
}

// buried makes a task dead.
const buried = "state = 'dead', run_at = " + now + ", lease = '', dedupe_key = NULL, last_error = ?"

// notRefused returns an error unless it is about a row.
func notRefused(err error) error {
	if mysql.IsRowRefused(err) {
		return nil
	}
	return err
}

// ids reads the only column of a query.
func ids(ctx context.Context, tx *sql.Tx, query string, args ...any) ([]uint64, error) {
	return mysql.Select(ctx, tx, mysql.Column[uint64], query, args...)
}
