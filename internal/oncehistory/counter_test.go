package oncehistory_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

// A counter is the resource. Its holder reads it once, and writes one more than it wrote
// before, so that a write of a holder whose time is over is not merely one too many: it
// undoes what was written since. Each write adds a line to counted, in its transaction.
var counterTables = []string{
	"CREATE TABLE counters (id INT PRIMARY KEY, n BIGINT UNSIGNED NOT NULL, fence BIGINT UNSIGNED NOT NULL)",
	"CREATE TABLE counted (line BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, n BIGINT UNSIGNED NOT NULL, fence BIGINT UNSIGNED NOT NULL)",
	"INSERT INTO counters VALUES (1, 0, 0)",
}

// guard is how the counter is guarded.
type guard string

const (
	// A holder shows its fence when it begins, and from then on a lower one is refused.
	guarded guard = " AND fence = ?"
	// Nothing is refused: the mutation.
	unguarded guard = " AND 0 < ?"
)

// write is a statement of a holder.
type write struct {
	Begin bool // show the fence, and read
	N     uint64
	Fence once.Fence
	Guard guard
}

// wrote is what came of it.
type wrote struct {
	Refused bool
	N       uint64 // of the counter
}

func (w write) do(ctx context.Context, db *sql.DB) (res wrote, err error) {
	err = mysql.Transact(ctx, db, "count", func(tx *sql.Tx) error {
		res = wrote{N: w.N}
		if w.Begin {
			// These two lines are what a resource needs, and the condition of the last one.
			n, err := mysql.Affected(tx.ExecContext(ctx, "UPDATE counters SET fence = ? WHERE id = 1 AND fence <= ?", uint64(w.Fence), uint64(w.Fence)))
			if res.Refused = n == 0; err != nil || res.Refused {
				return err
			}
			return tx.QueryRowContext(ctx, "SELECT n FROM counters WHERE id = 1").Scan(&res.N)
		}
		n, err := mysql.Affected(tx.ExecContext(ctx, "UPDATE counters SET n = ? WHERE id = 1"+string(w.Guard), w.N, uint64(w.Fence)))
		if res.Refused = n == 0; err != nil || res.Refused {
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT INTO counted (n, fence) VALUES (?, ?)", w.N, uint64(w.Fence))
		return err
	})
	return res, err
}

// checkCounter returns an error if a write was undone, or came from a holder whose time
// was over. acknowledged is how many writes were answered.
func checkCounter(ctx context.Context, db *sql.DB, acknowledged int64) error {
	lines, err := checkLines(ctx, db)
	if err != nil {
		return err
	}
	var n int64
	if err := db.QueryRowContext(ctx, "SELECT n FROM counters").Scan(&n); err != nil {
		return err
	}
	if n != lines || n < acknowledged {
		return fmt.Errorf("%w: the counter is %d after %d writes, %d of them acknowledged", errRefuted, n, lines, acknowledged)
	}
	return nil
}

// checkLines checks the lines that there are, also while others are added.
func checkLines(ctx context.Context, db *sql.DB) (count int64, err error) {
	type line struct{ n, fence uint64 }
	lines, err := mysql.Select(ctx, db, func(rows *sql.Rows) (l line, err error) {
		return l, rows.Scan(&l.n, &l.fence)
	}, "SELECT n, fence FROM counted ORDER BY line")
	if err != nil {
		return 0, err
	}
	var highest uint64
	for i, l := range lines {
		if l.fence < highest {
			return 0, fmt.Errorf("%w: write %d has the fence %d, after %d", errRefuted, i+1, l.fence, highest)
		}
		if highest = l.fence; l.n != uint64(i+1) {
			return 0, fmt.Errorf("%w: write %d set the counter to %d", errRefuted, i+1, l.n)
		}
	}
	return int64(len(lines)), nil
}

// fleet is processes that count, in turns.
type fleet struct {
	address

	guard    guard
	terms    once.Terms
	counts   atomic.Int64 // acknowledged
	refusals atomic.Int64
	stops    atomic.Int64
	kills    atomic.Int64
}

// member is a process of a fleet until done.
func (f *fleet) member(ctx context.Context, done *atomic.Bool, choices *rand.Rand) error {
	p := &process{server: f.String()}
	defer p.end()
	for attempt := 0; !done.Load(); attempt++ {
		if err := f.attempt(ctx, p, fmt.Sprintf("m%d", choices.Uint64()), choices); err != nil && !errors.Is(err, errCut) {
			return err
		}
		if err := retry.Sleep(ctx, time.Duration(choices.Int64N(int64(10*time.Millisecond)))); err != nil {
			return err
		}
	}
	return nil
}

// attempt acquires the name, counts a little if it got it, and hands it back. The process
// is stopped and killed at any point of it, and believes that it holds the name all the time.
func (f *fleet) attempt(ctx context.Context, p *process, owner string, choices *rand.Rand) error {
	do := func(e errand) (result, error) { return p.do(ctx, e, f.disturb(ctx, choices)) }
	got, err := do(operate("counter", once.Operation{Action: once.Acquire, Owner: owner, Terms: f.terms}))
	if err != nil || got.Reply.Outcome != once.OK {
		return err
	}
	fence := got.Reply.State.Fence
	w, err := do(errand{Write: &write{Begin: true, Fence: fence}})
	for range 1 + choices.IntN(10) {
		if err != nil {
			return err
		}
		if w.Wrote.Refused {
			f.refusals.Add(1)
			return nil
		}
		if w, err = do(errand{Write: &write{N: w.Wrote.N + 1, Fence: fence, Guard: f.guard}}); err == nil && !w.Wrote.Refused {
			f.counts.Add(1)
		}
	}
	_, err = do(operate("counter", once.Operation{Action: once.Release, Owner: owner}))
	return err
}

// disturb stops a process for longer than its lease, or kills it, now and then.
func (f *fleet) disturb(ctx context.Context, choices *rand.Rand) func(*os.Process) bool {
	n, late := choices.IntN(100), time.Duration(choices.Int64N(int64(time.Millisecond)))
	return func(p *os.Process) (killed bool) {
		if n > 8 || retry.Sleep(ctx, late) != nil {
			return false
		}
		if n == 0 {
			f.kills.Add(1)
			_ = p.Kill()
			return true
		}
		f.stops.Add(1)
		_ = p.Signal(syscall.SIGSTOP)
		_ = retry.Sleep(ctx, f.terms.Lease+f.terms.Lease/2)
		_ = p.Signal(syscall.SIGCONT)
		return false
	}
}

// count has some processes count for a while, or until one of them is wrong, and judges the counter.
func (f *fleet) count(t *testing.T, duration time.Duration, meanwhile func(context.Context) error) error {
	t.Helper()
	db, err := mysql.Open(f.MySQL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range counterTables {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	f.terms = once.Terms{Lease: once.MinLease, Keep: once.MinKeep}
	var members sync.WaitGroup
	var done atomic.Bool
	defer time.AfterFunc(duration, func() { done.Store(true) }).Stop()
	for n := range 4 {
		members.Go(func() {
			if err := f.member(t.Context(), &done, rand.New(rand.NewPCG(rand.Uint64(), uint64(n)))); err != nil {
				t.Error(err)
			}
		})
	}
	for !done.Load() {
		if err := errors.Join(retry.Sleep(t.Context(), 200*time.Millisecond), meanwhile(t.Context())); err != nil {
			t.Error(err)
		}
		if _, err := checkLines(t.Context(), db); errors.Is(err, errRefuted) {
			done.Store(true)
		}
	}
	members.Wait()
	t.Logf("%d counted, %d refused, %d stopped for longer than the lease, %d killed", f.counts.Load(), f.refusals.Load(), f.stops.Load(), f.kills.Load())
	return checkCounter(t.Context(), db, f.counts.Load())
}

// TestACounterIsNeverChangedByAStaleFence has processes count in MySQL that are stopped for
// longer than their lease at any moment, and go on then. That they do so on Redis is made
// worse by its losing everything.
func TestACounterIsNeverChangedByAStaleFence(t *testing.T) {
	t.Parallel()
	p := askedFor(t)
	duration := 2 * time.Second
	if p.full {
		duration = min(max(p.duration, 30*time.Second), 10*time.Minute)
	}
	for _, test := range []struct {
		name     string
		guard    guard
		onRedis  bool
		duration time.Duration
	}{
		{"mysql", guarded, false, duration},
		{"redis", guarded, true, duration},
		{"unguarded", unguarded, false, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := &fleet{address: address{MySQL: servertest.MySQLDSN(t)}, guard: test.guard}
			meanwhile := func(context.Context) error { return nil }
			if test.onRedis {
				r := servertest.Redis(t)
				f.Redis = r.URL()
				client := redis.NewClient(&redis.Options{Network: "unix", Addr: r.Addr()})
				defer client.Close()
				meanwhile = func(ctx context.Context) error { return client.FlushAll(ctx).Err() }
			}
			err := f.count(t, test.duration, meanwhile)
			if test.guard == guarded {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, errRefuted) {
				t.Errorf("without the guard nothing was noticed: %v", err)
			}
			t.Log(err)
		})
	}
}
