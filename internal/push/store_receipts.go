package push

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/queue"
)

// State is what became of an event for a device.
type State string

// The states.
const (
	StatePending  State = "pending"  // it is one of a burst and waits, or was sent without an answer
	StateAccepted State = "accepted" // final: the push service took it, or a notification that counts it
	StateSkipped  State = "skipped"  // for a [Skip]
	StateFailed   State = "failed"   // the push service will never take it
)

// Receipt says what became of an event for a device.
type Receipt struct {
	Event      uint64 // the number of a [StoredEvent]
	Member     member.ID
	Device     uint64 // 0: the member as a whole
	State      State
	Reason     string
	ProviderID string    // the id under which the push service took it; a stored one is as plainID has it
	At         time.Time // set by the store
	// Burst is that of the event, if it has a collapse key; zero: it has none, or it is kept as
	// it was.
	Burst [16]byte
	// Task is that of the task whose accepted, or pending, devices share a row, see run; 0: the receipt is a row of its own.
	Task uint64
}

// BurstDevice is a device for which there is a burst.
type BurstDevice struct {
	Burst  [16]byte // see [Event.Burst]
	Member member.ID
	Device uint64
	// Since is from when on runs matter; of [MySQL.AcceptedSince], also when one has to be accepted for the others to matter.
	Since time.Time
	// Of [MySQL.LastSent]: the number of an event that is to be sent, and those of the events that do not count.
	Event  uint64
	Except []uint64
}

// LastSent says what of a burst was sent to a device, or is about to be: when, of the newest
// receipt. The zero time is never, or so long ago that it is forgotten.
type LastSent struct {
	Accepted time.Time
	Earlier  time.Time // of a pending event before the one asked about
	Pending  time.Time // of any other pending event
	Sending  time.Time // of any other pending event that is part of a run
	Waits    bool      // a pending one is not: it has a receipt of its own, and a deliver task for the burst
}

// maxReceipts bounds the rows of one INSERT.
const maxReceipts = 1000

// WriteReceipts writes receipts, and replaces those that are there, but for two: "accepted" stays, and "skipped" does not become
// "pending". The same receipts may be written again. Those of one Task and one state become one row of push_runs.
//
// With tasks that are held, it is one transaction that locks them, and writes nothing but fails with
// [queue.ErrLeaseLost] if one of their leases is lost. A pending receipt needs a task that goes on with it: the one that
// writes it, or what follows that. So a process that was stopped, or a statement that was under way when its process died,
// writes none once another one has the task. Without, up to 1,000 are one transaction.
func (m *MySQL) WriteReceipts(ctx context.Context, held []queue.Task, receipts []Receipt) error {
	held = slices.DeleteFunc(slices.Clone(held), func(t queue.Task) bool { return t.Lease == "" })
	if len(receipts) == 0 {
		return nil
	}
	if len(held) > 0 {
		what := fmt.Sprintf("write %d receipts of %d tasks", len(receipts), len(held))
		writes, err := writesOf(receipts)
		if err != nil {
			return err
		}
		return mysql.Transact(ctx, m.db, what, func(tx *sql.Tx) error {
			if err := queue.Hold(ctx, tx, held); err != nil {
				return err
			}
			return writeAll(ctx, tx, writes)
		})
	}
	for some := range slices.Chunk(receipts, maxReceipts) {
		what := fmt.Sprintf("write %d receipts", len(some))
		writes, err := writesOf(some)
		switch {
		case err != nil:
		case len(writes) == 1:
			_, err = mysql.Exec(ctx, m.db, what, writes[0].text, writes[0].args...)
		default:
			err = mysql.Transact(ctx, m.db, what, func(tx *sql.Tx) error { return writeAll(ctx, tx, writes) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// write is a statement that writes receipts.
type write struct {
	text string
	args []any
}

// writesOf returns what writes receipts, those of one Task and one state as a run.
func writesOf(receipts []Receipt) (writes []write, err error) {
	own, runs := divide(receipts)
	if len(runs) > 0 {
		one, err := writeOfRuns(runs)
		if err != nil {
			return nil, err
		}
		writes = append(writes, one)
	}
	for some := range slices.Chunk(inOrder(own), maxReceipts) {
		writes = append(writes, writeOf(some))
	}
	return writes, nil
}

func writeAll(ctx context.Context, tx *sql.Tx, writes []write) error {
	for _, w := range writes {
		if _, err := tx.ExecContext(ctx, w.text, w.args...); err != nil {
			return err
		}
	}
	return nil
}

// inOrder returns receipts in one order everywhere, so that two batches do not lock each other out.
// Those of one device and event stay in theirs.
func inOrder(receipts []Receipt) []Receipt {
	return slices.SortedStableFunc(slices.Values(receipts), func(a, b Receipt) int {
		return cmp.Or(cmp.Compare(a.Event, b.Event), cmp.Compare(a.Member, b.Member), cmp.Compare(a.Device, b.Device))
	})
}

func writeOf(some []Receipt) write {
	var args []any
	for _, r := range some {
		args = append(args, r.Event, r.Member, r.Device, r.State, clip(r.Reason), plainID(r.ProviderID), orNull(r.Burst))
	}
	const row = "(?,?,?,?,?,?,?," + mysql.Now + "),"
	// The server changes the columns in this order, and state is read until it is changed.
	return write{"INSERT INTO push_receipts (event_number, member_id, device_id, state, reason, provider_id, burst, at) VALUES " +
		strings.TrimSuffix(strings.Repeat(row, len(some)), ",") + " ON DUPLICATE KEY UPDATE burst = COALESCE(VALUES(burst), burst)," +
		" reason = " + unlessFinal("reason") + ", provider_id = " + unlessFinal("provider_id") +
		", at = " + unlessFinal("at") + ", state = " + unlessFinal("state"), args}
}

// maxProviderID is how much of an id the column provider_id has room for, in bytes.
const maxProviderID = 128

// plainID returns a push service's id of a message as it is kept, and shown wherever it is: letters,
// digits and the signs of the ids that are known are as they were, each other byte is %XX. A push
// service that a member made up can put no markup, no command for a terminal and no second column
// into it.
func plainID(id string) string {
	var plain strings.Builder
	for _, c := range []byte(id) {
		part := string(rune(c))
		if !strings.Contains(plainSigns, part) {
			part = fmt.Sprintf("%%%02X", c)
		}
		if plain.Len()+len(part) > maxProviderID {
			break
		}
		plain.WriteString(part)
	}
	return plain.String()
}

const plainSigns = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:%+/="

func unlessFinal(column string) string {
	return "IF(state = 'accepted' OR VALUES(state) = 'pending' AND state <> 'pending', " + column + ", VALUES(" + column + "))"
}

// burstsTable is the argument of the statements about bursts, as a table: its place, the
// burst, the member, the device, the event and the other events of each.
const burstsTable = "JSON_TABLE(?, '$[*]' COLUMNS (i INT UNSIGNED PATH '$.i', b CHAR(32) PATH '$.b', m BIGINT UNSIGNED PATH '$.m', d BIGINT UNSIGNED PATH '$.d', e BIGINT UNSIGNED PATH '$.e', x TEXT PATH '$.x')) AS q"

func burstsArgument(devices []BurstDevice) (string, error) {
	type burst struct {
		I int    `json:"i"`
		B string `json:"b"`
		M uint64 `json:"m"`
		D uint64 `json:"d"`
		E uint64 `json:"e"`
		X string `json:"x"`
	}
	list := make([]burst, len(devices))
	for i, d := range devices {
		var except []byte
		for _, n := range d.Except {
			except = append(strconv.AppendUint(except, n, 10), ',')
		}
		list[i] = burst{i, hex.EncodeToString(d.Burst[:]), uint64(d.Member), d.Device, d.Event, string(except)}
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// maxPending is how many pending events of a burst are read for a device at once: the first.
const maxPending = 1000

// Pending returns, for each of devices in order, the numbers of the events of the burst whose
// receipts are pending, and rows of their own, ascending: of more than maxPending those that were written first.
func (m *MySQL) Pending(ctx context.Context, devices []BurstDevice) ([][]uint64, error) {
	const what = "read what is pending"
	pending := make([][]uint64, len(devices))
	n := 0
	scan := func(rows *sql.Rows) (_ struct{}, err error) {
		var i int
		var event uint64
		err = rows.Scan(&i, &event)
		pending[i] = append(pending[i], event)
		n++
		return struct{}{}, err
	}
	most := maxPending + maxBurst*len(devices)
	err := m.bursts(ctx, what, devices, scan, "SELECT q.i, r.event_number FROM "+burstsTable+" STRAIGHT_JOIN push_receipts r FORCE INDEX (bursts)"+
		" ON r.device_id = q.d AND r.burst = UNHEX(q.b) AND r.state = 'pending' AND r.member_id = q.m LIMIT "+strconv.Itoa(most))
	if err == nil && n == most { // of some devices there are many
		clear(pending)
		err = m.eachBurst(ctx, what, devices, scan, "r.event_number"+ofBurst(StatePending), firstOfBurst, maxPending)
	}
	for _, list := range pending {
		slices.Sort(list)
	}
	return pending, err
}

// Take marks receipts that are pending as unanswered: those of each delivery together, if all of them are pending and no
// other has marked one for less than lasts. A mark is the Reason of the receipts, which begins with reasonUnanswered, and
// others have others. It returns for which deliveries it did. Of two that take the same at once, one gets it: the
// rows are locked, and what is locked is taken by another.
func (m *MySQL) Take(ctx context.Context, deliveries [][]Receipt, lasts time.Duration) (taken []bool, err error) {
	all := inOrder(slices.Concat(deliveries...))
	args := []any{lasts.Milliseconds()}
	for _, r := range all {
		args = append(args, r.Event, r.Member, r.Device)
	}
	text := "SELECT " + receiptColumns + ", at <= " + mysql.Now + " - ? FROM push_receipts FORCE INDEX (PRIMARY) WHERE state = 'pending' AND (" +
		strings.TrimPrefix(strings.Repeat(" OR event_number = ? AND member_id = ? AND device_id = ?", len(all)), " OR ") + ") FOR UPDATE SKIP LOCKED"
	type key struct{ event, device uint64 }
	err = mysql.Transact(ctx, m.db, fmt.Sprintf("take %d receipts", len(all)), func(tx *sql.Tx) error {
		mark := make(map[key]string, len(all)) // of another; "": it is free
		_, err := mysql.Select(ctx, tx, func(rows *sql.Rows) (struct{}, error) {
			var isOld bool
			r, err := scanReceipt(rows, &isOld)
			if isOld || !strings.HasPrefix(r.Reason, reasonUnanswered) {
				r.Reason = ""
			}
			mark[key{r.Event, r.Device}] = r.Reason
			return struct{}{}, err
		}, text, args...)
		if err != nil {
			return err
		}
		taken = make([]bool, len(deliveries))
		var marks []Receipt
		for i, d := range deliveries {
			taken[i] = !slices.ContainsFunc(d, func(r Receipt) bool {
				by, isPending := mark[key{r.Event, r.Device}]
				return !isPending || by != "" && by != r.Reason
			})
			if taken[i] {
				marks = append(marks, d...)
			}
		}
		writes, err := writesOf(marks)
		if err != nil {
			return err
		}
		return writeAll(ctx, tx, writes)
	})
	return taken, err
}

// MemberRange is the members above After up to Last, of an event.
type MemberRange struct {
	Event       uint64
	After, Last member.ID
}

// PendingWithin returns the receipts of ranges that are pending.
func (m *MySQL) PendingWithin(ctx context.Context, ranges []MemberRange) ([]Receipt, error) {
	if len(ranges) == 0 {
		return nil, nil
	}
	var args []any
	for _, r := range ranges {
		args = append(args, r.Event, r.After, r.Last)
	}
	const one = " OR event_number = ? AND member_id > ? AND member_id <= ?"
	text := "SELECT " + receiptColumns + " FROM push_receipts FORCE INDEX (PRIMARY) WHERE state = 'pending' AND (" +
		strings.TrimPrefix(strings.Repeat(one, len(ranges)), " OR ") + ")"
	list, err := mysql.Select(ctx, m.db, func(rows *sql.Rows) (Receipt, error) { return scanReceipt(rows) }, text, args...)
	return list, mysql.Translate(ctx, fmt.Sprintf("read what is pending of %d pages", len(ranges)), err)
}

// ofBurst are the receipts of a state.
func ofBurst(state State) string {
	return " FROM push_receipts r FORCE INDEX (bursts) WHERE r.state = _ascii'" + string(state) + "'"
}

// lastOfBurst and firstOfBurst order receipts of a device, a burst and a state by the time. All
// columns are named, and the state is an ASCII literal, so that only entries that are returned are
// read and nothing is sorted: as in newestFirst of package contacts.
const (
	lastOfBurst  = " ORDER BY r.device_id DESC, r.burst DESC, r.state DESC, r.at DESC LIMIT "
	firstOfBurst = " ORDER BY r.device_id, r.burst, r.state, r.at LIMIT "
)

// newestOfBurst selects the time of the newest receipt of the burst of a row of burstsTable.
func newestOfBurst(state State, and string) string {
	return "(SELECT r.at" + ofBurst(state) + " AND r.device_id = q.d AND r.burst = UNHEX(q.b)" + and + lastOfBurst + "1)"
}

// LastSent returns, for each of devices in order, what of the burst was sent last.
func (m *MySQL) LastSent(ctx context.Context, devices []BurstDevice) ([]LastSent, error) {
	last := make([]LastSent, len(devices))
	// Most devices have no receipt of the burst: of these one entry of the index is read.
	const others, some = " AND FIND_IN_SET(r.event_number, q.x) = 0",
		" WHERE (SELECT 1 FROM push_receipts r FORCE INDEX (bursts) WHERE r.device_id = q.d AND r.burst = UNHEX(q.b) LIMIT 1) IS NOT NULL"
	err := m.bursts(ctx, "read when bursts were last sent", devices, func(rows *sql.Rows) (_ struct{}, err error) {
		var i int
		var l LastSent
		err = rows.Scan(&i, (*instant)(&l.Accepted), (*instant)(&l.Earlier), (*instant)(&l.Pending))
		l.Waits = !l.Pending.IsZero()
		last[i] = l
		return struct{}{}, err
	}, "SELECT q.i, "+newestOfBurst(StateAccepted, "")+", "+newestOfBurst(StatePending, others+" AND r.event_number < q.e")+", "+
		newestOfBurst(StatePending, others)+" FROM "+burstsTable+some)
	if err != nil {
		return nil, err
	}
	later := func(t *time.Time, than time.Time) {
		if than.After(*t) {
			*t = than
		}
	}
	err = m.runsSince(ctx, devices, "'accepted', 'pending'", func(i int, r run) {
		l := &last[i]
		switch {
		case r.state == StateAccepted:
			later(&l.Accepted, r.at)
		case !slices.Contains(devices[i].Except, r.event):
			later(&l.Sending, r.at)
			later(&l.Pending, r.at)
			if r.event < devices[i].Event {
				later(&l.Earlier, r.at)
			}
		}
	})
	return last, err
}

// AcceptedSince returns, for each of devices in order, receipts of the events of the burst that
// were accepted for it, the last one first and at most maxBurst of those that are rows of their own: none of these if the
// last one was accepted before Since.
func (m *MySQL) AcceptedSince(ctx context.Context, devices []BurstDevice) ([][]Receipt, error) {
	accepted := make([][]Receipt, len(devices))
	const what = "read what of bursts was accepted"
	// Most bursts have just begun, or begin again: of these one entry is read.
	var some []BurstDevice
	var places []int
	err := m.bursts(ctx, what, devices, func(rows *sql.Rows) (_ struct{}, err error) {
		var i int
		var at instant
		if err := rows.Scan(&i, &at); err == nil && !time.Time(at).Before(devices[i].Since) {
			some, places = append(some, devices[i]), append(places, i)
		}
		return struct{}{}, err
	}, "SELECT q.i, "+newestOfBurst(StateAccepted, "")+" AS newest FROM "+burstsTable+" HAVING newest IS NOT NULL")
	if err != nil {
		return nil, err
	}
	receipt := func(i int, event uint64, at time.Time) {
		d := devices[i]
		accepted[i] = append(accepted[i], Receipt{Event: event, Member: d.Member, Device: d.Device, Burst: d.Burst, State: StateAccepted, At: at})
	}
	err = m.eachBurst(ctx, what, some, func(rows *sql.Rows) (_ struct{}, err error) {
		var i int
		var event uint64
		var at instant
		err = rows.Scan(&i, &event, &at)
		receipt(places[i], event, time.Time(at))
		return struct{}{}, err
	}, "r.event_number, r.at"+ofBurst(StateAccepted), lastOfBurst, maxBurst)
	if err != nil {
		return nil, err
	}
	err = m.runsSince(ctx, devices, "'accepted'", func(i int, r run) { receipt(i, r.event, r.at) })
	for i, list := range accepted {
		if len(list) < 2 {
			continue
		}
		slices.SortFunc(list, func(a, b Receipt) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.Event, a.Event)) })
		seen := make(map[uint64]bool, len(list)) // each process that had its task may have written a run
		accepted[i] = slices.DeleteFunc(list, func(r Receipt) bool {
			was := seen[r.Event]
			seen[r.Event] = true
			return was
		})
	}
	return accepted, err
}

// maxBranches bounds the SELECTs of one statement, and its ranges.
const maxBranches = 100

// eachBurst selects, for each of devices, its place and columns of at most so many of its receipts, in an order.
func (m *MySQL) eachBurst(
	ctx context.Context, what string, devices []BurstDevice, scan func(*sql.Rows) (struct{}, error), columns, order string, most int,
) error {
	for first := 0; first < len(devices); first += maxBranches {
		var branches []string
		var args []any
		for i, d := range devices[first:min(first+maxBranches, len(devices))] {
			branches = append(branches, "(SELECT "+strconv.Itoa(first+i)+", "+columns+
				" AND r.device_id = ? AND r.burst = ? AND r.member_id = ?"+order+strconv.Itoa(most)+")")
			args = append(args, d.Device, d.Burst[:], d.Member)
		}
		if _, err := mysql.Select(ctx, m.db, scan, strings.Join(branches, " UNION ALL "), args...); err != nil {
			return mysql.Translate(ctx, fmt.Sprintf("%s, for %d devices", what, len(branches)), err)
		}
	}
	return nil
}

func (m *MySQL) bursts(
	ctx context.Context, what string, devices []BurstDevice, scan func(*sql.Rows) (struct{}, error), text string,
) error {
	if len(devices) == 0 {
		return nil
	}
	argument, err := burstsArgument(devices)
	if err != nil {
		return err
	}
	_, err = mysql.Select(ctx, m.prepared, scan, text, argument)
	return mysql.Translate(ctx, fmt.Sprintf("%s, for %d devices", what, len(devices)), err)
}

const receiptColumns = "event_number, member_id, device_id, state, reason, provider_id, at, COALESCE(burst, '')"

func scanReceipt(rows *sql.Rows, more ...any) (r Receipt, err error) {
	var burst []byte
	into := []any{&r.Event, &r.Member, &r.Device, &r.State, &r.Reason, &r.ProviderID, (*instant)(&r.At), &burst}
	err = rows.Scan(append(into, more...)...)
	copy(r.Burst[:], burst)
	return r, err
}

// ReceiptCount is how many receipts of an event are alike.
type ReceiptCount struct {
	State  State
	Reason string
	Count  int
}

// CountReceipts counts the receipts of an event by what they say, the most frequent first, but reads no more than
// limit rows of them.
func (m *MySQL) CountReceipts(ctx context.Context, event uint64, limit int) ([]ReceiptCount, error) {
	list, err := mysql.Select(ctx, m.db, func(rows *sql.Rows) (c ReceiptCount, err error) {
		err = rows.Scan(&c.State, &c.Reason, &c.Count)
		return c, err
	}, "SELECT state, reason, SUM(n) FROM ("+
		"(SELECT state, reason, 1 AS n FROM push_receipts FORCE INDEX (PRIMARY) WHERE event_number = ? LIMIT ?) UNION ALL"+
		" (SELECT 'accepted', '', devices_count FROM push_runs FORCE INDEX (PRIMARY) WHERE event_number = ? AND state = 'accepted' LIMIT ?)) AS counted"+
		" GROUP BY state, reason ORDER BY SUM(n) DESC, state, reason", event, limit, event, limit)
	return list, mysql.Translate(ctx, fmt.Sprintf("count the receipts of event %d", event), err)
}
