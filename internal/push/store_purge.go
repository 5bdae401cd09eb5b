package push

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
)

const (
	// purgeSize bounds the rows that one statement of a purge deletes.
	purgeSize = 1000
	// purgeEvery is the pause between two purges of a process.
	purgeEvery = time.Minute
	// keepGone is how long the row of a device that is gone is kept, for the reason.
	keepGone = 30 * 24 * time.Hour
)

// Run purges once a minute until ctx ends. Several processes may do so.
func (m *MySQL) Run(ctx context.Context, log *slog.Logger) {
	for retry.Sleep(ctx, retry.Jitter(purgeEvery)) == nil {
		if _, err := m.Purge(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "purge of push failed", "error", err)
		}
	}
}

// Purge deletes what is not needed any more: events that expired a day ago, with their
// receipts; devices that have been gone for 30 days; mutes that have ended. It takes as many
// small transactions as there is work for, and returns how many rows it deleted. What
// fails keeps nothing else from being done.
func (m *MySQL) Purge(ctx context.Context) (n int, err error) {
	var failed []error
	for _, chore := range []struct {
		what string
		do   func(*sql.Tx) (int, error)
	}{
		{"delete forgotten events", func(tx *sql.Tx) (int, error) { return purgeEvents(ctx, tx) }},
		{"delete devices that are gone", func(tx *sql.Tx) (int, error) {
			return mysql.Affected(tx.ExecContext(ctx, "DELETE FROM push_devices WHERE gone_at <= "+mysql.Now+" - ? ORDER BY gone_at LIMIT ?",
				keepGone.Milliseconds(), purgeSize))
		}},
		{"delete mutes that have ended", func(tx *sql.Tx) (int, error) {
			return mysql.Affected(tx.ExecContext(ctx, "DELETE FROM push_mutes WHERE until_at <= "+mysql.Now+" ORDER BY until_at LIMIT ?", purgeSize))
		}},
	} {
		for more := true; more; {
			var deleted int
			err := mysql.Transact(ctx, m.db, chore.what, func(tx *sql.Tx) (err error) {
				deleted, err = chore.do(tx)
				return err
			})
			if err != nil {
				failed = append(failed, err)
			}
			n += deleted
			// A round is short, too, if others have locked rows, perhaps only for a moment: InnoDB locks
			// the neighbours of what it deletes. What all of them pass over is left to the next purge.
			more = err == nil && deleted > 0
		}
	}
	return n, errors.Join(failed...)
}

// purgeEvents deletes a part of the receipts of events that are to be forgotten, or, once they
// have none, the events. Those that another process is about to delete are passed over.
// A delivery that may still be under way ended when its event expired, a day ago.
func purgeEvents(ctx context.Context, tx *sql.Tx) (n int, err error) {
	numbers, err := mysql.Keys(ctx, tx, "SELECT number FROM push_events FORCE INDEX (forgotten) WHERE forget_at <= "+mysql.Now+
		" ORDER BY forget_at LIMIT ? FOR UPDATE SKIP LOCKED", purgeSize)
	if err != nil || len(numbers) == 0 {
		return 0, err
	}
	in := " IN (" + mysql.Marks(len(numbers)) + ")"
	n, err = mysql.Affected(tx.ExecContext(ctx, "DELETE FROM push_receipts WHERE event_number"+in+
		" ORDER BY event_number, member_id, device_id LIMIT ?", append(slices.Clone(numbers), purgeSize)...))
	if err != nil || n == purgeSize {
		return n, err
	}
	events, err := mysql.Affected(tx.ExecContext(ctx, "DELETE push_events FROM push_events FORCE INDEX (PRIMARY) WHERE number"+in, numbers...))
	return n + events, err
}
