//go:build unix

package endtoend_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestMySQLFailsOver: under load the primary is killed, and its semi-synchronous replica promoted; then the
// new primary hangs, its replica is promoted, and the old primary comes back, writable; then the third
// primary is made read-only, its connections stay open, and a replica is promoted that was attached to it
// under load. The clocks of the servers differ by seconds. No acknowledged change is lost, each has its task,
// which was done; no answer is wrong; and reads are refused only while there is no primary.
//
// ACTIVITYD_FAILOVERS=20 raises the number of failovers. The further kinds are random:
//
//	make chaos-mysql FAILOVERS=20 SEED=1234
func TestMySQLFailsOver(t *testing.T) {
	t.Parallel()
	seed := seedFor(t)
	f := newFailovers(t, seed)
	judge := f.process(t, "judge", faults{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rest := f.live(ctx)
	restReads := f.reads.live(ctx, f.httpReader(rand.New(rand.NewPCG(seed, 500))))
	for _, kind := range f.kinds(t) {
		if len(f.replicas) == 0 {
			f.replicas = append(f.replicas, f.primary.NewReplica(t))
		}
		f.awaitProgress(t)
		f.failOver(t, kind)
	}
	f.awaitProgress(t)
	f.quiet.awaitBoth(t)
	must(t, errors.Join(restReads(), rest()))
	f.awaitIdle(t)
	f.ledger.check(t)
	f.ledger.checkHas(t, f.tally.acked)
	f.checkAnswers(t, judge.reader, f.viewers())
	f.check(t, judge.reader)
	f.verify(t)
	for _, p := range f.programs() {
		p.finish(t)
		p.checkLogs(t)
	}
	f.reads.check(t)
	t.Logf("changes: %d committed, %d of them known only by a look afterwards; %d failed", f.tally.committed.Load(), f.tally.unknown.Load(), f.tally.failed.Load())
}

// failovers is a fleet whose primary is replaced by its replica. The site and activityd reach it by proxies,
// which keep its address.
type failovers struct {
	*fleet
	primary   *servertest.Replicated
	replicas  []*servertest.Replicated // each replicates its predecessor, the first the primary
	siteProxy *servertest.Proxy
	reads     watchedReads
}

func newFailovers(t *testing.T, seed uint64) *failovers {
	t.Helper()
	f := &failovers{primary: servertest.NewPrimary(t)}
	last := f.primary
	for range 2 { // made at the start, when a replica catches up sooner than under load
		last = last.NewReplica(t)
		f.replicas = append(f.replicas, last)
	}
	f.siteProxy = servertest.NewProxy(t, f.primary.Addr())
	f.fleet = fleetOn(t, seed, f.siteProxy.MySQLDSN(f.primary.SiteDSN()), servertest.NewProxy(t, f.primary.Addr()))
	return f
}

// kinds returns each kind once, and random kinds up to the number in ACTIVITYD_FAILOVERS.
func (f *failovers) kinds(t *testing.T) []failoverKind {
	t.Helper()
	chosen := []failoverKind{killed, hung, planned}
	if text := os.Getenv("ACTIVITYD_FAILOVERS"); text != "" {
		n, err := strconv.Atoi(text)
		must(t, err)
		for rnd := rand.New(rand.NewPCG(f.seed, 600)); len(chosen) < n; {
			chosen = append(chosen, chosen[rnd.IntN(3)])
		}
	}
	return chosen
}

type failoverKind string

const (
	killed  failoverKind = "killed"
	planned failoverKind = "planned"
	hung    failoverKind = "hung"
)

// failOver ends the primary in the way of kind, promotes the replica, and moves the address to it. It returns
// when all work goes on, and activityd has no connection to the old primary.
func (f *failovers) failOver(t *testing.T, kind failoverKind) {
	t.Helper()
	f.primary.CheckSynchronous(t)
	done := f.finished(t)
	w := outage{struck: time.Now()}
	f.reads.begin(&w)
	switch kind {
	case killed:
		must(t, f.primary.Kill())
	case planned:
		f.primary.SetReadOnly(t)
		time.Sleep(2 * time.Second) //nolint:forbidigo // docs/deploy.md demands a second at least
	case hung:
		must(t, f.primary.Pause())
	}
	old := f.primary
	f.primary, f.replicas = f.replicas[0], f.replicas[1:]
	f.primary.Promote(t)
	f.skew(t, kind)
	f.siteProxy.Move(f.primary.Addr())
	f.mysqlProxy.Move(f.primary.Addr())
	w.moved = time.Now()
	if kind == hung {
		f.siteProxy.Cut() // the site would wait forever
	}
	eventually(t, "a task is done on the new primary", func() bool { return f.finished(t) > done })
	working := time.Since(w.moved)
	f.reads.settle(t)
	if kind == hung {
		must(t, old.Resume())
	}
	eventually(t, "no connection to the old primary is left", func() bool {
		return f.mysqlProxy.Connections(old.Addr())+f.siteProxy.Connections(old.Addr()) == 0
	})
	t.Logf("%s: no primary for %v; after that the first task was seen to be done in %v; %d reads were refused, the last one %v after the primary was lost", kind,
		w.moved.Sub(w.struck).Round(time.Millisecond), working.Round(time.Millisecond), w.refused, max(0, w.last.Sub(w.struck)).Round(time.Millisecond))
}

// skew moves the ends of leases and the times of scheduled tasks, as if the clocks of the old and the new
// primary differed.
func (f *failovers) skew(t *testing.T, kind failoverKind) {
	t.Helper()
	ahead := map[failoverKind]int{killed: 3000, planned: -3000, hung: 1500}[kind] // milliseconds
	for table, column := range map[string]string{"tasks": "run_at", "once_keys": "lease_ends"} {
		f.primary.Do(t, fmt.Sprintf("UPDATE %[1]s.%[2]s SET %[3]s = %[3]s - (%[4]d) WHERE %[3]s > 0", servertest.Database, table, column, ahead))
	}
}

// finished counts the tasks that were done, beside the address.
func (f *failovers) finished(t *testing.T) int {
	t.Helper()
	return f.primary.Number(t, "SELECT COUNT(*) FROM "+servertest.Database+".task_events WHERE event = 'finished'")
}

// awaitProgress waits until the site has made some more changes, some more tasks were done,
// and some more reads answered.
func (f *failovers) awaitProgress(t *testing.T) {
	t.Helper()
	const changes, done, reads = 30, 30, 100
	wantChanges, wantDone, wantReads := f.tally.committed.Load()+changes, f.finished(t)+done, f.reads.answered.Load()+reads
	eventually(t, "changes, tasks and reads go on", func() bool {
		if err := f.trouble.Load(); err != nil {
			t.Fatalf("the site: %v", *err)
		}
		return f.tally.committed.Load() >= wantChanges && f.reads.answered.Load() >= wantReads && f.finished(t) >= wantDone
	})
}

// verify runs "activityd verify" on all members.
func (f *failovers) verify(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), activityd(t), "verify", "--answers=1",
		"--mysql-dsn="+f.mysqlProxy.MySQLDSN(f.dsn), "--redis-url="+f.redisProxy.RedisURL(), "--need="+strconv.Itoa(f.settings.Need))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("activityd verify: %v\n%s", err, out)
	}
}

// outage is the time without a primary.
type outage struct {
	struck, moved time.Time
	refused       int       // reads
	last          time.Time // when a read was last refused
}

// watchedReads are reads by HTTP. They may be refused only while there is no primary.
type watchedReads struct {
	answered atomic.Int64
	row      atomic.Int64 // reads that were answered since the last refusal

	mu      sync.Mutex
	now     *outage // the present outage; nil: there is a primary
	settled time.Time
	outside []error // refusals while there is a primary
}

// live reads until the function that it returns is called.
func (w *watchedReads) live(ctx context.Context, reader *httpReader) (rest func() error) {
	const readers, pause, limit = 4, 20 * time.Millisecond, 10
	var resting atomic.Bool
	group, ctx := errgroup.WithContext(ctx)
	for i := range readers {
		next := i * len(reader.members) / readers
		group.Go(func() error {
			return every(ctx, pause, &resting, func() error {
				next++
				began := time.Now()
				_, err := reader.read(ctx, reader.members[next%len(reader.members)], limit)
				return w.note(began, err)
			})
		})
	}
	return func() error {
		resting.Store(true)
		return group.Wait()
	}
}

func (w *watchedReads) note(began time.Time, err error) error {
	status, answered := errors.AsType[*statusError](err)
	if err == nil || answered && status.code == http.StatusNotFound {
		w.answered.Add(1)
		w.row.Add(1)
		return nil
	}
	switch {
	case !answered, status.code == http.StatusGatewayTimeout: // on a slow machine, too
		return nil
	case status.code != http.StatusServiceUnavailable:
		return err
	}
	w.row.Store(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.now != nil:
		w.now.refused++
		w.now.last = time.Now()
	case began.Before(w.settled): // it waited on a connection to the former primary
	case strings.Contains(status.body, "database cannot be reached"): // and not that all walks are taken
		w.outside = append(w.outside, err)
	}
	return nil
}

func (w *watchedReads) begin(now *outage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = now
	if now == nil {
		w.settled = time.Now()
	}
}

// settle waits until reads are answered again. From then on they must be.
func (w *watchedReads) settle(t *testing.T) {
	t.Helper()
	const row = 200
	w.row.Store(0)
	eventually(t, "all reads are answered", func() bool { return w.row.Load() >= row })
	w.begin(nil)
}

func (w *watchedReads) check(t *testing.T) {
	t.Helper()
	for _, err := range w.outside {
		t.Errorf("a read was refused while there was a primary: %v", err)
	}
}
