package push

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// State is the end of an event for a device.
type State string

// The states, in the order of the column: a receipt is replaced by the same or a later state only.
const (
	StatePending  State = "pending"  // the event waits with others of its burst, and a burst task is there for them
	StateSkipped  State = "skipped"  // for a [Skip]
	StateFailed   State = "failed"   // the push service will never take it
	StateAccepted State = "accepted" // the push service took it, or a notification that counts it
)

// Receipt says how an event ended for a device.
type Receipt struct {
	Event      uint64 // the number of a [StoredEvent]
	Member     member.ID
	Device     uint64 // 0: the member as a whole
	State      State
	Reason     string
	ProviderID string    // the id under which the push service took it; a stored id is as plainID has it
	At         time.Time // set by the store
	Burst      BurstID   // of the event
}

// BurstDevice is a burst for a device.
type BurstDevice struct {
	Burst BurstID
	To    Recipient
}

// BurstReceipt is a receipt of an event of a burst.
type BurstReceipt struct {
	Event    uint64
	Accepted bool // else it waits
	At       time.Time
}

const (
	maxReceipts = 1000 // rows of an INSERT
	maxWaiting  = 1000 // receipts of a burst for a device that are read
)

// Record writes receipts; the same receipts may be written again. A receipt is replaced by a receipt of the same or a later
// state only, so that a process that was stopped takes nothing back.
func (m *MySQL) Record(ctx context.Context, receipts []Receipt) error {
	// In the same order everywhere, so that batches do not lock each other out.
	receipts = slices.SortedStableFunc(slices.Values(receipts), func(a, b Receipt) int {
		return cmp.Or(cmp.Compare(a.Event, b.Event), cmp.Compare(a.Member, b.Member), cmp.Compare(a.Device, b.Device))
	})
	for some := range slices.Chunk(receipts, maxReceipts) {
		args := make([]any, 0, 7*len(some))
		for _, r := range some {
			burst := any(nil)
			if r.Burst != (BurstID{}) {
				burst = r.Burst[:]
			}
			args = append(args, r.Event, r.Member, r.Device, r.State, clip(r.Reason), plainID(r.ProviderID), burst)
		}
		_, err := mysql.Exec(ctx, m.db, fmt.Sprintf("write %d receipts", len(some)), insertReceipts+
			strings.TrimSuffix(strings.Repeat("(?,?,?,?,?,?,?,"+mysql.Now+"),", len(some)), ",")+replaceReceipts, args...)
		if err != nil {
			return err
		}
	}
	return nil
}

const insertReceipts = "INSERT INTO push_receipts (event_number, member_id, device_id, state, reason, provider_id, burst, at) VALUES "

// The server changes the columns in this order: state is read until it is changed. An accepted receipt stays as it is.
var replaceReceipts = " ON DUPLICATE KEY UPDATE reason = " + ifLater("reason") + ", provider_id = " + ifLater("provider_id") +
	", at = " + ifLater("at") + ", state = " + ifLater("state")

func ifLater(column string) string {
	return "IF(state <> 'accepted' AND VALUES(state) + 0 >= state + 0, VALUES(" + column + "), " + column + ")"
}

// maxProviderID is how much of an id the column provider_id has room for, in bytes.
const maxProviderID = 128

// plainID returns a push service's id of a message as it is kept, and shown wherever it is: letters,
// digits and the signs of the ids that are known are as they were, each other byte is %XX. So a push
// service can put no markup, no command for a terminal and no second column into it.
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

// waitingOfOne selects the receipts of a burst for a device: the oldest that wait, and the last that were accepted. As in lastOfBurst,
// nothing is sorted.
var waitingOfOne = burstReceipts("pending", "", maxWaiting) + " UNION ALL " +
	burstReceipts("accepted", " DESC", maxShown, " AND at > "+mysql.Now+" - "+strconv.FormatInt(time.Hour.Milliseconds(), 10))

func burstReceipts(state, order string, most int, and ...string) string {
	return fmt.Sprintf("(SELECT ?, event_number, state = 'accepted', at FROM push_receipts FORCE INDEX (bursts) WHERE burst = ? AND device_id = ? AND member_id = ?"+
		" AND state = _ascii'%[1]s'%[4]s ORDER BY burst%[2]s, device_id%[2]s, state%[2]s, at%[2]s LIMIT %[3]d)", state, order, most, strings.Join(and, ""))
}

// Waiting returns, for each of the bursts in order, the receipts of the events that wait for the device, maxWaiting at most, and of the
// events that it has accepted in the last hour.
func (m *MySQL) Waiting(ctx context.Context, bursts []BurstDevice) ([][]BurstReceipt, error) {
	if len(bursts) == 0 {
		return nil, nil
	}
	var args []any
	for i, b := range bursts {
		of := []any{i, b.Burst[:], b.To.Device, b.To.Member}
		args = append(append(args, of...), of...)
	}
	all := make([][]BurstReceipt, len(bursts))
	_, err := mysql.Select(ctx, m.db, func(rows *sql.Rows) (r BurstReceipt, err error) {
		var i int
		err = rows.Scan(&i, &r.Event, &r.Accepted, (*instant)(&r.At))
		all[i] = append(all[i], r)
		return r, err
	}, strings.TrimSuffix(strings.Repeat(waitingOfOne+" UNION ALL ", len(bursts)), " UNION ALL "), args...)
	return all, mysql.Translate(ctx, fmt.Sprintf("read what waits of %d bursts", len(bursts)), err)
}

const pendingText = "SELECT /*+ NO_BNL() */ r.event_number, r.member_id, r.device_id, r.state" +
	" FROM JSON_TABLE(?, '$[*]' COLUMNS (e BIGINT UNSIGNED PATH '$[0]', m BIGINT UNSIGNED PATH '$[1]')) AS q STRAIGHT_JOIN push_receipts r" +
	" FORCE INDEX (PRIMARY) ON r.event_number = q.e AND r.member_id = q.m AND r.state = 'pending'"

// Pending returns the receipts of events that wait, for members. No candidate is given twice.
func (m *MySQL) Pending(ctx context.Context, of []Candidate) ([]Receipt, error) {
	if len(of) == 0 {
		return nil, nil
	}
	pairs := make([][2]uint64, len(of))
	for i, c := range of {
		pairs[i] = [2]uint64{c.Event.Number, uint64(c.Member)}
	}
	argument, err := json.Marshal(pairs)
	if err != nil {
		return nil, err
	}
	list, err := mysql.Select(ctx, m.prepared, func(rows *sql.Rows) (r Receipt, err error) {
		err = rows.Scan(&r.Event, &r.Member, &r.Device, &r.State)
		return r, err
	}, pendingText, string(argument))
	return list, mysql.Translate(ctx, fmt.Sprintf("read what waits of %d members", len(of)), err)
}

// ReceiptCount is how many receipts of an event are alike.
type ReceiptCount struct {
	State  State
	Reason string
	Count  int
}

// CountReceipts counts the receipts of an event by state and reason, the most frequent first, but reads no more than
// limit rows of them.
func (m *MySQL) CountReceipts(ctx context.Context, event uint64, limit int) ([]ReceiptCount, error) {
	list, err := mysql.Select(ctx, m.db, func(rows *sql.Rows) (c ReceiptCount, err error) {
		err = rows.Scan(&c.State, &c.Reason, &c.Count)
		return c, err
	}, "SELECT state, reason, COUNT(*) FROM (SELECT state, reason FROM push_receipts FORCE INDEX (PRIMARY) WHERE event_number = ? LIMIT ?) AS counted"+
		" GROUP BY state, reason ORDER BY COUNT(*) DESC, state, reason", event, limit)
	return list, mysql.Translate(ctx, fmt.Sprintf("count the receipts of event %d", event), err)
}
