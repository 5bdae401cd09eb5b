//go:build unix

package endtoend_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// duel is a pair of workers: the first loses a task to the second. Each worker has its own proxy to Redis,
// which can hold it up in the middle of its work.
type duel struct {
	*ground
	ledger        ledger
	first, second *program
	toFirst       *servertest.Proxy // Redis, as the first sees it
	toSecond      *servertest.Proxy
	mysqlToFirst  *servertest.Proxy
}

const (
	duelLease = 2 * time.Second
	duelIdle  = 12 * time.Second // then the server gives up a silent connection
	// slack is for a query, a claim and the work itself, on a slow and busy
	// machine. With it, all bounds are below the defaults: leases of 20 s, idle
	// connections of 30 s.
	slack    = 15 * time.Second
	follower = member.ID(1)
	followed = member.ID(2)
)

// newDuel starts both workers and holds the second up before its first task.
func newDuel(t *testing.T) *duel {
	t.Helper()
	g := newGround(t, 10)
	must(t, g.site.LoadMembers(t.Context(), []site.Member{{ID: follower, Username: "follower"}, {ID: followed, Username: "followed"}}))
	must(t, g.site.LoadPhotos(t.Context(), []site.Photo{{Owner: followed, Visibility: "public", DateUpload: start}}))
	cfg, err := mysql.ParseDSN(g.dsn)
	must(t, err)
	cfg.Params = map[string]string{"wait_timeout": fmt.Sprint(duelIdle.Seconds())}
	d := &duel{
		ground: g, ledger: ledger{g},
		toFirst: servertest.NewProxy(t, g.redis.Addr()), toSecond: servertest.NewProxy(t, g.redis.Addr()),
		mysqlToFirst: servertest.NewProxy(t, cfg.Addr),
	}
	d.ledger.open(t)
	d.first = d.worker(t, "first", d.mysqlToFirst.MySQLDSN(cfg.FormatDSN()), d.toFirst)
	d.second = d.worker(t, "second", d.dsn, d.toSecond)
	must(t, d.second.freeze())
	return d
}

func (d *duel) worker(t *testing.T, name, dsn string, toRedis *servertest.Proxy) *program {
	t.Helper()
	p := serving(t, name, dsn, toRedis.RedisURL(), "--role=workers", fmt.Sprint("--task-lease=", duelLease), "--poll=50ms")
	return p.mustStart(t)
}

// begin gives the first worker a task, whose work does not end.
func (d *duel) begin(t *testing.T) {
	t.Helper()
	d.toFirst.Delay(time.Hour)
	must(t, d.site.SetContact(t.Context(), follower, followed, site.Grant{}))
	eventually(t, "the first worker has the task", func() bool { return d.isHolder(t, d.first) })
}

// begun returns how many tasks a worker has begun. A worker that stops between the commit of the claim and
// the reply holds a task that it never learns of.
func (d *duel) begun(t *testing.T, p *program) float64 {
	t.Helper()
	line, found, err := p.latest().findLine("listening for metrics")
	must(t, err)
	if !found {
		return 0
	}
	text, err := scrape(t.Context(), &http.Client{Timeout: 5 * time.Second}, line.Address)
	if err != nil {
		return 0
	}
	return sumOf(text, `activityd_task_wait_seconds_count{queue="default",type="add_contact"}`)
}

func (d *duel) isHolder(t *testing.T, p *program) bool {
	t.Helper()
	running, err := d.queue.List(t.Context(), queue.Filter{States: []queue.State{queue.Running}}, 10)
	must(t, err)
	return len(running) == 1 && isOwner(p, running[0].LeaseOwner)
}

func isOwner(p *program, owner string) bool { return strings.HasPrefix(owner, ownerOf(p)) }

// ownerOf returns the prefix of an owner: the number of the process.
func ownerOf(p *program) string { return fmt.Sprint(p.latest().group, "@") }

// now reads the clock of the queue, in unix milliseconds.
func (d *duel) now(t *testing.T) int { t.Helper(); return d.ledger.number(t, "SELECT "+clock) }

// since returns how long after a time, in unix milliseconds, something happened
// to the task of the pair.
func (d *duel) since(t *testing.T, at int, event string) time.Duration {
	t.Helper()
	return time.Duration(d.ledger.number(t, "SELECT MIN(at) FROM task_events WHERE type = 'add_contact' AND event = ?", event)-at) * time.Millisecond
}

// letGo ends a delay at once. The delayed data is lost, and the client asks again.
func letGo(proxy *servertest.Proxy) {
	proxy.Delay(0)
	proxy.Cut()
}

// checkEnd: the task was finished once, by the second worker, and is right.
func (d *duel) checkEnd(t *testing.T) {
	t.Helper()
	d.awaitIdle(t)
	d.ledger.check(t)
	var owner string
	must(t, d.db.QueryRowContext(t.Context(), "SELECT owner FROM task_events WHERE type = 'add_contact' AND event = 'finished'").Scan(&owner))
	if !isOwner(d.second, owner) {
		t.Errorf("the task was finished by %s, want the second worker", owner)
	}
	if set := d.sets(t)[follower.String()]; len(set) != 1 || set[0].Member != followed.String() || set[0].Score != start {
		t.Errorf("the set is %v", set)
	}
}

// TestALateWriteOfAPausedProcessIsRefused stops a process with SIGSTOP in the middle of a task, past the
// lease, and continues it with SIGCONT when another process has the task. The first process's late write has
// no effect, and the process says so.
func TestALateWriteOfAPausedProcessIsRefused(t *testing.T) {
	t.Parallel()
	d := newDuel(t)
	d.begin(t)
	eventually(t, "the first worker knows what it holds", func() bool { return d.begun(t, d.first) > 0 })
	must(t, d.first.freeze())
	// The delay makes the second worker hold the task for some round trips, and still when the first worker
	// writes. A probe of Redis must be over in 2 s.
	d.toSecond.Delay(400 * time.Millisecond)
	must(t, d.second.thaw())
	eventually(t, "the second worker has, or had, the task", func() bool {
		return d.ledger.number(t, "SELECT COUNT(*) FROM task_events WHERE type = 'add_contact' AND event = 'running' AND owner LIKE ?", ownerOf(d.second)+"%") > 0
	})

	letGo(d.toFirst)
	must(t, d.first.thaw())
	// An extension or a finish is refused, whichever comes first.
	eventually(t, "the first worker notices that its lease is lost", func() bool {
		return d.first.says(t, "lease lost; its tasks are cancelled") || d.first.says(t, lostLeases)
	})
	if d.isHolder(t, d.first) {
		t.Error("the first worker has the task")
	}
	must(t, d.first.freeze()) // the first worker must not do the task after all
	letGo(d.toSecond)
	d.checkEnd(t)
	must(t, d.first.thaw())
	d.first.finish(t)
	d.second.finish(t)
}

// TestStuckBound ends a worker that holds a task, by death or by a stop for good. Only a living worker
// extends the lease. The task is free when the lease has run out and the next sweep has passed. The other
// worker then does it at once.
func TestStuckBound(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*program) error{
		"killed":           (*program).kill,
		"stopped for good": (*program).freeze,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDuel(t)
			d.begin(t)
			must(t, d.second.thaw())
			must(t, end(d.first))
			ended := d.now(t)
			d.checkEnd(t)
			d.checkBound(t, ended)
			d.second.finish(t)
		})
	}
}

// checkBound compares the times in the ledger with the promises of the documentation of [queue.Pool].
func (d *duel) checkBound(t *testing.T, ended int) {
	t.Helper()
	lease := time.Duration(d.ledger.number(t, "SELECT MIN(due_at) FROM task_events WHERE event = 'freed'")-ended) * time.Millisecond
	freed, done := d.since(t, ended, "freed"), d.since(t, ended, "finished")
	t.Logf("after its worker ended, the lease ran for %v, the task was free after %v and done after %v", lease, freed, done)
	// A statement that was on its way when the worker ended is executed a little later.
	if most := duelLease + time.Second; lease > most {
		t.Errorf("the lease ran for %v, want at most %v", lease, most)
	}
	if most := lease + queue.DefaultSweep + slack; freed > most {
		t.Errorf("the task was free after %v, want at most %v", freed, most)
	}
	if most := duelLease + queue.DefaultSweep + slack; done > most {
		t.Errorf("the task was done after %v, want at most %v", done, most)
	}
}
