package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

func TestTasksListShowsEveryState(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	ids := makeEveryState(t, o)
	out, _ := o.succeed(t, "list")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "ID ") {
		t.Fatalf("listed:\n%s", out)
	}
	for i, want := range []struct {
		id    uint64
		cells []string
	}{
		{ids.dead, []string{"default", "upload  ", " 1       -  ", "dead", "1/25", "boom"}},
		{ids.scheduled, []string{"upload", "scheduled", "0/25", "in 59m", "boom"}},
		{ids.running, []string{"upload", "running", "1/25", "lease 59m"}},
		{ids.waiting, []string{"add_contact", "  contact_id:5  ", "waiting    0  "}},
	} {
		line := lines[i+1]
		if !strings.HasPrefix(line, fmt.Sprint(want.id)) {
			t.Errorf("line %d is %q, want that of task %d", i, line, want.id)
		}
		for _, cell := range want.cells {
			if !strings.Contains(line, cell) {
				t.Errorf("%q has no %q", line, cell)
			}
		}
		if strings.HasSuffix(line, " ") {
			t.Errorf("%q ends in space", line)
		}
	}
	state := strings.Index(lines[0], "STATE")
	for _, line := range lines[1:] {
		if line[state-1] != ' ' || line[state] == ' ' {
			t.Errorf("%q is not aligned with %q", line, lines[0])
		}
	}
}

func TestTasksListFilters(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	ids := makeEveryState(t, o)
	for args, want := range map[string][]uint64{
		"":                             {ids.dead, ids.scheduled, ids.running, ids.waiting},
		"--state dead":                 {ids.dead},
		"--state dead --state waiting": {ids.dead, ids.waiting},
		"--state dead,running":         {ids.dead, ids.running},
		"--type add_contact":           {ids.waiting},
		"--type upload --state dead":   {ids.dead},
		"--member 2":                   {ids.scheduled},
		"--queue default --member 3":   {ids.running},
		"--queue refill":               nil,
		fmt.Sprint("", ids.dead):       {ids.dead},
		fmt.Sprintf("%d 999 %d %d", ids.waiting, ids.dead, ids.dead): {ids.dead, ids.waiting},
		fmt.Sprint("--after ", ids.running):                          {ids.waiting},
	} {
		out, errs := o.succeed(t, append([]string{"list", "--output=json"}, strings.Fields(args)...)...)
		if got := idsOf(t, out); !slices.Equal(got, want) {
			t.Errorf("%s: listed %v, want %v", args, got, want)
		}
		if none := strings.Contains(errs, "no such tasks"); none != (want == nil) {
			t.Errorf("%s: said %q", args, errs)
		}
	}
}

// idsOf returns the ids in lines of JSON.
func idsOf(t *testing.T, lines string) (ids []uint64) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var task struct {
			ID uint64 `json:"id,string"`
		}
		must(t, json.Unmarshal([]byte(line), &task))
		ids = append(ids, task.ID)
	}
	return ids
}

func TestTasksListInPages(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	ids := enqueueUploads(t, o, 1, 1203)
	out, errs := o.succeed(t, "list", "-o", "json", "--limit=0")
	if got := idsOf(t, out); !slices.Equal(got, ids) || errs != "" {
		t.Errorf("listed %d tasks, want %d; said %q", len(got), len(ids), errs)
	}
	if out, _ := o.succeed(t, "list", "--limit=0"); strings.Count(out, "\n") != 1204 || strings.Count(out, "QUEUE") != 1 {
		t.Errorf("a table of %d lines, want 1204 with the header", strings.Count(out, "\n"))
	}
	var paged []uint64
	for after, more := uint64(0), true; more; after = paged[len(paged)-1] {
		out, errs := o.succeed(t, "list", "-o=json", "--limit=401", fmt.Sprint("--after=", after))
		paged = append(paged, idsOf(t, out)...)
		more = strings.Contains(errs, fmt.Sprintf("there are more: go on with --after %d,", paged[len(paged)-1]))
	}
	if !slices.Equal(paged, ids) {
		t.Errorf("%d tasks in pages, want %d", len(paged), len(ids))
	}
	if out, errs := o.succeed(t, "list"); strings.Count(out, "\n") != 51 || !strings.Contains(errs, "there are more: go on with --after 50,") {
		t.Errorf("by default %d lines; said %q", strings.Count(out, "\n"), errs)
	}
	if out, errs := o.succeed(t, "list", "--limit=1203"); strings.Count(out, "\n") != 1204 || errs != "" {
		t.Errorf("exactly all: %d lines; said %q", strings.Count(out, "\n"), errs)
	}
}

func TestTasksShow(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	id := enqueueUploads(t, o, 7, 7)[0]
	long := "panic: <nil> map\n\tmain.go:7\n" + strings.Repeat("frame\n", 100) + "the end \x1b[31mred"
	finishAll(t, o, queue.Permanent(fmt.Errorf("%s", long)), claimAll(t, o, 1)...)
	other := enqueueUploads(t, o, 8, 8)[0]

	out, _ := o.succeed(t, "show", fmt.Sprint(id), fmt.Sprint(other))
	for _, want := range []string{
		fmt.Sprintf("task %d\n", id), "type          upload", "member        7", "state         dead", "attempts      1 of 25",
		"last error\n    panic: <nil> map\n    \tmain.go:7\n    frame\n", "the end \\u001b[31mred", fmt.Sprintf("\ntask %d\n", other), "dedupe key    upload:8",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	out, _ = o.succeed(t, "show", fmt.Sprint(other), fmt.Sprint(id), fmt.Sprint(id), "-o", "json")
	if got := idsOf(t, out); !slices.Equal(got, []uint64{id, other}) || !strings.Contains(out, `"last_error":"panic: <nil> map\n`) {
		t.Errorf("as JSON: %s", out)
	}
	code, out, errs := o.tasks(t, "show", "999", fmt.Sprint(id), "5000")
	if code != 1 || !strings.Contains(errs, "there is no task 999 5000") || !strings.Contains(out, fmt.Sprint("task ", id)) {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
}

// Any number of ids is looked for, in queries of a bounded size.
func TestManyIDsAreListedInBatches(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	ids := enqueueUploads(t, o, 1, 1203)
	args := []string{"list", "-o", "json", "--limit=0"}
	for _, id := range ids {
		args = append(args, fmt.Sprint(id))
	}
	out, _ := o.succeed(t, args...)
	if got := idsOf(t, out); !slices.Equal(got, ids) {
		t.Errorf("listed %d tasks, want %d", len(got), len(ids))
	}
	queries := 0
	for page, err := range inspect.Pages(t.Context(), o, queue.Filter{IDs: ids}, inspect.Batch) {
		must(t, err)
		queries++
		if len(page) > inspect.Batch {
			t.Errorf("a page of %d", len(page))
		}
	}
	if queries != 3 {
		t.Errorf("%d queries, want 3", queries)
	}
}

func TestShortDurations(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 59*time.Second + 999*time.Millisecond: "59s", time.Minute: "1m00s", 3*time.Minute + 7*time.Second: "3m07s",
		time.Hour: "1h00m", 26 * time.Hour: "1d02h", 1000 * 24 * time.Hour: "1000d00h",
	} {
		if got := inspect.Duration(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

func TestTasksAsJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 5, 0, 0, 7e6, time.FixedZone("", 3600))
	full := queue.Record{
		ID: 1<<64 - 1, Queue: "default", Kind: tasks.AddContact, Key: 7, Payload: json.RawMessage(`{"contact_id": "8"}`), Priority: -10,
		State: queue.Running, Attempts: 2, MaxAttempts: 25, LeaseOwner: "me", LeaseUntil: at, ExpiresAt: at, DedupeKey: "k",
		LastError: "a <b>\n", Created: at, Started: at,
	}
	for _, c := range []struct {
		record queue.Record
		want   string
	}{
		{full, `{"id":"18446744073709551615","queue":"default","type":"add_contact","subject":"7","args":{"contact_id":"8"},"priority":-10,` +
			`"state":"running","attempts":2,"max_attempts":25,"created_at":"2026-11-21T04:00:00.007Z","started_at":"2026-11-21T04:00:00.007Z",` +
			`"expires_at":"2026-11-21T04:00:00.007Z","lease_owner":"me","lease_until":"2026-11-21T04:00:00.007Z","dedupe_key":"k","last_error":"a <b>\n"}`},
		{
			queue.Record{ID: 1, State: queue.Scheduled, RunAt: at, Created: at, Started: at},
			`{"id":"1","queue":"","type":"","subject":"0","priority":0,"state":"scheduled","attempts":0,` +
				`"created_at":"2026-11-21T04:00:00.007Z","started_at":"2026-11-21T04:00:00.007Z",` +
				`"run_at":"2026-11-21T04:00:00.007Z"}`,
		},
	} {
		var out strings.Builder
		must(t, newTaskPrinter(&out, outputJSON).print([]queue.Record{c.record}))
		if diff := cmp.Diff(c.want+"\n", out.String()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
