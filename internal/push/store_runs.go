package push

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// run is the receipts of an event that are alike and written together, for devices of one task: a row of
// push_runs.
//
// One that is accepted is written when messages are answered, and found by who does the deliver task again after its
// process died. Each process that has the task writes runs of its own: what begins with the same device
// is the same run, which may have become longer until it could be written.
//
// One that is pending is of a page of targeting, and says which devices the event of a burst is being sent to: others of the
// burst wait for it (see [Targeting]). It is not replaced by what becomes of the event, so it means nothing
// once burstPause is over. Who does the page again writes it again.
type run struct {
	event, task uint64
	state       State
	burst       [16]byte
	at          time.Time // of one that was read
	devices     []runDevice
}

type runDevice struct {
	Recipient
	ID string // the push service's, as plainID has it; "": messageID
}

// MarshalJSON implements [json.Marshaler]: [member, device], or [member, device, id].
func (d runDevice) MarshalJSON() ([]byte, error) {
	if d.ID == "" {
		return d.Recipient.MarshalJSON()
	}
	return fmt.Appendf(nil, "[%d,%d,%q]", d.Member, d.Device, d.ID), nil
}

// UnmarshalJSON implements [json.Unmarshaler].
func (d *runDevice) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[3]any{(*uint64)(&d.Member), &d.Device, &d.ID})
}

// divide divides receipts into those that are rows of their own, and runs.
func divide(receipts []Receipt) (own []Receipt, runs []*run) {
	type of struct {
		event, task uint64
		state       State
	}
	found := make(map[of]*run)
	for _, r := range receipts {
		if r.Task == 0 {
			own = append(own, r)
			continue
		}
		key := of{r.Event, r.Task, r.State}
		one := found[key]
		if one == nil {
			one = &run{event: r.Event, task: r.Task, state: r.State, burst: r.Burst}
			found[key] = one
			runs = append(runs, one)
		}
		id := plainID(r.ProviderID)
		if id == messageID(r.Event, r.Device) {
			id = ""
		}
		one.devices = append(one.devices, runDevice{Recipient{r.Member, r.Device}, id})
	}
	return own, runs
}

func writeOfRuns(runs []*run) (write, error) {
	var args []any
	for _, r := range runs {
		text, err := json.Marshal(r.devices)
		if err != nil {
			return write{}, err
		}
		begins := r.devices[0].Device
		if r.state == StatePending { // there is one of a page
			begins = 0
		}
		first, last := r.devices[0].Member, r.devices[0].Member
		for _, d := range r.devices {
			first, last = min(first, d.Member), max(last, d.Member)
		}
		args = append(args, r.event, r.task, begins, r.state, orNull(r.burst), first, last, len(r.devices), string(text))
	}
	const row = "(?,?,?,?,?,?,?,?,?," + mysql.Now + "),"
	var set []string
	// The server changes the columns in this order, and devices_count is read until it is changed.
	for _, column := range []string{"first_member", "last_member", "devices", "at", "devices_count"} {
		set = append(set, column+" = IF(state = 'pending' OR VALUES(devices_count) > devices_count, VALUES("+column+"), "+column+")")
	}
	return write{"INSERT INTO push_runs (event_number, task_id, device_id, state, burst, first_member, last_member, devices_count, devices, at) VALUES " +
		strings.TrimSuffix(strings.Repeat(row, len(runs)), ",") + " ON DUPLICATE KEY UPDATE " + strings.Join(set, ", "), args}, nil
}

// orNull returns the column burst.
func orNull(burst [16]byte) any {
	if burst == [16]byte{} {
		return nil
	}
	return burst[:]
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
		return nil, nil // nothing is in it
	}
	const one = " OR event_number = ? AND task_id = ?"
	found := make(map[Candidate]bool)
	_, err := mysql.Select(ctx, m.db, func(rows *sql.Rows) (_ struct{}, err error) {
		r, err := scanRun(rows)
		for _, d := range r.devices {
			found[Candidate{Event: r.event, Member: d.Member, Device: d.Device, Task: r.task}] = true
		}
		return struct{}{}, err
	}, "SELECT "+runColumns+" FROM push_runs FORCE INDEX (PRIMARY) WHERE state = 'accepted' AND ("+
		strings.TrimPrefix(strings.Repeat(one, len(args)/2), " OR ")+")", args...)
	return found, mysql.Translate(ctx, fmt.Sprintf("read what of %d tasks was accepted", len(args)/2), err)
}

const runColumns = "event_number, task_id, state, COALESCE(burst, ''), at, devices"

func scanRun(rows *sql.Rows) (r run, err error) {
	var burst, devices []byte
	if err := rows.Scan(&r.event, &r.task, &r.state, &burst, (*instant)(&r.at), &devices); err != nil {
		return r, err
	}
	copy(r.burst[:], burst)
	return r, json.Unmarshal(devices, &r.devices)
}

// runKey is a burst for a device, as runs know it.
type runKey struct {
	burst [16]byte
	Recipient
}

// runSpan is what is read of the runs of a burst: those since a time, of a range of members.
type runSpan struct {
	burst       [16]byte
	since       time.Time
	first, last member.ID
}

// spansOf returns what is to be read about devices: of each burst the range of its members, or two ranges, if a gap between
// them is wider than all else. What is left of one page may be claimed with another page, a million members on.
func spansOf(devices []BurstDevice) (list []*runSpan) {
	of := make(map[[16]byte][]BurstDevice)
	var order [][16]byte
	for _, d := range devices {
		if of[d.Burst] == nil {
			order = append(order, d.Burst)
		}
		of[d.Burst] = append(of[d.Burst], d)
	}
	span := func(some []BurstDevice) {
		s := &runSpan{some[0].Burst, some[0].Since, some[0].Member, some[len(some)-1].Member}
		for _, d := range some {
			if d.Since.Before(s.since) {
				s.since = d.Since
			}
		}
		list = append(list, s)
	}
	for _, burst := range order {
		all := of[burst]
		slices.SortFunc(all, func(a, b BurstDevice) int { return cmp.Compare(a.Member, b.Member) })
		gap := func(i int) member.ID { return all[i].Member - all[i-1].Member }
		at := 0 // where the widest gap ends; 0: there is none
		for i := 1; i < len(all); i++ {
			if at == 0 || gap(i) > gap(at) {
				at = i
			}
		}
		if at > 0 && gap(at) > (all[len(all)-1].Member-all[0].Member)/2 {
			span(all[:at])
			all = all[at:]
		}
		span(all)
	}
	return list
}

// runsSince calls f with each run of the burst, of some states, that a device is part of, since the time that the device names, and the place of
// that among devices.
func (m *MySQL) runsSince(ctx context.Context, devices []BurstDevice, states string, f func(i int, r run)) error {
	places := make(map[runKey][]int, len(devices))
	for i, d := range devices {
		k := runKey{d.Burst, Recipient{d.Member, d.Device}}
		places[k] = append(places[k], i)
	}
	found := func(r run) {
		for _, d := range r.devices {
			for _, i := range places[runKey{r.burst, d.Recipient}] {
				if !r.at.Before(devices[i].Since) {
					f(i, r)
				}
			}
		}
	}
	// Ranges, and no join: only so are entries left out that are too old.
	const one = " OR burst = ? AND at >= ? AND first_member <= ? AND last_member >= ?" // devices is read of these alone
	for some := range slices.Chunk(spansOf(devices), maxBranches) {
		var args []any
		for _, s := range some {
			args = append(args, s.burst[:], max(0, s.since.UnixMilli()), s.last, s.first)
		}
		list, err := mysql.Select(ctx, m.db, scanRun, "SELECT "+runColumns+" FROM push_runs FORCE INDEX (bursts) WHERE state IN ("+states+") AND ("+
			strings.TrimPrefix(strings.Repeat(one, len(some)), " OR ")+")", args...)
		if err != nil {
			return mysql.Translate(ctx, fmt.Sprintf("read runs of %d bursts", len(some)), err)
		}
		for _, r := range list {
			found(r)
		}
	}
	return nil
}
