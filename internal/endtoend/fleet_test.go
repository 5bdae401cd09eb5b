//go:build unix

package endtoend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// leaseOfFleet is as short as may be, so that tasks are taken over while the
// test is watching.
const leaseOfFleet = 2 * time.Second

// fleet is activityd as several machines run it, and the town that it serves.
// The town is beside the database; activityd reaches both servers through
// proxies.
type fleet struct {
	*town
	ledger     ledger
	seed       uint64
	mysql      *localserver.MySQL
	mysqlProxy *servertest.Proxy
	redisProxy *servertest.Proxy
	workers    []*program
	api        *program
	http       *http.Client
	tally      tally
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
	f := &fleet{
		town: newTown(t, g, seed, fans), ledger: ledger{g}, seed: seed,
		mysqlProxy: proxy, redisProxy: servertest.NewProxy(t, g.redis.Addr()),
		http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}, faults: record{of: map[string]int{}},
	}
	t.Cleanup(f.http.CloseIdleConnections)
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

func (f *fleet) programs() []*program { return append([]*program{f.api}, f.workers...) }

// program returns an activityd with short times and small batches, so that much happens.
func (f *fleet) program(t *testing.T, name string, flags ...string) *program {
	t.Helper()
	return serving(t, name, f.mysqlProxy.MySQLDSN(f.dsn), f.redisProxy.RedisURL(), append(flags,
		fmt.Sprint("--need=", f.settings.Need), fmt.Sprint("--task-lease=", leaseOfFleet), "--poll=200ms", "--grace=5s",
		fmt.Sprint("--fan-out-part=", partSize))...)
}

// live lets the site change and members read. The returned function stops both and waits for the calls that
// are under way.
func (f *fleet) live(ctx context.Context) (rest func() error) {
	const pause, reading = 15 * time.Millisecond, 25 * time.Millisecond
	var resting atomic.Bool
	group, ctx := errgroup.WithContext(ctx)
	goOn := func(do func() error) {
		group.Go(func() error {
			err := do()
			if err != nil {
				f.trouble.CompareAndSwap(nil, &err)
			}
			return err
		})
	}
	for i := range uint64(3) {
		actor := newActor(f.accountant(i+1), f.seed, i+1, f.fans)
		goOn(func() error {
			return every(ctx, pause, &resting, func() error { return actor.act(ctx, 1) })
		})
	}
	reader := f.httpReader(rand.New(rand.NewPCG(f.seed, 400)))
	goOn(func() error {
		return every(ctx, reading, &resting, func() error { return reader.readSomebody(ctx) })
	})
	f.quiet.live(ctx, &resting, goOn)
	var once sync.Once
	return func() error {
		once.Do(func() { resting.Store(true) })
		return group.Wait()
	}
}

// isAway reports whether the API says that it cannot answer now. The API gives up after 5 s, and a slow
// machine may need longer.
func isAway(code int) bool {
	return code == http.StatusServiceUnavailable || code == http.StatusGatewayTimeout
}

// every does something again and again, with a pause in between.
func every(ctx context.Context, pause time.Duration, resting *atomic.Bool, do func() error) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for !resting.Load() {
		if err := do(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
