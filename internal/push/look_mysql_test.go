package push_test

import (
	"database/sql"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

// people are few, so that they meet often.
var people = []member.ID{1, 2, 3, 4, 1 << 63, math.MaxUint64 - 1}

var (
	anyone     = rapid.SampledFrom(people)
	anyObject  = rapid.SampledFrom([]string{"", "photo:1", "photo:2", "photo:3", "photo:4", "photo:1000", "trip:7", "user:1", "user:2", "user:9223372036854775808"})
	visibility = rapid.SampledFrom(contacts.Classes())
)

// lookWorld is the content of the tables, in the plainest form: the specification of Look.
type lookWorld struct {
	db    *sql.DB
	store *push.MySQL

	members  map[member.ID]bool
	grants   map[[2]member.ID]site.Grant // of the first to the second
	blocks   map[[2]member.ID]bool
	photos   map[uint64]site.Photo
	devices  map[uint64]push.Device // that live
	settings map[member.ID]push.Settings
	mutes    map[member.ID]map[string]time.Time
	events   []*push.StoredEvent
	receipts map[receiptKey]push.Receipt
	accepted map[string]bool // "burst device": an event of it was
}

type receiptKey struct {
	event  uint64
	member member.ID
	device uint64
}

func newLookWorld(db *sql.DB, store *push.MySQL) *lookWorld {
	return &lookWorld{
		db: db, store: store,
		members: map[member.ID]bool{}, grants: map[[2]member.ID]site.Grant{}, blocks: map[[2]member.ID]bool{},
		photos: map[uint64]site.Photo{}, devices: map[uint64]push.Device{}, settings: map[member.ID]push.Settings{},
		mutes: map[member.ID]map[string]time.Time{}, receipts: map[receiptKey]push.Receipt{}, accepted: map[string]bool{},
	}
}

func (w *lookWorld) fill(t *rapid.T) {
	for _, table := range []string{
		"users", "contacts", "blocks", "photos", "push_devices", "push_settings", "push_mutes", "push_events", "push_receipts",
	} {
		exec(t, w.db, "DELETE FROM "+table)
	}
	var list []site.Member
	for _, id := range people {
		list = append(list, site.Member{ID: id, Username: "u" + id.String()})
		w.members[id] = true
	}
	s := site.NewMySQL(w.db)
	must(t, s.LoadMembers(t.Context(), list))
	for range rapid.IntRange(0, 8).Draw(t, "contacts") {
		pair := [2]member.ID{anyone.Draw(t, "user"), anyone.Draw(t, "contact")}
		w.grants[pair] = site.Grant{Friend: rapid.Bool().Draw(t, "friend"), Family: rapid.Bool().Draw(t, "family")}
		must(t, s.LoadContacts(t.Context(), []site.Relation{{User: pair[0], Contact: pair[1], Grant: w.grants[pair]}}))
	}
	for range rapid.IntRange(0, 3).Draw(t, "blocks") {
		pair := [2]member.ID{anyone.Draw(t, "user"), anyone.Draw(t, "blocked")}
		w.blocks[pair] = true
		must(t, s.Block(t.Context(), pair[0], pair[1]))
	}
	var photos []site.Photo
	for id := range uint64(rapid.IntRange(0, 4).Draw(t, "photos")) {
		p := site.Photo{ID: id + 1, Owner: anyone.Draw(t, "owner"), Visibility: visibility.Draw(t, "visibility"), DateUpload: 5}
		photos = append(photos, p)
		w.photos[p.ID] = p
	}
	must(t, s.LoadPhotos(t.Context(), photos))
	w.fillDevices(t)
	w.fillWishes(t)
	w.fillEvents(t)
	for _, id := range people {
		if rapid.IntRange(0, 9).Draw(t, "deleted") == 0 {
			exec(t, w.db, "DELETE FROM users WHERE id = ?", id)
			delete(w.members, id)
		}
	}
}

func (w *lookWorld) fillDevices(t *rapid.T) {
	for i := range rapid.IntRange(0, 8).Draw(t, "devices") {
		a := addressOf(fmt.Sprint("https://push.example/", i))
		d, err := w.store.Register(t.Context(), anyone.Draw(t, "member"), push.WebPush, a, "")
		must(t, err)
		if rapid.IntRange(0, 5).Draw(t, "gone") == 0 {
			_, err := w.store.Prune(t.Context(), []push.Pruned{{Device: d.ID, Reason: "gone"}})
			must(t, err)
			continue
		}
		w.devices[d.ID] = d
	}
}

func (w *lookWorld) fillWishes(t *rapid.T) {
	for range rapid.IntRange(0, 3).Draw(t, "settings") {
		id := anyone.Draw(t, "member")
		s := push.Settings{
			Types: rapid.MapOf(rapid.SampledFrom([]string{"upload", "fave"}), rapid.Bool()).Draw(t, "types"),
			Quiet: push.QuietHours{From: rapid.IntRange(0, 1439).Draw(t, "from"), To: 420, Zone: "Europe/Berlin"},
		}
		must(t, w.store.SetSettings(t.Context(), id, s))
		w.settings[id] = s
	}
	for range rapid.IntRange(0, 12).Draw(t, "mutes") {
		id, object := anyone.Draw(t, "member"), anyObject.Draw(t, "object")
		if rapid.Bool().Draw(t, "mutes a member") {
			object = "user:" + anyone.Draw(t, "muted").String()
		}
		// None ends while the test runs.
		until := time.UnixMilli(time.Now().UnixMilli() + rapid.OneOf(rapid.Int64Range(-1e12, 0), rapid.Int64Range(6e4, 3e11)).Draw(t, "until"))
		if w.mutes[id] == nil {
			w.mutes[id] = make(map[string]time.Time)
		}
		must(t, w.store.Mute(t.Context(), id, object, until))
		w.mutes[id][object] = until
	}
}

func (w *lookWorld) fillEvents(t *rapid.T) {
	var batch []*push.StoredEvent
	for i := range rapid.IntRange(1, 4).Draw(t, "events") {
		batch = append(batch, push.NewStored(push.Event{
			ID: fmt.Sprint("event", i), Type: "upload", Actor: anyone.Draw(t, "actor"), Object: anyObject.Draw(t, "object"), Followers: true,
			Collapse: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "collapse"),
		}, uint64(i+1), time.Now()))
	}
	events, err := w.store.StoreEvents(t.Context(), batch)
	must(t, err)
	w.events = events
	ranks := []push.State{push.StatePending, push.StateSkipped, push.StateFailed, push.StateAccepted}
	for range rapid.IntRange(0, 6).Draw(t, "receipts") {
		e := rapid.SampledFrom(events).Draw(t, "event")
		of := receiptKey{e.Number, anyone.Draw(t, "member"), w.anyDevice(t)}
		r := push.Receipt{Event: of.event, Member: of.member, Device: of.device, State: rapid.SampledFrom(ranks).Draw(t, "state")}
		if e.Collapse != "" {
			r.Burst = e.Burst()
		}
		must(t, w.store.Record(t.Context(), []push.Receipt{r}))
		if was, there := w.receipts[of]; !there || slices.Index(ranks, r.State) >= slices.Index(ranks, was.State) {
			w.receipts[of] = r
		}
		if r.State == push.StateAccepted && e.Collapse != "" {
			w.accepted[fmt.Sprintf("%x %d", r.Burst, of.device)] = true
		}
	}
}

// anyDevice returns the id of a device, or 0.
func (w *lookWorld) anyDevice(t *rapid.T) uint64 {
	return rapid.SampledFrom(append([]uint64{0}, slices.Sorted(maps.Keys(w.devices))...)).Draw(t, "device")
}

// look is the result of Look, without the time.
func (w *lookWorld) look(candidates []push.Candidate) (want []push.Facts) {
	for i, c := range candidates {
		for _, id := range slices.Sorted(maps.Keys(w.devices)) {
			d := w.devices[id]
			if d.Member != c.Member || !w.members[c.Member] || c.Device != 0 && c.Device != id {
				continue
			}
			e := c.Event
			r := w.receipts[receiptKey{e.Number, c.Member, id}]
			f := push.Facts{
				Candidate: i, Device: d, Settings: w.settings[c.Member], Visible: w.visible(c.Member, e.Object),
				Blocked:  w.blocks[[2]member.ID{c.Member, e.Actor}] || w.blocks[[2]member.ID{e.Actor, c.Member}],
				Accepted: r.State == push.StateAccepted, Failed: r.State == push.StateFailed,
				Pending: r.State == push.StatePending,
			}
			if e.Collapse != "" && w.accepted[fmt.Sprintf("%x %d", e.Burst(), id)] {
				f.Burst = time.Unix(1, 0)
			}
			if f.Departed = !w.members[e.Actor]; !f.Departed {
				f.Actor = "u" + e.Actor.String()
			}
			for _, object := range []string{e.Object, "user:" + e.Actor.String()} {
				if until := w.mutes[c.Member][object]; until.After(f.Muted) {
					f.Muted = until
				}
			}
			want = append(want, f)
		}
	}
	return want
}

func (w *lookWorld) visible(id member.ID, object string) bool {
	number, isPhoto := strings.CutPrefix(object, "photo:")
	if !isPhoto {
		return true
	}
	for _, p := range w.photos {
		if fmt.Sprint(p.ID) != number || !w.members[p.Owner] {
			continue
		}
		g, called := w.grants[[2]member.ID{p.Owner, id}]
		_, follows := w.grants[[2]member.ID{id, p.Owner}]
		granted := p.Visibility.ShownTo(contacts.Granted{Contact: called, Friend: g.Friend, Family: g.Family, Follows: follows})
		return p.Owner == id || granted && !w.blocks[[2]member.ID{p.Owner, id}] && !w.blocks[[2]member.ID{id, p.Owner}]
	}
	return false
}

// TestPropertyLook compares the statement with the plainest specification, in random small
// worlds.
func TestPropertyLook(t *testing.T) {
	t.Parallel()
	checkLook(t, openDB(t))
}

// TestOnAHostileServer: whatever the defaults of its sessions are.
func TestOnAHostileServer(t *testing.T) {
	t.Parallel()
	db, err := mysql.Open(servertest.HostileMySQL(t))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	must(t, schema.Apply(t.Context(), db))
	checkLook(t, db)
	exec(t, db, "UPDATE push_events SET forget_at = 1")
	exec(t, db, "UPDATE push_mutes SET until_at = 1")
	_, err = push.NewMySQL(db).Purge(t.Context())
	must(t, err)
	if left := column(t, db, "SELECT (SELECT COUNT(*) FROM push_events) + (SELECT COUNT(*) FROM push_mutes)"); left[0] != "0" {
		t.Errorf("%s rows are left", left[0])
	}
}

func checkLook(t *testing.T, db *sql.DB) {
	t.Helper()
	store := push.NewMySQL(db)
	rapid.Check(t, func(t *rapid.T) {
		w := newLookWorld(db, store)
		w.fill(t)
		var candidates []push.Candidate
		for range rapid.IntRange(1, 12).Draw(t, "candidates") {
			candidates = append(candidates, push.Candidate{
				Event: rapid.SampledFrom(w.events).Draw(t, "event"), Member: anyone.Draw(t, "member"), Device: w.anyDevice(t),
			})
		}
		began := time.Now()
		got, err := store.Look(t.Context(), candidates)
		must(t, err)
		for i := range got {
			if d := got[i].Now.Sub(began); d < -time.Minute || d > time.Minute {
				t.Fatalf("the database's clock is %v from here", d)
			}
			if !got[i].Burst.IsZero() {
				if d := got[i].Now.Sub(got[i].Burst); d < 0 || d > time.Minute {
					t.Fatalf("one of the burst was accepted %v before", d)
				}
				got[i].Burst = time.Unix(1, 0)
			}
			got[i].Now = time.Time{}
		}
		if diff := cmp.Diff(w.look(candidates), got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-specification +Look):\n%s", diff)
		}
	})
}

// TestLookOnViews: whatever the collation of the visibility is, and with blocks that are there
// twice.
func TestLookOnViews(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	store := push.NewMySQL(db)
	for _, text := range []string{
		"RENAME TABLE users TO site_members, contacts TO site_relations, blocks TO site_bans, photos TO site_images",
		"ALTER TABLE site_images MODIFY visibility VARCHAR(20) CHARACTER SET latin1 NOT NULL",
		"ALTER TABLE site_bans DROP PRIMARY KEY, ADD KEY (user_id, blocked_id)",
		"CREATE VIEW users AS SELECT id, username, last_upload FROM site_members",
		"CREATE VIEW contacts AS SELECT user_id, contact_id, is_friend, is_family FROM site_relations",
		"CREATE VIEW blocks AS SELECT user_id, blocked_id FROM site_bans",
		"CREATE VIEW photos AS SELECT id, owner_id, title, visibility, date_upload FROM site_images",
		"INSERT INTO site_members (id, username) VALUES (1, 'ada'), (2, 'bob')",
		"INSERT INTO site_images (id, owner_id, visibility, date_upload) VALUES (901, 1, 'friends', 5)",
		"INSERT INTO site_relations (user_id, contact_id, is_friend) VALUES (1, 2, TRUE)",
	} {
		exec(t, db, text)
	}
	_, err := store.Register(t.Context(), 2, push.FCM, addressOf("token"), "")
	must(t, err)
	stored, err := store.StoreEvents(t.Context(), []*push.StoredEvent{
		push.NewStored(push.Event{ID: "e", Type: "upload", Actor: 1, Object: "photo:901", Followers: true}, 5, time.Now()),
	})
	must(t, err)
	for _, step := range []struct {
		change           string
		visible, blocked bool
	}{
		{"DO 0", true, false},
		{"UPDATE site_images SET visibility = 'family'", false, false},
		{"UPDATE site_images SET visibility = 'PUBLIC'", true, false}, // the collation is the site's
		{"INSERT INTO site_bans (user_id, blocked_id) VALUES (1, 2), (1, 2), (2, 1), (2, 1)", false, true},
	} {
		exec(t, db, step.change)
		facts, err := store.Look(t.Context(), []push.Candidate{{Event: stored[0], Member: 2}})
		if err != nil || len(facts) != 1 {
			t.Fatalf("after %s: %v, %v", step.change, facts, err)
		}
		if f := facts[0]; f.Visible != step.visible || f.Blocked != step.blocked {
			t.Errorf("after %s: visible %t, blocked %t", step.change, f.Visible, f.Blocked)
		}
	}
}
