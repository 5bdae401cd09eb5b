package push

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// Fate is what became of an event for a device, for people.
type Fate struct {
	Receipt

	Platform Platform // "": the device is not known any more, or stands for the member
	Gone     string   // why it is not notified any more; "": it is
}

// Fates returns up to limit fates of an event, by member and device, of those after a member
// and a device: of all members, or of only alone, unless that is 0. Begin with zeros and
// continue with the last ones received. No address is read.
func (m *MySQL) Fates(ctx context.Context, event uint64, only, afterMember member.ID, afterDevice uint64, limit int) ([]Fate, error) {
	list, err := mysql.Select(ctx, m.db, func(rows *sql.Rows) (f Fate, err error) {
		err = rows.Scan(&f.Event, &f.Member, &f.Device, &f.State, &f.Reason, &f.ProviderID, (*instant)(&f.At), &f.Platform, &f.Gone)
		return f, err
	}, "SELECT r.event_number, r.member_id, r.device_id, r.state, r.reason, r.provider_id, r.at,"+
		" COALESCE(d.platform, ''), IF(d.gone_at IS NULL, '', d.gone_reason)"+
		" FROM push_receipts r FORCE INDEX (PRIMARY) LEFT JOIN push_devices d ON d.id = r.device_id AND d.member_id = r.member_id"+
		" WHERE r.event_number = ? AND (? = 0 OR r.member_id = ?) AND (r.member_id > ? OR r.member_id = ? AND r.device_id > ?)"+
		" ORDER BY r.event_number, r.member_id, r.device_id LIMIT ?",
		event, only, only, afterMember, afterMember, afterDevice, limit)
	return list, mysql.Translate(ctx, fmt.Sprintf("read what became of event %d", event), err)
}
