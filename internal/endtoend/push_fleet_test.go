//go:build unix

package endtoend_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/push/apns"
	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// pushFleet is activityd as several machines run it, before a site whose members are notified.
type pushFleet struct {
	*fleet // its servers, proxies and processes
	*pushSite

	kills atomic.Int64
}

// newPushFleet starts everything.
func newPushFleet(t *testing.T, seed uint64) *pushFleet {
	t.Helper()
	const processes = 4
	server := servertest.OwnMySQL(t, "--innodb-flush-log-at-trx-commit=2") // outlives kill -9, if not a lost machine
	g := groundOn(t, 10, server.DSN(servertest.Database), servertest.Redis(t, localserver.AOF...))
	f := &pushFleet{
		fleet: &fleet{
			town: &town{ground: g}, ledger: ledger{g}, seed: seed, mysql: server, mysqlProxy: servertest.NewProxy(t, server.Addr()),
			redisProxy: servertest.NewProxy(t, g.redis.Addr()), http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}},
			faults: record{of: map[string]int{}},
		},
		pushSite: newPushSite(t, g, seed),
	}
	t.Cleanup(f.http.CloseIdleConnections)
	for i := range processes {
		p := f.process(t, fmt.Sprint("activityd-", i+1), f.mysqlProxy.MySQLDSN(g.dsn), f.redisProxy.RedisURL())
		f.workers = append(f.workers, p.mustStart(t))
	}
	return f
}

// process returns an activityd that runs all kinds. The lease of push tasks is the program's default.
func (s *pushSite) process(t *testing.T, name, dsn, redisURL string) *program {
	t.Helper()
	p := serving(t, name, dsn, redisURL, append([]string{
		fmt.Sprint("--need=", s.settings.Need), "--poll=200ms", "--grace=5s", "ACTIVITYD_AUDIT_SWEEP_RATE=0", fmt.Sprint("--task-lease=", leaseOfFleet),
	}, s.senders...)...)
	s.owners.add(p)
	return p
}

// live lets producers, and members who change things, work until the function that it
// returns is called.
func (f *pushFleet) live(ctx context.Context) (rest func() error) {
	return f.pushSite.live(ctx, f.seed, f.http, func(rnd *rand.Rand) *program { return f.workers[rnd.IntN(len(f.workers))] })
}

func (s *pushSite) live(ctx context.Context, seed uint64, client *http.Client, api func(*rand.Rand) *program, others ...func(context.Context) error) (rest func() error) {
	var resting atomic.Bool
	var load pressure
	all := ctx
	group, ctx := errgroup.WithContext(ctx)
	for i, way := range []string{byRow, byStream, byHTTP} {
		rnd := rand.New(rand.NewPCG(seed, 600+uint64(i)))
		p := &pushProducer{
			pushSite: s, way: way, rnd: rnd, redis: s.producer, http: client, prefix: "by-" + way,
			api: func() *program { return api(rnd) },
		}
		group.Go(func() error {
			return every(ctx, 50*time.Millisecond, &resting, func() error { // without a pause they take all processors
				if load.waiting.Load() > maxWaitingOfPush {
					return nil
				}
				return p.produce(ctx)
			})
		})
	}
	group.Go(func() error {
		return every(ctx, 100*time.Millisecond, &resting, func() error { return load.watch(ctx, s) })
	})
	changes := rand.New(rand.NewPCG(seed, 700))
	group.Go(func() error {
		return every(ctx, 30*time.Millisecond, &resting, func() error { return s.change(ctx, changes) })
	})
	sleep := rand.New(rand.NewPCG(seed, 701))
	group.Go(func() error {
		return every(ctx, 200*time.Millisecond, &resting, func() error { return s.sleep(ctx, sleep) })
	})
	for _, do := range others {
		group.Go(func() error {
			return every(ctx, 300*time.Millisecond, &resting, func() error { return do(ctx) })
		})
	}
	var once sync.Once
	return func() error {
		once.Do(func() { resting.Store(true) })
		return cmp.Or(group.Wait(), s.wake(all))
	}
}

// pushMonkeys returns two monkeys for the processes, each for its own half; a monkey for each server with its
// network; and a monkey for the push services.
func (f *pushFleet) pushMonkeys() []*monkey {
	half := len(f.workers) / 2
	var all []*monkey
	for i, kinds := range [][]fault{
		f.killing(f.workers[:half]), f.killing(f.workers[half:]), f.noted(f.mysqlFaults()), f.redisFaults(), f.servicesFaults(),
	} {
		all = append(all, &monkey{rnd: rand.New(rand.NewPCG(f.seed, 300+uint64(i))), kinds: kinds, record: &f.faults, hasty: i < 2})
	}
	return all
}

// killing has the kill several times for each stop.
func (f *pushFleet) killing(some []*program) []fault {
	kill := fault{"activityd killed", func(ctx context.Context, rnd *rand.Rand) error {
		p := some[rnd.IntN(len(some))]
		f.kills.Add(1)
		err := f.wrong.during(window{what: processKilled, of: p.latest()}, p.kill)
		return cmp.Or(err, between(ctx, rnd, 0, 300*time.Millisecond), p.start(ctx))
	}}
	return append(slices.Repeat([]fault{kill}, 11), fault{
		"activityd stopped past its lease", func(ctx context.Context, rnd *rand.Rand) error {
			p := some[rnd.IntN(len(some))]
			return f.wrong.during(window{what: stopped, of: p.latest()}, func() error {
				return whileWrong(ctx, rnd, leaseOfPush+500*time.Millisecond, leaseOfPush+1500*time.Millisecond, p.freeze, p.thaw)
			})
		},
	})
}

// The faults of a process.
const (
	stopped       = "stop"
	processKilled = "kill"
	leaseLost     = "lease lost"
)

// leaseOfPush is that of notifications.
const leaseOfPush = 5 * time.Second

// noted has faults of the database noted: its receipts may be late or lost.
func (f *pushFleet) noted(faults []fault) (all []fault) {
	for _, one := range faults {
		all = append(all, fault{one.name, func(ctx context.Context, rnd *rand.Rand) error {
			return f.wrong.during(window{what: one.name}, func() error { return one.strike(ctx, rnd) })
		}})
	}
	return all
}

// redisFaults has the loss of the stream, too.
func (f *pushFleet) redisFaults() []fault {
	return append(f.fleet.redisFaults(), fault{"the stream emptied", func(ctx context.Context, _ *rand.Rand) error {
		return f.fleet.lossy(func() error { return f.client.Del(ctx, stream.Key).Err() })
	}})
}

func (f *pushFleet) servicesFaults() []fault {
	cut := fault{"connections to APNs cut", func(context.Context, *rand.Rand) error {
		return f.wrong.during(window{what: "cut", platform: apns.Platform}, func() error { f.apns.Cut(); return nil })
	}}
	return []fault{cut, cut, {"APNs goes away", func(context.Context, *rand.Rand) error {
		f.apns.GoAway("")
		return nil
	}}, {"APNs takes one at a time", func(ctx context.Context, rnd *rand.Rand) error {
		return whileWrong(ctx, rnd, 200*time.Millisecond, 800*time.Millisecond,
			func() error { f.apns.SetMaxStreams(1); return nil }, func() error { f.apns.SetMaxStreams(1000); return nil })
	}}, {"a connection to browsers cut", func(context.Context, *rand.Rand) error {
		f.pushSite.lossy.cutWeb.Store(true)
		return nil
	}}, {"a connection to FCM cut", func(context.Context, *rand.Rand) error {
		f.pushSite.lossy.cutFCM.Store(true)
		return nil
	}}}
}

// scrape returns the metrics at an address.
func scrape(ctx context.Context, client *http.Client, address string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(response.Body)
	return string(text), cmp.Or(err, response.Body.Close())
}

// sumOf adds up the values of a metric.
func sumOf(text, name string) (sum float64) {
	for line := range strings.Lines(text) {
		rest, is := strings.CutPrefix(strings.TrimSpace(line), name)
		if !is || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		if value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
			sum += value
		}
	}
	return sum
}
