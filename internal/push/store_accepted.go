package push

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/activityd/activityd/internal/mysql"
)

// acceptedRun is the receipts of an event that were accepted and written together, for devices of one
// deliver task: a row of push_accepted.
//
// A run is written when its messages are answered, and found by who does the task again after its
// process died. Each process that has the task writes runs of its own: what begins with the same device
// is the same run, which may have become longer until it could be written.
type acceptedRun struct {
	event, task uint64
	devices     []acceptedDevice
}

type acceptedDevice struct {
	Recipient
	ID string // the push service's, as plainID has it; "": messageID
}

// MarshalJSON implements [json.Marshaler]: [member, device], or [member, device, id].
func (d acceptedDevice) MarshalJSON() ([]byte, error) {
	if d.ID == "" {
		return d.Recipient.MarshalJSON()
	}
	return fmt.Appendf(nil, "[%d,%d,%q]", d.Member, d.Device, d.ID), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (d *acceptedDevice) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[3]any{(*uint64)(&d.Member), &d.Device, &d.ID})
}

// divide divides receipts into those that are rows of their own, and runs.
func divide(receipts []Receipt) (own []Receipt, runs []*acceptedRun) {
	type of struct{ event, task uint64 }
	found := make(map[of]*acceptedRun)
	for _, r := range receipts {
		if r.Task == 0 {
			own = append(own, r)
			continue
		}
		key := of{r.Event, r.Task}
		run := found[key]
		if run == nil {
			run = &acceptedRun{event: r.Event, task: r.Task}
			found[key] = run
			runs = append(runs, run)
		}
		id := plainID(r.ProviderID)
		if id == messageID(r.Event, r.Device) {
			id = ""
		}
		run.devices = append(run.devices, acceptedDevice{Recipient{r.Member, r.Device}, id})
	}
	return own, runs
}

func writeAccepted(ctx context.Context, tx *sql.Tx, runs []*acceptedRun) error {
	if len(runs) == 0 {
		return nil
	}
	var args []any
	for _, run := range runs {
		text, err := json.Marshal(run.devices)
		if err != nil {
			return err
		}
		first, last := run.devices[0].Member, run.devices[0].Member
		for _, d := range run.devices {
			first, last = min(first, d.Member), max(last, d.Member)
		}
		args = append(args, run.event, run.task, run.devices[0].Device, first, last, len(run.devices), string(text))
	}
	const row = "(?,?,?,?,?,?,?," + mysql.Now + "),"
	var set []string
	// The server changes the columns in this order, and devices_count is read until it is changed.
	for _, column := range []string{"first_member", "last_member", "devices", "at", "devices_count"} {
		set = append(set, column+" = IF(VALUES(devices_count) > devices_count, VALUES("+column+"), "+column+")")
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO push_accepted (event_number, task_id, device_id, first_member, last_member, devices_count, devices, at) VALUES "+
		strings.TrimSuffix(strings.Repeat(row, len(runs)), ",")+" ON DUPLICATE KEY UPDATE "+strings.Join(set, ", "), args...)
	return err
}

// accepted returns, of candidates of tasks of several devices, for which the event was accepted.
func (m *MySQL) accepted(ctx context.Context, candidates []Candidate) (map[Candidate]bool, error) {
	type of struct{ event, task uint64 }
	seen := make(map[of]bool)
	var args []any
	for _, c := range candidates {
		if key := (of{c.Event, c.Task}); c.Task != 0 && !seen[key] {
			seen[key] = true
			args = append(args, c.Event, c.Task)
		}
	}
	if len(args) == 0 {
		return nil, nil //nolint:nilnil // nothing is in it
	}
	const one = " OR event_number = ? AND task_id = ?"
	found := make(map[Candidate]bool)
	_, err := mysql.Select(ctx, m.db, func(rows *sql.Rows) (_ struct{}, err error) {
		var c Candidate
		var text []byte
		if err := rows.Scan(&c.Event, &c.Task, &text); err != nil {
			return struct{}{}, err
		}
		var devices []acceptedDevice
		err = json.Unmarshal(text, &devices)
		for _, d := range devices {
			c.Member, c.Device = d.Member, d.Device
			found[c] = true
		}
		return struct{}{}, err
	}, "SELECT event_number, task_id, devices FROM push_accepted FORCE INDEX (PRIMARY) WHERE "+
		strings.TrimPrefix(strings.Repeat(one, len(args)/2), " OR "), args...)
	return found, mysql.Translate(ctx, fmt.Sprintf("read what of %d tasks was accepted", len(args)/2), err)
}
