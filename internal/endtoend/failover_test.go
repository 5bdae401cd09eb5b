//go:build unix

package endtoend_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
	judge := f.process(t, "judge")
	living := f.live(t.Context())
	f.readers(living)
	for _, kind := range f.kinds(t) {
		if len(f.replicas) == 0 {
			f.replicas = append(f.replicas, f.primary.NewReplica(t))
		}
		f.awaitProgress(t)
		f.failOver(t, kind)
	}
	f.awaitProgress(t)
	f.quiet.awaitBoth(t)
	must(t, living.rest())
	f.awaitIdle(t)
	f.ledger.check(t)
	f.teller.check(t, f.ledger)
	f.checkAnswers(t, judge.reader, f.viewers())
	f.check(t, judge.reader)
	call(t, os.Environ(), "verify", "--answers=1",
		"--mysql-dsn="+f.mysqlProxy.MySQLDSN(f.dsn), "--redis-url="+f.redisProxy.RedisURL(), "--need="+strconv.Itoa(f.settings.Need))
	for _, p := range f.programs() {
		p.finish(t)
	}
	t.Logf("%d uploads, %d reads, %d refused", f.teller.uploaded.Load(), f.reads.Load(), f.refused.Load())
}

// failovers is a fleet whose primary is replaced by its replica. The site and activityd reach it by proxies,
// which keep its address.
type failovers struct {
	*fleet
	primary   *servertest.Replicated
	replicas  []*servertest.Replicated // each replicates its predecessor, the first the primary
	siteProxy *servertest.Proxy

	outages atomic.Int64 // odd: there is no primary, or not all reads are answered yet
	refused atomic.Int64 // reads, because the database cannot be reached
	row     atomic.Int64 // reads that were answered since the last refusal
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
	n, err := strconv.Atoi(cmp.Or(os.Getenv("ACTIVITYD_FAILOVERS"), "3"))
	must(t, err)
	for rnd := rand.New(rand.NewPCG(f.seed, 600)); len(chosen) < n; {
		chosen = append(chosen, chosen[rnd.IntN(3)])
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
	done, struck := f.finished(t), time.Now()
	f.outages.Add(1)
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
	if kind == hung {
		f.siteProxy.Cut() // the site would wait forever
	}
	eventually(t, "a task is done on the new primary", func() bool { return f.finished(t) > done })
	f.row.Store(0)
	eventually(t, "all reads are answered", func() bool { return f.row.Load() >= 200 })
	f.outages.Add(1)
	if kind == hung {
		must(t, old.Resume())
	}
	eventually(t, "no connection to the old primary is left", func() bool {
		return f.mysqlProxy.Connections(old.Addr())+f.siteProxy.Connections(old.Addr()) == 0
	})
	t.Logf("%s: all went on after %v; %d reads were refused so far", kind, time.Since(struck).Round(time.Millisecond), f.refused.Load())
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

// awaitProgress waits until the site has uploaded more, more tasks were done, and more reads answered.
func (f *failovers) awaitProgress(t *testing.T) {
	t.Helper()
	uploads, done, reads := f.teller.uploaded.Load()+10, f.finished(t)+30, f.reads.Load()+100
	eventually(t, "changes, tasks and reads go on", func() bool {
		if err := f.trouble.Load(); err != nil {
			t.Fatalf("the site: %v", *err)
		}
		return f.teller.uploaded.Load() >= uploads && f.reads.Load() >= reads && f.finished(t) >= done
	})
}

// readers lets more members read. A read that began while there was a primary must not be refused because there
// is none.
func (f *failovers) readers(c *crew) {
	const readers, pause = 4, 20 * time.Millisecond
	viewers := f.viewers()
	for i := range readers {
		next := i * len(viewers) / readers
		c.each(pause, f.noted(func(ctx context.Context) error {
			next++
			before := f.outages.Load()
			_, err := ask(ctx, f.http, f.api, viewers[next%len(viewers)], 10)
			status, _ := errors.AsType[*statusError](err)
			switch {
			case err == nil:
				f.reads.Add(1)
				f.row.Add(1)
			case status != nil && status.code == http.StatusServiceUnavailable:
				f.row.Store(0)
				f.refused.Add(1)
				if before%2 == 0 && f.outages.Load() == before && strings.Contains(status.body, "database cannot be reached") {
					return fmt.Errorf("a read was refused while there was a primary: %w", err)
				}
			case isWrong(err) && status.code != http.StatusNotFound:
				return err
			}
			return nil
		}))
	}
}
