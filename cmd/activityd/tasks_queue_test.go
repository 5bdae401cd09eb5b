package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

func TestPauseAndResumeAQueue(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	enqueueUploads(t, o, 1, 1)
	for _, step := range []struct{ deed, want string }{
		{"resume", "was not paused"}, {"pause", "is paused"}, {"pause", "was paused already"},
	} {
		if out, errs := o.succeed(t, step.deed, "default"); !strings.Contains(out, "queue default "+step.want) || errs != "" {
			t.Errorf("%s: %q, %q", step.deed, out, errs)
		}
	}
	paused, err := o.Paused(t.Context())
	must(t, err)
	if !slices.Equal(paused, []string{"default"}) {
		t.Errorf("paused are %v", paused)
	}
	if out, _ := o.succeed(t, "stats", "--over=0"); !strings.HasSuffix(strings.Split(out, "\n")[1], "paused") {
		t.Errorf("stats:\n%s", out)
	}
	o.succeed(t, "resume", "default")
	if paused, err := o.Paused(t.Context()); err != nil || len(paused) != 0 {
		t.Errorf("paused are %v, %v", paused, err)
	}
}

func TestAStrangeQueueIsWarnedOf(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	const warning = `no task is in a queue "defaults", and it is none of default, fan_out, fan_out_again, refill, backfill, check, push, push_deliver, push_urgent: is it misspelt?`
	for _, step := range []struct {
		deed, out string
		warned    bool
	}{
		{"resume", "was not paused", true}, {"pause", "is paused", true}, {"pause", "was paused already", false}, {"resume", "is resumed", false},
	} {
		if out, errs := o.succeed(t, step.deed, "defaults"); !strings.Contains(out, "queue defaults "+step.out) || strings.Contains(errs, warning) != step.warned {
			t.Errorf("%s: %q, %q", step.deed, out, errs)
		}
	}
	own := tasks.NewUpload(1)
	own.Queue = "own"
	_, err := o.Enqueue(t.Context(), []queue.New{own})
	must(t, err)
	if _, errs := o.succeed(t, "pause", "own"); errs != "" {
		t.Errorf("a queue with tasks: %q", errs)
	}
	if code, _, errs := o.tasks(t, "pause", strings.Repeat("q", 33)); code != 1 || !strings.Contains(errs, "queue") {
		t.Errorf("a name that is too long: exit code %d, %q", code, errs)
	}
}

func TestStatsCountWhatThereIs(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	if out, _ := o.succeed(t, "stats", "--over=0"); out != "there are no tasks, and no queue is paused\n" {
		t.Errorf("without tasks: %q", out)
	}
	if out, _ := o.succeed(t, "stats", "--over=100ms", "-o=json"); !strings.Contains(out, `"queues":[],"more_queues":false`) {
		t.Errorf("without tasks: %q", out)
	}
	makeEveryState(t, o)
	out, _ := o.succeed(t, "stats", "--over=0")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 4 {
		t.Fatalf("printed\n%s", out)
	}
	for i, want := range []string{
		"QUEUE TYPE WAITING SCHEDULED RUNNING DEAD OLDEST WAITING", "default all 1 1 1 1", "add_contact 1 0 0 0", "upload 0 1 1 1",
	} {
		if got := strings.Join(strings.Fields(lines[i]), " "); !strings.HasPrefix(got, want) {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
	out, _ = o.succeed(t, "stats", "--output=json", "--over=0")
	var got inspect.Queues
	must(t, json.Unmarshal([]byte(out), &got))
	if len(got.Queues) != 1 || got.Queues[0].Oldest < 0 || got.Queues[0].Oldest > 600 || got.Queues[0].Types[0].Oldest > 600 {
		t.Fatalf("as JSON: %s", out)
	}
	got.Queues[0].Types[0].Oldest = 0
	if diff := cmp.Diff([]inspect.Kind{{Type: "add_contact", Waiting: 1}, {Type: "upload", Scheduled: 1, Running: 1, Dead: 1}}, got.Queues[0].Types); diff != "" {
		t.Errorf("as JSON (-want +got):\n%s", diff)
	}
}

// The changes are from two looks: how many more wait, and when none will.
func TestStatsSayHowFastWhatWaitsChanges(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	enqueueUploads(t, o, 1, 20)
	_, err := o.db.ExecContext(t.Context(), "UPDATE tasks SET created_at = created_at - 60000")
	must(t, err)
	ctx, interrupt := context.WithCancel(t.Context())
	looks := 0
	q := between{o.Queue, func() {
		looks++
		if looks == 2 {
			finishAll(t, o, nil, claimAll(t, o, 8)...)
			enqueueUploads(t, o, 101, 103)
		}
	}}
	var out strings.Builder
	must(t, (&taskWatch{output: outputJSON, over: minWatch}).run(ctx, q, &out, io.Discard))
	var got inspect.Queues
	must(t, json.Unmarshal([]byte(out.String()), &got))
	one := got.Queues[0]
	if want := -5 / got.Over; got.Over < 0.1 || one.Change == nil || math.Abs(*one.Change-want) > 0.01 || math.Abs(*one.Types[0].Change-want) > 0.01 ||
		one.EmptyIn == nil || math.Abs(*one.EmptyIn-15/-want) > 0.01 {
		t.Errorf("%s", out.String())
	}
	interrupt()
	if err := (&taskWatch{over: minWatch}).run(ctx, o.Queue, io.Discard, io.Discard); err == nil {
		t.Error("it goes on after an interrupt")
	}
}

// between is a queue that is told of each look.
type between struct {
	looker

	before func()
}

func (b between) Stats(ctx context.Context) (queue.Stats, error) {
	b.before()
	return b.looker.Stats(ctx)
}

// stater is a queue with the statistics that stats returns.
type stater struct {
	stats func() (queue.Stats, error)
}

func (s stater) Stats(context.Context) (queue.Stats, error) { return s.stats() }

func TestWatchingGoesOnUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		looks := 0
		q := stater{stats: func() (queue.Stats, error) {
			looks++
			if looks == 2 {
				return queue.Stats{}, mysql.ErrUnavailable
			}
			return queue.Stats{}, nil
		}}
		var out, errs strings.Builder
		ended := make(chan error)
		go func() { ended <- (&taskWatch{output: outputTable, every: 2 * time.Second}).run(ctx, q, &out, &errs) }()
		time.AfterFunc(7*time.Second, interrupt)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if looks != 4 || strings.Count(out.String(), ", every 2s\nthere are no tasks") != 3 || strings.Contains(out.String(), "\x1b") {
			t.Errorf("%d looks, printed\n%s", looks, out.String())
		}
		if !strings.Contains(errs.String(), mysql.ErrUnavailable.Error()) {
			t.Errorf("said %q", errs.String())
		}
	})
}

func TestWatchingEndsWithOtherErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		q := stater{stats: func() (queue.Stats, error) {
			looks++
			if looks == 2 {
				return queue.Stats{}, errBoom
			}
			return queue.Stats{}, nil
		}}
		if err := (&taskWatch{output: outputJSON, every: time.Second}).run(t.Context(), q, io.Discard, io.Discard); !errors.Is(err, errBoom) || looks != 2 {
			t.Errorf("%v after %d looks", err, looks)
		}
	})
}
