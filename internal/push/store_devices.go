package push

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// MaxDevices is how many devices a member may have. Of more, the devices go that were confirmed
// longest ago.
const MaxDevices = 50

// Pruned is a device that a push service reported to be gone.
type Pruned struct {
	Device uint64
	Reason string    // as in [Result.Reason]
	Since  time.Time // it stays if its address was confirmed later; zero: it does not
}

const (
	deviceColumns = "d.id, d.member_id, d.platform, d.address, d.registered_at, d.language"
	insertDevice  = "INSERT INTO push_devices (member_id, platform, address, language, registered_at, address_hash) VALUES (?, ?, ?, ?, " + mysql.Now + ", ?)"
	confirmDevice = "UPDATE push_devices SET member_id = ?, platform = ?, address = ?, language = ?, registered_at = " + mysql.Now +
		", gone_at = NULL, gone_reason = ''" +
		" WHERE address_hash = ?"
)

// dest is where deviceColumns are scanned into.
func (d *Device) dest() []any {
	d.Address.read = new(atomic.Pointer[any])
	return []any{&d.ID, &d.Member, &d.Platform, &d.Address.text, (*instant)(&d.Registered), &d.Language}
}

func scanDevice(rows *sql.Rows) (d Device, err error) {
	err = rows.Scan(d.dest()...)
	return d, err
}

// Register makes an address a device of a member, of a language or "", or confirms that it is. A device of
// another member moves, and a device that was gone is live again. The error wraps
// [contacts.ErrNoMember] if the member is not there.
func (m *MySQL) Register(ctx context.Context, id member.ID, platform Platform, a Address, language string) (d Device, err error) {
	hash, err := a.hash(platform)
	if err != nil {
		return d, err
	}
	args := []any{id, platform, string(a.text), language, hash}
	err = mysql.Transact(ctx, m.db, fmt.Sprintf("register a device of member %d", id), func(tx *sql.Tx) error {
		if err := requireMember(ctx, tx, id); err != nil {
			return err
		}
		var owner member.ID // of the live device; 0: there is none
		err := tx.QueryRowContext(ctx, "SELECT IF(gone_at IS NULL, member_id, 0) FROM push_devices WHERE address_hash = ? FOR UPDATE", hash).Scan(&owner)
		statement := confirmDevice
		if err == sql.ErrNoRows { //nolint:errorlint // it is never wrapped
			statement = insertDevice
		} else if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, statement, args...); mysql.IsDuplicate(err) {
			// Another process was quicker: its row can be locked and changed, as it has committed.
			if _, err := tx.ExecContext(ctx, confirmDevice, args...); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
		if owner != id {
			if err := dropOldest(ctx, tx, id); err != nil {
				return err
			}
		}
		found, err := mysql.Select(ctx, tx, scanDevice, "SELECT "+deviceColumns+" FROM push_devices d WHERE d.address_hash = ?", hash)
		if err == nil {
			d = found[0]
		}
		return err
	})
	return d, err
}

// dropOldest deletes the live devices of a member beyond MaxDevices: the addresses that were confirmed longest ago, and
// of the same instant the oldest rows. It locks all devices of the member, also in transactions that have not
// committed, so that the last to commit sees all of them.
func dropOldest(ctx context.Context, tx *sql.Tx, id member.ID) error {
	type row struct{ id, registered uint64 }
	live, err := mysql.Select(ctx, tx, func(rows *sql.Rows) (r row, err error) {
		err = rows.Scan(&r.id, &r.registered)
		return r, err
	}, "SELECT id, registered_at FROM push_devices FORCE INDEX (members) WHERE member_id = ? AND gone_at IS NULL FOR UPDATE", id)
	if err != nil || len(live) <= MaxDevices {
		return err
	}
	slices.SortFunc(live, func(a, b row) int { return cmp.Or(cmp.Compare(b.registered, a.registered), cmp.Compare(b.id, a.id)) })
	var old []any
	for _, r := range live[MaxDevices:] {
		old = append(old, r.id)
	}
	_, err = tx.ExecContext(ctx, "DELETE FROM push_devices WHERE id IN ("+mysql.Marks(len(old))+")", old...)
	return err
}

// Devices returns the live devices of a member, by id, and then the gone devices, by time:
// 2 MaxDevices at most in all. The error wraps [contacts.ErrNoMember] if the member is not there.
func (m *MySQL) Devices(ctx context.Context, id member.ID) ([]Device, error) {
	list, err := selectOf(ctx, m.db, id, func(rows *sql.Rows) (d Device, err error) {
		err = rows.Scan(append(d.dest(), (*instant)(&d.Gone), &d.GoneReason)...)
		return d, err
	}, "SELECT "+deviceColumns+", d.gone_at, d.gone_reason FROM push_devices d FORCE INDEX (members) WHERE d.member_id = ?"+
		" ORDER BY d.gone_at, d.id LIMIT "+strconv.Itoa(2*MaxDevices))
	return list, mysql.Translate(ctx, fmt.Sprintf("read the devices of member %d", id), err)
}

// Remove deletes a device of a member, and reports whether it was there.
func (m *MySQL) Remove(ctx context.Context, id member.ID, device uint64) (found bool, err error) {
	err = mysql.Transact(ctx, m.db, fmt.Sprintf("remove a device of member %d", id), func(tx *sql.Tx) error {
		n, err := mysql.Affected(tx.ExecContext(ctx, "DELETE push_devices FROM push_devices FORCE INDEX (PRIMARY) WHERE id = ? AND member_id = ? AND gone_at IS NULL", device, id))
		found = n > 0
		return err
	})
	return found, err
}

// Prune ends devices that push services reported to be gone, and returns how many
// of them were live. Their rows are kept for some days, for the reason, without the address.
func (m *MySQL) Prune(ctx context.Context, gone []Pruned) (n int, err error) {
	if len(gone) == 0 {
		return 0, nil
	}
	gone = slices.Clone(gone)
	slices.SortFunc(gone, func(a, b Pruned) int { return cmp.Compare(a.Device, b.Device) }) // the same order of locks everywhere
	err = mysql.Transact(ctx, m.db, fmt.Sprintf("prune %d devices", len(gone)), func(tx *sql.Tx) error {
		n = 0
		for _, p := range gone {
			since := any(nil)
			if !p.Since.IsZero() {
				since = p.Since.UnixMilli()
			}
			one, err := mysql.Affected(tx.ExecContext(ctx, "UPDATE push_devices FORCE INDEX (PRIMARY) SET gone_at = "+mysql.Now+", gone_reason = ?, address = JSON_OBJECT()"+
				" WHERE id = ? AND gone_at IS NULL AND registered_at <= COALESCE(?, registered_at)", clip(p.Reason), p.Device, since))
			if err != nil {
				return err
			}
			n += one
		}
		return nil
	})
	return n, err
}

// clip shortens a reason to MaxReason bytes, and keeps ASCII: it came from a push service.
func clip(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), MaxReason)]
}
