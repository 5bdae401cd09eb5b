package broadcast

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/queue"
)

// Errors of an [Admin].
var (
	ErrNone    = errors.New("is no broadcast member")
	ErrTooMany = fmt.Errorf("there are %d broadcast members already", contacts.MaxBroadcasts)
)

// Admin changes who is a broadcast member.
type Admin struct {
	DB    *sql.DB
	Queue *queue.Queue // in DB
	// Tasks returns the tasks that carry a change of state through.
	Tasks func(of member.ID, change uint64, joins bool) []queue.New
}

// Add names a member one: it stays one, however few its followers are. It reports whether its state changes: not
// if the member is one; nor if it is about to be, and then the tasks that make it one are enqueued again. It fails
// with [contacts.ErrNoMember] for a member that does not exist, and with [ErrTooMany].
func (a *Admin) Add(ctx context.Context, id member.ID) (changed bool, err error) {
	return a.change(ctx, id, contacts.Joining, func(tx *sql.Tx, is contacts.BroadcastState) (bool, error) {
		if is == contacts.Joining || is == contacts.Joined {
			_, err := tx.ExecContext(ctx, `UPDATE broadcast_members SET named = TRUE WHERE member_id = ?`, id)
			return false, err
		}
		var exists bool
		if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM users WHERE id = ?)`, id).Scan(&exists); err != nil {
			return false, err
		}
		if !exists || id.IsCopy() {
			return false, fmt.Errorf("%w: %d", contacts.ErrNoMember, id)
		}
		var n int
		if err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM broadcast_members`).Scan(&n); err != nil {
			return false, err
		}
		if n >= contacts.MaxBroadcasts {
			return false, ErrTooMany
		}
		return true, nil
	})
}

// Remove has a member fanned out again. It reports whether its state changes: not if the member is about to be
// none; then the tasks of that are enqueued again. It fails with [ErrNone].
func (a *Admin) Remove(ctx context.Context, id member.ID) (changed bool, err error) {
	return a.change(ctx, id, contacts.Leaving, func(_ *sql.Tx, is contacts.BroadcastState) (bool, error) {
		if is == contacts.NoMember {
			return false, fmt.Errorf("member %d %w", id, ErrNone)
		}
		return is != contacts.Leaving, nil
	})
}

// change stores a state with its tasks in one transaction, if may allows it. Where that is the state already, it
// enqueues the tasks of the change to it again, which may be dead or deleted: those that are not absorb them.
func (a *Admin) change(ctx context.Context, id member.ID, to contacts.BroadcastState, may func(*sql.Tx, contacts.BroadcastState) (bool, error)) (changed bool, err error) {
	change, joins := contacts.NewChange(), to == contacts.Joining
	err = mysql.Transact(ctx, a.DB, fmt.Sprintf("change the state of broadcast member %d", id), func(tx *sql.Tx) (err error) {
		var is contacts.Broadcast
		err = tx.QueryRowContext(ctx, `SELECT state, change_id FROM broadcast_members WHERE member_id = ? FOR UPDATE`, id).Scan(&is.State, &is.Change)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if changed, err = may(tx, is.State); err != nil || !changed && is.State != to {
			return err
		}
		if !changed {
			_, err = a.Queue.EnqueueTx(ctx, tx, a.Tasks(id, is.Change, joins)...)
			return err
		}
		if _, err := tx.ExecContext(ctx, `
INSERT INTO broadcast_members (member_id, state, change_id, named) VALUES (?, ?, ?, ?)
ON DUPLICATE KEY UPDATE state = VALUES(state), change_id = VALUES(change_id), named = VALUES(named), changed_at = `+mysql.Now, id, to, change, joins); err != nil {
			return err
		}
		_, err = a.Queue.EnqueueTx(ctx, tx, a.Tasks(id, change, joins)...)
		return err
	})
	return changed && err == nil, err
}

// Member is a broadcast member, for people.
type Member struct {
	ID         member.ID
	Username   string
	Exists     bool // it is a member of the site
	State      contacts.BroadcastState
	Named      bool // by an operator
	Changed    time.Time
	LastUpload uint64 // unix seconds; 0: never uploaded
}

// List returns the broadcast members, in the order of their ids.
func (a *Admin) List(ctx context.Context) (list []Member, err error) {
	rows, err := a.DB.QueryContext(ctx, `
SELECT b.member_id, b.state, b.named, b.changed_at, `+
		contacts.IfFound("u.id", "u.username", "''")+`, `+contacts.IfFound("u.id", "GREATEST(u.last_upload, 0)", "0")+`, `+contacts.Found("u.id")+`
FROM broadcast_members b
LEFT JOIN users u ON u.id = b.member_id
ORDER BY b.member_id`)
	if err != nil {
		return nil, mysql.Translate(ctx, "reading the broadcast members", err)
	}
	defer func() { _ = rows.Close() }() // what it could report, Err has reported
	for rows.Next() {
		var m Member
		var changed int64
		if err := rows.Scan(&m.ID, &m.State, &m.Named, &changed, &m.Username, &m.LastUpload, &m.Exists); err != nil {
			return nil, mysql.Translate(ctx, "reading the broadcast members", err)
		}
		m.Changed = time.UnixMilli(changed)
		list = append(list, m)
	}
	return list, mysql.Translate(ctx, "reading the broadcast members", rows.Err())
}
