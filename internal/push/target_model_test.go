package push_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// targetSite is a small random site: the members are 1 to 6, and 3 and 6 may be none.
type targetSite struct {
	members []member.ID
	calls   map[[2]member.ID]string // the first calls the second a contact: "", "friend", "family" or "both"
	blocks  map[[2]member.ID]bool
	photos  map[uint64]sitePhoto
	devices map[uint64]member.ID // that live
	types   map[member.ID]map[string]bool
	quiet   map[member.ID]push.QuietHours
	mutes   map[member.ID]map[string]time.Time
}

type sitePhoto struct {
	owner      member.ID
	visibility contacts.Visibility
}

// said is an event that a task tells of.
type said struct {
	task    queue.Task
	bad     bool // it makes no sense
	id      string
	event   push.Event
	expires time.Time
	// Before the handler sees it, its task stored it, or another task.
	stored, repeated bool
	accepted         map[uint64]bool // by devices, in an earlier attempt
}

var (
	anyActor = rapid.Custom(func(t *rapid.T) member.ID { return member.ID(rapid.Uint64Range(1, 3).Draw(t, "id")) })
	anyID    = rapid.Custom(func(t *rapid.T) member.ID { return member.ID(rapid.Uint64Range(1, 6).Draw(t, "id")) })
	anyThing = rapid.SampledFrom([]string{"", "photo:1", "photo:2", "photo:9", "trip:5", "user:3"})
	anyType  = rapid.SampledFrom([]string{"upload", "comment"})
	anyZone  = rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "Asia/Kolkata", "Pacific/Auckland", "America/St_Johns", "No/Where"})
)

// build draws a site and writes it into the tables. now is the database's clock.
func build(t *rapid.T, db *sql.DB, now time.Time) *targetSite {
	w := &targetSite{
		calls: map[[2]member.ID]string{}, blocks: map[[2]member.ID]bool{}, photos: map[uint64]sitePhoto{}, devices: map[uint64]member.ID{},
		types: map[member.ID]map[string]bool{}, quiet: map[member.ID]push.QuietHours{}, mutes: map[member.ID]map[string]time.Time{},
	}
	rows := map[string][]string{}
	row := func(table, format string, args ...any) {
		rows[table] = append(rows[table], fmt.Sprintf("("+format+")", args...))
	}
	for id := member.ID(1); id <= 6; id++ {
		if id != 3 && id != 6 || rapid.IntRange(0, 3).Draw(t, "is a member") > 0 {
			w.members = append(w.members, id)
			row("users (id, username)", "%d, 'u%d'", id, id)
		}
	}
	for range rapid.IntRange(6, 20).Draw(t, "contacts") {
		pair := [2]member.ID{anyID.Draw(t, "user"), anyActor.Draw(t, "contact")}
		if _, there := w.calls[pair]; there {
			continue
		}
		as := rapid.SampledFrom([]string{"", "friend", "family", "both"}).Draw(t, "as")
		w.calls[pair] = as
		row("contacts (user_id, contact_id, is_friend, is_family)", "%d, %d, %t, %t", pair[0], pair[1], as == "friend" || as == "both", as == "family" || as == "both")
	}
	for range rapid.IntRange(0, 4).Draw(t, "blocks") {
		pair := [2]member.ID{anyID.Draw(t, "user"), anyID.Draw(t, "blocked")}
		if !w.blocks[pair] {
			row("blocks (user_id, blocked_id)", "%d, %d", pair[0], pair[1])
		}
		w.blocks[pair] = true
	}
	for id := uint64(1); id <= 2; id++ {
		p := sitePhoto{anyID.Draw(t, "owner"), rapid.SampledFrom(contacts.Classes()).Draw(t, "visibility")}
		w.photos[id] = p
		row("photos (id, owner_id, visibility, date_upload)", "%d, %d, '%s', 5", id, p.owner, p.visibility)
	}
	for id := uint64(1); id <= uint64(rapid.IntRange(4, 16).Draw(t, "devices")); id++ {
		of, gone := anyID.Draw(t, "member"), "NULL"
		if rapid.IntRange(0, 6).Draw(t, "gone") == 0 {
			gone = "5"
		} else {
			w.devices[id] = of
		}
		row("push_devices (id, member_id, platform, address_hash, address, registered_at, gone_at)", "%d, %d, 'fcm', REPEAT(CHAR(%d), 32), '{}', 5, %s", id, of, id, gone)
	}
	for _, id := range rapid.SliceOfNDistinct(anyID, 0, 3, rapid.ID[member.ID]).Draw(t, "settings") {
		w.types[id] = rapid.MapOf(anyType, rapid.Bool()).Draw(t, "types")
		// Often about now, in the zones.
		q := push.QuietHours{
			From: rapid.IntRange(0, 1439).Draw(t, "from"), To: rapid.IntRange(0, 1439).Draw(t, "to"), Zone: anyZone.Draw(t, "zone"),
		}
		w.quiet[id] = q
		types, err := json.Marshal(w.types[id])
		must(t, err)
		row("push_settings (member_id, types, quiet_from, quiet_to, time_zone)", "%d, '%s', %d, %d, '%s'", id, types, q.From, q.To, q.Zone)
	}
	for range rapid.IntRange(0, 9).Draw(t, "mutes") {
		id, thing := anyID.Draw(t, "member"), rapid.SampledFrom([]string{"photo:1", "trip:5", "user:1", "user:2", "user:3"}).Draw(t, "object")
		if _, there := w.mutes[id][thing]; there {
			continue
		}
		if w.mutes[id] == nil {
			w.mutes[id] = map[string]time.Time{}
		}
		until := now.Add(time.Duration(rapid.SampledFrom([]int{-3600, 3600}).Draw(t, "muted for")) * time.Second)
		w.mutes[id][thing] = until
		row("push_mutes (member_id, object, until_at)", "%d, '%s', %d", id, thing, until.UnixMilli())
	}
	for _, table := range []string{
		"users", "contacts", "blocks", "photos", "push_devices", "push_settings", "push_mutes", "push_events", "push_receipts",
	} {
		exec(t, db, "DELETE FROM "+table)
	}
	for into, list := range rows {
		exec(t, db, "INSERT INTO "+into+" VALUES "+strings.Join(list, ", "))
	}
	return w
}

var anyCollapse = rapid.SampledFrom([]string{"k", "upload:1", "upload:2"})

// speak draws events, and stores the events that an earlier attempt, or another task, stored.
func speak(t *rapid.T, w *targetSite, store *push.MySQL, now time.Time) (all []*said) {
	for i := range rapid.IntRange(1, 8).Draw(t, "events") {
		s := &said{accepted: map[uint64]bool{}, task: queue.Task{
			ID: uint64(100 + i), Kind: push.Notify, Queue: push.QueuePush, Key: uint64(anyActor.Draw(t, "actor")), Attempts: 1, MaxAttempts: 25,
			Claimed:  now.Add(-time.Duration(rapid.SampledFrom([]int{0, 0, 5}).Draw(t, "claimed")) * time.Second),
			Created:  now.Add(-time.Duration(rapid.SampledFrom([]int{1, 1000}).Draw(t, "age")) * time.Second),
			Priority: rapid.SampledFrom([]int{0, 0, 5, -20}).Draw(t, "priority"),
		}}
		e := &s.event
		fields := map[string]any{}
		e.Actor, e.Type = member.ID(s.task.Key), anyType.Draw(t, "type")
		fields["type"] = e.Type
		s.id = fmt.Sprintf("task-%d", s.task.ID)
		if rapid.Bool().Draw(t, "has an id") {
			s.id = rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
			fields["id"] = s.id
		}
		if e.Object = anyThing.Draw(t, "object"); e.Object != "" {
			fields["object"] = e.Object
		}
		e.Followers = rapid.Bool().Draw(t, "followers")
		if !e.Followers {
			e.Recipients = rapid.SliceOfNDistinct(anyID, 1, 6, rapid.ID[member.ID]).Draw(t, "recipients")
			fields["recipients"] = e.Recipients
		} else if e.Collapse = e.Type + ":" + e.Actor.String(); rapid.Bool().Draw(t, "said") {
			fields["recipients"] = "followers"
		}
		if rapid.IntRange(0, 2).Draw(t, "has a collapse key") == 0 {
			e.Collapse = rapid.OneOf(anyCollapse, rapid.Just("")).Draw(t, "collapse")
			fields["collapse"] = e.Collapse
		}
		if e.Urgent = rapid.IntRange(0, 3).Draw(t, "urgent") == 0; e.Urgent {
			fields["urgent"] = true
		}
		life := rapid.SampledFrom([]int{86400, 1020, 999, 20, 4000, 40000}).Draw(t, "life")
		fields["expires_in"] = life
		s.expires = s.task.Created.Add(time.Duration(life) * time.Second)
		if s.bad = rapid.IntRange(0, 9).Draw(t, "makes no sense") == 0; s.bad {
			fields["recipient"] = "all"
		}
		var err error
		s.task.Payload, err = json.Marshal(fields)
		must(t, err)
		all = append(all, s)
	}
	owner := map[string]uint64{}
	for i, s := range all {
		if s.bad || owner[s.id] != 0 {
			continue
		}
		switch rapid.IntRange(0, 5).Draw(t, "came before") {
		case 0:
			owner[s.id], s.stored = s.task.ID, true
		case 1:
			owner[s.id] = uint64(7 + i)
		default:
			continue
		}
		e := s.event
		e.ID, e.ExpiresIn = s.id, s.expires.Sub(s.task.Created)
		stored, err := store.StoreEvents(t.Context(), []*push.StoredEvent{push.NewStored(e, owner[s.id], s.task.Created)})
		must(t, err)
		if !s.stored {
			continue
		}
		for _, device := range slices.Sorted(maps.Keys(w.devices)) {
			of := w.devices[device]
			if rapid.IntRange(0, 3).Draw(t, "accepted") == 0 {
				s.accepted[device] = true
				must(t, store.Record(t.Context(), []push.Receipt{{Event: stored[0].Number, Member: of, Device: device, State: push.StateAccepted}}))
			}
		}
	}
	for _, s := range all { // of an id, the event of the first task counts
		if s.bad {
			continue
		}
		if owner[s.id] == 0 {
			owner[s.id] = s.task.ID
		}
		s.repeated = owner[s.id] != s.task.ID
	}
	return all
}

// mayGet is the specification: why the event is not for a device of a member, at a time, or until when it waits; zero: it
// goes at once.
func (w *targetSite) mayGet(s *said, id member.ID, device uint64, now time.Time) (why string, until time.Time) {
	e := s.event
	if s.accepted[device] {
		return "accepted", until
	}
	if !now.Before(s.expires) {
		return "expired", until
	}
	if !slices.Contains(w.members, e.Actor) {
		return "no_actor", until
	}
	if w.blocks[[2]member.ID{id, e.Actor}] || w.blocks[[2]member.ID{e.Actor, id}] {
		return "blocked", until
	}
	if strings.HasPrefix(e.Object, "photo:") && !w.maySee(id, e.Object) {
		return "not_visible", until
	}
	for thing, end := range w.mutes[id] {
		if now.Before(end) && (thing == e.Object || thing == "user:"+e.Actor.String()) {
			return "muted", until
		}
	}
	if wants, said := w.types[id][e.Type]; said && !wants {
		return "opted_out", until
	}
	if e.Urgent {
		return "", until
	}
	if q, ok := w.quiet[id]; ok {
		zone, err := time.LoadLocation(q.Zone)
		isQuiet := func(at time.Time) bool {
			minute := at.In(zone).Hour()*60 + at.In(zone).Minute()
			if q.From < q.To {
				return minute >= q.From && minute < q.To
			}
			return q.From > q.To && (minute >= q.From || minute < q.To)
		}
		if err == nil && isQuiet(now) {
			for until = now; isQuiet(until); {
				until = until.Truncate(time.Minute).Add(time.Minute)
			}
			if !until.Before(s.expires) {
				return "expired", time.Time{}
			}
		}
	}
	return "", until
}

func (w *targetSite) maySee(id member.ID, object string) bool {
	for number, p := range w.photos {
		if object != fmt.Sprintf("photo:%d", number) || !slices.Contains(w.members, p.owner) {
			continue
		}
		if p.owner == id {
			return true
		}
		as, called := w.calls[[2]member.ID{p.owner, id}]
		_, follows := w.calls[[2]member.ID{id, p.owner}]
		granted := p.visibility.ShownTo(contacts.Granted{
			Contact: called, Friend: as == "friend" || as == "both", Family: as == "family" || as == "both", Follows: follows,
		})
		return granted && !w.blocks[[2]member.ID{p.owner, id}] && !w.blocks[[2]member.ID{id, p.owner}]
	}
	return false
}

// specify returns the end of each event for each device, and what waits. looked says when the handler looked at a member for an
// event last.
func (w *targetSite) specify(all []*said, looked func(event string, id member.ID) time.Time) (ends []string) {
	for _, s := range all {
		end := func(id member.ID, device uint64, format string, args ...any) {
			ends = append(ends, fmt.Sprintf("%s: member %d device %d: ", s.id, id, device)+fmt.Sprintf(format, args...))
		}
		for device, of := range w.devices {
			if s.accepted[device] {
				end(of, device, "sent")
			}
		}
		if s.bad || s.repeated {
			continue
		}
		recipients := s.event.Recipients
		if s.event.Followers {
			for pair := range w.calls {
				if pair[1] == s.event.Actor && pair[0] != s.event.Actor {
					recipients = append(recipients, pair[0])
				}
			}
			if !s.task.Claimed.Before(s.expires) {
				end(0, 0, "skipped expired")
				continue
			}
		}
		for _, id := range recipients {
			has := false
			for device, of := range w.devices {
				if of != id || !slices.Contains(w.members, id) {
					continue
				}
				has = true
				now := looked(s.id, id)
				switch why, until := w.mayGet(s, id, device, now); {
				case why == "accepted":
				case why != "":
					end(id, device, "skipped %s", why)
				case until.IsZero():
					end(id, device, "sent")
				default:
					end(id, device, "waits for %v", until.Sub(now).Truncate(time.Second)+time.Second)
				}
			}
			if !has && !s.event.Followers {
				end(id, 0, "skipped no_device")
			}
		}
	}
	slices.Sort(ends)
	return ends
}

// shaky is a store, and followers, whose calls may fail. It notes when each candidate was looked at.
type shaky struct {
	*push.MySQL
	contacts *contacts.MySQL
	fails    func(call string) error
	looked   map[lookedKey]time.Time
}

type lookedKey struct {
	event  string
	member member.ID
}

func (s *shaky) StoreEvents(ctx context.Context, batch []*push.StoredEvent) ([]*push.StoredEvent, error) {
	if err := s.fails("store"); err != nil {
		return nil, err
	}
	return s.MySQL.StoreEvents(ctx, batch)
}

func (s *shaky) Look(ctx context.Context, candidates []push.Candidate) ([]push.Facts, error) {
	if err := s.fails("look"); err != nil {
		return nil, err
	}
	facts, err := s.MySQL.Look(ctx, candidates)
	for _, f := range facts {
		s.looked[lookedKey{candidates[f.Candidate].Event.ID, candidates[f.Candidate].Member}] = f.Now
	}
	return facts, err
}

func (s *shaky) FollowerPages(ctx context.Context, pages []contacts.FollowerPage, limit int) ([][]member.ID, error) {
	if err := s.fails("followers"); err != nil {
		return nil, err
	}
	return s.contacts.FollowerPages(ctx, pages, limit)
}

var errAway = fmt.Errorf("%w: it is away", mysql.ErrUnavailable)

// drawTargeting draws a site, its events, and how often its database is away, or a process dies.
func drawTargeting(t *rapid.T, db *sql.DB) (w *targetSite, store *shaky, all []*said, troubles *int) {
	var ms int64
	must(t, db.QueryRowContext(t.Context(), "SELECT "+mysql.Now).Scan(&ms))
	now := time.UnixMilli(ms)
	w = build(t, db, now)
	store = &shaky{MySQL: push.NewMySQL(db), contacts: contacts.NewMySQL(db), looked: map[lookedKey]time.Time{}}
	all = speak(t, w, store.MySQL, now)
	left := rapid.IntRange(0, 3).Draw(t, "troubles")
	store.fails = func(string) error {
		if left > 0 && rapid.IntRange(0, 3).Draw(t, "away") == 0 {
			left--
			return errAway
		}
		return nil
	}
	return w, store, all, &left
}

// TestPropertyTargeting compares the ends of random events in random sites with the plainest specification. Between any two steps
// the database may be away, or the process may die before the finish: then the work of a claim is done again. No message comes twice.
func TestPropertyTargeting(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	rapid.Check(t, func(t *rapid.T) {
		w, store, all, troubles := drawTargeting(t, db)
		size := rapid.SampledFrom([]int{1, 2, 3, 4, 5, 6, 7, 2000}).Draw(t, "page size")
		sender := newScripted()
		h := push.NewHandler(push.HandlerOptions{
			Store: store, Followers: store, PageSize: size, Senders: map[push.Platform]push.Sender{push.FCM: sender}, Log: slog.New(slog.DiscardHandler),
		})
		waits := run(t, h, all, troubles)
		ends := append(readEnds(t, db), named(t, db, waits)...)
		slices.Sort(ends)
		if diff := cmp.Diff(w.specify(all, func(id string, of member.ID) time.Time { return store.looked[lookedKey{id, of}] }), ends); diff != "" {
			t.Fatalf("(-specification +handler):\n%s", diff)
		}
		sent := sender.take()
		before := slices.Clone(sent)
		if len(slices.Compact(sent)) != len(before) {
			t.Fatalf("sent twice: %q", before)
		}
		for _, s := range all {
			for device := range s.accepted {
				if slices.Contains(before, fmt.Sprintf("%d %s", device, s.id)) {
					t.Fatalf("%s came to device %d again", s.id, device)
				}
			}
		}
	})
}

// run handles the tasks and their follow-ups, claim by claim, and returns the deliveries that wait.
func run(t *rapid.T, h queue.Handler, all []*said, troubles *int) (waits []queue.New) {
	var claim []queue.Task
	bad, events := map[uint64]bool{}, map[uint64]*said{}
	for _, s := range all {
		claim = append(claim, s.task)
		bad[s.task.ID], events[s.task.ID] = s.bad, s
	}
	for claims := 0; len(claim) > 0; claims++ {
		if claims > 500 {
			t.Fatal("the events have no end")
		}
		outcomes := h.Handle(t.Context(), claim)
		if *troubles > 0 && rapid.IntRange(0, 3).Draw(t, "dies") == 0 {
			*troubles--
			continue
		}
		var next []queue.Task
		for i, o := range outcomes {
			task := claim[i]
			v := queue.Judge(queue.Result{Task: task, Err: o.Err})
			if dead := v.State == queue.Dead; dead != bad[task.ID] || dead && !errors.Is(o.Err, queue.ErrInvalid) {
				t.Fatalf("%+v: %v, dead: %t", task, o.Err, dead)
			}
			if v.State != queue.Done {
				if v.State != queue.Dead {
					next = append(next, task)
				}
				continue
			}
			if _, err := tasks.Kinds().Validate(o.Next); err != nil {
				t.Fatal(err)
			}
			for _, n := range o.Next {
				if n.Kind == push.Burst {
					continue
				}
				var p push.Payload
				must(t, json.Unmarshal(n.Payload, &p))
				of := events[p.Event]
				wantQueue, priority := map[string]string{push.Target: push.QueuePush, push.Deliver: push.QueueDeliver}[n.Kind], of.task.Priority
				if of.event.Urgent {
					wantQueue, priority = push.QueueUrgent, min(priority, queue.Urgent)
				}
				if n.Queue != wantQueue || n.Priority != priority || n.Key != p.Event || n.DedupeKey != "" || n.Life != 0 || n.Kind == push.Deliver && (len(p.To) == 0 || len(p.To) > 256) {
					t.Fatalf("the event %+v is followed by %+v", of.task, n)
				}
				if n.Delay > 0 {
					waits = append(waits, n)
					continue
				}
				next = append(next, queue.Task{
					ID: uint64(1000*(claims+1) + len(next)), Kind: n.Kind, Queue: n.Queue, Key: n.Key, Payload: n.Payload, Priority: n.Priority, Attempts: 1, MaxAttempts: 25, Claimed: task.Claimed,
				})
			}
		}
		claim = next
	}
	return waits
}

// named returns deliveries that wait, as specify does.
func named(t *rapid.T, db *sql.DB, waits []queue.New) (list []string) {
	for _, n := range waits {
		var p push.Payload
		must(t, json.Unmarshal(n.Payload, &p))
		var id string
		must(t, db.QueryRowContext(t.Context(), "SELECT id FROM push_events WHERE number = ?", p.Event).Scan(&id))
		for _, to := range p.To {
			list = append(list, fmt.Sprintf("%s: member %d device %d: waits for %v", id, to.Member, to.Device, n.Delay))
		}
	}
	return list
}

// readEnds returns the receipts of the events that are stored, as specify does. An event of a burst may wait: a burst task sends it.
func readEnds(t *rapid.T, db *sql.DB) []string {
	list, err := mysql.Select(t.Context(), db, mysql.Column[string],
		"SELECT CONCAT(e.id, ': member ', r.member_id, ' device ', r.device_id, ': ', IF(r.state IN ('accepted', 'pending'), 'sent', CONCAT(r.state, ' ', r.reason)))"+
			" FROM push_receipts r JOIN push_events e ON e.number = r.event_number")
	must(t, err)
	return list
}
