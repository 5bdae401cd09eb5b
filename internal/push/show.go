package push

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
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
	runsAtOnce  = 4    // rows of push_runs
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
		var burst []byte
		err = rows.Scan(&f.Event, &f.Member, &f.Device, &f.State, &f.Reason, &f.ProviderID, (*instant)(&f.At), &burst, &f.Platform, &f.Gone)
		copy(f.Burst[:], burst)
		return f, err
	}, "SELECT r.event_number, r.member_id, r.device_id, r.state, r.reason, r.provider_id, r.at, COALESCE(r.burst, ''),"+fateDevice+
		" FROM push_receipts r FORCE INDEX (PRIMARY) LEFT JOIN push_devices d ON d.id = r.device_id AND d.member_id = r.member_id"+
		" WHERE r.event_number = ? AND (? = 0 OR r.member_id = ?) AND (r.member_id > ? OR r.member_id = ? AND r.device_id > ?)"+
		" ORDER BY r.event_number, r.member_id, r.device_id LIMIT ?",
		event, only, only, after.Member, after.Member, after.Device, fatesAtOnce)
	return list, len(list) == fatesAtOnce, err
}

// runFates returns those of the next runs.
func (m *MySQL) runFates(ctx context.Context, event uint64, only member.ID, after Fate) (list []Fate, more bool, err error) {
	which, args := "event_number = ? AND state = 'accepted' AND (task_id > ? OR task_id = ? AND device_id > ?) ORDER BY event_number, task_id, device_id LIMIT ?",
		[]any{event, after.Task, after.Task, after.run, runsAtOnce}
	if only != 0 {
		which, args = "event_number = ? AND state = 'accepted' AND first_member <= ? AND last_member >= ?", []any{event, only, only}
	}
	runs, err := mysql.Select(ctx, m.db, func(rows *sql.Rows) (fates []Fate, err error) {
		f := Fate{Receipt: Receipt{Event: event, State: StateAccepted}}
		var text []byte
		if err := rows.Scan(&f.Task, &f.run, (*instant)(&f.At), &text); err != nil {
			return nil, err
		}
		var devices []runDevice
		err = json.Unmarshal(text, &devices)
		for _, d := range devices {
			f.Member, f.Device, f.ProviderID = d.Member, d.Device, cmp.Or(d.ID, messageID(event, d.Device))
			if only == 0 || f.Member == only {
				fates = append(fates, f)
			}
		}
		return fates, err
	}, "SELECT task_id, device_id, at, devices FROM push_runs FORCE INDEX (PRIMARY) WHERE "+which, args...)
	list = slices.Concat(runs...)
	if err != nil || len(list) == 0 {
		return nil, false, err
	}
	devices := make([]uint64, len(list))
	for i, f := range list {
		devices[i] = f.Device
	}
	known := make(map[Recipient]Fate)
	_, err = mysql.Select(ctx, m.db, func(rows *sql.Rows) (_ struct{}, err error) {
		var f Fate
		err = rows.Scan(&f.Device, &f.Member, &f.Platform, &f.Gone)
		known[Recipient{f.Member, f.Device}] = f
		return struct{}{}, err
	}, "SELECT d.id, d.member_id,"+fateDevice+" FROM push_devices d FORCE INDEX (PRIMARY) WHERE d.id IN ("+mysql.Marks(len(devices))+")", mysql.Args(devices)...)
	for i, f := range list {
		is := known[Recipient{f.Member, f.Device}]
		list[i].Platform, list[i].Gone = is.Platform, is.Gone
	}
	return list, only == 0, err
}
