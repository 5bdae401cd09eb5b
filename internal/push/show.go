package push

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"iter"
	"slices"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// Fate is what became of an event for a device, for people.
type Fate struct {
	Receipt

	Platform Platform // "": the device is not known any more, or stands for the member
	Gone     string   // why it is not notified any more; "": it is

	run uint64 // the device with which its run begins
}

const (
	fatesAtOnce = 1000 // rows of push_receipts
	runsAtOnce  = 4    // rows of push_accepted
)

// Fates returns the fates of an event, of all members, or of only alone, unless that is 0; some at a
// time. First come receipts that are rows of their own, among them all that say that it was not
// accepted, by member and device; then those of runs. No address is read.
func (m *MySQL) Fates(ctx context.Context, event uint64, only member.ID) iter.Seq2[[]Fate, error] {
	return func(yield func([]Fate, error) bool) {
		for _, read := range []func(context.Context, uint64, member.ID, Fate) ([]Fate, bool, error){m.ownFates, m.runFates} {
			last, more := Fate{}, true
			for more {
				var page []Fate
				var err error
				page, more, err = read(ctx, event, only, last)
				if err != nil {
					yield(nil, mysql.Translate(ctx, fmt.Sprintf("read what became of event %d", event), err))
					return
				}
				if len(page) > 0 && !yield(page, nil) {
					return
				}
				if more {
					last = page[len(page)-1]
				}
			}
		}
	}
}

const fateDevice = " COALESCE(d.platform, ''), IF(d.gone_at IS NULL, '', d.gone_reason)"

func (m *MySQL) ownFates(ctx context.Context, event uint64, only member.ID, after Fate) (list []Fate, more bool, err error) {
	list, err = mysql.Select(ctx, m.db, func(rows *sql.Rows) (f Fate, err error) {
		err = rows.Scan(&f.Event, &f.Member, &f.Device, &f.State, &f.Reason, &f.ProviderID, (*instant)(&f.At), &f.Platform, &f.Gone)
		return f, err
	}, "SELECT r.event_number, r.member_id, r.device_id, r.state, r.reason, r.provider_id, r.at,"+fateDevice+
		" FROM push_receipts r FORCE INDEX (PRIMARY) LEFT JOIN push_devices d ON d.id = r.device_id AND d.member_id = r.member_id"+
		" WHERE r.event_number = ? AND (? = 0 OR r.member_id = ?) AND (r.member_id > ? OR r.member_id = ? AND r.device_id > ?)"+
		" ORDER BY r.event_number, r.member_id, r.device_id LIMIT ?",
		event, only, only, after.Member, after.Member, after.Device, fatesAtOnce)
	return list, len(list) == fatesAtOnce, err
}

// runFates returns those of the next runs.
func (m *MySQL) runFates(ctx context.Context, event uint64, only member.ID, after Fate) (list []Fate, more bool, err error) {
	which, args := "event_number = ? AND (task_id > ? OR task_id = ? AND device_id > ?) ORDER BY event_number, task_id, device_id LIMIT ?",
		[]any{event, after.Task, after.Task, after.run, runsAtOnce}
	if only != 0 {
		which, args = "event_number = ? AND first_member <= ? AND last_member >= ?", []any{event, only, only}
	}
	list, err = mysql.Select(ctx, m.db, func(rows *sql.Rows) (f Fate, err error) {
		f.Event, f.State = event, StateAccepted
		err = rows.Scan(&f.Task, &f.run, &f.Member, &f.Device, &f.ProviderID, (*instant)(&f.At), &f.Platform, &f.Gone)
		f.ProviderID = cmp.Or(f.ProviderID, messageID(event, f.Device))
		return f, err
	}, "SELECT r.task_id, r.device_id, q.m, q.d, COALESCE(q.i, ''), r.at,"+fateDevice+
		" FROM (SELECT * FROM push_accepted FORCE INDEX (PRIMARY) WHERE "+which+") AS r"+
		" JOIN JSON_TABLE(r.devices, '$[*]' COLUMNS (m BIGINT UNSIGNED PATH '$[0]', d BIGINT UNSIGNED PATH '$[1]', i VARCHAR(128) PATH '$[2]')) AS q"+
		" LEFT JOIN push_devices d ON d.id = q.d AND d.member_id = q.m WHERE ? = 0 OR q.m = ?", append(args, only, only)...)
	slices.SortFunc(list, func(a, b Fate) int {
		return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.run, b.run), cmp.Compare(a.Member, b.Member), cmp.Compare(a.Device, b.Device))
	})
	return list, only == 0 && len(list) > 0, err
}
