//go:build unix

package endtoend_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

// leaseOfFleet is as short as may be, so that tasks are taken over while the test is watching.
const leaseOfFleet = 2 * time.Second

// lostLeases is the message of a worker whose results were refused.
const lostLeases = "leases lost before the tasks were finished"

// fleet is activityd as several machines run it, and the town that it serves. The town is beside the database;
// activityd reaches both servers through proxies.
type fleet struct {
	*town
	ledger     ledger
	teller     *teller
	seed       uint64
	mysql      *localserver.MySQL
	mysqlProxy *servertest.Proxy
	redisProxy *servertest.Proxy
	workers    []*program
	api        *program
	http       *http.Client
	reads      atomic.Int64          // that were answered
	trouble    atomic.Pointer[error] // the first error, which ended live
	faults     record
	losses     []time.Time // when Redis lost data; written by the goroutine of its faults
	quiet      *quiet
}

// newFleet starts everything, on a town whose sets are there.
func newFleet(t *testing.T, seed uint64) *fleet {
	t.Helper()
	server := servertest.OwnMySQL(t, "--innodb-flush-log-at-trx-commit=2") // outlives kill -9, if not a lost machine
	f := fleetOn(t, seed, server.DSN(servertest.Database), servertest.NewProxy(t, server.Addr()))
	f.mysql = server
	return f
}

// fleetOn is like newFleet, for a town in the database of dsn. The proxy leads to the same database.
func fleetOn(t *testing.T, seed uint64, dsn string, proxy *servertest.Proxy) *fleet {
	t.Helper()
	const fans, workers = 200, 3
	g := groundOn(t, needFor(seed), dsn, servertest.Redis(t, localserver.AOF...))
	f := machines(t, g, seed, proxy)
	f.town = newTown(t, g, seed, fans)
	f.teller = &teller{MySQL: f.site, fleet: f, uploads: make(map[uint64]member.ID)}
	f.warm(t, f.viewers())
	f.quiet = newQuiet(t, f)
	f.ledger.open(t)
	f.api = f.program(t, "api", "--role=api")
	for i := range workers {
		f.workers = append(f.workers, f.program(t, fmt.Sprint("worker-", i+1), "--role=workers"))
	}
	for _, p := range f.programs() {
		p.mustStart(t)
	}
	return f
}

// machines returns a fleet without programs.
func machines(t *testing.T, g *ground, seed uint64, proxy *servertest.Proxy) *fleet {
	t.Helper()
	f := &fleet{
		ledger: ledger{g}, seed: seed, mysqlProxy: proxy, redisProxy: servertest.NewProxy(t, g.redis.Addr()),
		http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}, faults: record{of: map[string]int{}},
	}
	t.Cleanup(f.http.CloseIdleConnections)
	return f
}

func (f *fleet) programs() []*program { return append([]*program{f.api}, f.workers...) }

// program returns an activityd with short times and small batches, so that much happens.
func (f *fleet) program(t *testing.T, name string, flags ...string) *program {
	t.Helper()
	return serving(t, name, f.mysqlProxy.MySQLDSN(f.dsn), f.redisProxy.RedisURL(), append(flags,
		fmt.Sprint("--need=", f.settings.Need), fmt.Sprint("--task-lease=", leaseOfFleet), "--poll=200ms", "--grace=5s",
		fmt.Sprint("--fan-out-part=", partSize))...)
}

// crew is goroutines that work until they are to rest.
type crew struct {
	*errgroup.Group

	ctx     context.Context
	resting atomic.Bool
}

func newCrew(ctx context.Context) *crew {
	group, ctx := errgroup.WithContext(ctx)
	return &crew{Group: group, ctx: ctx}
}

// each does something again and again, with a pause in between.
func (c *crew) each(pause time.Duration, do func(context.Context) error) {
	c.Go(func() error {
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for !c.resting.Load() {
			if err := do(c.ctx); err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-c.ctx.Done():
				return c.ctx.Err()
			}
		}
		return nil
	})
}

// rest waits for the calls that are under way.
func (c *crew) rest() error {
	c.resting.Store(true)
	return c.Wait()
}

// live lets the site change and members read.
func (f *fleet) live(ctx context.Context) *crew {
	const pause, reading = 15 * time.Millisecond, 25 * time.Millisecond
	c := newCrew(ctx)
	for i := range uint64(3) {
		actor := newActor(f.teller, f.seed, i+1, f.fans)
		c.each(pause, f.noted(func(ctx context.Context) error { return actor.act(ctx, 1) }))
	}
	rnd := rand.New(rand.NewPCG(f.seed, 400))
	viewers := f.viewers()
	c.each(reading, f.noted(func(ctx context.Context) error {
		return f.readOnce(ctx, viewers[rnd.IntN(len(viewers))], 1+rnd.IntN(20))
	}))
	f.quiet.live(c)
	return c
}

// noted returns do, whose first error is kept.
func (f *fleet) noted(do func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := do(ctx)
		if err != nil {
			f.trouble.CompareAndSwap(nil, &err)
		}
		return err
	}
}

// shown is an answer of the API.
type shown struct {
	Photos []struct {
		ID    uint64 `json:"id,string"`
		Title string `json:"title"`
	} `json:"photos"`
}

func (s shown) ids() (ids []uint64) {
	for _, p := range s.Photos {
		ids = append(ids, p.ID)
	}
	return ids
}

// ask asks a program as the site's pages do.
func ask(ctx context.Context, client *http.Client, p *program, viewer member.ID, limit int) (answer shown, err error) {
	err = get(ctx, client, p, fmt.Sprintf("/v1/users/%s/recent-contact-photos?limit=%d", viewer, limit), &answer)
	return answer, err
}

// isWrong reports whether an answer has a status that no outage of servers explains. The API may be gone, or say
// that it cannot answer now: it gives up after 5 s, and a slow machine may need longer.
func isWrong(err error) bool {
	status, answered := errors.AsType[*statusError](err)
	return answered && status.code != http.StatusServiceUnavailable && status.code != http.StatusGatewayTimeout
}

// readOnce fails if a status is wrong, or a secret is shown.
func (f *fleet) readOnce(ctx context.Context, viewer member.ID, limit int) error {
	answer, err := ask(ctx, f.http, f.api, viewer, limit)
	if status, _ := errors.AsType[*statusError](err); isWrong(err) && status.code != http.StatusNotFound {
		return fmt.Errorf("viewer %s: %w", viewer, err)
	}
	for _, p := range answer.Photos {
		if p.Title == secret {
			return fmt.Errorf("viewer %s is shown the secret photo %d", viewer, p.ID)
		}
	}
	if err == nil {
		f.reads.Add(1)
	}
	return nil
}

// askEverybody compares the API's answer to each viewer with plain SQL. A read also asks for a missing set.
func (f *fleet) askEverybody(t *testing.T) {
	t.Helper()
	for _, viewer := range f.viewers() {
		if f.isGone(t, viewer) {
			continue
		}
		want := plainly(t, f.ground, viewer)
		answer, err := ask(t.Context(), f.http, f.api, viewer, 10)
		must(t, err)
		if got := answer.ids(); !slices.Equal(want, got) {
			t.Errorf("viewer %s is shown the photos %v, want %v", viewer, got, want)
		}
	}
}

// plainly asks plain SQL for the ids of ten photos.
func plainly(t *testing.T, g *ground, viewer member.ID) (ids []uint64) {
	t.Helper()
	album, err := site.AskPlainly(t.Context(), g.db, site.ContactsFirst, contacts.Viewer{ID: viewer}, 10)
	must(t, err)
	for _, p := range album.Photos {
		ids = append(ids, p.ID)
	}
	return ids
}

// awaitSets has the sampled viewers read until each has a set that is to have a set. A member who left asks for
// none.
func (f *fleet) awaitSets(t *testing.T) {
	t.Helper()
	truth := f.uploaders(t)
	eventually(t, "the sets that were asked for are there again", func() bool {
		sets, complete := f.sets(t), true
		for _, viewer := range f.sample() {
			if len(truth[viewer.String()]) > 0 && len(sets[viewer.String()]) == 0 && !f.isGone(t, viewer) {
				complete = false
				_, _ = ask(t.Context(), f.http, f.api, viewer, 1) // the next round asks again
			}
		}
		return complete
	})
}
