package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// backfill runs a backfill that must succeed, and returns its summary.
func (m *masses) backfill(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := m.run(t, append([]string{"backfill"}, args...)...)
	if code != exitOK {
		t.Fatalf("backfill %v: exit code %d: %s", args, code, errs)
	}
	return out
}

func wantSummary(t *testing.T, out string, members int) {
	t.Helper()
	if want := fmt.Sprintf("%d of %d members in ", members, members); !strings.HasPrefix(out, want) {
		t.Errorf("said %q, want %q", out, want)
	}
}

// sets returns how many sets there are.
func (m *masses) sets(t *testing.T) int {
	t.Helper()
	keys, err := m.client.Keys(t.Context(), "user_*").Result()
	must(t, err)
	return len(keys)
}

func TestBackfillBuildsWhatIsMissing(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 400)
	wantSummary(t, m.backfill(t, "7"), 1)
	wantSummary(t, m.backfill(t, "5-14"), 10)
	m.wantSets(t, 10)
	wantSummary(t, m.backfill(t), 400)
	m.wantSets(t, 400)
	must(t, m.client.ZRem(t.Context(), "user_9", "10").Err())
	wantSummary(t, m.backfill(t, "--existing", "--rate=4000"), 400)
	m.wantSets(t, 400)
}

func TestBackfillAndVerifyRefuse(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 20)
	m.backfill(t)
	for _, test := range []struct{ args, want string }{
		{"backfill 4711", "no such member from 4711 to 4711"},
		{"backfill --need=5", "the sets in Redis were built with"},
		{"backfill --materialize=active", "want --existing"},
		{"backfill --cancel", "no backfill is under way"},
		{"backfill --cancel 7", "--cancel: takes no members"},
		{"verify 4711", "no such member from 4711 to 4711: want an id of the table users"},
		{"verify --need=5", "the sets in Redis were built with"},
	} {
		code, out, errs := m.run(t, strings.Fields(test.args)...)
		if code != exitFailed || !strings.Contains(errs, test.want) || out != "" {
			t.Errorf("%s: exit code %d: %s%s", test.args, code, out, errs)
		}
	}
	must(t, m.client.Del(t.Context(), "user_3").Err())
	m.backfill(t, "--materialize=active", "--existing")
	m.wantSets(t, 19)
}

// An interrupt leaves the ranges to other processes. The same command joins; a command over chosen members is
// refused; a pause holds it; --cancel ends it.
func TestBackfillIsLeftJoinedPausedAndCancelled(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 2000)
	c := m.spawn(t, "backfill", "--rate=100")
	eventually(t, "it says how far it is", func() bool { return strings.Contains(c.log.String(), " of 2000 members, ") && m.sets(t) > 0 })
	c.signal(t, syscall.SIGINT)
	if code := c.wait(); code != exitFailed || !strings.Contains(c.log.String(), "the same command joins it, and --cancel ends it") {
		t.Fatalf("exit code %d: %s", code, c.log.String())
	}
	if code, _, errs := m.run(t, "backfill", "1-5"); code != exitFailed || !strings.Contains(errs, "a backfill is under way since") {
		t.Errorf("another range: exit code %d: %s", code, errs)
	}
	before := m.sets(t)
	c = m.spawn(t, "backfill")
	eventually(t, "it goes on", func() bool { return m.sets(t) > before && strings.Contains(c.log.String(), "joined the backfill") })
	if code, _, errs := command(t, nil, "tasks", "pause", "backfill", "--mysql-dsn="+m.dsn); code != exitOK {
		t.Fatal(errs)
	}
	eventually(t, "it says that it is paused", func() bool { return strings.Contains(c.log.String(), "paused: activityd tasks resume backfill") })
	if code, _, errs := m.run(t, "backfill", "--cancel"); code != exitOK || !strings.Contains(errs, "the backfill is cancelled") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if code := c.wait(); code != exitFailed || m.sets(t) == 2000 || c.out.String() != "" || !strings.Contains(c.log.String(), "the backfill was cancelled, or") {
		t.Errorf("the one that watched: exit code %d: %s", code, c.log.String())
	}
	if code, _, errs := command(t, nil, "tasks", "resume", "backfill", "--mysql-dsn="+m.dsn); code != exitOK { // cancel left the pause as it was
		t.Fatal(errs)
	}
	m.backfill(t)
	m.wantSets(t, 2000)
}

// A process that is killed, and a process that hangs past its lease, cost time only.
func TestBackfillOutlastsItsProcesses(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 2000)
	killed := m.spawn(t, "backfill", "--rate=300")
	eventually(t, "some sets are built", func() bool { return m.sets(t) > 100 })
	killed.signal(t, syscall.SIGKILL)
	if code := killed.wait(); code != -1 {
		t.Errorf("exit code %d", code)
	}
	stopped := m.spawn(t, "backfill")
	eventually(t, "it has joined", func() bool { return strings.Contains(stopped.log.String(), "joined the backfill") })
	stopped.signal(t, syscall.SIGSTOP)
	out := m.backfill(t)
	if !strings.HasPrefix(out, "2000 of 2000 members in ") {
		t.Errorf("said %q", out)
	}
	m.wantSets(t, 2000)
	stopped.signal(t, syscall.SIGCONT)
	if code := stopped.wait(); code != exitOK && !strings.Contains(stopped.log.String(), "ended while this process stood still") {
		t.Errorf("the one that hung: exit code %d: %s", code, stopped.log.String())
	}
	m.wantSets(t, 2000)
}

// Redis hangs, is restarted and empty, and MySQL dies and comes back. This run does not build the sets that Redis lost.
func TestBackfillOutlastsItsServers(t *testing.T) {
	t.Parallel()
	db := servertest.OwnMySQL(t)
	m := massesOn(t, 2000, db.DSN(servertest.Database), servertest.Redis(t))
	c := m.spawn(t, "backfill", "--rate=300")
	eventually(t, "some sets are built", func() bool { return m.sets(t) > 100 })
	must(t, m.redis.Pause())
	eventually(t, "it says so", func() bool { return strings.Contains(c.log.String(), "Redis") })
	must(t, m.redis.Resume())
	before := m.sets(t)
	eventually(t, "it goes on", func() bool { return m.sets(t) > before })
	must(t, db.Kill())
	must(t, db.Restart(t.Context()))
	if code := c.wait(); code != exitOK || !strings.HasPrefix(c.out.String(), "2000 of 2000 members in ") {
		t.Fatalf("exit code %d: %s%s", code, c.out.String(), c.log.String())
	}
	m.wantSets(t, 2000)
}
