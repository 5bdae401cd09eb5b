package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

func TestThousandsOfDeadTasksAreRetriedInBatches(t *testing.T) {
	t.Parallel()
	const dead = 3000
	o := newOperator(t)
	makeDead(t, o, dead)
	if out, _ := o.succeed(t, "retry", "--all", "--dry-run"); strings.Count(out, "dead") != previewed || !strings.HasSuffix(out, "would retry 3000 tasks\n") {
		t.Errorf("dry run printed\n%s", out)
	}
	o.want(t, queuetest.Counts{Dead: dead})

	batches := 0
	var errs strings.Builder
	q := tapped{o, func(match queue.Filter, limit int) {
		batches++
		if limit > inspect.Batch || len(match.IDs) != limit {
			t.Errorf("a batch of %d, with %d ids", limit, len(match.IDs))
		}
	}}
	ch := retryAll(t)
	ch.progress = time.Nanosecond
	var out strings.Builder
	must(t, ch.run(t.Context(), q, &out, &errs))
	if out.String() != "retried 3000 tasks\n" || batches != dead/inspect.Batch || !strings.Contains(errs.String(), "3000 tasks, ") {
		t.Errorf("printed %q in %d batches; progress %q", out.String(), batches, errs.String())
	}
	o.want(t, queuetest.Counts{Waiting: dead})
	if again := claimAll(t, o, 1); again[0].Attempts != 1 {
		t.Errorf("attempt %d after the retry", again[0].Attempts)
	}
	if out, _ := o.succeed(t, "retry", "--all"); out != "retried 0 tasks\n" {
		t.Errorf("once more: %q", out)
	}
}

// retryAll is what --all says.
func retryAll(t *testing.T) *taskChange {
	t.Helper()
	ch := newRetry()
	cmd := ch.command(&config{}, &cobra.Command{})
	must(t, cmd.Flags().Parse([]string{"--all", "--progress=0"}))
	must(t, ch.choose(cmd, nil))
	return ch
}

func TestAnInterruptStopsBetweenBatches(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	makeDead(t, o, 1700)
	ctx, interrupt := context.WithCancel(t.Context())
	batches := 0
	q := tapped{o, func(queue.Filter, int) {
		batches++
		if batches == 2 {
			interrupt() // in the middle of a batch, which is finished
		}
	}}
	err := retryAll(t).run(ctx, q, io.Discard, io.Discard)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "interrupted: retried 1000 tasks") {
		t.Errorf("%v", err)
	}
	o.want(t, queuetest.Counts{Waiting: 1000, Dead: 700})
}

func TestAFailureSaysHowFarItWas(t *testing.T) {
	t.Parallel()
	q := failing{queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, time.Now)}
	makeDead(t, q.Queue, 3)
	err := retryAll(t).run(t.Context(), q, io.Discard, io.Discard)
	if !errors.Is(err, mysql.ErrUnavailable) || !strings.Contains(err.Error(), "retried 0 tasks, then: ") {
		t.Errorf("%v", err)
	}
}

// failing is a queue whose database goes away when something shall be changed.
type failing struct{ queuetest.Queue }

func (failing) Retry(context.Context, queue.Filter, int) (int, error) {
	return 0, mysql.ErrUnavailable
}

// Workers that take and bury the tasks as fast as they are retried do not keep
// the command busy for ever, and no task is retried twice.
func TestARetryThatMeetsWorkersEnds(t *testing.T) {
	t.Parallel()
	const dead = 1500
	o := newOperator(t)
	ids := makeDead(t, o, dead)
	var mu sync.Mutex
	times := make(map[uint64]int)
	bury := func() {
		list := claimAll(t, o, dead)
		finishAll(t, o, queue.Permanent(errBoom), list...)
		mu.Lock()
		defer mu.Unlock()
		for _, task := range list {
			times[task.ID]++
		}
	}
	working, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for working.Err() == nil {
				bury()
			}
		})
	}
	q := tapped{o, func(queue.Filter, int) { bury() }} // before each batch, those of the one before are dead again
	var out strings.Builder
	err := retryAll(t).run(t.Context(), q, &out, io.Discard)
	stop()
	workers.Wait()
	must(t, err)
	eventually(t, "the last are buried, which a claim may not look at yet", func() bool {
		bury()
		return len(times) == dead
	})
	if out.String() != "retried 1500 tasks\n" {
		t.Errorf("printed %q", out.String())
	}
	for _, id := range ids {
		if times[id] != 1 {
			t.Errorf("task %d ran %d times", id, times[id])
		}
	}
	o.want(t, queuetest.Counts{Dead: dead})
}

func TestOnlyChosenTasksAreRetried(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	ids := makeEveryState(t, o)
	if out, _ := o.succeed(t, "retry", "--type=refill"); out != "retried 0 tasks\n" {
		t.Errorf("another type: %q", out)
	}
	if out, _ := o.succeed(t, "retry", "--type=upload", "--queue=default"); out != "retried 1 tasks\n" {
		t.Errorf("dead ones by default: %q", out)
	}
	o.want(t, queuetest.Counts{Waiting: 2, Scheduled: 1, Running: 1})
	if out, _ := o.succeed(t, "retry", "--member=2", "--state=scheduled"); out != "retried 1 tasks\n" {
		t.Errorf("scheduled ones: %q", out)
	}
	o.want(t, queuetest.Counts{Waiting: 3, Running: 1})
	code, out, errs := o.tasks(t, "retry", fmt.Sprint(ids.dead), "999", fmt.Sprint(ids.running))
	if code != 1 || out != "retried 0 tasks\n" {
		t.Errorf("exit code %d, %q", code, out)
	}
	for _, want := range []string{
		fmt.Sprintf("task %d: it is waiting, and cannot be retried", ids.dead), "task 999: there is none",
		fmt.Sprintf("task %d: it is running", ids.running), "3 of the named tasks were left alone",
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q is not in %q", want, errs)
		}
	}
}

func TestARunningTaskIsNotDiscarded(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	ids := makeEveryState(t, o)
	running := fmt.Sprintf("task %d: it is running, and cannot be discarded\n", ids.running)
	code, out, errs := o.tasks(t, "discard", fmt.Sprint(ids.running))
	if code != 1 || out != "discarded 0 tasks\n" || !strings.Contains(errs, running) {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	code, out, errs = o.tasks(t, "discard", fmt.Sprint(ids.dead), fmt.Sprint(ids.scheduled), fmt.Sprint(ids.running), fmt.Sprint(ids.waiting))
	if code != 1 || out != "discarded 3 tasks\n" || !strings.Contains(errs, running) {
		t.Errorf("with others: exit code %d, %q, %q", code, out, errs)
	}
	if code, _, errs := o.tasks(t, "discard", "--all", "--state=running", "--yes"); code != 1 || !strings.Contains(errs, `is "running": want dead, scheduled, waiting`) {
		t.Errorf("by state: exit code %d, %q", code, errs)
	}
	o.want(t, queuetest.Counts{Running: 1})
}

func TestDiscardTakesDeadOnesUnlessTold(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	ids := makeEveryState(t, o)
	if code, _, errs := o.tasks(t, "discard", "--all"); code != 1 || !strings.Contains(errs, "--yes") {
		t.Errorf("without --yes: exit code %d, %q", code, errs)
	}
	if out, _ := o.succeed(t, "discard", "--all", "--dry-run"); !strings.HasSuffix(out, "would discard 1 tasks\n") || strings.Count(out, "\n") != 3 {
		t.Errorf("dry run: %q", out)
	}
	o.want(t, queuetest.Counts{Waiting: 1, Scheduled: 1, Running: 1, Dead: 1})
	if out, errs := o.succeed(t, "discard", "--all", "--yes"); out != "discarded 1 tasks\n" || errs != "" {
		t.Errorf("%q, %q", out, errs)
	}
	o.want(t, queuetest.Counts{Waiting: 1, Scheduled: 1, Running: 1})
	o.succeed(t, "discard", fmt.Sprint(ids.waiting))
	o.want(t, queuetest.Counts{Scheduled: 1, Running: 1})
}

// A task that another operator has locked, or that changed since it was listed,
// is counted as left alone.
func TestTasksThatChangeMeanwhileAreTold(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	ids := makeDead(t, o, 3)
	q := tapped{o, func(queue.Filter, int) {
		n, err := o.Discard(t.Context(), queue.Filter{IDs: ids[:2]}, 2)
		if n != 2 || err != nil {
			t.Errorf("discarded %d, %v", n, err)
		}
	}}
	var out, errs strings.Builder
	must(t, retryAll(t).run(t.Context(), q, &out, &errs))
	if out.String() != "retried 1 tasks\n" || !strings.HasPrefix(errs.String(), "2 others changed in the meantime") {
		t.Errorf("%q, %q", out.String(), errs.String())
	}
}

// An import that waits is put behind what the site changes from now on, in batches.
func TestAnImportIsPutBehindByOneCommand(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	const imported = 1200
	enqueueUploads(t, o, 1, imported)
	if out, _ := o.succeed(t, "priority", "--queue", "default", "--dry-run"); !strings.HasSuffix(out, "would set the priority of 1200 tasks\n") {
		t.Errorf("dry run printed\n%s", out)
	}
	if out, errs := o.succeed(t, "priority", "--queue", "default"); out != "set the priority of 1200 tasks\n" || errs != "" {
		t.Errorf("printed %q, %q", out, errs)
	}
	live := enqueueUploads(t, o, 9001, 9003)
	if got := claimAll(t, o, 3); len(got) != 3 || got[0].ID != live[0] || got[2].ID != live[2] {
		t.Errorf("claimed %+v, want %v", got, live)
	}
	for args, want := range map[string]string{
		"priority --all --state dead": "--state",
		"priority --queue x --to=-1":  "",
		"priority --type upload --to": "--to",
	} {
		code, _, errs := o.tasks(t, strings.Fields(args)...)
		if (code == 0) != (want == "") || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s, want %q", args, code, errs, want)
		}
	}
}

// Tasks are chosen by what is in their last error, in batches; one that fails otherwise in the meantime is left alone.
func TestTasksAreChosenByTheirError(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	const dead = 1100
	makeDead(t, o, dead)
	_, err := o.db.ExecContext(t.Context(), "UPDATE tasks SET last_error = CONCAT('dial tcp 10.0.0.', subject, ':443: refused') WHERE subject % 2 = 0")
	must(t, err)
	if out, _ := o.succeed(t, "retry", "--error", "dial tcp %: REFUSED", "--dry-run", "-o=json"); !strings.HasSuffix(out, `{"dry_run":true,"would_change":550,"changed":0,"changed_meanwhile":0,"refused":0}`+"\n") || strings.Count(out, "\n") != previewed+1 {
		t.Errorf("dry run printed\n%s", out)
	}
	if out, _ := o.succeed(t, "list", "--error", "10.0.0.8:", "-o=json"); strings.Count(out, "\n") != 1 || !strings.Contains(out, `"subject":"8"`) {
		t.Errorf("listed %s", out)
	}
	ch := newRetry()
	cmd := ch.command(&config{}, &cobra.Command{})
	must(t, cmd.Flags().Parse([]string{"--error=refused", "--output=json"}))
	must(t, ch.choose(cmd, nil))
	q := tapped{o, func(queue.Filter, int) { // between the look and the change
		_, err := o.db.ExecContext(t.Context(), "UPDATE tasks SET last_error = 'timeout' WHERE subject = 2")
		must(t, err)
	}}
	var out strings.Builder
	must(t, ch.run(t.Context(), q, &out, io.Discard))
	if want := `{"changed":549,"changed_meanwhile":1,"refused":0}` + "\n"; out.String() != want {
		t.Errorf("printed %s, want %s", out.String(), want)
	}
	o.want(t, queuetest.Counts{Waiting: 549, Dead: dead - 549})
	if out, _ := o.succeed(t, "discard", "--error=boom", "--type=upload", "--queue=default", "--yes"); out != "discarded 550 tasks\n" {
		t.Errorf("printed %q", out)
	}
	o.want(t, queuetest.Counts{Waiting: 549, Dead: 1})
}
