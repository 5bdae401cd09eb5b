package broadcast_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/broadcast"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// ground is a site on real servers with 90 followers of member 1001, who each follow 12 others, too.
type ground struct {
	*testing.T
	db     *sql.DB
	client redis.UniversalClient
	server *localserver.Redis // nil: there is a cluster
	store  *contacts.MySQL
	truth  broadcast.Truth
	index  *index.Index
	queue  *queue.Queue
	admin  *broadcast.Admin
	// broadcastAt is with how many followers members join by themselves; 0: none does.
	broadcastAt int
}

const (
	followers = 90
	partSize  = followers / 3 // of a fan-out
	fewer     = followers / 3 // of them are left when some go
	star      = member.ID(1001)
)

func newGround(t *testing.T) *ground {
	t.Helper()
	r := servertest.Redis(t)
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: r.Addr(), ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	g := newGroundOn(t, client)
	g.server = r
	return g
}

func newGroundOn(t *testing.T, client redis.UniversalClient) *ground {
	t.Helper()
	db, err := mysql.Open(servertest.MySQLDSN(t), mysql.WithMaxOpen(8))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	settings, err := index.NewSettings(10, 20, 0)
	if err != nil {
		t.Fatal(err)
	}
	g := &ground{T: t, db: db, client: client, store: contacts.NewMySQL(db), index: index.New(client, index.Options{Settings: settings})}
	g.truth = broadcast.Truth{Store: g.store}
	g.queue = queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Owner: "test"})
	g.admin = &broadcast.Admin{DB: db, Queue: g.queue, Tasks: tasks.NewBroadcast}
	var users, rows, photos []string
	for id := 1; id <= followers; id++ {
		users = append(users, fmt.Sprintf("(%d, 'f', NULL)", id))
		rows = append(rows, fmt.Sprintf("(%d, %d)", id, star))
		for c := 2001; c <= 2012; c++ {
			rows = append(rows, fmt.Sprintf("(%d, %d)", id, c))
		}
	}
	for c := 2001; c <= 2012; c++ {
		users = append(users, fmt.Sprintf("(%d, 'c', %d)", c, c))
		photos = append(photos, fmt.Sprintf("(%d, 'public', %d)", c, c))
	}
	users = append(users, fmt.Sprintf("(%d, 'star', NULL)", star))
	g.exec("INSERT INTO users (id, username, last_upload) VALUES " + strings.Join(users, ","))
	g.exec("INSERT INTO contacts (user_id, contact_id) VALUES " + strings.Join(rows, ","))
	g.exec("INSERT INTO photos (owner_id, visibility, date_upload) VALUES " + strings.Join(photos, ","))
	for id := member.ID(1); id <= followers; id++ {
		g.enqueue(tasks.NewRefill(id))
	}
	g.work()
	return g
}

func (g *ground) exec(query string, args ...any) {
	g.Helper()
	if _, err := g.db.ExecContext(g.Context(), query, args...); err != nil {
		g.Fatalf("%.100s: %v", query, err)
	}
}

func (g *ground) enqueue(n ...queue.New) {
	g.Helper()
	if _, err := g.queue.Enqueue(g.Context(), n); err != nil {
		g.Fatal(err)
	}
}

// work does all tasks that there are, also those that are due later, but for looks.
func (g *ground) work() {
	g.Helper()
	ctx, cancel := context.WithCancel(g.Context())
	defer cancel()
	handlers := tasks.Handlers(g.index, g.truth, g.queue, tasks.HandlerOptions{PartSize: partSize, BroadcastAt: g.broadcastAt})
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		done := 0
		for _, w := range tasks.DefaultWorkers() {
			claimed, err := g.queue.Claim(ctx, w.Queue, 100, time.Minute)
			if err != nil {
				g.Fatal(err)
			}
			done += len(claimed)
			for _, t := range claimed {
				o := handlers[t.Kind].Handle(ctx, []queue.Task{t})[0]
				if o.Err != nil && !strings.Contains(o.Err.Error(), "not finished") {
					g.Fatalf("%s %d: %v", t.Kind, t.Key, o.Err)
				}
				if _, err := g.queue.Finish(ctx, []queue.Result{{Task: t, Err: o.Err, Next: o.Next}}); err != nil {
					g.Fatal(err)
				}
			}
		}
		left, err := g.queue.List(ctx, queue.Filter{}, 100)
		if err != nil {
			g.Fatal(err)
		}
		if done == 0 && len(left) == g.looks() {
			return
		}
		g.exec("UPDATE parked_tasks SET due_at = 1 WHERE state = 'scheduled' AND type <> 'broadcast_look'") // nothing waits for its time here
		if _, err := g.queue.Sweep(ctx); err != nil {
			g.Fatal(err)
		}
	}
	g.Fatal("tasks are left")
}

// looks returns how many looks are to come.
func (g *ground) looks() (n int) {
	g.Helper()
	if err := g.db.QueryRowContext(g.Context(), "SELECT COUNT(*) FROM parked_tasks WHERE type = 'broadcast_look'").Scan(&n); err != nil {
		g.Fatal(err)
	}
	return n
}

// look has the looks come that are to come.
func (g *ground) look() {
	g.Helper()
	if g.looks() != 1 {
		g.Fatalf("%d looks are to come, want 1", g.looks())
	}
	g.exec("UPDATE parked_tasks SET due_at = 1")
	if _, err := g.queue.Sweep(g.Context()); err != nil {
		g.Fatal(err)
	}
	g.work()
}

// is expects the star to be in a state.
func (g *ground) is(want contacts.Broadcast) {
	g.Helper()
	rows, err := g.store.Broadcasts(g.Context(), []member.ID{star})
	got := rows[star]
	if got.Change = 0; err != nil || got != want {
		g.Fatalf("the star is %+v, %v, want %+v", got, err, want)
	}
}

// upload has the star upload a photo.
func (g *ground) upload(date uint64) {
	g.Helper()
	g.exec("INSERT INTO photos (owner_id, visibility, date_upload) VALUES (?, 'public', ?)", star, date)
	g.exec("UPDATE users SET last_upload = ? WHERE id = ?", date, star)
	g.enqueue(tasks.NewUpload(star))
	g.work()
}

// shown reads for all followers, and expects the star's photo of that date, from the index.
func (g *ground) shown(date uint64) {
	g.Helper()
	reader := recent.NewReader(g.index, g.store, noHints{}, recent.Options{IndexWait: time.Minute})
	for v := member.ID(1); v <= followers; v++ {
		a, err := reader.Read(g.Context(), contacts.Viewer{ID: v}, 10)
		if err != nil {
			g.Fatal(err)
		}
		if a.Source != recent.FromIndex || a.Contact == nil || a.Contact.ID != star || a.Photos[0].DateUpload != date {
			g.Fatalf("viewer %d: %+v, from the %s (%s), want the star's of %d", v, a.Album, a.Source, a.Trace.WalkReason, date)
		}
	}
}

type noHints struct{}

func (noHints) Refill(member.ID)               {}
func (noHints) LookAgain(member.ID, member.ID) {}

// scores returns the scores of the star in the sets of its followers.
func (g *ground) scores() (list []uint64) {
	g.Helper()
	for _, s := range g.index.Look(g.Context(), g.followerIDs()) {
		if s.Err != nil {
			g.Fatal(s.Err)
		}
		for _, e := range s.Members {
			if e.Contact == star {
				list = append(list, e.Score)
			}
		}
	}
	return list
}

func (g *ground) followerIDs() (ids []member.ID) {
	for id := member.ID(1); id <= followers; id++ {
		ids = append(ids, id)
	}
	return ids
}

// An upload of a broadcast member is a write to each copy and none to a follower's set. When it ceases to be one, all
// have it.
func TestAMemberComesAndGoes(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.upload(5000)
	g.shown(5000)
	if changed, err := g.admin.Add(t.Context(), star); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if changed, err := g.admin.Add(t.Context(), star); err != nil || changed {
		t.Fatal("added twice:", changed, err)
	}
	g.work()
	if list, err := g.admin.List(t.Context()); err != nil || len(list) != 1 || list[0].State != contacts.Joined || list[0].ID != star || !list[0].Exists {
		t.Fatalf("%+v, %v", list, err)
	}
	before := g.writes()
	g.upload(6000)
	if n := g.writes() - before; n > int64(2*len(member.Copies)) {
		t.Errorf("%d ZADD for an upload, want at most two for each copy", n)
	}
	if got := slices.Compact(g.scores()); !slices.Equal(got, []uint64{5000}) {
		t.Errorf("scores in the sets of followers: %v, want 5000", got)
	}
	g.shown(6000)
	if changed, err := g.admin.Remove(t.Context(), star); err != nil || !changed {
		t.Fatal(changed, err)
	}
	g.shown(6000)
	g.work()
	if got := g.scores(); len(got) != followers || slices.Max(got) != 6000 || slices.Min(got) != 6000 {
		t.Errorf("scores in the sets of followers: %v, want 6000 in each", slices.Compact(got))
	}
	for _, id := range member.Copies {
		if n, err := g.client.Exists(t.Context(), index.UserKey(id)).Result(); err != nil || n != 0 {
			t.Errorf("a copy is left: %d, %v", n, err)
		}
	}
	g.shown(6000)
	if _, err := g.admin.Remove(t.Context(), star); !errors.Is(err, broadcast.ErrNone) {
		t.Errorf("removed twice: %v", err)
	}
	if _, err := g.admin.Add(t.Context(), 999_999); !errors.Is(err, contacts.ErrNoMember) {
		t.Errorf("added a member that does not exist: %v", err)
	}
}

// A member whose fan-out comes to too many followers becomes a broadcast member, and the rest of that fan-out is spared. With
// half as many it ceases to be one, unless it is named.
func TestAMemberComesAndGoesByItself(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.broadcastAt = followers + 1
	g.upload(5000)
	g.is(contacts.Broadcast{})
	g.broadcastAt = 2 * fewer
	g.upload(6000)
	g.is(contacts.Broadcast{State: contacts.Joined})
	before := g.writes()
	g.upload(7000)
	if n := g.writes() - before; n > int64(2*len(member.Copies)) {
		t.Errorf("%d ZADD for an upload, want at most two for each copy", n)
	}
	g.shown(7000)
	g.look()
	g.is(contacts.Broadcast{State: contacts.Joined})
	g.exec("DELETE FROM contacts WHERE contact_id = ? AND user_id >= ?", star, fewer)
	g.look()
	g.is(contacts.Broadcast{})
	if got := g.scores(); slices.Index(got, 6000) >= 0 && slices.Index(got, 6000) < fewer-1 || got[0] != 7000 {
		t.Errorf("scores in the sets: %v, want 7000 in those of the %d followers", got, fewer-1)
	}
	g.broadcastAt = fewer - 1
	g.upload(8000)
	g.is(contacts.Broadcast{State: contacts.Joined})
	if changed, err := g.admin.Add(t.Context(), star); err != nil || changed {
		t.Fatal("naming one changed its state:", changed, err)
	}
	g.exec("DELETE FROM contacts WHERE contact_id = ?", star)
	g.look()
	g.is(contacts.Broadcast{State: contacts.Joined, Named: true})
	if g.looks() != 0 {
		t.Error("one that is named is looked at again")
	}
}

// The next look, which is always to come, explains nothing that a copy lacks, nor that a follower's set is lost.
func TestALookToComeIsNoLag(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.broadcastAt = 2 * fewer
	g.upload(6000)
	g.is(contacts.Broadcast{State: contacts.Joined})
	if g.looks() != 1 {
		t.Fatalf("%d looks are to come, want 1", g.looks())
	}
	copyID, follower := member.Copies[3], member.ID(7)
	if err := g.client.ZAdd(t.Context(), index.UserKey(copyID), redis.Z{Member: star.String(), Score: 5000}).Err(); err != nil {
		t.Fatal(err)
	}
	if err := g.client.Del(t.Context(), index.UserKey(follower)).Err(); err != nil {
		t.Fatal(err)
	}
	a := audit.New(audit.Options{Sets: g.index, Truth: g.truth, Tasks: g.queue, Pause: time.Millisecond})
	damaged := []member.ID{follower, copyID}
	r, err := a.Check(t.Context(), damaged)
	if err != nil || r.Erroneous != 2 {
		t.Fatalf("%+v, %v, want the errors of a copy and of a follower", r, err)
	}
	if _, err := a.Repair(t.Context(), damaged); err != nil {
		t.Fatal(err)
	}
	g.work()
	if r, err := a.Check(t.Context(), damaged); err != nil || len(r.Findings) > 0 {
		t.Errorf("after the repair: %+v, %v", r, err)
	}
}

// A command that is repeated goes on with a change whose task is gone.
func TestACommandIsRepeated(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	for _, step := range []struct {
		do           func(context.Context, member.ID) (bool, error)
		during, then contacts.Broadcast
	}{
		{g.admin.Add, contacts.Broadcast{State: contacts.Joining, Named: true}, contacts.Broadcast{State: contacts.Joined, Named: true}},
		{g.admin.Remove, contacts.Broadcast{State: contacts.Leaving}, contacts.Broadcast{}},
	} {
		if changed, err := step.do(t.Context(), star); err != nil || !changed {
			t.Fatal(changed, err)
		}
		g.exec("DELETE FROM tasks WHERE type = 'broadcast'")
		g.work()
		g.is(step.during)
		if changed, err := step.do(t.Context(), star); err != nil || changed {
			t.Fatal(changed, err)
		}
		g.work()
		g.is(step.then)
	}
}

// Where no number of followers makes members broadcast members, those that are not named are looked at, too, and cease to be.
func TestNoNumberOfFollowers(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.broadcastAt = 2 * fewer
	g.upload(6000)
	g.look()
	g.is(contacts.Broadcast{State: contacts.Joined})
	g.broadcastAt = 0
	g.look()
	g.is(contacts.Broadcast{})
	change := contacts.NewChange() // joins by a process with the number, and is settled by one without
	g.exec("INSERT INTO broadcast_members (member_id, state, change_id) VALUES (?, 'joining', ?)", star, change)
	g.enqueue(tasks.NewBroadcast(star, change, true)...)
	g.work()
	g.is(contacts.Broadcast{State: contacts.Joined})
	g.look()
	g.is(contacts.Broadcast{})
}

// The look may be done again after a crash at each step.
func TestALookThatIsRepeated(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, whole)
	ctx := t.Context()
	h := tasks.BroadcastHandler{UploadHandler: tasks.UploadHandler{Index: unslotted{s}, Store: broadcast.Truth{Store: s.store}, Queue: s.queue, PartSize: 2, BroadcastAt: 2 * (viewers + 1)}}
	do := func(kind, payload string) []queue.New {
		t.Helper()
		o := h.Handle(ctx, []queue.Task{{Kind: kind, Key: uploader, Payload: json.RawMessage(payload)}})[0]
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		return o.Next
	}
	first, again := do(tasks.Broadcast, `{}`), do(tasks.Broadcast, `{}`)
	if len(first) != 1+len(member.Copies) || fmt.Sprint(first) != fmt.Sprint(again) {
		t.Fatalf("a member joins by %v, and again by %v", first, again)
	}
	var change int
	if _, err := fmt.Sscanf(string(first[0].Payload), `{"change":%d}`, &change); err != nil {
		t.Fatal(err)
	}
	settled, look := fmt.Sprintf(`{"change":%d,"settled":true}`, change), fmt.Sprintf(`{"change":%d}`, change)
	for range 2 {
		if next := do(tasks.Broadcast, settled); len(next) != 1 || next[0].Kind != tasks.BroadcastLook || string(next[0].Payload) != look || next[0].Delay < time.Hour {
			t.Fatalf("after %s comes %v, want %s", settled, next, look)
		}
	}
	want := fmt.Sprintf(`{"change":%d}`, change+1)
	for range 2 {
		if next := do(tasks.BroadcastLook, look); len(next) != 1 || next[0].Kind != tasks.Broadcast || string(next[0].Payload) != want {
			t.Fatalf("after %s comes %v, want %s", look, next, want)
		}
	}
	if next := do(tasks.Broadcast, settled); len(next) != 0 {
		t.Errorf("a late task of joining goes on: %v", next)
	}
	if rows, err := s.store.Broadcasts(ctx, []member.ID{uploader}); err != nil || rows[uploader] != (contacts.Broadcast{State: contacts.Leaving, Change: uint64(change) + 1}) {
		t.Errorf("%+v, %v", rows, err)
	}
}

// writes returns how many ZADD commands Redis has done.
func (g *ground) writes() (n int64) {
	g.Helper()
	info, err := g.client.Info(g.Context(), "commandstats").Result()
	if err != nil {
		g.Fatal(err)
	}
	if _, rest, ok := strings.Cut(info, "cmdstat_zadd:calls="); ok {
		_, _ = fmt.Sscanf(rest, "%d", &n)
	}
	return n
}

// A fan-out of a change that was taken back does not end the next one.
func TestAChangeThatWasTakenBackEnds(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, whole)
	ctx := t.Context()
	store := broadcast.Truth{Store: s.store}
	h := tasks.BroadcastHandler{UploadHandler: tasks.UploadHandler{Index: unslotted{s}, Store: store, Queue: s.queue, PartSize: 2}}
	for v := member.ID(1); v <= viewers; v++ {
		s.store.SetContact(v, uploader, false, false)
	}
	s.store.SetLastUpload(uploader, 200)
	s.store.SetBroadcast(uploader, contacts.Broadcast{State: contacts.Leaving, Change: 1})
	task := func(change int) queue.Task {
		return queue.Task{Kind: tasks.Broadcast, Key: uploader, Payload: json.RawMessage(fmt.Sprintf(`{"change":%d}`, change))}
	}
	next := h.Handle(ctx, []queue.Task{task(1)})[0]
	if next.Err != nil || len(next.Next) != 1 {
		t.Fatalf("%+v, want a next part", next)
	}
	s.store.SetBroadcast(uploader, contacts.Broadcast{State: contacts.Leaving, Change: 2})
	n := next.Next[0]
	if o := h.Handle(ctx, []queue.Task{{Kind: n.Kind, Key: n.Key, Payload: n.Payload}})[0]; o.Err != nil || len(o.Next) != 0 {
		t.Errorf("%+v: the former change goes on", o)
	}
	settled := queue.Task{Kind: tasks.Broadcast, Key: uploader, Payload: json.RawMessage(`{"change":1,"settled":true}`)}
	if o := h.Handle(ctx, []queue.Task{settled})[0]; o.Err != nil || len(o.Next) != 0 {
		t.Errorf("%+v", o)
	}
	if rows, err := s.store.Broadcasts(ctx, []member.ID{uploader}); err != nil || rows[uploader].Change != 2 {
		t.Errorf("%+v, %v: the former change took it away", rows, err)
	}
}

type unslotted struct{ *stage }

func (u unslotted) Settings() index.Settings { return u.sets.Settings() }

func (u unslotted) Begin(ctx context.Context, users []member.ID) []index.Update {
	return u.sets.Begin(ctx, users)
}

func (u unslotted) Apply(ctx context.Context, c []index.Change) []index.Result {
	return u.sets.Apply(ctx, c)
}

func (u unslotted) Add(ctx context.Context, a []index.Addition) ([]member.ID, map[member.ID]error) {
	return u.sets.Add(ctx, a)
}

func (unslotted) SlotsOf(context.Context, map[member.ID]error) index.Slots { return index.Slots{} }

// MySQL's answers about broadcast members are those of the specification.
func TestMySQLAnswersAsMemory(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.exec("INSERT INTO broadcast_members (member_id, state, change_id) VALUES (2001, 'broadcast', 7), (2002, 'leaving', 8), (77777, 'joining', 9), (1001, 'joining', 10)")
	got, err := g.store.Broadcasts(t.Context(), []member.ID{2001, 2002, 2003, 77777})
	want := map[member.ID]contacts.Broadcast{2001: {State: contacts.Joined, Change: 7}, 2002: {State: contacts.Leaving, Change: 8}, 77777: {State: contacts.Joining, Change: 9}}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	list, some, err := g.store.BroadcastUploads(t.Context())
	contacts.SortByRecency(list)
	if err != nil || !some || fmt.Sprint(list) != "[{2002 2002} {2001 2001} {1001 0}]" {
		t.Errorf("%v, %t, %v", list, some, err)
	}
	album, related, err := g.store.VisiblePhotosAnd(t.Context(), contacts.Viewer{ID: 1}, 2005, 10, []member.ID{2001, 77777, 2, star})
	slices.Sort(related)
	plain, err2 := g.store.VisiblePhotos(t.Context(), contacts.Viewer{ID: 1}, 2005, 10)
	if err != nil || err2 != nil || !album.IsSame(plain) || len(album.Photos) != 1 || album.Photos[0] != plain.Photos[0] || *album.Contact != *plain.Contact {
		t.Errorf("%+v, %v, want %+v, %v", album, err, plain, err2)
	}
	if !slices.Equal(related, []member.ID{star, 2001}) {
		t.Errorf("contacts %v", related)
	}
	of := []contacts.FollowerPage{{Of: 2001}, {Of: 2002}, {Of: 2002, After: 1}, {Of: 2003}}
	pages, states, err := g.store.FollowerPagesAnd(t.Context(), of, 3)
	all, err2 := g.store.FollowerPages(t.Context(), of, 3)
	if err != nil || err2 != nil || len(all[0]) == 0 {
		t.Fatal(all, err, err2)
	}
	all[0] = nil
	if fmt.Sprint(pages) != fmt.Sprint(all) || fmt.Sprint(states) != "map[2001:broadcast 2002:leaving]" {
		t.Errorf("pages %v, want %v; states %v", pages, all, states)
	}
	if err := g.store.ChangeBroadcast(t.Context(), 2001, contacts.Broadcast{State: contacts.Joined, Change: 6}, contacts.Broadcast{}); err != nil {
		t.Error(err)
	}
	if err := g.store.ChangeBroadcast(t.Context(), 2002, contacts.Broadcast{State: contacts.Leaving, Change: 8}, contacts.Broadcast{}); err != nil {
		t.Error(err)
	}
	if got, err := g.store.Broadcasts(t.Context(), []member.ID{2001, 2002}); err != nil || len(got) != 1 || got[2001].State != contacts.Joined {
		t.Errorf("%v, %v: another change was taken for this one", got, err)
	}
}
