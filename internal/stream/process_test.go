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
	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// processVariable makes this program a process with a consumer.
const processVariable = "ACTIVITYD_STREAM_PROCESS"

// doomed is a process with a consumer that kills itself when it is about to take a step.
type doomed struct {
	DSN    string
	Socket string // of Redis
	DB     int
	Name   string
	// Step is a command of Redis, settle, enqueue, or committed, which is when that has returned.
	Step string
	Nth  int32 // the first is 1
}

func (d doomed) reach(steps *atomic.Int32, step string) {
	if strings.EqualFold(step, d.Step) && steps.Add(1) == d.Nth {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// killer is a hook of the client that kills the process before a command.
type killer struct {
	doomed

	steps *atomic.Int32
}

func (k killer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (k killer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 1 && args[1] == stream.SettleHash {
			k.reach(k.steps, "settle")
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
	c := stream.New(client, enqueueFunc(func(ctx context.Context, batch []queue.New) ([]uint64, error) {
		d.reach(steps, "enqueue")
		ids, err := q.Enqueue(ctx, batch)
		d.reach(steps, "committed")
		return ids, err
	}), slog.New(slog.DiscardHandler), stream.Options{Name: d.Name})
	c.ClaimAfter(time.Millisecond)
	return errors.Join(c.Run(ctx), fmt.Errorf("it never came to the %dth %s", d.Nth, d.Step))
}

// run runs the process until it is dead.
func (d doomed) run(t *testing.T) {
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
	exited := new(exec.ExitError)
	if err := cmd.Run(); !errors.As(err, &exited) || exited.ExitCode() != -1 {
		t.Fatalf("the process is to die of a signal: %v", err)
	}
}

// A consumer is killed before each of its steps, and the next one between the steps of
// taking over: whatever was in the stream is in the queue or with the dead.
func TestKilledBetweenAnyTwoSteps(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	server := servertest.Redis(t, "--databases", "32")
	first := []doomed{
		{Step: "xgroup", Nth: 1},
		{Step: "xautoclaim", Nth: 1},
		{Step: "xreadgroup", Nth: 1},
		{Step: "xreadgroup", Nth: 2},
		{Step: "enqueue", Nth: 1},
		{Step: "committed", Nth: 1},
		{Step: "settle", Nth: 1},
		{Step: "xadd", Nth: 1},
		{Step: "xreadgroup", Nth: 3},
	}
	second := []doomed{
		{Step: "xautoclaim", Nth: 1},
		{Step: "enqueue", Nth: 1},
		{Step: "committed", Nth: 1},
		{Step: "xadd", Nth: 1},
		{Step: "settle", Nth: 1},
	}
	var lives [][]doomed
	for _, d := range first {
		lives = append(lives, []doomed{d})
	}
	for _, d := range second {
		lives = append(lives, []doomed{{Step: "enqueue", Nth: 1}, d})
	}
	for i, life := range lives {
		name := ""
		for _, d := range life {
			name += fmt.Sprintf("%s %d ", d.Step, d.Nth)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBenchOn(t, dsn, newClient(t, &redis.Options{Network: "unix", Addr: server.Addr(), DB: i + 1}))
			from := 1 + 100*i // the database is shared
			b.uploads(from, from+2)
			bad := b.add("task", "nonsense")
			b.uploads(from+3, from+4)
			for n, d := range life {
				d.DSN, d.Socket, d.DB, d.Name = dsn, server.Addr(), i+1, fmt.Sprintf("doomed %d", n)
				d.run(t)
			}
			b.start("heir")
			b.awaitEmpty()
			var n int
			b.must(b.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM tasks WHERE type = 'upload' AND subject BETWEEN ? AND ?", from, from+99).Scan(&n))
			if n != 5 {
				t.Errorf("%d tasks, want 5", n)
			}
			dead := b.dead()
			if len(dead) < 1 || len(dead) > 1+len(life) {
				t.Errorf("%d entries are dead, want 1 and not more than the deaths besides: %v", len(dead), dead)
			}
			for _, d := range dead {
				if d.Values["id"] != bad {
					t.Errorf("dead: %v, want a copy of %s", d, bad)
				}
			}
		})
	}
}
