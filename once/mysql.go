package once

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
)

// MySQL is a [Store] in the table once_keys. It is safe for concurrent use, and by any number of
// processes.
//
// # How an operation is atomic
//
// An operation reads the row of a name, with the database's clock; lets [Step] decide; and
// writes the row on the condition that nobody has changed it since the reading. If another
// process was faster, the operation begins again. Each statement is a transaction of its own, so
// that no lock is held while the server waits for a process: a process that stops in the middle
// of an operation holds up no other.
//
// The condition compares fence and changes. Every write counts up changes. A row that was
// deleted and inserted again has a higher fence if there was an acquisition in between. So an
// equal pair means an equal state.
//
// The clock was read before the write, by as much as the process was stopped in between. So an
// operation may be applied as if it had come earlier, to a state that has not changed since: its
// lease ends earlier.
//
// # Why fences never repeat
//
// The fence of an acquisition is the fence in the row plus 1, or the unix milliseconds of the
// database's clock if they are more; the statement that writes it reads both. No write lowers a
// fence: a state that is forgotten leaves its row as it is. [MySQL.purge] deletes rows of
// forgotten states later. The row ' floor' remembers the fences of all deleted rows: its fence
// is at least that of each deleted row. The first fence of a new row is above the floor, and not
// below the clock either.
//
// As long as the database keeps its commits, fences rise whatever the clock shows:
//
//   - A purge first raises the floor to the highest fence of the rows that it found, and
//     commits. It then deletes each of the rows whose fence is not higher. So at any time the
//     floor is at least the fence of each row that was deleted until then, and it never falls.
//   - An insert reads the floor and adds the row in a single statement, which locks the floor
//     (LOCK IN SHARE MODE) until it is committed. So no purge raises the floor between the
//     reading and the adding.
//
// Take an insert of a name that had a row before. That row was deleted before the insert added
// its own, or the insert would have failed as a duplicate. At the deletion the floor was at
// least the fence of the deleted row. The floor that the insert read is not lower, because the
// floor was not raised between the reading and the adding, and does not fall. Without the lock
// this would not hold: between the reading and the adding another process could insert the same
// name, use it, forget and purge it.
//
// The clock is for a database that lost commits: it was restored from a backup, replaced by a
// replica that lagged, or its table was emptied. Let X be an acquisition that was lost, and Y a
// later acquisition of the same name, whose row knows nothing of X.
//
//   - If the fence of X was the clock, that of Y is higher as soon as the clock of the server of
//     Y shows a millisecond more than the clock at X.
//   - If the fence of X was counted, it may be ahead of the clock at X, by some milliseconds:
//     each acquisition takes a round trip and a commit, so a name is acquired less than a
//     thousand times a second. (After a purge the same holds for the floor, which is the fence
//     of some name.)
//
// A server takes longer than some milliseconds to come back or to be replaced. So the proof
// assumes only that the clock at Y is not behind the clock at X by more than the server took.
// Where the clock is further behind, or where the fences were ahead because the clock had been,
// people raise them by hand: docs/once.md#after-a-lost-store.
//
// # Why there is no deadlock
//
// An insert locks the floor before the row of its name. A statement that has locked a row does
// not wait for the floor any more: neither an insert, nor an update, nor the deletion of a
// purge, which locks its rows in the order of their names. Should a server find a deadlock all
// the same, the statement is sent again.
type MySQL struct {
	db *sql.DB

	mu       sync.Mutex
	inserted int       // rows since the last purge of this process
	purged   time.Time // when that was
}

// floorRow is no name: [CheckName] refuses names with a space.
const floorRow = " floor"

const (
	// mysqlTimeout is how long the database may take for an operation, with all that is
	// sent again.
	mysqlTimeout = 10 * time.Second

	purgeInterval = time.Minute // of a process that inserts little
	purgeRows     = 100         // in a purge; at the latest after half as many inserts
	purgeTimeout  = time.Second
)

// NewMySQL returns a store over db, which comes from [OpenDB]. The caller closes db. NewMySQL
// asks the database nothing. It panics if db is nil.
func NewMySQL(db *sql.DB) *MySQL {
	if db == nil {
		panic("once: NewMySQL: db is nil")
	}
	return &MySQL{db: db}
}

// errChanged: another process changed the row between the reading and the writing.
var errChanged = errors.New("another process changes it")

// try calls do, and again as long as another process was in its way. Its errors are errors of a
// [Store].
func (m *MySQL) try(ctx context.Context, what string, do func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, mysqlTimeout)
	defer cancel()
	for failures := 1; ; failures++ {
		err := do(bounded)
		again := errors.Is(err, errChanged) || mysql.IsDuplicate(err) || mysql.IsRetryable(err)
		if again && retry.Sleep(bounded, retry.Backoff(failures, time.Millisecond, 100*time.Millisecond)) == nil {
			continue
		}
		translated := mysql.Translate(ctx, what, err)
		switch {
		case err == nil || ctx.Err() != nil:
			return translated
		case bounded.Err() != nil:
			return fmt.Errorf("%w: %s: no answer within %v: %s", ErrUnavailable, what, mysqlTimeout, err.Error())
		case errors.Is(translated, mysql.ErrUnavailable):
			return fmt.Errorf("%w: %w", ErrUnavailable, translated)
		}
		return translated
	}
}

// record is a row that was read.
type record struct {
	name    string
	state   State // whether or not it is to be forgotten; the zero State: there is no row
	now     time.Time
	changes int64
}

// known returns the state, unless it is forgotten.
func (r record) known() State {
	if !r.now.Before(r.state.ForgetAt) {
		return State{}
	}
	return r.state
}

// columns are the columns of a record, in the order of [scan], of the table named k.
const columns = mysql.Now + ", k.name, k.phase, k.owner, k.attempt, k.max_attempts, k.lease, k.keep, k.fence, k.changes, k.began, k.lease_ends, k.forget_at, k.reason, k.ended"

// scan reads a record.
func scan(rows *sql.Rows) (r record, err error) {
	var now int64
	var name, phase, owner, reason, ended sql.NullString
	var attempt, maxAttempts, lease, keep, fence, changes, began, ends, forgetAt sql.NullInt64
	if err := rows.Scan(&now, &name, &phase, &owner, &attempt, &maxAttempts, &lease, &keep, &fence, &changes, &began, &ends, &forgetAt, &reason, &ended); err != nil {
		return r, err
	}
	r = record{name: name.String, now: time.UnixMilli(now), changes: changes.Int64}
	if !name.Valid {
		return r, nil
	}
	r.state = State{
		Phase: Phase(phase.String), Owner: owner.String, Attempt: int(attempt.Int64), Fence: Fence(fence.Int64), Reason: reason.String, Ended: ended.String,
		Terms:    Terms{Lease: time.Duration(lease.Int64) * time.Millisecond, Keep: time.Duration(keep.Int64) * time.Millisecond, Attempts: int(maxAttempts.Int64)},
		Began:    time.UnixMilli(began.Int64),
		ForgetAt: time.UnixMilli(forgetAt.Int64),
	}
	if ends.Int64 != 0 {
		r.state.Until = time.UnixMilli(ends.Int64)
	}
	return r, nil
}

// read returns the row of a name. If the name has no row, the single row of q carries the clock.
func (m *MySQL) read(ctx context.Context, name string) (record, error) {
	list, err := mysql.Select(ctx, m.db, scan, "SELECT "+columns+" FROM (SELECT 1 AS one) AS q LEFT JOIN once_keys AS k ON k.name = ?", name)
	if err != nil {
		return record{}, err
	}
	if len(list) != 1 {
		return record{}, fmt.Errorf("%d rows of one name", len(list))
	}
	return list[0], nil
}

// values are the columns that an operation changes, in the order of the statements of
// insert and update, without the fence.
func values(s State) []any {
	ends := int64(0)
	if !s.Until.IsZero() {
		ends = s.Until.UnixMilli()
	}
	return []any{
		string(s.Phase), s.Owner, s.Attempt, s.Terms.Attempts, s.Terms.Lease.Milliseconds(), s.Terms.Keep.Milliseconds(),
		s.Began.UnixMilli(), ends, s.ForgetAt.UnixMilli(), s.Reason, s.Ended,
	}
}

// Apply implements [Store].
func (m *MySQL) Apply(ctx context.Context, name string, op Operation) (reply Reply, err error) {
	if err := op.Check(name); err != nil {
		return Reply{}, err
	}
	inserted := false
	err = m.try(ctx, fmt.Sprintf("%s %s", op.Action, name), func(ctx context.Context) (err error) {
		reply, inserted, err = m.applyOnce(ctx, name, op)
		return err
	})
	if err != nil {
		return Reply{}, err
	}
	if inserted && m.purgeIsDue() {
		bounded, cancel := context.WithTimeout(ctx, purgeTimeout)
		defer cancel()
		_ = m.purge(bounded) // if it fails, the next purge will do it
	}
	return reply, nil
}

// applyOnce applies an operation unless another process is faster.
func (m *MySQL) applyOnce(ctx context.Context, name string, op Operation) (reply Reply, inserted bool, err error) {
	r, err := m.read(ctx, name)
	if err != nil {
		return Reply{}, false, err
	}
	before, isNew := r.known(), r.name == ""
	s, outcome := Step(before, r.now, r.state.Fence+1, op) // the statement that writes may find a higher fence
	switch {
	case s == before:
	case isNew:
		s.Fence, err = m.insert(ctx, name, s)
	default:
		s.Fence, err = m.update(ctx, r, s)
	}
	if err != nil {
		return Reply{}, false, err
	}
	return Reply{Outcome: outcome, State: s, Now: r.now, Changed: s.Phase != before.Phase}, isNew && s != before, nil
}

// nextFence is the fence of an acquisition, where fence is that of the row or of the floor: see
// [MySQL]. The server's answer has the argument of LAST_INSERT_ID.
const nextFence = "LAST_INSERT_ID(GREATEST(fence + 1, " + mysql.Now + "))"

// insert adds the row of a name, with a fence above the floor, and returns that. A name that
// has a row is a duplicate.
func (m *MySQL) insert(ctx context.Context, name string, s State) (Fence, error) {
	result, err := m.db.ExecContext(ctx, "INSERT INTO once_keys (name, phase, owner, attempt, max_attempts, lease, keep, began, lease_ends, forget_at, reason, ended, fence)"+
		" SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "+nextFence+" FROM once_keys WHERE name = ? LOCK IN SHARE MODE",
		append(append([]any{name}, values(s)...), floorRow)...)
	n, err := mysql.Affected(result, err)
	if err != nil {
		return 0, err
	}
	if n == 0 { // there is no floor
		if err := m.raiseFloor(ctx, 0); err != nil {
			return 0, err
		}
		return 0, errChanged
	}
	return givenFence(result)
}

// update writes a state into a row, if the row has not changed since the reading, and returns
// the row's fence. The fence is new if the state begins an attempt.
func (m *MySQL) update(ctx context.Context, r record, s State) (Fence, error) {
	begins := s.Fence > r.state.Fence
	next := "fence"
	if begins {
		next = nextFence
	}
	result, err := m.db.ExecContext(ctx, "UPDATE once_keys SET phase = ?, owner = ?, attempt = ?, max_attempts = ?, lease = ?, keep = ?,"+
		" began = ?, lease_ends = ?, forget_at = ?, reason = ?, ended = ?, fence = "+next+", changes = changes + 1 WHERE name = ? AND fence = ? AND changes = ?",
		append(values(s), r.name, uint64(r.state.Fence), r.changes)...)
	n, err := mysql.Affected(result, err)
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		return 0, errChanged
	case begins:
		return givenFence(result)
	}
	return r.state.Fence, nil
}

// givenFence returns the fence that a statement gave a row. Where the table has a trigger,
// the answer may be without it: the next look finds it.
func givenFence(result sql.Result) (Fence, error) {
	fence, err := result.LastInsertId()
	if err == nil && fence == 0 {
		err = errChanged
	}
	return Fence(fence), err
}

// raiseFloor makes sure that there is a floor, and that it is at least that high.
func (m *MySQL) raiseFloor(ctx context.Context, fence Fence) error {
	_, err := m.db.ExecContext(ctx, "INSERT INTO once_keys (name, fence) VALUES (?, ?) ON DUPLICATE KEY UPDATE fence = GREATEST(fence, ?)",
		floorRow, uint64(fence), uint64(fence))
	return err
}

// purgeIsDue counts a row that was inserted, and reports whether some should be deleted:
// more than are inserted, so that the table does not grow for ever.
func (m *MySQL) purgeIsDue() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inserted++
	if m.inserted < purgeRows/2 && time.Since(m.purged) < purgeInterval {
		return false
	}
	m.inserted, m.purged = 0, time.Now()
	return true
}

// purge deletes some rows whose states are forgotten: see [MySQL].
func (m *MySQL) purge(ctx context.Context) error {
	names, highest, err := m.forgotten(ctx)
	if err != nil || len(names) == 0 {
		return err
	}
	return m.remove(ctx, names, highest)
}

// forgotten returns some names whose states are to be forgotten, and their highest fence.
func (m *MySQL) forgotten(ctx context.Context) (names []any, highest Fence, err error) {
	names, err = mysql.Select(ctx, m.db, func(rows *sql.Rows) (any, error) {
		var name string
		var fence uint64
		err := rows.Scan(&name, &fence)
		highest = max(highest, Fence(fence))
		return name, err
	}, "SELECT name, fence FROM once_keys FORCE INDEX (phases) WHERE phase IN ('free', 'held', 'done', 'exhausted') AND forget_at <= "+mysql.Now+" LIMIT ?", purgeRows)
	return names, highest, err
}

// remove deletes the rows of forgotten names, after it raised the floor. Some may have been
// acquired since, and even forgotten again, with a fence beyond the floor.
func (m *MySQL) remove(ctx context.Context, names []any, highest Fence) error {
	if err := m.raiseFloor(ctx, highest); err != nil {
		return err
	}
	// The index is named as in package queue: else a small table is scanned, and locked.
	_, err := m.db.ExecContext(ctx, "DELETE once_keys FROM once_keys FORCE INDEX (PRIMARY) WHERE name IN ("+mysql.Marks(len(names))+") AND fence <= ? AND forget_at <= "+mysql.Now,
		append(names, uint64(highest))...)
	return err
}

// Get implements [Store].
func (m *MySQL) Get(ctx context.Context, name string) (reply Reply, err error) {
	if err := CheckName(name); err != nil {
		return Reply{}, err
	}
	err = m.try(ctx, "get "+name, func(ctx context.Context) error {
		r, err := m.read(ctx, name)
		reply = Reply{State: r.known(), Now: r.now}
		return err
	})
	if err != nil {
		return Reply{}, err
	}
	return reply, nil
}

// List implements [Store].
func (m *MySQL) List(ctx context.Context) (list []Named, err error) {
	err = m.try(ctx, "list the names", func(ctx context.Context) (err error) {
		// From '!' on: a row that is no name begins with a space, which is before it.
		list, err = mysql.Select(ctx, m.db, func(rows *sql.Rows) (Named, error) {
			r, err := scan(rows)
			return Named{Name: r.name, Reply: Reply{State: r.known(), Now: r.now}}, err
		}, "SELECT "+columns+" FROM once_keys AS k FORCE INDEX (PRIMARY) WHERE k.name >= '!' AND k.forget_at > "+mysql.Now+" ORDER BY k.name")
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Forget implements [Store].
func (m *MySQL) Forget(ctx context.Context, name string, force bool) (forgotten bool, err error) {
	if err := CheckName(name); err != nil {
		return false, err
	}
	err = m.try(ctx, "forget "+name, func(ctx context.Context) error {
		r, err := m.read(ctx, name)
		s := r.known()
		switch {
		case err != nil:
			return err
		case s.Phase == "":
			return nil
		case s.Phase == Held && !s.Expired(r.now) && !force:
			return ErrHeld
		}
		// The row stays, for its fence, until the next purge. It is forgotten at any time: a
		// statement that was delayed may read the row now with a clock from before.
		s.ForgetAt = time.UnixMilli(0)
		_, err = m.update(ctx, r, s)
		forgotten = err == nil
		return err
	})
	return forgotten, err
}

// maxExhausted bounds how many rows [MySQL.Exhausted] reads.
const maxExhausted = 1000

// Exhausted counts the names whose attempts all failed, up to 1,000.
func (m *MySQL) Exhausted(ctx context.Context) (names int, err error) {
	err = m.try(ctx, "count the exhausted names", func(ctx context.Context) error {
		return m.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT 1 FROM once_keys FORCE INDEX (phases) WHERE phase = 'exhausted' AND forget_at > "+mysql.Now+" LIMIT ?) AS q",
			maxExhausted).Scan(&names)
	})
	return names, err
}
