package stream_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// processVariable makes this program a process with a mover.
const processVariable = "ACTIVITYD_STREAM_PROCESS"

// doomed is a process with a mover that sends itself a signal when it is about to take a step.
type doomed struct {
	DSN    string
	Socket string // of Redis
	DB     int
	Step   string // a command of Redis, hold, enqueue, or committed: enqueue has returned
	Nth    int32  // the first is 1
	Signal syscall.Signal
}

func (d doomed) reach(steps *atomic.Int32, step string) {
	if strings.EqualFold(step, d.Step) && steps.Add(1) == d.Nth {
		_ = syscall.Kill(os.Getpid(), d.Signal)
		if d.Signal == syscall.SIGKILL {
			select {}
		}
	}
}

// killer is a hook of the client that sends the signal before a command.
type killer struct {
	doomed

	steps *atomic.Int32
}

func (k killer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (k killer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && args[1] == stream.HoldHash {
			k.reach(k.steps, "hold")
		} else {
			k.reach(k.steps, cmd.Name())
		}
		return next(ctx, cmd)
	}
}

func (k killer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		k.reach(k.steps, cmds[0].Name())
		return next(ctx, cmds)
	}
}

// beProcess is the process.
func beProcess(ctx context.Context, text string) error {
	var d doomed
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, 5*time.Minute)
	defer stop()
	db, err := mysql.Open(d.DSN)
	if err != nil {
		return err
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: d.Socket, DB: d.DB, ContextTimeoutEnabled: true, MaxRetries: 1})
	steps := new(atomic.Int32)
	client.AddHook(killer{d, steps})
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()})
	log := slog.New(slog.DiscardHandler)
	m := stream.New(client, enqueueFunc(func(ctx context.Context, batch []queue.New) ([]uint64, error) {
		d.reach(steps, "enqueue")
		ids, err := q.Enqueue(ctx, batch)
		d.reach(steps, "committed")
		return ids, err
	}), log, outage.New(log, "MySQL"), outage.New(log, "Redis"))
	m.LeaseTime(100 * time.Millisecond)
	return errors.Join(m.Run(ctx), fmt.Errorf("it never came to the %dth %s", d.Nth, d.Step))
}

// start starts the process, and waits until it is dead or stands still.
func (d doomed) start(t *testing.T) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), processVariable+"="+string(text))
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be dead
		_ = cmd.Wait()
	})
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() && status.Signal() != d.Signal {
		t.Fatalf("the process is to get %v: %v, %v", d.Signal, status, err)
	}
	return cmd
}

// A process is killed before each of its steps, or stands still there until another process has moved the entries: all
// entries are in the queue or with the dead.
func TestKilledBetweenAnyTwoSteps(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	server := servertest.Redis(t, "--databases", "32")
	var all []doomed
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		for _, step := range []doomed{
			{Step: "hold", Nth: 1},
			{Step: "xread", Nth: 1},
			{Step: "enqueue", Nth: 1},
			{Step: "committed", Nth: 1},
			{Step: "xadd", Nth: 1},
			{Step: "xdel", Nth: 1},
			{Step: "hold", Nth: 2},
			{Step: "xread", Nth: 2},
		} {
			step.Signal = signal
			all = append(all, step)
		}
	}
	for i, d := range all {
		t.Run(fmt.Sprintf("%v before the %d. %s", d.Signal, d.Nth, d.Step), func(t *testing.T) {
			t.Parallel()
			b := newBenchOn(t, dsn, newClient(t, &redis.Options{Network: "unix", Addr: server.Addr(), DB: i + 1}))
			from := 1 + 100*i // the database is shared
			b.uploads(from, from+2)
			bad := b.add("task", "nonsense")
			b.uploads(from+3, from+4)
			d.DSN, d.Socket, d.DB = dsn, server.Addr(), i+1
			process := d.start(t)
			b.start()
			b.awaitEmpty()
			if d.Signal == syscall.SIGSTOP {
				b.must(process.Process.Signal(syscall.SIGCONT))
				b.uploads(from+5, from+9)
				b.awaitEmpty()
			}
			var n, want int
			if want = 5; d.Signal == syscall.SIGSTOP {
				want = 10
			}
			b.must(b.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM tasks WHERE type = 'upload' AND subject BETWEEN ? AND ?", from, from+99).Scan(&n))
			if n != want {
				t.Errorf("%d tasks, want %d", n, want)
			}
			dead := b.dead()
			if len(dead) < 1 || len(dead) > 2 {
				t.Errorf("%d entries are dead, want one, or its copy besides: %v", len(dead), dead)
			}
			for _, d := range dead {
				if d.Values["id"] != bad {
					t.Errorf("dead: %v, want a copy of %s", d, bad)
				}
			}
		})
	}
}
