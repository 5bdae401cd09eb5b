package push_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
)

// openStore returns a store on a site with the members 1 to 5.
func openStore(t *testing.T) (*push.MySQL, *sql.DB) {
	t.Helper()
	db := openDB(t)
	exec(t, db, "INSERT INTO users (id, username) VALUES (1, 'ada'), (2, 'bob'), (3, 'cyd'), (4, 'dan'), (5, 'eve')")
	return push.NewMySQL(db), db
}

// column returns the only column of a query.
func column(t *testing.T, db *sql.DB, query string, args ...any) []string {
	t.Helper()
	list, err := mysql.Select(t.Context(), db, mysql.Column[string], query, args...)
	must(t, err)
	return list
}

// token is an address of FCM.
func token(i int) push.Address { return addressOf(fmt.Sprint("token", i)) }

func register(t *testing.T, store *push.MySQL, id member.ID, a push.Address) push.Device {
	t.Helper()
	d, err := store.Register(t.Context(), id, push.FCM, a, "")
	must(t, err)
	return d
}

func idsOf(t *testing.T, store *push.MySQL, id member.ID) []uint64 {
	t.Helper()
	devices, err := store.Devices(t.Context(), id)
	must(t, err)
	var ids []uint64
	for _, d := range devices {
		if d.Gone.IsZero() {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

func wantIDs(t *testing.T, store *push.MySQL, id member.ID, want ...uint64) {
	t.Helper()
	if got := idsOf(t, store, id); !slices.Equal(got, want) {
		t.Errorf("member %d has the devices %d, want %d", id, got, want)
	}
}

func TestRegister(t *testing.T) {
	t.Parallel()
	store, db := openStore(t)
	const endpoint = "https://push.example/a"
	whole := push.NewAddress(endpoint, map[string]any{"endpoint": endpoint, "auth": []byte{9, 9}})
	first, err := store.Register(t.Context(), 1, push.WebPush, whole, "")
	must(t, err)
	want := push.Device{ID: first.ID, Member: 1, Platform: push.WebPush, Address: whole, Registered: first.Registered}
	if diff := cmp.Diff(want, first); diff != "" || first.Registered.IsZero() {
		t.Errorf("(-want +got):\n%s", diff)
	}
	devices, err := store.Devices(t.Context(), 1)
	must(t, err)
	if diff := cmp.Diff([]push.Device{want}, devices); diff != "" {
		t.Errorf("Devices (-want +got):\n%s", diff)
	}

	// The same endpoint, confirmed with new keys.
	exec(t, db, "UPDATE push_devices SET registered_at = 1000")
	renewed := push.NewAddress(endpoint, map[string]any{"endpoint": endpoint, "auth": []byte{7}})
	again, err := store.Register(t.Context(), 1, push.WebPush, renewed, "")
	must(t, err)
	if again.ID != first.ID || !cmp.Equal(again.Address, renewed) || again.Registered.Before(first.Registered) {
		t.Errorf("confirmed: %+v, of %+v", again, first)
	}

	// Its language is that of the last registration.
	for _, language := range []string{"de-CH", "", "pt"} {
		d, err := store.Register(t.Context(), 1, push.WebPush, renewed, language)
		must(t, err)
		if d.Language != language || d.ID != first.ID {
			t.Errorf("registered in %q: %+v", language, d)
		}
	}
	devices, err = store.Devices(t.Context(), 1)
	must(t, err)
	if devices[0].Language != "pt" {
		t.Errorf("%+v", devices)
	}

	// It moves to another member, and a device that is gone lives again.
	moved, err := store.Register(t.Context(), 2, push.WebPush, renewed, "")
	must(t, err)
	wantIDs(t, store, 1)
	wantIDs(t, store, 2, first.ID)
	n, err := store.Prune(t.Context(), []push.Pruned{{Device: moved.ID, Reason: "gone"}})
	if err != nil || n != 1 {
		t.Errorf("Prune = %d, %v", n, err)
	}
	wantIDs(t, store, 2)
	if kept := column(t, db, "SELECT CONCAT_WS(' ', gone_reason, address) FROM push_devices"); !slices.Equal(kept, []string{"gone {}"}) {
		t.Errorf("of a device that is gone is kept %q", kept)
	}
	alive, err := store.Register(t.Context(), 2, push.WebPush, renewed, "")
	must(t, err)
	if alive.ID != first.ID || !cmp.Equal(alive.Address, renewed) {
		t.Errorf("alive again: %+v", alive)
	}

	if d, err := store.Register(t.Context(), 2, push.WebPush, alive.Address, ""); err == nil {
		t.Errorf("registered without a key: %+v", d)
	}

	// A key is a single device, unless it is of two platforms.
	ids := map[uint64]bool{}
	for _, r := range []struct {
		platform push.Platform
		token    string
	}{{push.APNs, "ab12"}, {push.APNs, "ab12"}, {push.FCM, "ab12"}, {push.FCM, "AB12"}} {
		d, err := store.Register(t.Context(), 3, r.platform, addressOf(r.token), "")
		must(t, err)
		ids[d.ID] = true
	}
	if len(ids) != 3 {
		t.Errorf("%d devices, want 3", len(ids))
	}

	if _, err := store.Register(t.Context(), 99, push.FCM, token(1), ""); !errors.Is(err, contacts.ErrNoMember) {
		t.Errorf("for no member: %v", err)
	}
	if n := column(t, db, "SELECT COUNT(*) FROM push_devices WHERE member_id = 99")[0]; n != "0" {
		t.Errorf("%s devices of no member", n)
	}
}

// TestMaxDevices: at most 50 live, also when many are registered at a time.
func TestMaxDevices(t *testing.T) {
	t.Parallel()
	store, db := openStore(t)
	for i := range push.MaxDevices {
		register(t, store, 1, token(i))
	}
	ids := idsOf(t, store, 1)
	// The first was confirmed, so that the second is the oldest.
	exec(t, db, "UPDATE push_devices SET registered_at = 1000 + id")
	if d := register(t, store, 1, token(0)); d.ID != ids[0] {
		t.Fatalf("confirmed as another one: %+v", d)
	}
	added := register(t, store, 1, token(1000))
	wantIDs(t, store, 1, append(append([]uint64{ids[0]}, ids[2:]...), added.ID)...)

	var at errgroup.Group
	for i := range 8 {
		at.Go(func() error {
			_, err := store.Register(t.Context(), 1, push.FCM, token(2000+i), "")
			return err
		})
	}
	must(t, at.Wait())
	if got := idsOf(t, store, 1); len(got) != push.MaxDevices {
		t.Errorf("%d devices, want %d", len(got), push.MaxDevices)
	}

	// The same address at a time is a single device, of any of the members.
	for i := range 8 {
		at.Go(func() error {
			_, err := store.Register(t.Context(), member.ID(2+i%4), push.FCM, token(3000), "")
			return err
		})
	}
	must(t, at.Wait())
	if n := column(t, db, "SELECT COUNT(*) FROM push_devices WHERE member_id <> 1")[0]; n != "1" {
		t.Errorf("one address is %s devices", n)
	}
}

func TestRemoveAndPrune(t *testing.T) {
	t.Parallel()
	store, db := openStore(t)
	a, b, c := register(t, store, 1, token(1)), register(t, store, 1, token(2)), register(t, store, 1, token(3))
	for _, test := range []struct {
		id     member.ID
		device uint64
		found  bool
	}{{2, a.ID, false}, {1, a.ID, true}, {1, a.ID, false}, {1, 999_999, false}} {
		if found, err := store.Remove(t.Context(), test.id, test.device); err != nil || found != test.found {
			t.Errorf("Remove(%d, %d) = %t, %v", test.id, test.device, found, err)
		}
	}
	wantIDs(t, store, 1, b.ID, c.ID)
	// A device that was confirmed after it was found to be gone is another installation.
	n, err := store.Prune(t.Context(), []push.Pruned{
		{Device: c.ID, Reason: strings.Repeat("é", 100), Since: c.Registered},
		{Device: b.ID, Reason: "Unregistered", Since: b.Registered.Add(-time.Millisecond)},
		{Device: 999_999, Reason: "Unregistered"},
	})
	if err != nil || n != 1 {
		t.Errorf("Prune = %d, %v, want 1", n, err)
	}
	wantIDs(t, store, 1, b.ID)
	if n, err := store.Prune(t.Context(), []push.Pruned{{Device: c.ID, Reason: "another"}}); err != nil || n != 0 {
		t.Errorf("Prune again = %d, %v", n, err)
	}
	if got := column(t, db, "SELECT gone_reason FROM push_devices WHERE gone_at IS NOT NULL"); !slices.Equal(got, []string{strings.Repeat("?", 64)}) {
		t.Errorf("reasons %q", got)
	}
	if _, err := store.Prune(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestAddressesAreSecret: the error about a row tells nothing of its address.
func TestAddressesAreSecret(t *testing.T) {
	t.Parallel()
	store, db := openStore(t)
	d := register(t, store, 1, addressOf("secret-token"))
	raw, err := json.Marshal(d)
	must(t, err)
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("device", "device", d, "address", d.Address)
	exec(t, db, `UPDATE push_devices SET address = '["secret-token"]'`)
	devices, err := store.Devices(t.Context(), 1)
	must(t, err)
	broken := devices[0].Address.Decode(&struct{ Token string }{})
	if broken == nil {
		t.Error("an address that is none is read")
	}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s %q", d, d, d, d.Address, d.Address), string(raw), log.String(), fmt.Sprint(broken)} {
		if strings.Contains(text, "secret-token") {
			t.Errorf("%s", text)
		}
	}
}

func TestSettingsOfMembers(t *testing.T) {
	t.Parallel()
	store, _ := openStore(t)
	none, err := store.Settings(t.Context(), 1)
	if err != nil || !cmp.Equal(none, push.Settings{}) {
		t.Errorf("of a member that said nothing: %+v, %v", none, err)
	}
	for _, want := range []push.Settings{
		{Types: map[string]bool{"upload": false, "fave": true}, Quiet: push.QuietHours{From: 1320, To: 420, Zone: "Europe/Berlin"}},
		{Quiet: push.QuietHours{From: 1, To: 2, Zone: "UTC"}},
		{Types: map[string]bool{"a.b-c_d": false}},
	} {
		must(t, store.SetSettings(t.Context(), 1, want))
		got, err := store.Settings(t.Context(), 1)
		must(t, err)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if err := store.SetSettings(t.Context(), 99, push.Settings{}); !errors.Is(err, contacts.ErrNoMember) {
		t.Errorf("for no member: %v", err)
	}
}

func TestMutes(t *testing.T) {
	t.Parallel()
	store, db := openStore(t)
	soon, later := time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC(), time.Now().Add(48*time.Hour).Truncate(time.Millisecond).UTC()
	must(t, store.Mute(t.Context(), 1, "user:5", later))
	must(t, store.Mute(t.Context(), 1, "photo:901", later))
	must(t, store.Mute(t.Context(), 1, "photo:901", soon))
	must(t, store.Mute(t.Context(), 1, "photo:902", time.Now().Add(-time.Minute)))
	must(t, store.Mute(t.Context(), 2, "photo:903", later))
	want := []push.Mute{{Object: "photo:901", Until: soon}, {Object: "user:5", Until: later}}
	got, err := store.Mutes(t.Context(), 1)
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, test := range []struct {
		object string
		found  bool
	}{{"photo:901", true}, {"photo:901", false}, {"photo:902", false}, {"photo:903", false}} {
		if found, err := store.Unmute(t.Context(), 1, test.object); err != nil || found != test.found {
			t.Errorf("Unmute(%s) = %t, %v", test.object, found, err)
		}
	}
	if err := store.Mute(t.Context(), 99, "photo:1", later); !errors.Is(err, contacts.ErrNoMember) {
		t.Errorf("for no member: %v", err)
	}
	exec(t, db, "INSERT INTO push_mutes (member_id, object, until_at) SELECT 3, CONCAT('photo:', n), ? FROM "+numbers+" WHERE n <= ?", later.UnixMilli(), push.MaxMutes)
	if err := store.Mute(t.Context(), 3, "photo:2000", later); !errors.Is(err, push.ErrTooManyMutes) {
		t.Errorf("one too many: %v", err)
	}
	must(t, store.Mute(t.Context(), 3, "photo:7", soon)) // it is counted already
	exec(t, db, "UPDATE push_mutes SET until_at = 5 WHERE member_id = 3 AND object = 'photo:8'")
	must(t, store.Mute(t.Context(), 3, "photo:2000", later)) // a mute has ended
	must(t, store.Mute(t.Context(), 2, "photo:1", time.Now().Add(70*365*24*time.Hour)))
	if n := column(t, db, "SELECT COUNT(*) FROM push_mutes WHERE member_id = 2 AND object = 'photo:1' AND until_at BETWEEN ? AND ?",
		time.Now().Add(9*365*24*time.Hour).UnixMilli(), time.Now().Add(11*365*24*time.Hour).UnixMilli()); n[0] != "1" {
		t.Error("a mute does not end in ten years")
	}
}

// an event that is valid.
func event(id string) push.Event {
	return push.Event{ID: id, Type: "upload", Actor: 1, Object: "photo:901", Followers: true, ExpiresIn: time.Hour}
}

func TestStoreEvents(t *testing.T) {
	t.Parallel()
	store, db := openStore(t)
	created := time.Now().Add(-10 * time.Minute).Truncate(time.Millisecond).UTC()
	full := push.Event{
		ID: "full", Type: "comment", Actor: 1<<64 - 2, Object: "photo:901", Recipients: []member.ID{5, 1<<64 - 3, 7}, Title: "“Ünï” ☀", Body: "<b>{count}</b>",
		Data: json.RawMessage(`{"a":[1,true,null,"x"]}`), Urgent: true, ExpiresIn: 90 * time.Second, Collapse: "c:901",
	}
	batch := []*push.StoredEvent{push.NewStored(full, 7, created), push.NewStored(event("b"), 9, created), push.NewStored(event("b"), 8, created)}
	stored, err := store.StoreEvents(t.Context(), batch)
	must(t, err)
	want := push.StoredEvent{Event: full, Number: 7, Created: created, Expires: created.Add(90 * time.Second)}
	if diff := cmp.Diff(want, *stored[0], cmp.Transformer("JSON", func(raw json.RawMessage) (v any) {
		must(t, json.Unmarshal(raw, &v))
		return v
	})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if stored[1].Number != 8 || stored[2].Number != 8 {
		t.Errorf("stored %+v: want the earliest task of an id to have it", stored)
	}

	// The tasks come again, in another batch, together with another repetition, a new event, and two tasks with numbers of earlier tasks.
	again, err := store.StoreEvents(t.Context(), []*push.StoredEvent{
		batch[2], push.NewStored(event("new"), 20, created), push.NewStored(event("full"), 21, time.Now()), batch[0],
		push.NewStored(event("late"), 7, created), push.NewStored(event("b"), 8, time.Now()),
	})
	must(t, err)
	if again[0].Number != 8 || again[1].Number != 20 || again[2].Number != 7 || again[2].Type != "comment" || again[3].Number != 7 || again[4] != nil || again[5] != nil {
		t.Errorf("again %+v", again)
	}

	// A store that did not write an event reads the same.
	other := push.NewMySQL(db)
	found, err := other.Events(t.Context(), []uint64{7, 20, 7, 999_999})
	must(t, err)
	if diff := cmp.Diff(map[uint64]*push.StoredEvent{7: stored[0], 20: again[1]}, found); diff != "" {
		t.Errorf("Events (-stored +read):\n%s", diff)
	}
	byID, err := other.EventByID(t.Context(), "full")
	if err != nil || !cmp.Equal(byID, stored[0]) {
		t.Errorf("EventByID = %+v, %v", byID, err)
	}
	if none, err := other.EventByID(t.Context(), "none"); err != nil || none != nil {
		t.Errorf("EventByID = %+v, %v, want none", none, err)
	}
}

// TestStoreEventsAtOnce: of tasks for the same events at a time, a single task targets each.
func TestStoreEventsAtOnce(t *testing.T) {
	t.Parallel()
	_, db := openStore(t)
	const processes, events = 6, 30
	results := make([][]*push.StoredEvent, processes)
	var at errgroup.Group
	for p := range processes {
		at.Go(func() (err error) {
			var batch []*push.StoredEvent
			for i := range events {
				n := (i + 7*p) % events
				batch = append(batch, push.NewStored(event(fmt.Sprint("e", n)), uint64(100*p+n+1), time.Now()))
			}
			results[p], err = push.NewMySQL(db).StoreEvents(t.Context(), batch)
			return err
		})
	}
	must(t, at.Wait())
	targeted := map[string]int{}
	for p, stored := range results {
		for _, e := range stored {
			if int(e.Number)/100 == p {
				targeted[e.ID]++
			}
		}
	}
	for i := range events {
		if id := fmt.Sprint("e", i); targeted[id] != 1 {
			t.Errorf("event %s is targeted by %d tasks", id, targeted[id])
		}
	}
}

func TestPhotoAndBurst(t *testing.T) {
	t.Parallel()
	for object, want := range map[string]struct {
		id uint64
		is bool
	}{
		"": {}, "user:5": {}, "trip:photo:5": {}, "photo:901": {901, true}, "photo:18446744073709551615": {1<<64 - 1, true},
		// There can be no photos of these names: no member may see them.
		"photo:": {0, true}, "photo:0901": {0, true}, "photo:x": {0, true}, "photo:-1": {0, true}, "photo:18446744073709551616": {0, true},
	} {
		e := push.Event{Object: object}
		if id, is := e.Photo(); id != want.id || is != want.is {
			t.Errorf("%q is photo %d, %t", object, id, is)
		}
	}
	bursts := map[[16]byte]bool{}
	for _, e := range []push.Event{{Type: "a", Collapse: "bc"}, {Type: "ab", Collapse: "c"}, {Type: "a", Collapse: "bc", Actor: 5}} {
		bursts[e.Burst()] = true
	}
	if len(bursts) != 2 {
		t.Errorf("%d bursts, want 2", len(bursts))
	}
}

func TestReceipts(t *testing.T) {
	t.Parallel()
	store, _ := openStore(t)
	burst := [16]byte{1, 2, 3, 0, 255}
	write := func(list ...push.Receipt) {
		t.Helper()
		must(t, store.Record(t.Context(), list))
	}
	write() // of none
	write(
		push.Receipt{Event: 1, Member: 2, Device: 20, State: push.StatePending, Burst: burst},
		push.Receipt{Event: 1, Member: 1, Device: 10, State: push.StatePending, Burst: burst},
		push.Receipt{Event: 1, Member: 3, State: push.StateSkipped, Reason: "no_device"},
		push.Receipt{Event: 1, Member: 1, Device: 11, State: push.StateFailed, Reason: "Bad\nTopic é" + strings.Repeat("x", 80)},
		push.Receipt{Event: 2, Member: 1, Device: 10, State: push.StateAccepted},
	)
	write(push.Receipt{Event: 1, Member: 2, Device: 20, State: push.StateAccepted, Reason: "doubled", ProviderID: "p1 <b>\x1b"}) // keeps its burst
	// An accepted event stays, and a skipped event is not pending again; the rest is as it was found last.
	write(
		push.Receipt{Event: 1, Member: 2, Device: 20, State: push.StatePending, Reason: "r", ProviderID: "p2", Burst: burst},
		push.Receipt{Event: 1, Member: 3, State: push.StatePending},
	)
	want := []push.Receipt{
		{Event: 1, Member: 1, Device: 10, State: push.StatePending, Burst: burst},
		{Event: 1, Member: 1, Device: 11, State: push.StateFailed, Reason: "Bad?Topic ?" + strings.Repeat("x", 53)},
		{Event: 1, Member: 2, Device: 20, State: push.StateAccepted, Reason: "doubled", ProviderID: "p1%20%3Cb%3E%1B", Burst: burst},
		{Event: 1, Member: 3, State: push.StateSkipped, Reason: "no_device"},
	}
	noTime := cmpopts.IgnoreFields(push.Receipt{}, "At")
	for _, of := range []struct {
		member member.ID
		want   []push.Receipt
	}{{0, want}, {1, want[:2]}} {
		if diff := cmp.Diff(of.want, fatesOf(t, store, 1, of.member), noTime); diff != "" {
			t.Errorf("Fates of %d (-want +got):\n%s", of.member, diff)
		}
	}
	counts, err := store.CountReceipts(t.Context(), 1, 1000)
	must(t, err)
	if diff := cmp.Diff([]push.ReceiptCount{
		{State: push.StatePending, Count: 1},
		{State: push.StateSkipped, Reason: "no_device", Count: 1},
		{State: push.StateFailed, Reason: want[1].Reason, Count: 1},
		{State: push.StateAccepted, Reason: "doubled", Count: 1},
	}, counts); diff != "" {
		t.Errorf("CountReceipts (-want +got):\n%s", diff)
	}
}

func TestPurge(t *testing.T) {
	t.Parallel()
	store, db := openStore(t)
	stored, err := store.StoreEvents(t.Context(), []*push.StoredEvent{
		push.NewStored(event("kept"), 1, time.Now()),
		push.NewStored(event("late"), 2, time.Now().Add(-100*24*time.Hour)), // its task had to wait
		push.NewStored(event("forgotten"), 3, time.Now()),
	})
	must(t, err)
	exec(t, db, "UPDATE push_events SET forget_at = "+mysql.Now+" WHERE id = 'forgotten'")
	exec(t, db, "INSERT INTO push_receipts (event_number, member_id, device_id, state, at) SELECT ?, n, n + 0, 'accepted', 1 FROM "+numbers+" WHERE n <= 2500", stored[2].Number)
	exec(t, db, "INSERT INTO push_events (number, id, actor_id, created_at, expires_at, forget_at) SELECT 100 + n, CONCAT('many', n), 1, 1, 1, 1 FROM "+numbers+" WHERE n <= 2500")
	for _, s := range stored[:2] {
		must(t, store.Record(t.Context(), []push.Receipt{{Event: s.Number, Member: 1, Device: 1, State: push.StateAccepted}}))
	}
	live, gone, long := register(t, store, 1, token(1)), register(t, store, 1, token(2)), register(t, store, 1, token(3))
	_, err = store.Prune(t.Context(), []push.Pruned{{Device: gone.ID}, {Device: long.ID}})
	must(t, err)
	exec(t, db, "UPDATE push_devices SET gone_at = gone_at - 30 * 86400000 WHERE id = ?", long.ID)
	must(t, store.Mute(t.Context(), 1, "photo:1", time.Now().Add(time.Hour)))
	must(t, store.Mute(t.Context(), 1, "photo:2", time.Now().Add(-time.Hour)))

	// Several processes purge at a time.
	var at errgroup.Group
	counts := make([]int, 3)
	for i := range counts {
		at.Go(func() (err error) {
			counts[i], err = store.Purge(t.Context())
			return err
		})
	}
	must(t, at.Wait())
	// They may pass over a row that was locked for a moment: the next purge has it.
	sum, want := counts[0]+counts[1]+counts[2], 1+2500+2500+1+1
	for range 1000 {
		if sum >= want {
			break
		}
		n, err := store.Purge(t.Context())
		must(t, err)
		sum += n
	}
	if sum != want {
		t.Errorf("purged %d rows, want %d", sum, want)
	}
	if got := column(t, db, "SELECT id FROM push_events ORDER BY number"); !slices.Equal(got, []string{"kept", "late"}) {
		t.Errorf("kept %v", got)
	}
	for query, want := range map[string][]string{
		"SELECT event_number FROM push_receipts ORDER BY 1": {fmt.Sprint(stored[0].Number), fmt.Sprint(stored[1].Number)},
		"SELECT id FROM push_devices ORDER BY id":           {fmt.Sprint(live.ID), fmt.Sprint(gone.ID)},
		"SELECT object FROM push_mutes":                     {"photo:1"},
	} {
		if got := column(t, db, query); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	if n, err := store.Purge(t.Context()); err != nil || n != 0 {
		t.Errorf("Purge again = %d, %v", n, err)
	}
}

// TestPurgeOfMembers: all rows of a member are deleted when it was missing twice, a day apart.
func TestPurgeOfMembers(t *testing.T) {
	t.Parallel()
	store, db := openStore(t)
	exec(t, db, "DELETE FROM users")
	exec(t, db, "INSERT INTO users (id, username) SELECT n, CONCAT('u', n) FROM "+numbers+" WHERE n <= 2000")
	exec(t, db, "INSERT INTO push_devices (member_id, platform, address_hash, registered_at) SELECT n, 'fcm', UNHEX(SHA2(n, 256)), 5 FROM "+numbers+" WHERE n <= 2000")
	exec(t, db, "INSERT INTO push_mutes (member_id, object, until_at) SELECT n, 'photo:1', 9e12 FROM "+numbers+" WHERE n > 500 AND n <= 2000")
	exec(t, db, "INSERT INTO push_settings (member_id) SELECT n + 0 FROM "+numbers+" WHERE n > 1000 AND n <= 2000")
	purge := func(times int) (n int) {
		t.Helper()
		for range times {
			deleted, err := store.Purge(t.Context())
			must(t, err)
			n += deleted
		}
		return n
	}
	marked := func() []string {
		return column(t, db, "SELECT member_id FROM push_settings WHERE missing_at IS NOT NULL ORDER BY 1")
	}
	is := func(what string, n, want int, marks ...string) {
		t.Helper()
		if n != want {
			t.Errorf("%s: purged %d rows, want %d", what, n, want)
		}
		if got := marked(); !slices.Equal(got, marks) {
			t.Errorf("%s: marked %v, want %v", what, got, marks)
		}
	}
	aDayLater := func() { exec(t, db, "UPDATE push_settings SET missing_at = missing_at - 86400000") }

	is("all are there", purge(1), 0)
	exec(t, db, "RENAME TABLE users TO old_users")
	exec(t, db, "CREATE TABLE users LIKE old_users")
	is("none is there", purge(1), 0)
	exec(t, db, "DROP TABLE users")
	exec(t, db, "RENAME TABLE old_users TO users")
	exec(t, db, "DELETE FROM users WHERE id IN (7, 700, 1700, 1701)")
	is("four are missing", purge(1), 0, "7", "700", "1700", "1701")
	is("and still", purge(1), 0, "7", "700", "1700", "1701")
	exec(t, db, "INSERT INTO users (id, username) VALUES (1701, 'back')")
	aDayLater()
	is("three are missing a day later", purge(1), 2+3+3)
	is("they are gone", purge(1), 0)
	for table, want := range map[string]string{"push_devices": "1997", "push_mutes": "1498", "push_settings": "999"} {
		if got := column(t, db, "SELECT COUNT(*) FROM "+table); got[0] != want {
			t.Errorf("%s has %s rows, want %s", table, got[0], want)
		}
	}
	exec(t, db, "DELETE FROM users WHERE id > 1800")
	purge(1)
	if n := len(marked()); n != 200 {
		t.Errorf("%d are marked, want 200", n)
	}
	aDayLater()
	exec(t, db, "RENAME TABLE users TO old_users")
	exec(t, db, "CREATE TABLE users LIKE old_users")
	if n := purge(1); n != 0 {
		t.Errorf("purged %d rows while no member was there", n)
	}
	exec(t, db, "DROP TABLE users")
	exec(t, db, "RENAME TABLE old_users TO users")
	is("many are missing", purge(1), 3*200)
}

// TestPurgeOfManyMembers: a purge that cannot look at all rows goes on where the purge before ended, and comes to every member,
// also below an id far above.
func TestPurgeOfManyMembers(t *testing.T) {
	t.Parallel()
	store, db := openStore(t)
	exec(t, db, "DELETE FROM users")
	exec(t, db, "INSERT INTO users (id, username) SELECT n, CONCAT('u', n) FROM "+numbers+" WHERE n <= 6000")
	exec(t, db, "INSERT INTO push_devices (member_id, platform, address_hash, registered_at) SELECT n DIV 2, 'fcm', UNHEX(SHA2(n, 256)), 5 FROM "+numbers+
		" WHERE n BETWEEN 2 AND 12001")
	missing := func(purges int, want ...string) {
		t.Helper()
		for range purges {
			_, err := store.Purge(t.Context())
			must(t, err)
		}
		if got := column(t, db, "SELECT member_id FROM push_settings WHERE missing_at IS NOT NULL ORDER BY 1"); !slices.Equal(got, want) {
			t.Errorf("marked %v, want %v", got, want)
		}
	}
	exec(t, db, "DELETE FROM users WHERE id IN (3, 5999)")
	missing(2, "3", "5999")
	store = push.NewMySQL(db) // it begins anywhere
	exec(t, db, "INSERT INTO push_devices (member_id, platform, address_hash, registered_at) VALUES (1000000000000, 'fcm', UNHEX(SHA2('far', 256)), 5)")
	exec(t, db, "DELETE FROM users WHERE id IN (1, 6000)")
	missing(4, "1", "3", "5999", "6000", "1000000000000")
}

// TestWaiting: of a burst with many receipts the oldest that wait and the last that were accepted come, each burst by itself.
func TestWaiting(t *testing.T) {
	t.Parallel()
	store, db := openStore(t)
	const digits = " JSON_TABLE('[0,1,2,3,4,5,6,7,8,9]', '$[*]' COLUMNS (n INT PATH '$')) "
	bursts := make([]push.BurstDevice, 3)
	for i := range bursts {
		bursts[i] = push.BurstDevice{Burst: [16]byte{byte(i + 1)}, To: push.Recipient{Member: 2, Device: 20}}
	}
	fill := func(i, from, n int, state push.State) {
		t.Helper()
		exec(t, db, "INSERT INTO push_receipts (event_number, member_id, device_id, state, at, burst)"+
			" SELECT ? + 1000 * a.n + 100 * b.n + 10 * c.n + d.n AS number, 2, 20, ?, "+mysql.Now+" - 10000 + 1000 * a.n + 100 * b.n + 10 * c.n + d.n, ? FROM"+
			digits+"AS a JOIN"+digits+"AS b JOIN"+digits+"AS c JOIN"+digits+"AS d ORDER BY number LIMIT ?", from, string(state), bursts[i].Burst[:], n)
	}
	fill(0, 10_000, 300, push.StateAccepted)
	fill(0, 20_000, 1, push.StatePending)
	fill(1, 30_000, 1, push.StatePending)
	fill(2, 40_000, 1500, push.StatePending)
	exec(t, db, "INSERT INTO push_receipts (event_number, member_id, device_id, state, at, burst) VALUES (9, 2, 20, 'accepted', 5, ?)", bursts[1].Burst[:])
	all, err := store.Waiting(t.Context(), bursts)
	must(t, err)
	for i, want := range [][3]uint64{{101, 10_200, 20_000}, {1, 30_000, 30_000}, {1000, 40_000, 40_999}} {
		var events []uint64
		for _, r := range all[i] {
			events = append(events, r.Event)
		}
		if got := [3]uint64{uint64(len(events)), slices.Min(events), slices.Max(events)}; got != want {
			t.Errorf("of burst %d come %d, from %d to %d; want %d", i, got[0], got[1], got[2], want)
		}
	}
}

// TestRunEndsWithItsContext, and not before.
func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	store, _ := openStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		store.Run(ctx, slog.New(slog.DiscardHandler))
	}()
	select {
	case <-ended:
		t.Fatal("it ended at once")
	default:
	}
	cancel()
	<-ended
}

// fatesOf returns the receipts of an event, of all members or of a single member.
func fatesOf(t *testing.T, store *push.MySQL, event uint64, only member.ID) (list []push.Receipt) {
	t.Helper()
	for page, err := range store.Fates(t.Context(), event, only) {
		must(t, err)
		for _, f := range page {
			if f.At.IsZero() {
				t.Errorf("the receipt %+v has no time", f)
			}
			list = append(list, f.Receipt)
		}
	}
	return list
}
