package push

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// StoredEvent is an event as its notify task stored it. It never changes.
type StoredEvent struct {
	Event
	Number  uint64 // the id of its notify task
	Created time.Time
	Expires time.Time
}

// NewStored returns the event of a notify task that was created at a time.
func NewStored(e Event, task uint64, created time.Time) *StoredEvent {
	created = time.UnixMilli(created.Add(-e.Age).UnixMilli()).UTC()
	e.Age = 0
	return &StoredEvent{Event: e, Number: task, Created: created, Expires: created.Add(cmp.Or(e.ExpiresIn, DefaultLife).Truncate(time.Millisecond))}
}

// remembered is how long an event and its receipts are kept after it expired.
const remembered = 24 * time.Hour

const eventColumns = "number, id, actor_id, event, created_at, expires_at"

func scanEvent(rows *sql.Rows) (*StoredEvent, error) {
	var e StoredEvent
	var text []byte
	if err := rows.Scan(&e.Number, &e.ID, (*uint64)(&e.Actor), &text, (*instant)(&e.Created), (*instant)(&e.Expires)); err != nil {
		return nil, err
	}
	id := e.ID
	if err := json.Unmarshal(text, &e.Event); err != nil {
		return nil, fmt.Errorf("event %d is not as activityd writes it: %w", e.Number, err)
	}
	e.ID = id
	return &e, nil
}

// BurstID identifies the events of a type and a collapse key; zero: the event has no key. As JSON it is in hexadecimal.
type BurstID [16]byte

// MarshalText implements [encoding.TextMarshaler].
func (b BurstID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, b[:]), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (b *BurstID) UnmarshalText(text []byte) error {
	hash, err := hex.DecodeString(string(text))
	if copy(b[:], hash); err != nil || len(hash) != len(b) {
		return errors.New("the burst is no hash")
	}
	return nil
}

// Burst returns the burst of the event; zero: the event has no collapse key. Silent events have bursts of their own, as nothing is
// shown of them.
func (e *Event) Burst() (hash BurstID) {
	key := e.Collapse
	if key == "" {
		return hash
	}
	if e.Silent {
		key += "\x00silent" // no key has a zero byte
	}
	whole := hashOf(e.Type, key)
	copy(hash[:], whole[:])
	return hash
}

// photoPrefix begins the objects that are photos.
const photoPrefix = "photo:"

// Photo returns the id of the photo that the event is about, if there is a photo. An
// object that is called a photo without a possible number is photo 0, and nobody sees it.
func (e *Event) Photo() (id uint64, is bool) {
	number, is := strings.CutPrefix(e.Object, photoPrefix)
	if !is {
		return 0, false
	}
	parsed, _ := member.Parse(number) // its spelling is that of all ids
	return uint64(parsed), true
}

// storeTries bounds how often a batch meets events that are committed while it is written.
const storeTries = 10

// StoreEvents stores the events of notify tasks that are not known by their ids, and returns the event of each id, in order. A task that
// comes again gets what it stored; a task whose id another task stored, that task's event, with its number. nil: an earlier event
// has the number.
func (m *MySQL) StoreEvents(ctx context.Context, batch []*StoredEvent) ([]*StoredEvent, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	events := make(map[string]*StoredEvent, len(batch)) // by id, that of the earliest task
	for _, e := range batch {
		if known := events[e.ID]; known == nil || e.Number < known.Number {
			events[e.ID] = e
		}
	}
	ids := slices.Sorted(maps.Keys(events)) // in the same order everywhere, so that batches do not lock each other out
	for try := 1; ; try++ {
		err := m.insertEvents(ctx, ids, events) // nearly always all are new
		if err == nil {
			break
		}
		if !mysql.IsDuplicate(err) || try == storeTries {
			return nil, err
		}
		if ids, err = m.findEvents(ctx, ids, events); err != nil {
			return nil, err
		}
	}
	stored := make([]*StoredEvent, len(batch))
	for i, e := range batch {
		stored[i] = events[e.ID]
		if is := stored[i]; is != nil && is.Number == e.Number && !is.Created.Equal(e.Created) {
			stored[i] = nil
		}
	}
	return stored, nil
}

// findEvents replaces events by the stored events with their ids, and by nil if the number is another's. It returns the ids that are not
// stored.
func (m *MySQL) findEvents(ctx context.Context, ids []string, events map[string]*StoredEvent) (absent []string, err error) {
	args := mysql.Args(ids)
	for _, id := range ids {
		args = append(args, events[id].Number)
	}
	marks := mysql.Marks(len(ids))
	found, err := m.selectEvents(ctx, "FORCE INDEX (ids) WHERE id IN ("+marks+") UNION ALL SELECT "+eventColumns+
		" FROM push_events FORCE INDEX (PRIMARY) WHERE number IN ("+marks+")", args...)
	taken := make(map[uint64]bool, len(found))
	for _, e := range found {
		taken[e.Number] = true
	}
	known := make(map[string]bool, len(found))
	for _, e := range found {
		if _, asked := events[e.ID]; asked {
			events[e.ID], known[e.ID] = e, true
		}
	}
	for _, id := range ids {
		switch {
		case known[id]:
		case taken[events[id].Number]:
			events[id] = nil
		default:
			absent = append(absent, id)
		}
	}
	return absent, err
}

func (m *MySQL) selectEvents(ctx context.Context, where string, args ...any) ([]*StoredEvent, error) {
	list, err := mysql.Select(ctx, m.db, scanEvent, "SELECT "+eventColumns+" FROM push_events "+where, args...)
	return list, mysql.Translate(ctx, "read events of push", err)
}

// insertEvents inserts the events with these ids, all or none, by a single statement. It looks up none before: INSERT … ON
// DUPLICATE KEY UPDATE would lock the gaps below the ids that it meets.
func (m *MySQL) insertEvents(ctx context.Context, ids []string, events map[string]*StoredEvent) error {
	if len(ids) == 0 {
		return nil
	}
	var args []any
	for _, id := range ids {
		e := events[id]
		text, err := json.Marshal(e.Event)
		if err != nil {
			return err
		}
		expires := e.Expires.UnixMilli()
		args = append(args, e.Number, id, e.Actor, string(text), e.Created.UnixMilli(), expires, expires, remembered.Milliseconds())
	}
	const row = "(?,?,?,?,?,?,GREATEST(?," + mysql.Now + ")+?),"
	_, err := mysql.Exec(ctx, m.db, fmt.Sprintf("store %d events", len(ids)),
		"INSERT INTO push_events (number, id, actor_id, event, created_at, expires_at, forget_at) VALUES "+
			strings.TrimSuffix(strings.Repeat(row, len(ids)), ","), args...)
	return err
}

// Events returns the events with some numbers. Events that have been forgotten or lost are absent.
func (m *MySQL) Events(ctx context.Context, numbers []uint64) (map[uint64]*StoredEvent, error) {
	found := make(map[uint64]*StoredEvent, len(numbers))
	if len(numbers) == 0 {
		return found, nil
	}
	numbers = slices.Compact(slices.Sorted(slices.Values(numbers)))
	list, err := m.selectEvents(ctx, "FORCE INDEX (PRIMARY) WHERE number IN ("+mysql.Marks(len(numbers))+")", mysql.Args(numbers)...)
	for _, e := range list {
		found[e.Number] = e
	}
	return found, err
}

// EventByID returns the event with an id, or nil if there is none, or none any more.
func (m *MySQL) EventByID(ctx context.Context, id string) (*StoredEvent, error) {
	list, err := m.selectEvents(ctx, "FORCE INDEX (ids) WHERE id = ?", id)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}
