package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/broadcast"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// What broadcast members cost reads, and what they spare uploads.

// followings are how many of a thousand broadcast members a viewer follows. Each follows othersFollowed members more.
var followings = []int{0, 10, 900}

const (
	othersFollowed = 200
	// firstFan is the first of the viewers of these parts; those that follow as many broadcast members come together.
	firstFan = 600_001
	// quietFan follows three members that uploaded before all broadcast members, and none of these.
	quietFan = firstFan - 1
)

// broadcasts is a site with broadcast members, and beside its sets those that there were without.
type broadcasts struct {
	*suite
	members []member.ID // the broadcast members
	fans    [][]member.ID
	plain   *index.Index // sets to which all uploads were written
	close   func() error
}

// benchBroadcast measures both.
func (s *suite) benchBroadcast(ctx context.Context) error {
	b, err := s.newBroadcasts(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = b.close() }()
	for _, often := range []int{1, 7} {
		if err := b.uploadOften(ctx, often); err != nil {
			return err
		}
		if err := b.reads(ctx, often); err != nil {
			return err
		}
	}
	if err := b.forget(ctx); err != nil {
		return err
	}
	if err := s.broadcastUpload(ctx); err != nil {
		return err
	}
	return b.forget(ctx)
}

// newBroadcasts makes the viewers. Their sets are as old as if all broadcast members had uploaded since.
func (s *suite) newBroadcasts(ctx context.Context) (*broadcasts, error) {
	site := s.options.site
	b := &broadcasts{suite: s}
	for i := range min(1000, site.Members/2) {
		b.members = append(b.members, member.ID(firstMember+i))
	}
	random := rand.New(rand.NewPCG(1, 2))
	users, rows := []string{fmt.Sprintf("(%d, 'quiet fan')", quietFan)}, []string{}
	var all []member.ID
	for i, n := range followings {
		var fans []member.ID
		for range s.options.circles {
			id := member.ID(firstFan + len(users) - 1)
			users = append(users, fmt.Sprintf("(%d, 'fan')", id))
			for _, k := range random.Perm(len(b.members))[:n*len(b.members)/1000] {
				rows = append(rows, fmt.Sprintf("(%d, %d)", id, b.members[k]))
			}
			for _, k := range random.Perm(site.Members - len(b.members))[:min(othersFollowed, site.Members-len(b.members))] {
				rows = append(rows, fmt.Sprintf("(%d, %d)", id, firstMember+len(b.members)+k))
			}
			fans = append(fans, id)
		}
		b.fans = append(b.fans, fans)
		all = append(all, b.fans[i]...)
	}
	for i := range 3 {
		rows = append(rows, fmt.Sprintf("(%d, %d)", quietFan, firstOld+i))
	}
	if err := s.insertAll(ctx, "users (id, username)", users); err != nil {
		return nil, err
	}
	if err := s.insertAll(ctx, "contacts (user_id, contact_id)", rows); err != nil {
		return nil, err
	}
	other := *s.client.Options()
	other.DB = 1
	client := redis.NewClient(&other)
	b.close = client.Close
	var err error
	if b.plain, err = newIndex(client); err != nil {
		return nil, err
	}
	const move = "UPDATE users SET last_upload = last_upload %s 60000000 WHERE id BETWEEN ? AND ? AND last_upload > 0"
	if _, err := s.db.ExecContext(ctx, fmt.Sprintf(move, "-"), b.members[0], b.members[len(b.members)-1]); err != nil {
		return nil, err
	}
	if err := s.fill(ctx, append(all, quietFan)); err != nil {
		return nil, err
	}
	_, err = s.db.ExecContext(ctx, fmt.Sprintf(move, "+"), b.members[0], b.members[len(b.members)-1])
	return b, err
}

// insertAll inserts rows.
func (s *suite) insertAll(ctx context.Context, into string, rows []string) error {
	for len(rows) > 0 {
		some := rows[:min(5000, len(rows))]
		rows = rows[len(some):]
		if _, err := s.db.ExecContext(ctx, "INSERT INTO "+into+" VALUES "+strings.Join(some, ",")); err != nil {
			return err
		}
	}
	return nil
}

// uploadOften makes the times since the last uploads of the broadcast members a fraction, and makes the copies, and the sets
// that there would be without broadcast members.
func (b *broadcasts) uploadOften(ctx context.Context, often int) error {
	first, last := b.members[0], b.members[len(b.members)-1]
	for _, change := range []string{
		"UPDATE users SET last_upload = ? - (? - last_upload) DIV ? WHERE id BETWEEN ? AND ? AND last_upload > 0",
		"UPDATE photos SET date_upload = ? - (? - date_upload) DIV ? WHERE owner_id BETWEEN ? AND ?",
	} {
		if _, err := b.db.ExecContext(ctx, change, epoch, epoch, often, first, last); err != nil {
			return err
		}
	}
	if _, err := b.db.ExecContext(ctx, "INSERT IGNORE INTO broadcast_members (member_id, state, change_id, named) SELECT id, 'broadcast', id, 1 FROM users WHERE id BETWEEN ? AND ?", first, last); err != nil {
		return err
	}
	copies := &tasks.RefillHandler{Index: b.index, Store: broadcast.Truth{Store: b.store}}
	if err := inParallel(ctx, 1, refillBatch, member.Copies[:], refillOf(copies)); err != nil {
		return err
	}
	plain := &tasks.RefillHandler{Index: b.plain, Store: b.store}
	for _, fans := range b.fans {
		if err := inParallel(ctx, 1, refillBatch, fans, refillOf(plain)); err != nil {
			return err
		}
	}
	return nil
}

// forget takes all broadcast members away.
func (b *broadcasts) forget(ctx context.Context) error {
	if _, err := b.db.ExecContext(ctx, "DELETE FROM broadcast_members"); err != nil {
		return err
	}
	return b.client.Del(ctx, copyKeys()...).Err()
}

func copyKeys() (keys []string) {
	for _, id := range member.Copies {
		keys = append(keys, index.UserKey(id))
	}
	return keys
}

// noBroadcasts is a store without broadcast members.
type noBroadcasts struct{ *contacts.MySQL }

// AnyBroadcast implements [recent.Store].
func (noBroadcasts) AnyBroadcast(context.Context) (bool, error) { return false, nil }

// reads compares reads with broadcast members and without. The viewers take turns.
func (b *broadcasts) reads(ctx context.Context, often int) error {
	options := recent.Options{IndexWait: time.Minute}
	var list []contender
	proofs := make(map[string]map[string]int)
	name := func(with string, n int) string { return fmt.Sprintf("%s, a viewer who follows %d of them", with, n) }
	const none, thousand = "written to all sets", "1000 broadcast members"
	for i, n := range followings {
		for with, reader := range map[string]*recent.Reader{
			none:     recent.NewReader(b.plain, noBroadcasts{b.store}, noHints{}, options),
			thousand: recent.NewReader(b.index, b.store, noHints{}, options),
		} {
			turn, seen := 0, make(map[string]int)
			proofs[name(with, n)] = seen
			list = append(list, contender{name: name(with, n), run: func(ctx context.Context) (int, error) {
				viewer := b.fans[i][turn%len(b.fans[i])]
				turn++
				a, err := reader.Read(ctx, contacts.Viewer{ID: viewer}, shown)
				seen[cmp.Or(a.Trace.WalkReason, string(a.Trace.Proof))]++
				return 1, err
			}})
		}
	}
	times, costs, err := b.readTimes(ctx, list)
	if err != nil {
		return err
	}
	part := fmt.Sprintf("A read with broadcast members who upload %d times as often as the %d others that each viewer follows", often, othersFollowed)
	for _, n := range followings {
		for _, q := range quantiles[:2] {
			f := figure{Part: part, Name: name(thousand, n) + ", " + q.name, Unit: "ms", Value: times[name(thousand, n)].spread(atQuantile(q.q)), Against: name(none, n) + ", " + q.name}
			f.Ratio = times[name(thousand, n)].over(times[name(none, n)], atQuantile(q.q))
			if q.q == 0.5 {
				f.Aim = atMost(map[int]float64{0: 1.05, 10: 1.05, 900: 1.2}[n])
				f.Samples, f.Each = costs[name(thousand, n)], costs[name(thousand, n)].expense()
			}
			b.results.add(f)
		}
		for _, with := range []string{none, thousand} {
			b.results.notef("Proofs of reads (%d times as often), %s: %v.", often, name(with, n), proofs[name(with, n)])
		}
	}
	return nil
}

// broadcastUpload compares an upload of a broadcast member with the fan-out of one that is none, both with the same followers.
func (s *suite) broadcastUpload(ctx context.Context) error {
	u := &broadcastUploads{fanOut: newFanOut(s, len(s.options.site.Followers)-1, true)}
	all, err := s.runs(ctx, []contender{
		{name: wayPool, prepare: u.prepareFanOut, run: u.byPool},
		{name: wayBroadcast, prepare: u.prepareBroadcast, run: u.run, after: u.check},
	})
	if err != nil {
		return err
	}
	part := fmt.Sprintf("An upload of a member with %d followers", u.followers)
	perUpload := func(sm sample) float64 {
		if sm.Ops == u.followers {
			sm.Ops = 1
		}
		return sm.micros()
	}
	s.results.add(figure{
		Part: part, Name: wayBroadcast + ": processor time of one", Unit: "µs", Value: all[wayBroadcast].spread(perUpload), Against: wayPool,
		Ratio: all[wayBroadcast].over(all[wayPool], perUpload), Samples: all[wayBroadcast], Each: all[wayBroadcast].expense(),
	})
	s.results.add(figure{Part: part, Name: wayPool + ": processor time of one", Unit: "µs", Value: all[wayPool].spread(perUpload)})
	s.results.add(figure{
		Part: part, Name: wayBroadcast + ": from the task to where all reads show it, p50", Unit: "ms", Value: spreadOf(quantile(u.took, 0.5)), Aim: atMost(50),
	})
	s.results.add(figure{Part: part, Name: wayBroadcast + ": the same, p99", Unit: "ms", Value: spreadOf(quantile(u.took, 0.99))})
	s.results.add(figure{Part: part, Name: "sets of followers that have the upload of a broadcast member, of three", Exact: true, Value: spreadOf(float64(u.written)), Aim: atMost(0)})
	return nil
}

const (
	wayBroadcast = "activityd: queue, workers, handlers; a broadcast member"
	// uploadsInRun is how many uploads of a broadcast member a run has, one after the other.
	uploadsInRun = 50
)

// broadcastUploads are uploads of a broadcast member.
type broadcastUploads struct {
	*fanOut

	readers []member.ID // a follower for each copy
	took    []float64   // milliseconds from each upload's task to its end, from where on all reads show it
	written int
}

func (u *broadcastUploads) prepareFanOut(ctx context.Context) error {
	if _, err := u.db.ExecContext(ctx, "DELETE FROM broadcast_members"); err != nil {
		return err
	}
	if err := u.client.Del(ctx, copyKeys()...).Err(); err != nil {
		return err
	}
	return u.prepare(ctx)
}

func (u *broadcastUploads) prepareBroadcast(ctx context.Context) error {
	if err := u.prepare(ctx); err != nil {
		return err
	}
	if len(u.readers) == 0 {
		byCopy := make(map[member.ID]member.ID)
		for id := u.from; id <= u.to && len(byCopy) < len(member.Copies); id++ {
			byCopy[index.CopyFor(id)] = id
		}
		for _, id := range byCopy {
			u.readers = append(u.readers, id)
		}
	}
	for _, id := range u.readers {
		if _, err := u.db.ExecContext(ctx, "INSERT IGNORE INTO users (id, username) VALUES (?, 'follower')", id); err != nil {
			return err
		}
	}
	if _, err := u.db.ExecContext(ctx, "INSERT IGNORE INTO broadcast_members (member_id, state, change_id, named) VALUES (?, 'broadcast', 1, 1)", u.uploader); err != nil {
		return err
	}
	copies := &tasks.RefillHandler{Index: u.index, Store: broadcast.Truth{Store: u.store}}
	return inParallel(ctx, 1, refillBatch, member.Copies[:], refillOf(copies))
}

// ending says when a task has ended.
type ending struct {
	queue.Store
	ended chan struct{}
}

// Finish implements [queue.Store].
func (e ending) Finish(ctx context.Context, results []queue.Result) (lost int, err error) {
	lost, err = e.Store.Finish(ctx, results)
	for range results {
		e.ended <- struct{}{}
	}
	return lost, err
}

func (u *broadcastUploads) run(ctx context.Context) (int, error) {
	our := newActivityd(u.backend)
	handlers := tasks.Handlers(u.index, broadcast.Truth{Store: u.store}, our.queue, tasks.HandlerOptions{})
	e := ending{our.queue, make(chan struct{}, 2)}
	stop := our.workWith(ctx, e, handlers)
	err := u.uploadAll(ctx, our.queue, e.ended)
	if stopErr := stop(); err == nil {
		err = stopErr
	}
	return uploadsInRun, err
}

func (u *broadcastUploads) uploadAll(ctx context.Context, q *queue.Queue, ended <-chan struct{}) error {
	for range uploadsInRun {
		u.uploads++
		if err := setLastUpload(ctx, u.db, uint64(u.uploader), u.score()); err != nil {
			return err
		}
		began := time.Now()
		if _, err := q.Enqueue(ctx, []queue.New{tasks.NewUpload(u.uploader)}); err != nil {
			return err
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		u.took = append(u.took, milliseconds(time.Since(began)))
	}
	return nil
}

// check fails unless a read of each sixteenth of the followers shows the last upload, and counts the sets of
// followers that have it.
func (u *broadcastUploads) check(ctx context.Context) error {
	photo, err := u.db.ExecContext(ctx, "INSERT INTO photos (owner_id, title, visibility, date_upload) VALUES (?, 'news', 'public', ?)", u.uploader, u.score())
	if err != nil {
		return err
	}
	id, err := photo.LastInsertId()
	if err != nil {
		return err
	}
	reader := recent.NewReader(u.index, u.store, noHints{}, recent.Options{IndexWait: time.Minute})
	for _, viewer := range u.readers {
		a, err := reader.Read(ctx, contacts.Viewer{ID: viewer}, 1)
		if err != nil {
			return err
		}
		if len(a.Photos) == 0 || a.Photos[0].ID != uint64(id) || a.Source != recent.FromIndex {
			return fmt.Errorf("viewer %s is shown %+v from the %s", viewer, a.Photos, a.Source)
		}
	}
	for _, key := range []string{u.keys[0], u.keys[len(u.keys)/2], u.keys[len(u.keys)-1]} {
		if score, err := u.client.ZScore(ctx, key, u.uploader.String()).Result(); err == nil && uint64(score) == u.score() {
			u.written++
		}
	}
	return nil
}
