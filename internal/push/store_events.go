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

// StoredEvent is an event as it was targeted first. It never changes.
type StoredEvent struct {
	Event
	Number  uint64 // in the order of storing; the number of a lost event may be given again
	Task    uint64 // the notify task that targets it
	Created time.Time
	Expires time.Time
}

// NewEvent is an event that a notify task is about to target.
type NewEvent struct {
	Event
	Task    uint64
	Created time.Time // when the task was enqueued
}

// Stored is the end of a [NewEvent].
type Stored struct {
	*StoredEvent
	// Repeated: another task had an event of the same id, this StoredEvent. It is that task's to target.
	Repeated bool
}

// remembered is how long an event and its receipts are kept after it expired.
const remembered = 24 * time.Hour

const eventColumns = "number, id, task_id, actor_id, event, created_at, expires_at"

func scanEvent(rows *sql.Rows) (*StoredEvent, error) {
	var e StoredEvent
	var text []byte
	if err := rows.Scan(&e.Number, &e.ID, &e.Task, (*uint64)(&e.Actor), &text, (*instant)(&e.Created), (*instant)(&e.Expires)); err != nil {
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

// StoreEvents stores the events of a batch that are not known by their ids, and returns
// the end of each, in order. A task that comes again, or that was interrupted, gets the same as
// before.
func (m *MySQL) StoreEvents(ctx context.Context, batch []NewEvent) ([]Stored, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	first := make(map[string]NewEvent, len(batch)) // by id, that of the earliest task
	for _, e := range batch {
		if known, ok := first[e.ID]; !ok || e.Task < known.Task {
			first[e.ID] = e
		}
	}
	ids := slices.Sorted(maps.Keys(first)) // in the same order everywhere, so that batches do not lock each other out
	known := make(map[string]*StoredEvent, len(ids))
	absent := ids // nearly always all are new
	for try := 1; ; try++ {
		err := m.insertEvents(ctx, absent, first, known)
		if err == nil {
			break
		}
		if !mysql.IsDuplicate(err) || try == storeTries {
			return nil, err
		}
		if err := m.findEvents(ctx, ids, known); err != nil {
			return nil, err
		}
		absent = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return known[id] != nil })
	}
	stored := make([]Stored, len(batch))
	for i, e := range batch {
		is := known[e.ID]
		stored[i] = Stored{StoredEvent: is, Repeated: is.Task != e.Task}
	}
	return stored, nil
}

func (m *MySQL) findEvents(ctx context.Context, ids []string, into map[string]*StoredEvent) error {
	found, err := mysql.Select(ctx, m.db, scanEvent, "SELECT "+eventColumns+
		" FROM push_events FORCE INDEX (ids) WHERE id IN ("+mysql.Marks(len(ids))+")", mysql.Args(ids)...)
	for _, e := range found {
		into[e.ID] = e
	}
	return mysql.Translate(ctx, fmt.Sprintf("look for %d events", len(ids)), err)
}

// life is how long the event is of use, in whole milliseconds.
func (e *Event) life() time.Duration {
	return cmp.Or(e.ExpiresIn, DefaultLife).Truncate(time.Millisecond)
}

// insertEvents inserts the events with these ids, all or none, by a single statement, and adds them to
// known. It looks up none before: INSERT … ON DUPLICATE KEY UPDATE would lock the gaps below the ids that it meets.
// The numbers of several events are read: they do not follow each other everywhere (auto_increment_increment).
func (m *MySQL) insertEvents(ctx context.Context, ids []string, events map[string]NewEvent, known map[string]*StoredEvent) error {
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
		created := e.Created.UnixMilli()
		expires := created + e.life().Milliseconds()
		args = append(args, id, e.Task, e.Actor, string(text), created, expires, expires, remembered.Milliseconds())
	}
	const row = "(?,?,?,?,?,?,GREATEST(?," + mysql.Now + ")+?),"
	statement := "INSERT INTO push_events (id, task_id, actor_id, event, created_at, expires_at, forget_at) VALUES " +
		strings.TrimSuffix(strings.Repeat(row, len(ids)), ",")
	add := func(id string, number uint64) {
		e := events[id]
		created := time.UnixMilli(e.Created.UnixMilli()).UTC()
		known[id] = &StoredEvent{Event: e.Event, Number: number, Task: e.Task, Created: created, Expires: created.Add(e.life())}
	}
	last, err := mysql.Exec(ctx, m.db, fmt.Sprintf("store %d events", len(ids)), statement, args...)
	if err != nil {
		return err
	}
	if len(ids) == 1 {
		add(ids[0], last)
		return nil
	}
	_, err = mysql.Select(ctx, m.db, func(rows *sql.Rows) (_ struct{}, err error) {
		var id string
		var number uint64
		err = rows.Scan(&id, &number)
		add(id, number)
		return struct{}{}, err
	}, "SELECT id, number FROM push_events FORCE INDEX (ids) WHERE id IN ("+mysql.Marks(len(ids))+")", mysql.Args(ids)...)
	if err == nil && slices.ContainsFunc(ids, func(id string) bool { return known[id] == nil }) {
		err = errors.New("they are not there") // another server answers, without them
	}
	return mysql.Translate(ctx, fmt.Sprintf("number %d events", len(ids)), err)
}

// Events returns the events with some numbers. Events that have been forgotten are absent.
func (m *MySQL) Events(ctx context.Context, numbers []uint64) (map[uint64]*StoredEvent, error) {
	found := make(map[uint64]*StoredEvent, len(numbers))
	if len(numbers) == 0 {
		return found, nil
	}
	numbers = slices.Compact(slices.Sorted(slices.Values(numbers)))
	list, err := mysql.Select(ctx, m.db, scanEvent, "SELECT "+eventColumns+
		" FROM push_events FORCE INDEX (PRIMARY) WHERE number IN ("+mysql.Marks(len(numbers))+")", mysql.Args(numbers)...)
	for _, e := range list {
		found[e.Number] = e
	}
	return found, mysql.Translate(ctx, fmt.Sprintf("read %d events", len(numbers)), err)
}

// EventRef names an event as tasks do. A site's database that lost events, beside a queue that did not, gives their numbers
// again; ids of tasks are not given again.
type EventRef struct {
	Number uint64
	Task   uint64 // that of [StoredEvent]; 0: any
}

// EventsOf returns the events that tasks name. Events that have been forgotten or lost are absent.
func (m *MySQL) EventsOf(ctx context.Context, refs []EventRef) (map[EventRef]*StoredEvent, error) {
	numbers := make([]uint64, len(refs))
	for i, ref := range refs {
		numbers[i] = ref.Number
	}
	events, err := m.Events(ctx, numbers)
	found := make(map[EventRef]*StoredEvent, len(events))
	for _, ref := range refs {
		if e := events[ref.Number]; e != nil && (ref.Task == 0 || ref.Task == e.Task) {
			found[ref] = e
		}
	}
	return found, err
}

// EventByID returns the event with an id, or nil if there is none, or none any more.
func (m *MySQL) EventByID(ctx context.Context, id string) (*StoredEvent, error) {
	known := make(map[string]*StoredEvent)
	err := m.findEvents(ctx, []string{id}, known)
	return known[id], err
}
