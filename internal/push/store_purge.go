package push

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
)

const (
	// purgeSize bounds the rows that a statement of a purge deletes.
	purgeSize = 1000
	// scanSize bounds the rows of each table whose members a purge looks for.
	scanSize = 10_000
	// purgeMembers bounds the members that a transaction deletes everything of.
	purgeMembers = 50
	// purgeEvery is the pause between two purges of a process.
	purgeEvery = time.Minute
	// keepGone is how long the row of a device that is gone is kept, for the reason.
	keepGone = 30 * 24 * time.Hour
	// keepMissing is how long a member has to be missing until its devices, settings and mutes are deleted: a table of
	// users that is filled again, or a view that is made again, lets members be missing for a moment.
	keepMissing = 24 * time.Hour
)

// Run purges once a minute until ctx ends. Several processes may do so.
func (m *MySQL) Run(ctx context.Context, log *slog.Logger) {
	for retry.Sleep(ctx, retry.Jitter(purgeEvery)) == nil {
		if _, err := m.Purge(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "purge of push failed", "error", err)
		}
	}
}

// Purge deletes events that expired a day ago, with their receipts; devices that have been gone for 30 days; mutes that
// have ended; and all rows of members that were missing twice, a day apart. It looks at a part of the members each time.
// It takes as many small transactions as there is work for, and returns how many rows it deleted. A failure keeps nothing
// else from being done.
func (m *MySQL) Purge(ctx context.Context) (n int, err error) {
	var failed []error
	for _, chore := range []struct {
		what string
		do   func(context.Context, *sql.Tx) (int, error)
	}{
		{"delete forgotten events", purgeEvents},
		{"delete devices that are gone", deletion("push_devices WHERE gone_at <= "+mysql.Now+" - ? ORDER BY gone_at LIMIT ?", keepGone.Milliseconds(), purgeSize)},
		{"delete mutes that have ended", deletion("push_mutes WHERE until_at <= "+mysql.Now+" ORDER BY until_at LIMIT ?", purgeSize)},
		{"look for members that are missing", m.markMissing},
		{"delete what is kept of members that are missing", purgeMissing},
	} {
		for more := true; more; {
			var deleted int
			err := mysql.Transact(ctx, m.db, chore.what, func(tx *sql.Tx) (err error) {
				deleted, err = chore.do(ctx, tx)
				return err
			})
			if err != nil {
				failed = append(failed, err)
			}
			n += deleted
			// A round is short, too, if other processes have locked rows, perhaps only for a moment: InnoDB locks
			// the neighbours of deleted rows. The next purge takes rows that all passed over.
			more = err == nil && deleted > 0
		}
	}
	return n, errors.Join(failed...)
}

func deletion(from string, args ...any) func(context.Context, *sql.Tx) (int, error) {
	return func(ctx context.Context, tx *sql.Tx) (int, error) {
		return mysql.Affected(tx.ExecContext(ctx, "DELETE FROM "+from, args...))
	}
}

// purgeEvents deletes a part of the receipts of events that are to be forgotten, or, once they
// have none, the events. Events that another process is about to delete are passed over.
// A delivery that may still be under way ended when its event expired, a day ago.
func purgeEvents(ctx context.Context, tx *sql.Tx) (n int, err error) {
	numbers, err := mysql.Select(ctx, tx, mysql.Column[any], "SELECT number FROM push_events FORCE INDEX (forgotten) WHERE forget_at <= "+mysql.Now+
		" ORDER BY forget_at LIMIT ? FOR UPDATE SKIP LOCKED", purgeSize)
	if err != nil || len(numbers) == 0 {
		return 0, err
	}
	in := " IN (" + mysql.Marks(len(numbers)) + ")"
	n, err = mysql.Affected(tx.ExecContext(ctx, "DELETE FROM push_receipts WHERE event_number"+in+
		" ORDER BY event_number, member_id, device_id LIMIT ?", append(slices.Clone(numbers), purgeSize)...)) // as they are written
	if err != nil || n == purgeSize {
		return n, err
	}
	events, err := mysql.Affected(tx.ExecContext(ctx, "DELETE push_events FROM push_events FORCE INDEX (PRIMARY) WHERE number"+in, numbers...))
	return n + events, err
}

// memberTables are the tables by member, and their index by member.
var memberTables = [...]struct{ name, index string }{{"push_devices", "members"}, {"push_mutes", "PRIMARY"}, {"push_settings", "PRIMARY"}}

// memberScan is how far the members of each of memberTables have been looked at by this process.
type memberScan struct {
	mu    sync.Mutex
	begun bool
	after [len(memberTables)]uint64
}

// markMissing looks at the members of the next scanSize rows of each table, and marks the members that are missing. In a large table a
// process begins anywhere: processes that live for a day do not reach its end from its beginning.
func (m *MySQL) markMissing(ctx context.Context, tx *sql.Tx) (int, error) {
	m.scan.mu.Lock()
	defer m.scan.mu.Unlock()
	for i, table := range memberTables {
		if !m.scan.begun {
			last, err := mysql.Select(ctx, tx, mysql.Column[uint64], "SELECT COALESCE(MAX(member_id), 0) FROM "+table.name)
			if err != nil {
				return 0, err
			}
			if last[0] > scanSize {
				m.scan.after[i] = rand.Uint64N(last[0])
			}
		}
		ids, err := mysql.Select(ctx, tx, mysql.Column[uint64], "SELECT member_id FROM "+table.name+" FORCE INDEX ("+table.index+
			") WHERE member_id > ? ORDER BY member_id LIMIT ?", m.scan.after[i], scanSize)
		if err != nil {
			return 0, err
		}
		m.scan.after[i] = 0 // from the beginning
		if len(ids) == scanSize {
			m.scan.after[i] = ids[scanSize-1]
		}
		_, missing, err := presentAndMissing(ctx, tx, slices.Compact(ids))
		if err != nil {
			return 0, err
		}
		for some := range slices.Chunk(missing, purgeSize) {
			const row = "(?," + mysql.Now + "),"
			_, err := tx.ExecContext(ctx, "INSERT INTO push_settings (member_id, missing_at) VALUES "+strings.TrimSuffix(strings.Repeat(row, len(some)), ",")+
				" ON DUPLICATE KEY UPDATE missing_at = COALESCE(missing_at, VALUES(missing_at))", mysql.Args(some)...)
			if err != nil {
				return 0, err
			}
		}
	}
	m.scan.begun = true
	return 0, nil
}

// membersText selects the ids of a list that are members, by the key of a table, however small it is.
const membersText = "SELECT /*+ NO_BNL() */ u.id FROM JSON_TABLE(?, '$[*]' COLUMNS (i BIGINT UNSIGNED PATH '$')) AS q STRAIGHT_JOIN users u ON u.id = q.i"

// presentAndMissing divides ids by whether the members are there. While there is no member at all, none is missing.
func presentAndMissing(ctx context.Context, tx *sql.Tx, ids []uint64) (present, missing []uint64, err error) {
	list, err := json.Marshal(ids)
	if err != nil || len(ids) == 0 {
		return nil, nil, err
	}
	present, err = mysql.Select(ctx, tx, mysql.Column[uint64], membersText, string(list))
	others := present
	if err == nil && len(present) == 0 {
		others, err = mysql.Select(ctx, tx, mysql.Column[uint64], "SELECT id FROM users LIMIT 1")
	}
	if err != nil || len(others) == 0 {
		return nil, nil, err
	}
	slices.Sort(present)
	return present, slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool {
		_, found := slices.BinarySearch(present, id)
		return found
	}), nil
}

// purgeMissing deletes all rows of some members that were marked a day ago and are missing still. It removes the mark of members
// that are there again.
func purgeMissing(ctx context.Context, tx *sql.Tx) (n int, err error) {
	ids, err := mysql.Select(ctx, tx, mysql.Column[uint64], "SELECT member_id FROM push_settings FORCE INDEX (missing) WHERE missing_at <= "+mysql.Now+
		" - ? ORDER BY missing_at LIMIT ? FOR UPDATE SKIP LOCKED", keepMissing.Milliseconds(), purgeMembers)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	present, missing, err := presentAndMissing(ctx, tx, ids)
	if err != nil {
		return 0, err
	}
	for _, table := range memberTables {
		if len(missing) == 0 {
			break
		}
		deleted, err := mysql.Affected(tx.ExecContext(ctx, "DELETE "+table.name+" FROM "+table.name+" FORCE INDEX ("+table.index+
			") WHERE member_id IN ("+mysql.Marks(len(missing))+")", mysql.Args(missing)...))
		if err != nil {
			return 0, err
		}
		n += deleted
	}
	if len(present) > 0 {
		_, err = tx.ExecContext(ctx, "UPDATE push_settings SET missing_at = NULL WHERE member_id IN ("+mysql.Marks(len(present))+")", mysql.Args(present)...)
	}
	return n, err
}
