package main

import (
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// operator has a queue in MariaDB, and runs commands on it.
type operator struct {
	*queue.Queue

	db  *sql.DB
	dsn string
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	dsn := servertest.MySQLDSN(t)
	db, err := mysql.Open(dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return &operator{queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Owner: "test"}), db, dsn}
}

// tasks runs activityd tasks.
func (o *operator) tasks(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return command(t, nil, append(append([]string{"tasks"}, args...), "--mysql-dsn="+o.dsn)...)
}

// succeed runs activityd tasks, which must succeed.
func (o *operator) succeed(t *testing.T, line string) (stdout, stderr string) {
	t.Helper()
	code, out, errs := o.tasks(t, strings.Fields(line)...)
	if code != 0 {
		t.Fatalf("tasks %s: exit code %d: %s", line, code, errs)
	}
	return out, errs
}

// enqueueUploads enqueues an upload of each of the members first to last, and returns the ids of the tasks.
func (o *operator) enqueueUploads(t *testing.T, first, last int) (ids []uint64) {
	t.Helper()
	for i := first; i <= last; i++ {
		some, err := o.Enqueue(t.Context(), []queue.New{tasks.NewUpload(member.ID(i))})
		must(t, err)
		ids = append(ids, some...)
	}
	return ids
}

// finish claims n tasks and finishes them with a result.
func (o *operator) finish(t *testing.T, result error, n int) {
	t.Helper()
	queuetest.Finish(t, o, result, queuetest.Claim(t, o, n)...)
}

var errBoom = errors.New("boom")

// makeDead makes dead tasks, of members 1 to n.
func (o *operator) makeDead(t *testing.T, n int) []uint64 {
	t.Helper()
	ids := o.enqueueUploads(t, 1, n)
	o.finish(t, queue.Permanent(errBoom), n)
	return ids
}

// everyState is the ids of a task in each state.
type everyState struct{ dead, scheduled, running, waiting uint64 }

func (o *operator) makeEveryState(t *testing.T) everyState {
	t.Helper()
	dead := o.makeDead(t, 1)[0]
	scheduled := o.enqueueUploads(t, 2, 2)[0]
	o.finish(t, queue.Later(time.Hour, errBoom), 1)
	running := o.enqueueUploads(t, 3, 3)[0]
	queuetest.Claim(t, o, 1)
	ids, err := o.Enqueue(t.Context(), []queue.New{tasks.NewAddContact(4, 5)})
	must(t, err)
	return everyState{dead, scheduled, running, ids[0]}
}

func TestTasksListShowsEveryState(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	ids := o.makeEveryState(t)
	out, _ := o.succeed(t, "list")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "ID ") {
		t.Fatalf("listed:\n%s", out)
	}
	state := strings.Index(lines[0], "STATE")
	for i, want := range []struct {
		id    uint64
		cells []string
	}{
		{ids.dead, []string{"default", "upload  ", " 1       -  ", "dead", "1/25", "boom"}},
		{ids.scheduled, []string{"upload", "scheduled", "0/25", "in 59m", "boom"}},
		{ids.running, []string{"upload", "running", "1/25", "lease "}},
		{ids.waiting, []string{"add_contact", "  contact_id:5  ", "waiting    0  "}},
	} {
		line := lines[i+1]
		if !strings.HasPrefix(line, fmt.Sprint(want.id)) || line[state-1] != ' ' || line[state] == ' ' {
			t.Errorf("line %d is %q, want that of task %d", i, line, want.id)
		}
		for _, cell := range want.cells {
			if !strings.Contains(line, cell) {
				t.Errorf("%q has no %q", line, cell)
			}
		}
	}
	if _, errs := o.succeed(t, "list --limit=2"); errs != "there are more: --limit 0 lists all\n" {
		t.Errorf("of two: %q", errs)
	}
	out, _ = o.succeed(t, "list --json --state=waiting")
	want := fmt.Sprintf(`^\{"id":"%d","queue":"default","type":"add_contact","subject":"4","args":\{"contact_id": ?"5"\},"priority":0,"state":"waiting",`+
		`"attempts":0,"dedupe_key":"[^"]+","created_at":"20[^"]+"\}\n$`, ids.waiting)
	if !regexp.MustCompile(want).MatchString(out) {
		t.Errorf("as JSON: %s, want %s", out, want)
	}
}

func TestTasksThatAreNamedAreShown(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	id := o.enqueueUploads(t, 7, 7)[0]
	long := "panic: <nil> map\n\tmain.go:7\n" + strings.Repeat("frame\n", 100) + "the end \x1b[31mred"
	o.finish(t, queue.Permanent(errors.New(long)), 1)
	waiting := o.enqueueUploads(t, 8, 8)[0]
	out, _ := o.succeed(t, fmt.Sprint("list ", id, " ", waiting))
	for _, want := range []string{
		fmt.Sprintf("task %d\n", id), "type          upload", "member        7", "state         dead", "attempts      1 of 25",
		"last error\n    panic: <nil> map\n    \tmain.go:7\n    frame\n", "the end \\u001b[31mred", fmt.Sprintf("\ntask %d\n", waiting), "dedupe key    upload:8",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	code, out, errs := o.tasks(t, "list", "999", fmt.Sprint(id), "5000")
	if code != 1 || !strings.Contains(errs, "there is no task 999 5000") || !strings.Contains(out, fmt.Sprint("task ", id)) {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
}

func TestTasksAreChangedByTheirState(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	ids := o.makeEveryState(t)
	word := func(id uint64) string { return fmt.Sprint(" ", id) }
	for _, step := range []struct {
		line, out, errs string // errs: the command fails
		left            queuetest.Counts
	}{
		{"retry --type=refill", "retried 0 tasks\n", "", queuetest.Counts{Waiting: 1, Scheduled: 1, Running: 1, Dead: 1}},
		{"retry --type=upload --queue=default", "retried 1 tasks\n", "", queuetest.Counts{Waiting: 2, Scheduled: 1, Running: 1}},
		{"retry --member=2 --state=scheduled", "retried 1 tasks\n", "", queuetest.Counts{Waiting: 3, Running: 1}},
		{"retry 999" + word(ids.running), "retried 0 tasks\n", "2 of the named tasks are gone, or in none of the states [dead scheduled]", queuetest.Counts{Waiting: 3, Running: 1}},
		{"discard 999" + word(ids.running) + word(ids.dead), "discarded 1 tasks\n", "2 of the named tasks are gone", queuetest.Counts{Waiting: 2, Running: 1}},
		{"discard --all", "", "this deletes tasks for good", queuetest.Counts{Waiting: 2, Running: 1}},
		{"discard --type=add_contact --state=waiting --yes", "discarded 1 tasks\n", "", queuetest.Counts{Waiting: 1, Running: 1}},
		{"discard --member=2 --yes", "discarded 0 tasks\n", "", queuetest.Counts{Waiting: 1, Running: 1}},
		{"discard --member=2 --state=waiting,scheduled --yes", "discarded 1 tasks\n", "", queuetest.Counts{Running: 1}},
	} {
		code, out, errs := o.tasks(t, strings.Fields(step.line)...)
		if (code == 0) != (step.errs == "") || !strings.HasSuffix(out, step.out) || !strings.Contains(errs, step.errs) {
			t.Errorf("%s: exit code %d, %q, %q", step.line, code, out, errs)
		}
		queuetest.ExpectCounts(t, o, step.left)
	}
	o.enqueueUploads(t, 50, 52)
	if out, _ := o.succeed(t, "discard --dedupe-key=upload:51 --state=waiting --yes"); out != "discarded 1 tasks\n" {
		t.Errorf("by its dedupe key: %q", out)
	}
	o.finish(t, nil, 2)
	o.enqueueUploads(t, 101, 112)
	o.finish(t, queue.Permanent(errBoom), 12)
	if out, _ := o.succeed(t, "discard --error=BOOM --yes"); out != "discarded 12 tasks\n" {
		t.Errorf("printed %q", out)
	}
	queuetest.ExpectCounts(t, o, queuetest.Counts{Running: 1})
}

func TestWrongTasksFlagsAreRefused(t *testing.T) {
	t.Parallel()
	// A variable for an earlier command must not decide about later commands.
	environ := []string{"ACTIVITYD_ALL=true", "ACTIVITYD_TYPE=upload", "ACTIVITYD_STATE=nonsense", "ACTIVITYD_YES=true"}
	if code, _, errs := command(t, environ, "tasks", "discard", "--yes", dsn); code != 1 || !strings.Contains(errs, "discard which tasks?") {
		t.Errorf("exit code %d, %q", code, errs)
	}
}

func TestPauseAndResumeAQueue(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.enqueueUploads(t, 1, 1)
	const strange = `"defaults" is no queue of activityd's own: those are [default fan_out `
	for _, step := range []struct{ line, out, errs string }{
		{"resume default", "was not paused", ""},
		{"pause default", "is paused", ""},
		{"pause default", "was paused already", ""},
		{"resume defaults", "was not paused", strange},
		{"pause defaults", "is paused", strange},
		{"resume defaults", "is resumed", strange},
	} {
		out, errs := o.succeed(t, step.line)
		if !strings.Contains(out, step.out) || !strings.Contains(errs, step.errs) || (errs == "") != (step.errs == "") {
			t.Errorf("%s: %q, %q", step.line, out, errs)
		}
	}
	if paused, err := o.Paused(t.Context()); err != nil || !slices.Equal(paused, []string{"default"}) {
		t.Errorf("paused are %v, %v", paused, err)
	}
	if out, _ := o.succeed(t, "stats"); !strings.HasSuffix(strings.Split(out, "\n")[1], "paused") {
		t.Errorf("stats:\n%s", out)
	}
}

func TestStatsCountWhatThereIs(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	if out, _ := o.succeed(t, "stats"); out != "there are no tasks, and no queue is paused\n" {
		t.Errorf("without tasks: %q", out)
	}
	o.makeEveryState(t)
	out, _ := o.succeed(t, "stats")
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
}
