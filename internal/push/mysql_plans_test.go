package push_test

import (
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// planned is a call of the store, the keys that its statements may use, and how many rows and index
// entries they may read.
type planned struct {
	name  string
	keys  string // by table or alias, sorted: key
	most  int
	do    func() error
	given []string // written before, by SQL
}

// siteSizes are the members of the sites of the test. The first half of them has a device each,
// and all have a gone device. Member 1 is the actor of all events, and owns all photos.
var siteSizes = map[string]int{"a few": 40, "many": 5_000}

// TestPushPlansAndCosts: no statement scans a table, or sorts what it need not. What Look costs
// grows with the devices that it finds, and by a look into an index for each member that has
// none.
func TestPushPlansAndCosts(t *testing.T) {
	t.Parallel()
	for name, size := range siteSizes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openDB(t, mysql.WithMaxOpen(1)) // so that its session's counters see every statement
			fillPush(t, db, size)
			for _, p := range plannedOf(t, db, size) {
				t.Run(p.name, func(t *testing.T) { checkPlanned(t, db, p) })
			}
		})
	}
}

func checkPlanned(t *testing.T, db *sql.DB, p planned) {
	for _, text := range p.given {
		exec(t, db, text)
	}
	var read int
	statements := servertest.Statements(t, db, func() {
		const rows = "Handler_read%"
		before := servertest.SessionStatus(t, db, rows)
		must(t, p.do())
		read = servertest.SessionStatus(t, db, rows) - before
	})
	used := map[string]bool{}
	for _, statement := range statements {
		for _, s := range servertest.Explain(t, db, statement) {
			// A row that is not found by a unique key, as it is gone, is no step. MariaDB does not log
			// the whole of a binary key, so that it finds none either.
			if !s.Stored() || s.Key == "address" {
				continue
			}
			used[s.Table+": "+s.Key] = true
			if s.Scans() || s.Sorts() {
				t.Errorf("%+v\nin %.2000s", s, statement)
			}
		}
	}
	if got := strings.Join(slices.Sorted(maps.Keys(used)), ", "); got != p.keys {
		t.Errorf("uses %s\nwant %s\nin %.3000s", got, p.keys, strings.Join(statements, "\n"))
	}
	t.Logf("read %d rows", read)
	if read > p.most {
		t.Errorf("read %d rows, want at most %d", read, p.most)
	}
}

// numbers is a table of the numbers n from 1 to 100,000.
const numbers = "(SELECT 1 + a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n AS n FROM " + digits + "a JOIN " + digits + "b JOIN " + digits + "c JOIN " + digits + "d JOIN " + digits + "e) AS numbers"

const digits = "(SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9) "

// burst is that of all receipts of [fillPush].
var burst = [16]byte{1, 2, 3}

func fillPush(t *testing.T, db *sql.DB, size int) {
	t.Helper()
	for _, text := range []string{
		"INSERT INTO users (id, username) SELECT n, CONCAT('u', n) FROM " + numbers + " WHERE n <= ?",
		"INSERT INTO contacts (user_id, contact_id, is_friend) SELECT 1, n, TRUE FROM " + numbers + " WHERE n > 1 AND n <= ?",
		"INSERT INTO blocks (user_id, blocked_id) SELECT n, n + 1 FROM " + numbers + " WHERE n > 1 AND n <= ?",
		"INSERT INTO photos (id, owner_id, visibility, date_upload) SELECT n, 1, 'friends', n FROM " + numbers + " WHERE n <= ?",
		"INSERT INTO push_devices (id, member_id, platform, address_hash, address, registered_at) SELECT n, n + 0, 'fcm', UNHEX(SHA2(n, 256)), '{}', 1 FROM " + numbers + " WHERE n <= ? / 2",
		"INSERT INTO push_devices (id, member_id, platform, address_hash, address, registered_at, gone_at) SELECT 100000 + n, n + 0, 'fcm', UNHEX(SHA2(100000 + n, 256)), '{}', 1, " + mysql.Now + " FROM " + numbers + " WHERE n <= ?",
		"INSERT INTO push_settings (member_id, types, time_zone) SELECT n, '{\"fave\":false}', 'UTC' FROM " + numbers + " WHERE n <= ?",
		"INSERT INTO push_mutes (member_id, object, until_at) SELECT n, 'photo:1', 9e12 FROM " + numbers + " WHERE n <= ?",
		"INSERT INTO push_events (number, id, actor_id, event, created_at, expires_at, forget_at)" +
			" SELECT n, CONCAT('e', n), 1, CONCAT('{\"type\":\"upload\",\"object\":\"photo:', n, '\",\"recipients\":\"followers\",\"expires_in\":60}'), 1, 9e12, 9e12 FROM " + numbers + " WHERE n <= ?",
		"INSERT INTO push_receipts (event_number, member_id, device_id, state, at) SELECT 1, n, n + 0, 'accepted', n FROM " + numbers + " WHERE n <= ?",
	} {
		exec(t, db, text, size)
	}
	// A burst of 20 for each device, the last two pending.
	exec(t, db, "INSERT INTO push_receipts (event_number, member_id, device_id, state, at, burst) SELECT 2 + n MOD 20, n DIV 20 + 1, n DIV 20 + 1, IF(n MOD 20 >= 18, 'pending', 'accepted'), n, ? FROM "+
		numbers+" WHERE n <= ? * 2", burst[:], size)
	for _, table := range []string{"users", "contacts", "blocks", "photos", "push_devices", "push_settings", "push_mutes", "push_events", "push_receipts"} {
		_, err := mysql.Select(t.Context(), db, func(*sql.Rows) (_ struct{}, _ error) { return struct{}{}, nil }, "ANALYZE TABLE "+table)
		must(t, err)
	}
}

func plannedOf(t *testing.T, db *sql.DB, size int) []planned {
	t.Helper()
	store := push.NewMySQL(db)
	var numbers []uint64
	for i := range uint64(40) {
		numbers = append(numbers, i+1)
	}
	events, err := store.Events(t.Context(), numbers)
	must(t, err)
	ofBurst := *events[30]
	ofBurst.Collapse = "c"
	half := min(size/2, 500)
	var with, without, deliveries, bursts []push.Candidate
	var devices []push.BurstDevice
	var receipts []push.Receipt
	for i := range uint64(half) {
		id := member.ID(i + 1)
		with = append(with, push.Candidate{Event: events[1], Member: id})
		without = append(without, push.Candidate{Event: events[1], Member: id + member.ID(size/2)})
		deliveries = append(deliveries, push.Candidate{Event: events[i%40+1], Member: id, Device: uint64(id)})
		bursts = append(bursts, push.Candidate{Event: &ofBurst, Member: id, Device: uint64(id)})
		devices = append(devices, push.BurstDevice{Burst: ofBurst.Burst(), To: push.Recipient{Member: id, Device: uint64(id)}})
		receipts = append(receipts, push.Receipt{Event: 3, Member: id, Device: uint64(id), State: push.StateAccepted})
	}
	hash := ofBurst.Burst()
	exec(t, db, "UPDATE push_receipts SET burst = ? WHERE burst IS NOT NULL", hash[:])
	var batch []*push.StoredEvent
	for i := range 20 {
		batch = append(batch, push.NewStored(push.Event{ID: fmt.Sprint("e", i+size-10), Type: "upload", Actor: 1, Followers: true}, uint64(i+size-10), time.Now()))
	}
	var ids []uint64
	for i := range uint64(20) {
		ids = append(ids, i+11)
	}
	look := func(candidates []push.Candidate, want int) func() error {
		return func() error {
			facts, err := store.Look(t.Context(), candidates)
			if err == nil && len(facts) != want {
				err = fmt.Errorf("%d facts, want %d", len(facts), want)
			}
			return err
		}
	}
	const lookKeys = "a: PRIMARY, ba: PRIMARY, bv: PRIMARY, d: members, f: PRIMARY, g: PRIMARY, h: PRIMARY, k: PRIMARY, l: bursts, mo: PRIMARY, mu: PRIMARY, o: PRIMARY, r: PRIMARY, s: PRIMARY, v: PRIMARY, x: PRIMARY"
	const some = 80                // what it costs to count
	scan := 15 * min(size, 10_000) // a purge looks at so many members of three tables
	return []planned{
		{name: "Look at members with devices", keys: lookKeys, most: some + 20*half, do: look(with, half)},
		{name: "Look at members without devices", keys: lookKeys, most: some + 3*half, do: look(without, 0)},
		{name: "Look before deliveries", keys: lookKeys, most: some + 20*half, do: look(deliveries, half)},
		{name: "Look before bursts", keys: lookKeys, most: some + 22*half, do: look(bursts, half)},
		{name: "Waiting", keys: "push_receipts: bursts", most: some + 25*half, do: func() error {
			pending, err := store.Waiting(t.Context(), devices)
			if err == nil && len(pending[1]) != 2 {
				err = fmt.Errorf("%d are pending, want 2", len(pending[1]))
			}
			return err
		}},
		{name: "Record", keys: "", most: some + 2*half, do: func() error { return store.Record(t.Context(), receipts) }},
		{name: "Fates", keys: "d: PRIMARY, r: PRIMARY", most: some + 4*half, do: func() error {
			for _, err := range store.Fates(t.Context(), 1, 5) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
		{name: "Pending", keys: "r: PRIMARY", most: some + 4*half, do: func() error { return ignore(store.Pending(t.Context(), deliveries)) }},
		{name: "StoreEvents", keys: "push_events: PRIMARY, push_events: ids", most: some + 120, do: func() error { return ignore(store.StoreEvents(t.Context(), batch)) }},
		{name: "Events", keys: "push_events: PRIMARY", most: some + 60, do: func() error { return ignore(push.NewMySQL(db).Events(t.Context(), ids)) }},
		{name: "EventByID", keys: "push_events: ids", most: some, do: func() error { return ignore(store.EventByID(t.Context(), "e5")) }},
		{name: "Devices", keys: "d: members, users: PRIMARY", most: some, do: func() error { return ignore(store.Devices(t.Context(), 5)) }},
		{name: "Register", keys: "push_devices: members, users: PRIMARY", most: some + 20, do: func() error {
			return ignore(store.Register(t.Context(), 5, push.FCM, addressOf("t"), ""))
		}},
		{name: "Remove", keys: "", most: some, do: func() error { return ignore(store.Remove(t.Context(), 6, 6)) }},
		{name: "Prune", keys: "push_devices: PRIMARY", most: some, do: func() error {
			return ignore(store.Prune(t.Context(), []push.Pruned{{Device: 7, Reason: "r"}, {Device: 8, Since: time.Now()}}))
		}},
		{name: "Settings", keys: "push_settings: PRIMARY, users: PRIMARY", most: some, do: func() error { return ignore(store.Settings(t.Context(), 5)) }},
		{name: "SetSettings", keys: "users: PRIMARY", most: some, do: func() error { return store.SetSettings(t.Context(), 5, push.Settings{}) }},
		{name: "Mutes", keys: "push_mutes: PRIMARY, users: PRIMARY", most: some, do: func() error { return ignore(store.Mutes(t.Context(), 5)) }},
		{name: "Mute", keys: "push_mutes: PRIMARY, users: PRIMARY", most: some, do: func() error { return store.Mute(t.Context(), 5, "user:3", time.Now()) }},
		{name: "Unmute", keys: "push_mutes: PRIMARY", most: some, do: func() error { return ignore(store.Unmute(t.Context(), 5, "user:3")) }},
		{name: "Purge of nothing", keys: "push_devices: gone, push_devices: members, push_events: forgotten, push_mutes: PRIMARY, push_mutes: ends, push_settings: PRIMARY, push_settings: missing, u: PRIMARY", most: some + scan, do: func() error { return ignore(store.Purge(t.Context())) }},
		{
			name: "Purge", keys: "push_devices: gone, push_devices: members, push_events: PRIMARY, push_events: forgotten, push_mutes: PRIMARY, push_mutes: ends, push_receipts: PRIMARY, push_settings: PRIMARY, push_settings: missing, u: PRIMARY", most: some + scan + 4*size,
			given: []string{
				"UPDATE push_events SET forget_at = 1 WHERE number BETWEEN 10 AND 13", "UPDATE push_devices SET gone_at = 1 WHERE id BETWEEN 100010 AND 100012",
				"UPDATE push_mutes SET until_at = 1 WHERE member_id BETWEEN 10 AND 12",
			},
			do: func() error { return ignore(store.Purge(t.Context())) },
		},
	}
}

// ignore returns the error alone.
func ignore[T any](_ T, err error) error { return err }
