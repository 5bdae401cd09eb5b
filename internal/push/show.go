package push

import (
	"context"
	"database/sql"
	"fmt"
	"iter"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// Fate is what became of an event for a device, for people.
type Fate struct {
	Receipt

	Platform Platform // "": the device is not known any more, or stands for the member
	Gone     string   // why it is not notified any more; "": it is
}

const fatesAtOnce = 1000 // rows

// Fates returns the fates of an event by member and device, of all members, or of only alone, unless that is 0; some at a
// time. No address is read.
func (m *MySQL) Fates(ctx context.Context, event uint64, only member.ID) iter.Seq2[[]Fate, error] {
	return func(yield func([]Fate, error) bool) {
		for last, more := (Fate{}), true; more; {
			page, err := m.fates(ctx, event, only, last)
			if err != nil {
				yield(nil, mysql.Translate(ctx, fmt.Sprintf("read what became of event %d", event), err))
				return
			}
			if len(page) > 0 && !yield(page, nil) {
				return
			}
			if more = len(page) == fatesAtOnce; more {
				last = page[len(page)-1]
			}
		}
	}
}

func (m *MySQL) fates(ctx context.Context, event uint64, only member.ID, after Fate) ([]Fate, error) {
	return mysql.Select(ctx, m.db, func(rows *sql.Rows) (f Fate, err error) {
		var burst []byte
		err = rows.Scan(&f.Event, &f.Member, &f.Device, &f.State, &f.Reason, &f.ProviderID, (*instant)(&f.At), &burst, &f.Platform, &f.Gone)
		copy(f.Burst[:], burst)
		return f, err
	}, "SELECT r.event_number, r.member_id, r.device_id, r.state, r.reason, r.provider_id, r.at, COALESCE(r.burst, ''),"+
		" COALESCE(d.platform, ''), IF(d.gone_at IS NULL, '', d.gone_reason)"+
		" FROM push_receipts r FORCE INDEX (PRIMARY) LEFT JOIN push_devices d ON d.id = r.device_id AND d.member_id = r.member_id"+
		" WHERE r.event_number = ? AND (? = 0 OR r.member_id = ?) AND (r.member_id > ? OR r.member_id = ? AND r.device_id > ?)"+
		" ORDER BY r.event_number, r.member_id, r.device_id LIMIT ?",
		event, only, only, after.Member, after.Member, after.Device, fatesAtOnce)
}
