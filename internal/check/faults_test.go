package check

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	sites "github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// Who lives where the faults are: the quiet viewers, whose contacts rest and whose
// sets are injured; and the lively ones, whose contacts come, go and upload all
// the time.
var (
	quietViewers  = from(10_000, 900)
	quietOwners   = from(20_000, 60)
	livelyViewers = from(30_000, 120)
	livelyOwners  = from(40_000, 40)
	nobodies      = from(90_000, 130) // are no members
)

// fault is a way to injure a set.
type fault struct {
	cause  Cause
	weight Weight
	injure func(p redis.Pipeliner, key string, members []redis.Z) // members: lowest first
}

func add(p redis.Pipeliner, key string, score float64, name string) {
	p.ZAdd(context.Background(), key, redis.Z{Score: score, Member: name})
}

func nameOf(z redis.Z) string { return z.Member.(string) }

// faults are all kinds of them. The sets have six members, of eight contacts.
func faults() []fault {
	ctx := context.Background()
	remove := func(p redis.Pipeliner, key string, members ...redis.Z) {
		for _, z := range members {
			p.ZRem(ctx, key, z.Member)
		}
	}
	top := func(members []redis.Z) redis.Z { return members[len(members)-1] }
	return []fault{
		{Ghost, Waste, func(p redis.Pipeliner, key string, m []redis.Z) {
			remove(p, key, m[0])
			add(p, key, m[1].Score+1, "40001")
		}},
		{MissingContact, Error, func(p redis.Pipeliner, key string, m []redis.Z) { remove(p, key, top(m)) }},
		{StaleScore, Error, func(p redis.Pipeliner, key string, m []redis.Z) {
			add(p, key, m[0].Score+1, nameOf(top(m)))
		}},
		{HighScore, Waste, func(p redis.Pipeliner, key string, m []redis.Z) {
			add(p, key, top(m).Score+7, nameOf(m[2]))
		}},
		{WrongSize, Error, func(p redis.Pipeliner, key string, m []redis.Z) { remove(p, key, m[:3]...) }},
		{LostSet, Error, func(p redis.Pipeliner, key string, _ []redis.Z) { p.Del(ctx, key) }},
		{Foreign, Error, func(p redis.Pipeliner, key string, m []redis.Z) {
			remove(p, key, m[0])
			add(p, key, m[0].Score, "who knows")
		}},
		{Foreign, Error, func(p redis.Pipeliner, key string, _ []redis.Z) { p.Set(ctx, key, "no set", 0) }},
	}
}

// injured is the fault of each set.
type injured map[member.ID]fault

// injure injures the sets of all quiet viewers, and makes sets of nobodies.
func (g *ground) injure(t *testing.T) injured {
	t.Helper()
	done, all := injured{}, faults()
	orphan := fault{Orphan, Waste, nil}
	_, err := g.client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i, user := range quietViewers {
			members, err := g.client.ZRangeWithScores(t.Context(), index.UserKey(user), 0, -1).Result()
			if err != nil || len(members) != 6 {
				t.Fatalf("the set of %s has %d members: %v", user, len(members), err)
			}
			done[user] = all[i%len(all)]
			done[user].injure(p, index.UserKey(user), members)
		}
		for _, user := range nobodies {
			add(p, index.UserKey(user), 1_000_000, quietOwners[0].String())
			done[user] = orphan
		}
		return nil
	})
	must(t, err)
	return done
}

// tooLarge adds true contacts to a set beyond what it may hold. It is apart,
// as eight contacts are too few for a set that is too large by six.
func (g *ground) tooLarge(t *testing.T, users []member.ID) {
	t.Helper()
	for _, user := range users {
		top, err := g.store.TopContacts(t.Context(), []member.ID{user}, 100)
		must(t, err)
		for _, c := range top[user] {
			must(t, g.client.ZAdd(t.Context(), index.UserKey(user), redis.Z{Score: float64(c.LastUpload), Member: c.ID.String()}).Err())
		}
	}
}

// traffic changes the lively half of the site and reads of it, until t ends.
func (g *ground) traffic(t *testing.T, changes *atomic.Int64) (stop func()) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	date := uint64(2_000_000)
	change := func(ctx context.Context) (err error) {
		viewer, owner := livelyViewers[rnd.IntN(len(livelyViewers))], livelyOwners[rnd.IntN(len(livelyOwners))]
		switch rnd.IntN(5) {
		case 0, 1:
			date++
			_, err = g.site.Upload(ctx, sites.Photo{Owner: owner, Visibility: contacts.Public, DateUpload: date - uint64(rnd.IntN(20))})
		case 2:
			err = g.site.RemoveContact(ctx, viewer, owner)
		default:
			err = g.site.SetContact(ctx, viewer, owner, sites.Grant{})
		}
		return err
	}
	stopChanges := running(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := change(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			changes.Add(1)
		}
		return nil
	})
	stopReads := running(t, func(ctx context.Context) error {
		for i := 0; ctx.Err() == nil; i++ {
			v := contacts.Viewer{ID: livelyViewers[i%len(livelyViewers)]}
			if _, err := g.reader.Read(ctx, v, 10); err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
	return func() {
		stopChanges()
		stopReads()
	}
}

// control audits the lively viewers until it is stopped: there must be no error.
func (g *ground) control(t *testing.T) (stop func() (checked, lags int)) {
	t.Helper()
	checked, lags := 0, 0
	look := func(r Report, err error) error {
		for _, f := range of(r, Error) {
			t.Errorf("a false alarm: %v", f)
		}
		checked += r.Checked
		lags += len(of(r, Lag))
		return err
	}
	end := running(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			err := look(g.Check(ctx, livelyViewers))
			if err == nil {
				err = look(g.CheckAnswers(ctx, livelyViewers[:20]))
			}
			if err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
	return func() (int, int) {
		end()
		return checked, lags
	}
}

// A thousand faults of every kind are found, named and mended, while changes, tasks and reads of other members
// go on without a false alarm.
func TestAThousandFaults(t *testing.T) {
	t.Parallel()
	g := onServers(t)
	g.settle(t, quietViewers, quietOwners, 8)
	g.settle(t, livelyViewers, livelyOwners, 12)
	g.work(t, nil)
	var changes atomic.Int64
	stopTraffic := g.traffic(t, &changes)
	stopControl := g.control(t)
	all := append(append([]member.ID{}, quietViewers...), nobodies...)

	r, err := g.Check(t.Context(), all)
	must(t, err)
	found(t, r)
	if r.Checked != len(all) {
		t.Fatalf("checked %d of %d", r.Checked, len(all))
	}
	done := g.injure(t)
	r, err = g.Check(t.Context(), all)
	must(t, err)
	compareFaults(t, r, done)
	g.wrongAnswers(t, done)
	n, err := g.Repair(t.Context(), r.Wrong)
	must(t, err)
	if n != len(done) || n < 1000 {
		t.Errorf("%d sets were repaired, want %d", n, len(done))
	}
	g.mended(t, all)

	large := quietViewers[:100]
	g.tooLarge(t, large)
	r, err = g.Check(t.Context(), large)
	must(t, err)
	wants := injured{}
	for _, user := range large {
		wants[user] = fault{cause: WrongSize, weight: Error}
	}
	compareFaults(t, r, wants)
	_, err = g.Repair(t.Context(), large)
	must(t, err)
	g.mended(t, all)

	stopTraffic()
	checked, lags := stopControl()
	if changes.Load() < 50 || checked < len(livelyViewers) {
		t.Errorf("only %d changes, %d controls", changes.Load(), checked)
	}
	t.Logf("%d faults beside %d changes; %d controls found %d lags", len(done)+len(large), changes.Load(), checked, lags)
	g.quiet(t)
	r, err = g.Check(t.Context(), append(all, livelyViewers...))
	must(t, err)
	if left := append(of(r, Error), of(r, Lag)...); len(left) > 0 {
		t.Errorf("at rest: %v", left)
	}
}

// compareFaults wants each fault to be found once, by its name.
func compareFaults(t *testing.T, r Report, done injured) {
	t.Helper()
	seen := make(map[member.ID]int)
	for _, f := range r.Findings {
		seen[f.User]++
		if want := done[f.User]; f.Cause != want.cause || f.Weight != want.weight {
			t.Errorf("%v, want %s %s", f, want.weight, want.cause)
		}
	}
	errs := 0
	for user, want := range done {
		if seen[user] != 1 {
			t.Errorf("%d findings about the %s of %s, want 1", seen[user], want.cause, user)
		}
		if want.weight == Error {
			errs++
		}
	}
	if n := r.Erroneous; n != errs {
		t.Errorf("%d sets with errors, want %d", n, errs)
	}
}

// wrongAnswers wants to be told of the viewers who are shown the wrong contact:
// viewers whose most recent contact is missing or stale.
func (g *ground) wrongAnswers(t *testing.T, done injured) {
	t.Helper()
	viewers := quietViewers[:80]
	r, err := g.CheckAnswers(t.Context(), viewers)
	must(t, err)
	wrong := make(map[member.ID]bool)
	for _, f := range r.Findings {
		wrong[f.User] = f.Cause == WrongAnswer && f.Weight == Error
	}
	for _, user := range viewers {
		cause := done[user].cause
		if want := cause == MissingContact || cause == StaleScore; wrong[user] != want {
			t.Errorf("the answer for %s, whose set has a %s: wrong: %v, want %v", user, cause, wrong[user], want)
		}
	}
}

// mended waits until the refills are done, and wants nothing to be left.
func (g *ground) mended(t *testing.T, users []member.ID) {
	t.Helper()
	eventually(t, "all refills are done", func() bool {
		waiting, err := g.queue.Pending(t.Context(), []string{tasks.Refill}, keysOf(users))
		must(t, err)
		return len(waiting) == 0
	})
	r, err := g.Check(t.Context(), users)
	must(t, err)
	for _, f := range r.Findings {
		t.Errorf("not mended: %v", f)
	}
	for _, user := range nobodies {
		if n := g.client.Exists(t.Context(), index.UserKey(user)).Val(); n != 0 {
			t.Errorf("the set of %s, who is nobody, is still there", user)
		}
	}
}

// Where nothing is wrong, nothing is found to be: not while tasks are slow, come
// twice, and are cut off in the middle.
func TestNoFalseAlarmWhileWorkersAreSlowAndCrash(t *testing.T) {
	t.Parallel()
	g := onServers(t)
	g.Checker = g.checker(t, time.Millisecond) // patience must not hide the part of the tasks
	g.settle(t, livelyViewers, livelyOwners, 12)
	var crashes atomic.Int64
	g.work(t, nil, func(h queue.Handler) queue.Handler { return &shaky{h, &crashes} })
	var changes atomic.Int64
	stopTraffic := g.traffic(t, &changes)
	stopTwice := running(t, func(ctx context.Context) error {
		for ctx.Err() == nil {
			v, o := livelyViewers[rand.IntN(len(livelyViewers))], livelyOwners[rand.IntN(len(livelyOwners))]
			batch := []queue.New{tasks.NewAddContact(v, o), tasks.NewUpload(o), tasks.NewRefill(v)}
			if _, err := g.queue.Enqueue(ctx, batch); err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
	checked, lags := 0, 0
	eventually(t, "there was enough of everything", func() bool {
		stopControl := g.control(t)
		timer := time.NewTimer(5 * time.Second)
		defer timer.Stop()
		<-timer.C
		c, l := stopControl()
		checked, lags = checked+c, lags+l
		return changes.Load() >= 50 && crashes.Load() > 0 && checked > 0 && lags > 0
	})
	stopTwice()
	stopTraffic()
	t.Logf("%d changes, %d crashes; %d controls found %d lags", changes.Load(), crashes.Load(), checked, lags)
}

// shaky is a handler that dawdles, and whose process dies now and then: at some
// point of its work nothing that it does takes effect any more.
type shaky struct {
	queue.Handler
	crashes *atomic.Int64
}

func (s *shaky) Handle(ctx context.Context, batch []queue.Task) []queue.Outcome {
	timer := time.NewTimer(rand.N(30 * time.Millisecond))
	defer timer.Stop()
	<-timer.C
	if rand.IntN(4) > 0 {
		return s.Handler.Handle(ctx, batch)
	}
	s.crashes.Add(1)
	doomed, cancel := context.WithTimeout(ctx, rand.N(8*time.Millisecond))
	defer cancel()
	all := s.Handler.Handle(doomed, batch)
	for i := range all { // the writes stay, and the queue is not told
		all[i] = queue.Outcome{Err: queue.Later(rand.N(50*time.Millisecond), crashError(strconv.Itoa(i)))}
	}
	return all
}

type crashError string

func (e crashError) Error() string { return "crashed at task " + string(e) }

func keysOf(users []member.ID) []uint64 {
	keys := make([]uint64, len(users))
	for i, id := range users {
		keys[i] = uint64(id)
	}
	return keys
}

// of returns the findings of a weight.
func of(r Report, w Weight) (list []Finding) {
	for _, f := range r.Findings {
		if f.Weight == w {
			list = append(list, f)
		}
	}
	return list
}
