package push_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
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
	members  []member.ID
	calls    map[[2]member.ID]string // the first calls the second a contact: "", "friend", "family" or "both"
	blocks   map[[2]member.ID]bool
	photos   map[uint64]sitePhoto
	devices  map[uint64]member.ID // those that live
	types    map[member.ID]map[string]bool
	quiet    map[member.ID]push.QuietHours
	mutes    map[member.ID]map[string]time.Time
	accepted map[string]time.Time // "burst device": when one of a burst was accepted last
	pending  pendingThen
}

// pendingThen is what was pending of other events just before the runs of an event for a
// device were written, by "event device".
type pendingThen map[string]pendingOthers

type pendingOthers struct {
	list     []pendingReceipt
	together bool // others wait, an attempt before had the event wait, or others are targeted with it
}

type pendingReceipt struct {
	event, member, device uint64
	burst                 string
	at                    int64
	waits                 bool // it is no part of a run
}

// note notes what is pending, but for what the receipts themselves, those of runs, say that it is.
func (p pendingThen) note(ctx context.Context, db *sql.DB, receipts []push.Receipt) error {
	all, err := mysql.Select(ctx, db, func(rows *sql.Rows) (r pendingReceipt, err error) {
		return r, rows.Scan(&r.event, &r.member, &r.device, &r.burst, &r.at, &r.waits)
	}, "SELECT event_number, member_id, device_id, HEX(burst), at, TRUE FROM push_receipts WHERE state = 'pending' UNION ALL"+
		" SELECT r.event_number, d.m, d.d, HEX(r.burst), r.at, FALSE FROM push_runs r"+
		" JOIN JSON_TABLE(r.devices, '$[*]' COLUMNS (m BIGINT PATH '$[0]', d BIGINT PATH '$[1]')) AS d WHERE r.state = 'pending'")
	for _, own := range receipts {
		if own.State != push.StatePending || own.Task == 0 {
			continue
		}
		var others pendingOthers
		for _, other := range receipts {
			others.together = others.together || other.Task != 0 && other.Event != own.Event && other.Device == own.Device && other.Burst == own.Burst
		}
		for _, r := range all {
			is := r.device == own.Device && strings.EqualFold(r.burst, fmt.Sprintf("%x", own.Burst)) && (r.waits || r.member == uint64(own.Member))
			isOwn := slices.ContainsFunc(receipts, func(own push.Receipt) bool { return own.Event == r.event && own.Device == r.device })
			others.together = others.together || is && r.waits && (!isOwn || r.event == own.Event)
			if is && !isOwn {
				others.list = append(others.list, r)
			}
		}
		p[fmt.Sprint(own.Event, own.Device)] = others
	}
	return err
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
	// Before the handler sees it, its task stored it, or another one.
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
		accepted: map[string]time.Time{}, pending: pendingThen{},
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
	run := func(number, device uint64, state string, burst [16]byte, at time.Time) {
		row("push_runs (event_number, task_id, device_id, state, burst, first_member, last_member, devices_count, devices, at)",
			"%d, %d, %d, '%s', X'%x', %[6]d, %[6]d, 1, '[[%[6]d,%[3]d]]', %[7]d", number, 5000+device, device, state, burst, w.devices[device], at.UnixMilli())
	}
	// Events of bursts that were accepted before.
	for i := range uint64(rapid.IntRange(0, 12).Draw(t, "accepted")) {
		e := push.Event{Type: anyType.Draw(t, "type"), Collapse: anyCollapse.Draw(t, "collapse")}
		device, burst := rapid.Uint64Range(1, 16).Draw(t, "device"), e.Burst()
		at := now.Add(-time.Duration(rapid.SampledFrom([]int{1, 20, 45, 61, 7200}).Draw(t, "ago")) * time.Second)
		key := fmt.Sprintf("%x %d", burst, device)
		if at.After(w.accepted[key]) {
			w.accepted[key] = at
		}
		if w.devices[device] != 0 && rapid.Bool().Draw(t, "of a page") {
			run(1e9+i, device, "accepted", burst, at)
			continue
		}
		row("push_receipts (event_number, member_id, device_id, state, at, burst)", "%d, 1, %d, 'accepted', %d, X'%x'", uint64(1e9)+i, device, at.UnixMilli(), burst)
	}
	// And events that are pending: the database may give them numbers before those of the test, or after.
	for i := range uint64(rapid.IntRange(0, 8).Draw(t, "pending")) {
		e := push.Event{Type: anyType.Draw(t, "type"), Collapse: anyCollapse.Draw(t, "collapse")}
		number := rapid.SampledFrom([]uint64{1, 2e9}).Draw(t, "number") + i
		at := now.Add(-time.Duration(rapid.SampledFrom([]int{1, 20, 45, 70}).Draw(t, "ago")) * time.Second)
		device := rapid.Uint64Range(1, 16).Draw(t, "device")
		if w.devices[device] != 0 && rapid.Bool().Draw(t, "of a page") {
			run(number, device, "pending", e.Burst(), at)
			continue
		}
		row("push_receipts (event_number, member_id, device_id, state, at, burst)", "%d, 1, %d, 'pending', %d, X'%x'",
			number, device, at.UnixMilli(), e.Burst())
	}
	for _, table := range []string{
		"users", "contacts", "blocks", "photos", "push_devices", "push_settings", "push_mutes", "push_events", "push_receipts", "push_runs",
	} {
		exec(t, db, "DELETE FROM "+table)
	}
	for into, list := range rows {
		exec(t, db, "INSERT INTO "+into+" VALUES "+strings.Join(list, ", "))
	}
	return w
}

var anyCollapse = rapid.SampledFrom([]string{"k", "upload:1", "upload:2"})

// speak draws events, and stores those that an earlier attempt, or another task, stored.
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
	for _, s := range all {
		if s.bad || owner[s.id] != 0 {
			continue
		}
		switch rapid.IntRange(0, 5).Draw(t, "came before") {
		case 0:
			owner[s.id], s.stored = s.task.ID, true
		case 1:
			owner[s.id] = 7
		default:
			continue
		}
		e := s.event
		e.ID, e.ExpiresIn = s.id, s.expires.Sub(s.task.Created)
		stored, err := store.StoreEvents(t.Context(), []push.NewEvent{{Event: e, Task: owner[s.id], Created: s.task.Created}})
		must(t, err)
		if !s.stored {
			continue
		}
		for _, device := range slices.Sorted(maps.Keys(w.devices)) {
			of := w.devices[device]
			if rapid.IntRange(0, 3).Draw(t, "accepted") == 0 {
				s.accepted[device] = true
				must(t, store.WriteReceipts(t.Context(), nil, []push.Receipt{{Event: stored[0].Number, Member: of, Device: device, State: push.StateAccepted}}))
			}
		}
	}
	for _, s := range all { // of those with an id, that of the first task counts
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

// mostDevices is how many devices a member has at most.
func (w *targetSite) mostDevices() int {
	of := map[member.ID]int{}
	most := 1
	for _, id := range w.devices {
		of[id]++
		most = max(most, of[id])
	}
	return most
}

// mayGet is the specification: why the event, which has a number, is not for a device of a
// member, at a time, or until when it waits; zero: it goes at once.
func (w *targetSite) mayGet(s *said, number uint64, id member.ID, device uint64, now time.Time) (why string, until time.Time) {
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
	last := w.accepted[fmt.Sprintf("%x %d", e.Burst(), device)]
	isSending := slices.ContainsFunc(w.pending[fmt.Sprint(number, device)].list, func(r pendingReceipt) bool {
		at := time.UnixMilli(r.at)
		return !r.waits && !at.Before(last) && !at.Before(now.Add(-time.Minute))
	})
	if e.Urgent { // it waits a second for what is being sent
		if end := now.Add(time.Second); e.Collapse != "" && isSending && end.Before(s.expires) {
			until = end
		}
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
	if e.Collapse == "" {
		return "", until
	}
	end := until
	if last.Add(time.Minute).After(end) {
		end = last.Add(time.Minute)
	}
	if isSending && now.Add(5*time.Second).After(end) {
		end = now.Add(5 * time.Second)
	}
	for _, r := range w.pending[fmt.Sprint(number, device)].list {
		pause := time.Minute
		if r.event > number {
			pause = 5 * time.Second
		}
		if last := time.UnixMilli(r.at).Add(pause); last.After(end) {
			end = last
		}
	}
	if end.After(now) && end.Before(s.expires) {
		until = end
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

// specify says which deliveries there are to be, and which receipts. looked says when the
// handler looked at a member for an event.
func (w *targetSite) specify(all []*said, numbers map[string]uint64, looked func(event string, id member.ID) time.Time) (deliveries, receipts []string) {
	for _, s := range all {
		for device, of := range w.devices {
			if s.accepted[device] {
				receipts = append(receipts, fmt.Sprintf("%s: member %d device %d: accepted ", s.id, of, device))
			}
		}
		if s.bad || s.repeated {
			continue
		}
		skip := func(id member.ID, device uint64, why string) {
			receipts = append(receipts, fmt.Sprintf("%s: member %d device %d: skipped %s", s.id, id, device, why))
		}
		recipients := s.event.Recipients
		if s.event.Followers {
			for pair := range w.calls {
				if pair[1] == s.event.Actor && pair[0] != s.event.Actor {
					recipients = append(recipients, pair[0])
				}
			}
		}
		if !s.task.Claimed.Before(s.expires) {
			if s.event.Followers {
				recipients = []member.ID{0}
			}
			for _, id := range recipients {
				skip(id, 0, "expired")
			}
			continue
		}
		for _, id := range recipients {
			has := false
			for device, of := range w.devices {
				if of != id || !slices.Contains(w.members, id) {
					continue
				}
				has = true
				now := looked(s.id, id)
				why, until := w.mayGet(s, numbers[s.id], id, device, now)
				switch why {
				case "accepted":
				case "":
					priority, wait := s.task.Priority, time.Duration(0)
					inQueue := "push"
					if s.event.Urgent {
						inQueue = "push_urgent"
						priority = min(priority, -10)
					}
					if !until.IsZero() {
						wait = until.Sub(now)
					}
					burst := ""
					if s.event.Collapse != "" && (wait > 0 || w.pending[fmt.Sprint(numbers[s.id], device)].together) {
						receipts = append(receipts, fmt.Sprintf("%s: member %d device %d: pending ", s.id, id, device))
						hash := s.event.Burst()
						burst = hex.EncodeToString(hash[:])
					}
					deliveries = append(deliveries, fmt.Sprintf("%s: member %d device %d: burst %q queue %s priority %d delay %v", s.id, id, device, burst, inQueue, priority, wait))
				default:
					skip(id, device, why)
				}
			}
			if !has && !s.event.Followers {
				skip(id, 0, "no_device")
			}
		}
	}
	slices.Sort(deliveries)
	slices.Sort(receipts)
	return deliveries, receipts
}

// shaky is a store, and followers, whose calls may fail. It notes when was looked at what.
type shaky struct {
	*push.MySQL
	contacts *contacts.MySQL
	fails    func(call string) error
	looked   map[push.Candidate]time.Time
	pending  func(receipts []push.Receipt) error // before they are written; nil: nothing is to be noted
}

func (s *shaky) StoreEvents(ctx context.Context, batch []push.NewEvent) ([]push.Stored, error) {
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
		s.looked[push.Candidate{Event: candidates[f.Candidate].Event, Member: candidates[f.Candidate].Member}] = f.Now
	}
	return facts, err
}

func (s *shaky) LastSent(ctx context.Context, bursts []push.BurstDevice) ([]push.LastSent, error) {
	if err := s.fails("last"); err != nil {
		return nil, err
	}
	return s.MySQL.LastSent(ctx, bursts)
}

func (s *shaky) WriteReceipts(ctx context.Context, held []queue.Task, receipts []push.Receipt) error {
	if err := s.fails("receipts"); err != nil {
		return err
	}
	if s.pending != nil {
		if err := s.pending(receipts); err != nil {
			return err
		}
	}
	return s.MySQL.WriteReceipts(ctx, held, receipts)
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
	store = &shaky{MySQL: push.NewMySQL(db), contacts: contacts.NewMySQL(db), looked: map[push.Candidate]time.Time{}}
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

// TestPropertyTargeting compares the follow-ups and receipts of random events in random
// sites with the plainest specification. Between any two steps the database may be away, or
// the process may die before the finish: then the work of a claim is done again.
func TestPropertyTargeting(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	exec(t, db, "ALTER TABLE push_events AUTO_INCREMENT = 1000")
	rapid.Check(t, func(t *rapid.T) {
		w, store, all, troubles := drawTargeting(t, db)
		size := rapid.SampledFrom([]int{1, 2, 3, 4, 5, 6, 7, 2000}).Draw(t, "page size")
		store.pending = func(receipts []push.Receipt) error { return w.pending.note(t.Context(), db, receipts) }
		g := push.NewTargeting(push.TargetingOptions{Store: store, Followers: store, PageSize: size})
		numbers, made := run(t, db, w, g, all, size, troubles)
		looked := func(id string, of member.ID) time.Time {
			return store.looked[push.Candidate{Event: numbers[id], Member: of}]
		}
		deliveries, receipts := w.specify(all, numbers, looked)
		slices.Sort(made)
		if diff := cmp.Diff(deliveries, made); diff != "" {
			t.Fatalf("deliveries (-specification +handler):\n%s", diff)
		}
		if diff := cmp.Diff(receipts, readReceipts(t, db)); diff != "" {
			t.Fatalf("receipts (-specification +handler):\n%s", diff)
		}
	})
}

// TestPropertyHandler is TestPropertyTargeting for the handler that sends small events itself. Each device that an event is
// for, by the specification, gets one message of it or has one delivery, whatever fails and dies: a message only if nothing keeps it
// waiting, with a receipt that it was accepted. All other receipts are as the specification says.
func TestPropertyHandler(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	exec(t, db, "ALTER TABLE push_events AUTO_INCREMENT = 1000")
	rapid.Check(t, func(t *rapid.T) {
		w, store, all, troubles := drawTargeting(t, db)
		size := rapid.SampledFrom([]int{1, 2, 4, 7, 2000, 2000}).Draw(t, "page size")
		sender := &recorder{}
		d := push.NewDeliveries(push.DeliveryOptions{
			Store: store.MySQL, Senders: map[push.Platform]push.Sender{push.FCM: sender}, Log: slog.New(slog.DiscardHandler), Patience: time.Minute, Timeout: time.Minute,
		})
		defer d.Wait()
		h := push.Handler{Targeting: push.NewTargeting(push.TargetingOptions{Store: store, Followers: store, PageSize: size}), Deliveries: d}
		numbers, made := run(t, db, w, h, all, size, troubles)
		specified, receipts := w.specify(all, numbers, func(id string, of member.ID) time.Time {
			return store.looked[push.Candidate{Event: numbers[id], Member: of}]
		})
		place := func(line string) string { return line[:strings.LastIndex(line, ": ")] }
		got, want := map[string]string{}, map[string]string{}
		for _, line := range specified {
			want[place(line)] = line
		}
		for _, line := range made {
			if got[place(line)] != "" || want[place(line)] == "" {
				t.Fatalf("%s, specified as %q, is delivered once more", line, want[place(line)])
			}
			got[place(line)] = line
		}
		accepted := map[string]bool{}
		for _, m := range sender.sent {
			line := fmt.Sprintf("%s: member %d device %d", m.Event, m.Device.Member, m.Device.ID)
			is := want[line]
			if got[line] != "" || is == "" || !strings.HasSuffix(is, "delay 0s") || m.Count != 1 {
				t.Fatalf("%s, specified as %q, is sent, with the count %d, beside %q", line, is, m.Count, got[line])
			}
			got[line], accepted[line] = "sent", true
		}
		for line := range want {
			if got[line] == "" {
				t.Fatalf("%s is neither sent nor delivered", want[line])
			}
		}
		receipts = slices.DeleteFunc(receipts, func(line string) bool { return strings.HasSuffix(line, ": pending ") })
		for line := range accepted {
			receipts = append(receipts, line+": accepted ")
		}
		for line, is := range got {
			if !accepted[line] && !strings.Contains(is, `burst ""`) {
				receipts = append(receipts, line+": pending ")
			}
		}
		slices.Sort(receipts)
		found := readReceipts(t, db)
		for i, line := range found { // what an attempt that died has marked stays so
			found[i] = regexp.MustCompile(`: pending unanswered: task \d+$`).ReplaceAllString(line, ": pending ")
		}
		slices.Sort(found)
		if !slices.Equal(receipts, found) {
			t.Fatalf("receipts (-specification +handler):\n%s", cmp.Diff(receipts, found))
		}
	})
}

// run handles the tasks and their follow-ups, in one claim after the other, and returns the
// numbers of the events by their ids, and the deliveries.
func run(t *rapid.T, db *sql.DB, w *targetSite, g queue.Handler, all []*said, size int, troubles *int) (numbers map[string]uint64, made []string) {
	var claim []queue.Task
	bad := map[uint64]bool{}
	for _, s := range all {
		claim = append(claim, s.task)
		bad[s.task.ID] = s.bad
	}
	of := map[uint64]string{}
	var waiting []queue.New
	for claims := 0; len(claim) > 0; claims++ {
		if claims > 500 {
			t.Fatal("the events have no end")
		}
		outcomes := g.Handle(t.Context(), claim)
		if *troubles > 0 && rapid.IntRange(0, 3).Draw(t, "dies") == 0 {
			*troubles--
			continue
		}
		var next []queue.Task
		fresh := 0
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
			deliveries := 0
			for _, n := range o.Next {
				if n.Kind == push.Target {
					next = append(next, queue.Task{
						ID: uint64(1000*(claims+1) + len(next)), Kind: n.Kind, Key: n.Key, Payload: n.Payload, Priority: n.Priority, Attempts: 1, MaxAttempts: 25, Claimed: task.Claimed,
					})
					continue
				}
				deliveries++
				waiting = append(waiting, n)
			}
			if most := size - 1 + w.mostDevices(); deliveries > most {
				t.Fatalf("a page of %d makes %d deliveries", size, deliveries)
			}
			fresh += deliveries
		}
		if most := 2*(size-1+w.mostDevices()) + 2*size - 1; fresh > most {
			t.Fatalf("a claim makes %d deliveries, in pages of %d", fresh, size)
		}
		claim = next
	}
	numbers = map[string]uint64{}
	rows, err := db.QueryContext(t.Context(), "SELECT number, id FROM push_events")
	must(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var number uint64
		var id string
		must(t, rows.Scan(&number, &id))
		numbers[id], of[number] = number, id
	}
	must(t, rows.Err())
	for _, n := range waiting {
		var d push.Delivery
		must(t, json.Unmarshal(n.Payload, &d))
		if key, err := push.DeliverKey(n.Key, n.Payload); err != nil || d.Burst != "" && key != n.DedupeKey || d.Burst == "" && n.DedupeKey != "" || n.Kind != push.Deliver || n.Life != 0 {
			t.Fatalf("the delivery is %+v, and its key %q, %v", n, key, err)
		}
		if len(d.To) > 256 || d.Burst != "" && len(d.To) > 1 {
			t.Fatalf("a delivery is for %d devices: %+v", len(d.To), n)
		}
		for _, to := range d.To {
			made = append(made, fmt.Sprintf("%s: member %d device %d: burst %q queue %s priority %d delay %v", of[d.Event], to.Member, to.Device, d.Burst, n.Queue, n.Priority, n.Delay))
		}
	}
	return numbers, made
}

// readReceipts returns the receipts of the events that are stored.
func readReceipts(t *rapid.T, db *sql.DB) []string {
	list, err := mysql.Select(t.Context(), db, mysql.Column[string],
		"SELECT CONCAT(e.id, ': member ', r.member_id, ' device ', r.device_id, ': ', r.state, ' ', r.reason) FROM push_receipts r JOIN push_events e ON e.number = r.event_number"+
			" UNION ALL SELECT CONCAT(e.id, ': member ', d.m, ' device ', d.d, ': accepted ') FROM push_runs r JOIN push_events e ON e.number = r.event_number,"+
			" JSON_TABLE(r.devices, '$[*]' COLUMNS (m INT PATH '$[0]', d INT PATH '$[1]')) AS d WHERE r.state = 'accepted'")
	must(t, err)
	slices.Sort(list)
	return list
}
