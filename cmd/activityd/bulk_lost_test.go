package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// interrupted runs a backfill until it is half way, and returns its file.
func (m *masses) interrupted(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "resume.json")
	c := m.spawn(t, "backfill", "--resume="+file, "--rate=100")
	eventually(t, "it is half way", func() bool { return readKept(t, file).Position > 300 })
	c.signal(t, syscall.SIGINT)
	if code := c.wait(); code != exitFailed || !strings.Contains(c.said(), "the same command goes on there") {
		t.Fatalf("exit code %d: %s", code, c.said())
	}
	return file
}

// A backfill does not go on where its sets are gone: it would leave most of them
// missing, and call it a success.
func TestBackfillDoesNotGoOnAfterALoss(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(ctx context.Context, m *masses) error{
		"emptied": func(ctx context.Context, m *masses) error { return m.client.FlushAll(ctx).Err() },
		"reset": func(ctx context.Context, m *masses) error {
			_, err := index.New(m.client, index.Options{}).Reset(ctx)
			return err
		},
		"older data": func(ctx context.Context, m *masses) error { return m.client.Set(ctx, "activityd_mark", 6, 0).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMasses(t, 1000)
			if name == "older data" { // a snapshot that was restored in place
				must(t, m.client.Set(t.Context(), "activityd_mark", 7, 0).Err())
			}
			file := m.interrupted(t)
			before := readKept(t, file)
			must(t, lose(t.Context(), m))
			code, out, errs := m.run(t, "backfill", "--resume="+file)
			if code != exitFailed || out != "" || !strings.Contains(errs, "sets were lost since "+file+" was written: delete it to start over") {
				t.Fatalf("exit code %d: %s%s", code, out, errs)
			}
			if now := readKept(t, file); now.Position != before.Position || !cmp.Equal(now.Epoch, before.Epoch) {
				t.Errorf("refused, and kept %+v, before %+v", now, before)
			}
			must(t, os.Remove(file))
			m.backfill(t, "--resume="+file)
			m.wantSets(t, 1000)
		})
	}
}

func TestBackfillSaysWhereItGoesOn(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 1000)
	file := m.interrupted(t)
	k := readKept(t, file)
	code, out, errs := m.run(t, "backfill", "--resume="+file)
	if code != exitOK || !strings.Contains(errs, fmt.Sprintf("going on after member %s (saved %s", k.Position, k.Updated.Format(time.DateTime))) {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	m.wantSets(t, 1000)
}

// What is lost while it runs is noticed, too, and the file is gone then: the same
// command begins anew.
func TestALossMeanwhileIsNoSuccess(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 1000)
	file := filepath.Join(t.TempDir(), "resume.json")
	c := m.spawn(t, "backfill", "--resume="+file, "--rate=150")
	eventually(t, "it is half way", func() bool { return readKept(t, file).Position > 300 })
	must(t, m.client.FlushAll(t.Context()).Err())
	if code := c.wait(); code != exitFailed || !strings.Contains(c.said(), "sets were lost while this ran") || strings.Contains(c.said(), "go on") {
		t.Fatalf("exit code %d: %s%s", code, c.stdout.String(), c.said())
	}
	m.backfill(t, "--resume="+file)
	m.wantSets(t, 1000)
}

// Two commands do not share a file.
func TestOneCommandAtATimeWorksWithAFile(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 800)
	file := filepath.Join(t.TempDir(), "resume.json")
	c := m.spawn(t, "backfill", "--resume="+file, "--rate=150")
	eventually(t, "it has begun", func() bool { return readKept(t, file).Position > 0 })
	code, out, errs := m.run(t, "backfill", "--resume="+file)
	if code != exitFailed || out != "" || !strings.Contains(errs, "another command is at work with "+file) {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if code := c.wait(); code != exitOK {
		t.Errorf("the first one: exit code %d: %s", code, c.said())
	}
	m.wantSets(t, 800)
	if left, err := filepath.Glob(filepath.Dir(file) + "/*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Where serve keeps the sets of active members, no command builds everybody's.
func TestCommandsKeepToWhatServeKeeps(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 50)
	c := configFor(t, m.dsn, m.url)
	c.materialize = materializeActive
	r := start(t, c)
	must(t, m.client.FlushAll(t.Context()).Err())
	m.awaitKept(t, materializeActive)
	must(t, r.stop())
	const want = "is all, but the sets in Redis are kept with --materialize=active"
	for _, args := range []string{"backfill", "backfill 7", "verify --repair"} {
		code, out, errs := m.run(t, strings.Fields(args)...)
		if code != exitFailed || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d: %s%s", args, code, out, errs)
		}
	}
	m.wantSets(t, 0)
	if code, _, errs := m.run(t, "verify"); code != exitWrong || !strings.Contains(errs, "warning: ") || !strings.Contains(errs, want) {
		t.Errorf("verify: exit code %d: %s", code, errs)
	}
	if code, out, errs := m.run(t, "verify", "--repair", "--materialize=active"); code != exitOK || strings.Contains(errs, "warning") {
		t.Errorf("verify as serve: exit code %d: %s%s", code, out, errs)
	}
	var n int
	must(t, m.db.QueryRow("SELECT COUNT(*) FROM tasks").Scan(&n))
	if n > 0 {
		t.Errorf("%d tasks were enqueued", n)
	}
	// What is stored last holds.
	r = start(t, configFor(t, m.dsn, m.url))
	m.awaitKept(t, materializeAll)
	must(t, r.stop())
	wantSummary(t, m.backfill(t), 50, 50, 0)
}

// awaitKept waits until serve has stored whose sets it keeps.
func (m *masses) awaitKept(t *testing.T, whose string) {
	t.Helper()
	eventually(t, "serve stores that it keeps the sets of "+whose, func() bool {
		return m.client.Get(t.Context(), "activityd_materialize").Val() == whose
	})
}

// A Redis that is away when serve starts is told later whose sets are kept now.
func TestServeStoresLaterWhoseSetsItKeeps(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	m := massesOn(t, 5, servertest.MySQLDSN(t), server)
	c := configFor(t, m.dsn, m.url)
	must(t, m.client.Set(t.Context(), "activityd_materialize", materializeAll, 0).Err())
	c.materialize = materializeActive
	must(t, server.Pause())
	start(t, c)
	must(t, server.Resume())
	m.awaitKept(t, materializeActive)
}

// Looking at answers does not let idle members' sets live longer.
func TestVerifyDoesNotProlongASet(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 20)
	m.backfill(t)
	for i := range 20 {
		must(t, m.client.Expire(t.Context(), index.UserKey(member.ID(i+1)), time.Hour).Err())
	}
	if code, out, errs := m.run(t, "verify", "--answers=1", "--materialize=active"); code != exitOK || !strings.Contains(out, "20 answers") {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	for i := range 20 {
		if life := m.client.TTL(t.Context(), index.UserKey(member.ID(i+1))).Val(); life <= 0 || life > time.Hour {
			t.Errorf("the set of %d lives for %v", i+1, life)
		}
	}
}

// Who was given up is named, and the run is no success.
func TestWhoWasGivenUpIsNamed(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	b := &bulkCommand{reporter: newReporter(&said, 0)}
	if err := b.errGivenUp(bulk.Counts{"seen": 7}); err != nil {
		t.Errorf("no member was given up: %v", err)
	}
	for i := range member.ID(12) {
		b.GaveUp(i+1, tasks.ErrContended)
	}
	if !strings.Contains(said.String(), "gave up member 12: "+tasks.ErrContended.Error()) {
		t.Errorf("said %s", said.String())
	}
	n := bulk.Counts{bulk.Failed: 12}
	if err := b.errGivenUp(n); exitCode(err) != exitFailed || !strings.Contains(fmt.Sprint(err), "12 members failed every time and were given up: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …") {
		t.Errorf("ended with %v", err)
	}
	if text := backfillSummary(bulk.Result{Checkpoint: bulk.Checkpoint{Counts: n}}); !strings.Contains(text, ", 12 failed; ") {
		t.Errorf("summary %q", text)
	}
}

// A verification that could not judge everybody is no success.
func TestAnUnfinishedJudgementIsNoSuccess(t *testing.T) {
	t.Parallel()
	v := &verification{bulkCommand: &bulkCommand{reporter: newReporter(io.Discard, 0)}, options: &verifyOptions{}}
	for _, test := range []struct {
		counts bulk.Counts
		code   int
		want   string
	}{
		{bulk.Counts{countChecked: 9}, exitOK, "<nil>"},
		{bulk.Counts{countUnsettled: 2}, exitFailed, "2 sets or answers changed too often to be judged"},
		{bulk.Counts{bulk.Failed: 1}, exitFailed, "1 members failed every time and were given up"},
		{bulk.Counts{countErroneous: 3, countUnsettled: 2}, exitWrong, "3 sets or answers are wrong"},
	} {
		err := v.conclude(test.counts)
		if exitCode(err) != test.code || !strings.Contains(fmt.Sprint(err), test.want) {
			t.Errorf("%v: %v with exit code %d, want %d", test.counts, err, exitCode(err), test.code)
		}
	}
}
