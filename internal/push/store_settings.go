package push

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// MaxMutes is about how many objects a member may mute at a time.
const MaxMutes = 1000

// ErrTooManyMutes is wrapped by the error for a member that mutes [MaxMutes] objects.
var ErrTooManyMutes = errors.New("too many mutes")

// Settings returns the wishes of a member: none, if it never said
// so. The error wraps [contacts.ErrNoMember] if the member is not there.
func (m *MySQL) Settings(ctx context.Context, id member.ID) (Settings, error) {
	list, err := selectOf(ctx, m.db, id, func(rows *sql.Rows) (s Settings, err error) {
		var types []byte
		if err := rows.Scan(&types, &s.Quiet.From, &s.Quiet.To, &s.Quiet.Zone); err != nil {
			return s, err
		}
		s.Types, err = parseTypes(types)
		return s, err
	}, "SELECT types, quiet_from, quiet_to, time_zone FROM push_settings WHERE member_id = ?")
	if err != nil || len(list) == 0 {
		return Settings{}, mysql.Translate(ctx, fmt.Sprintf("read the push settings of member %d", id), err)
	}
	return list[0], nil
}

// SetSettings changes the wishes of a member. The error wraps
// [contacts.ErrNoMember] if the member is not there.
func (m *MySQL) SetSettings(ctx context.Context, id member.ID, s Settings) error {
	types := []byte("{}")
	if len(s.Types) > 0 {
		var err error
		if types, err = json.Marshal(s.Types); err != nil {
			return err
		}
	}
	return mysql.Transact(ctx, m.db, fmt.Sprintf("change the push settings of member %d", id), func(tx *sql.Tx) error {
		if err := requireMember(ctx, tx, id); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO push_settings (member_id, types, quiet_from, quiet_to, time_zone) VALUES (?, ?, ?, ?, ?)"+
			" ON DUPLICATE KEY UPDATE types = VALUES(types), quiet_from = VALUES(quiet_from), quiet_to = VALUES(quiet_to), time_zone = VALUES(time_zone)",
			id, string(types), s.Quiet.From, s.Quiet.To, s.Quiet.Zone)
		return err
	})
}

// Mutes returns the present mutes of a member, by object. The error wraps [contacts.ErrNoMember] if the
// member is not there.
func (m *MySQL) Mutes(ctx context.Context, id member.ID) ([]Mute, error) {
	list, err := selectOf(ctx, m.db, id, func(rows *sql.Rows) (mute Mute, err error) {
		err = rows.Scan(&mute.Object, (*instant)(&mute.Until))
		return mute, err
	}, "SELECT object, until_at FROM push_mutes FORCE INDEX (PRIMARY) WHERE member_id = ? AND until_at > "+mysql.Now+" ORDER BY object")
	return list, mysql.Translate(ctx, fmt.Sprintf("read what member %d mutes", id), err)
}

// maxMute is how long a mute may last; a longer mute ends then.
const maxMute = 10 * 365 * 24 * time.Hour

// Mute mutes an object until a time, instead of until the time before if it was muted. Errors
// wrap [ErrTooManyMutes], and [contacts.ErrNoMember] if the member is not there.
func (m *MySQL) Mute(ctx context.Context, id member.ID, object string, until time.Time) error {
	return mysql.Transact(ctx, m.db, fmt.Sprintf("mute an object for member %d", id), func(tx *sql.Tx) error {
		if err := requireMember(ctx, tx, id); err != nil {
			return err
		}
		others, err := mysql.Select(ctx, tx, mysql.Column[int], "SELECT COUNT(*) FROM push_mutes FORCE INDEX (PRIMARY)"+
			" WHERE member_id = ? AND object <> ? AND until_at > "+mysql.Now, id, object)
		if err != nil {
			return err
		}
		if others[0] >= MaxMutes {
			return fmt.Errorf("%w: %d are in force: wait until one ends, or end one", ErrTooManyMutes, others[0])
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO push_mutes (member_id, object, until_at) VALUES (?, ?, LEAST(?, "+mysql.Now+" + ?))"+
			" ON DUPLICATE KEY UPDATE until_at = VALUES(until_at)", id, object, until.UnixMilli(), maxMute.Milliseconds())
		return err
	})
}

// Unmute ends a mute, and reports whether it was in force.
func (m *MySQL) Unmute(ctx context.Context, id member.ID, object string) (found bool, err error) {
	err = mysql.Transact(ctx, m.db, fmt.Sprintf("end a mute of member %d", id), func(tx *sql.Tx) error {
		n, err := mysql.Affected(tx.ExecContext(ctx, "DELETE FROM push_mutes WHERE member_id = ? AND object = ? AND until_at > "+mysql.Now, id, object))
		found = n > 0
		return err
	})
	return found, err
}
