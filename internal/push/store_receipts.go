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

// WaitingBurst is a burst for a device, as its receipts are.
type WaitingBurst struct {
	Receipts []BurstReceipt
	More     bool // more wait
}

const (
	maxReceipts = 1000   // rows of an INSERT
	maxWaiting  = 10_000 // rows that a statement reads about bursts
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

var waitingText = "SELECT q.i, r.event_number, r.state = 'accepted', r.at FROM JSON_TABLE(?, '$[*]' COLUMNS (i INT UNSIGNED PATH '$.i'," +
	" b CHAR(32) PATH '$.b', m BIGINT UNSIGNED PATH '$.m', d BIGINT UNSIGNED PATH '$.d')) AS q STRAIGHT_JOIN push_receipts r FORCE INDEX (bursts)" +
	" ON r.burst = UNHEX(q.b) AND r.device_id = q.d AND r.member_id = q.m AND (r.state = 'pending' OR r.state = 'accepted' AND r.at > " + mysql.Now + " - ?)" +
	" ORDER BY "

// Of many receipts of a burst the oldest that wait come first, and then the last that were accepted.
var (
	waitingOfAll = waitingText + "NULL LIMIT " + strconv.Itoa(maxWaiting)
	waitingOfOne = waitingText + "r.state, IF(r.state = 'pending', r.at, NULL), r.at DESC LIMIT " + strconv.Itoa(maxWaiting)
)

// Waiting returns, for each of the bursts in order, the events that wait for the device, and the events that it has accepted
// in the last hour: of a burst no more than maxWaiting.
func (m *MySQL) Waiting(ctx context.Context, bursts []BurstDevice) ([]WaitingBurst, error) {
	if len(bursts) == 0 {
		return nil, nil
	}
	type burst struct {
		I int     `json:"i"`
		B BurstID `json:"b"`
		M uint64  `json:"m"`
		D uint64  `json:"d"`
	}
	list := make([]burst, len(bursts))
	for i, b := range bursts {
		list[i] = burst{i, b.Burst, uint64(b.To.Member), b.To.Device}
	}
	argument, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	text := waitingOfAll
	if len(bursts) == 1 {
		text = waitingOfOne
	}
	all := make([]WaitingBurst, len(bursts))
	rows, err := mysql.Select(ctx, m.prepared, func(rows *sql.Rows) (r BurstReceipt, err error) {
		var i int
		err = rows.Scan(&i, &r.Event, &r.Accepted, (*instant)(&r.At))
		all[i].Receipts = append(all[i].Receipts, r)
		return r, err
	}, text, string(argument), time.Hour.Milliseconds())
	switch isFull := len(rows) == maxWaiting; {
	case err != nil:
		return nil, mysql.Translate(ctx, fmt.Sprintf("read what waits of %d bursts", len(bursts)), err)
	case isFull && len(bursts) > 1: // the receipts of some may be cut off
		half := len(bursts) / 2
		first, err := m.Waiting(ctx, bursts[:half])
		if err != nil {
			return nil, err
		}
		rest, err := m.Waiting(ctx, bursts[half:])
		return append(first, rest...), err
	case isFull:
		all[0].More = !slices.ContainsFunc(rows, func(r BurstReceipt) bool { return r.Accepted })
	}
	return all, nil
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
