package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	osexec "os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// periodicVariable makes this program a process that runs a job by the clock, on the database that it names.
const periodicVariable = "ACTIVITYD_QUEUE_PERIODIC"

// eachSecond is a job whose tasks know their tick.
func eachSecond() queue.Periodic {
	return queue.Periodic{Name: "each-second", Cron: "* * * * * *", Task: func(tick time.Time) queue.New { return queue.New{Kind: "tick", Args: tick.Unix()} }}
}

var tickKinds = queue.Kinds{{Name: "tick", Queue: "ticks"}}

func bePeriodic(dsn string) error {
	db, err := mysql.Open(dsn)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	return queue.NewQueue(db, queue.Options{Kinds: tickKinds}).RunPeriodic(ctx, slog.New(slog.DiscardHandler), eachSecond())
}

// ticker claims the tasks of ticks, and counts them by tick.
type ticker struct {
	queue *queue.Queue
	times map[int64]int
	last  int64
}

// work does due tasks.
func (k *ticker) work(t *testing.T) {
	t.Helper()
	if _, err := k.queue.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := k.queue.Claim(t.Context(), "ticks", 10, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	results := make([]queue.Result, len(list))
	for i, task := range list {
		var tick int64
		if err := json.Unmarshal(task.Payload, &tick); err != nil {
			t.Fatal(err)
		}
		if early := time.Unix(tick, 0).Sub(task.Claimed); early > 0 {
			t.Errorf("the task of a tick began %v before it", early)
		}
		k.times[tick]++
		k.last = max(k.last, tick)
		results[i].Task = task
	}
	if _, err := k.queue.Finish(t.Context(), results); err != nil {
		t.Fatal(err)
	}
}

// Three processes, of which some are killed and some stopped at any moment, enqueue one task for each tick: no tick is left out, and
// none comes twice, also after the first is done.
func TestPeriodicAcrossProcesses(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	db := open(t, dsn)
	k := &ticker{queue: queue.NewQueue(db, queue.Options{Kinds: tickKinds}), times: make(map[int64]int)}
	fleet := make([]*osexec.Cmd, 3)
	for i := range fleet {
		fleet[i] = startProcess(t, periodicVariable, dsn)
	}
	servertest.Eventually(t, "a tick", func() bool { k.work(t); return len(k.times) > 0 })
	first := k.last
	for round := 0; k.last < first+8; round++ {
		k.work(t)
		p := fleet[1+round%2] // the first goes on
		switch rand.IntN(20) {
		case 0:
			_ = p.Process.Kill()
			_ = p.Wait()
			fleet[1+round%2] = startProcess(t, periodicVariable, dsn)
		case 1:
			_ = p.Process.Signal(syscall.SIGSTOP)
		default:
			_ = p.Process.Signal(syscall.SIGCONT)
		}
		_ = retry.Sleep(t.Context(), 50*time.Millisecond)
	}
	for tick := first; tick <= k.last; tick++ {
		if n := k.times[tick]; n != 1 {
			t.Errorf("tick %d: %d tasks, want 1", tick-first, n)
		}
	}
}

// While no process runs, the tick that was scheduled last is kept, and done late; the ticks after it are left out. A job that begins has
// no tick in the past.
func TestMissedTicks(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	db := open(t, dsn)
	q := queue.NewQueue(db, queue.Options{Kinds: tickKinds})
	run := func(until func() bool) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- q.RunPeriodic(ctx, slog.New(slog.DiscardHandler), eachSecond()) }()
		servertest.Eventually(t, "the next tick is scheduled", until)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	clock := func() int64 { return int64(value(t, db, "SELECT UNIX_TIMESTAMP()")) }
	tickOf := func() (last int64, n int) {
		if err := db.QueryRowContext(t.Context(), "SELECT COALESCE(MAX(run_at), 0) DIV 1000, COUNT(*) FROM tasks").Scan(&last, &n); err != nil {
			t.Fatal(err)
		}
		return last, n
	}
	before := clock()
	run(func() bool { _, n := tickOf(); return n > 0 })
	missed, _ := tickOf()
	if missed <= before {
		t.Errorf("the first tick is %d s before the job began", before-missed)
	}
	servertest.Eventually(t, "three ticks pass", func() bool { return clock() > missed+3 })
	restarted := clock()
	run(func() bool { last, _ := tickOf(); return last > restarted })
	k := &ticker{queue: q, times: make(map[int64]int)}
	servertest.Eventually(t, "a tick after the pause", func() bool { k.work(t); return k.last > restarted })
	for tick, n := range k.times {
		if n != 1 || tick > missed && tick <= restarted {
			t.Errorf("tick %d s after the one that was missed: %d tasks", tick-missed, n)
		}
	}
	if k.times[missed] != 1 {
		t.Errorf("the tick that was scheduled before the pause: %d tasks", k.times[missed])
	}
}

// A process that was stopped between its look at the clock and its INSERT adds no second task of a tick that is over.
func TestATickThatIsOverIsNotScheduled(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	if err := q.ScheduleTick(t.Context(), eachSecond(), time.Now().Add(-24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	counts(t, q, queuetest.Counts{})
}

// A job that makes no sense is refused.
func TestBadPeriodicJobs(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for name, job := range map[string]queue.Periodic{
		"a delay":      {Name: "job", Cron: "@daily", Task: func(time.Time) queue.New { return queue.New{Kind: "tick", Delay: 1} }},
		"a dedupe key": {Name: "job", Cron: "@daily", Task: func(time.Time) queue.New { return queue.New{Kind: "tick", DedupeKey: "a"} }},
		"a long payload": {Name: "job", Cron: "@daily", Task: func(time.Time) queue.New {
			return queue.New{Kind: "tick", Args: strconv.Quote(fmt.Sprint(make([]int, 40_000)))}
		}},
		"no expression": {Name: "job", Task: func(time.Time) queue.New { return queue.New{Kind: "tick"} }},
	} {
		if err := q.RunPeriodic(t.Context(), slog.New(slog.DiscardHandler), job); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A job whose task the database refuses does not stop the rest.
func TestARefusedTickStopsNoOther(t *testing.T) {
	t.Parallel()
	db, _ := openDB(t)
	exec(t, db, "CREATE TRIGGER refuse BEFORE INSERT ON tasks FOR EACH ROW IF NEW.type = 'refused' THEN SIGNAL SQLSTATE '45000'; END IF")
	q := queue.NewQueue(db, queue.Options{Kinds: tickKinds})
	refused := queue.Periodic{Name: "refused", Cron: "* * * * * *", Task: func(time.Time) queue.New { return queue.New{Kind: "refused"} }}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.RunPeriodic(ctx, slog.New(slog.DiscardHandler), refused, eachSecond()) }()
	eventually(t, "the task of the other job", func() bool { return value(t, db, "SELECT COUNT(*) FROM tasks WHERE type = 'tick'") > 0 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
