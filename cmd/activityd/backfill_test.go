package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/testing/localserver"
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

func wantSummary(t *testing.T, out string, seen, built, skipped int) {
	t.Helper()
	want := fmt.Sprintf("%d members seen: %d sets built, %d skipped because they were there, 0 without contacts that uploaded; ", seen, built, skipped)
	if !strings.HasPrefix(out, want) {
		t.Errorf("said %q, want %q", out, want)
	}
}

func TestBackfillBuildsWhatIsMissing(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 400)
	wantSummary(t, m.backfill(t, "7"), 1, 1, 0)
	wantSummary(t, m.backfill(t, "5-14"), 10, 9, 1)
	wantSummary(t, m.backfill(t, "--after=390"), 10, 10, 0)
	m.wantSets(t, 20)
	wantSummary(t, m.backfill(t), 400, 380, 20)
	m.wantSets(t, 400)
	wantSummary(t, m.backfill(t, "--all", "--existing", "--rate=4000"), 400, 400, 0)
	m.wantSets(t, 400)
}

func TestBackfillRefuses(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 20)
	m.backfill(t)
	for _, test := range []struct{ args, want string }{
		{"4711", "member 4711: no such member"},
		{"--need=5", "the sets in Redis were built with"},
		{"--materialize=active", "want --existing"},
	} {
		code, out, errs := m.run(t, append([]string{"backfill"}, strings.Fields(test.args)...)...)
		if code != exitFailed || !strings.Contains(errs, test.want) || out != "" {
			t.Errorf("%s: exit code %d: %s%s", test.args, code, out, errs)
		}
	}
	must(t, m.client.Del(t.Context(), "user_3").Err())
	if out := m.backfill(t, "--materialize=active", "--existing"); !strings.Contains(out, "19 sets built") || !strings.Contains(out, "1 left without a set") {
		t.Errorf("said %q", out)
	}
	m.wantSets(t, 19)
}

// A kill in the middle costs what was done in the last half second. No member is left
// out or counted twice.
func TestBackfillGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 2000)
	file := filepath.Join(t.TempDir(), "resume.json")
	for kills := range 2 {
		before := readKept(t, file).Position
		c := m.spawn(t, "backfill", "--resume="+file, "--rate=400")
		eventually(t, "it has come further", func() bool { return readKept(t, file).Position > before })
		c.signal(t, syscall.SIGKILL)
		if code := c.wait(); code != -1 {
			t.Errorf("kill %d: exit code %d: %s", kills, code, c.said())
		}
		code, _, errs := m.run(t, "backfill", "--resume="+file)
		if code != exitFailed || !strings.Contains(errs, fmt.Sprintf("/%d@", c.cmd.Process.Pid)) || !strings.Contains(errs, "if it has died, its name is free within 30s") {
			t.Errorf("kill %d: at once: exit code %d: %s", kills, code, errs)
		}
		age(t, m.db, backfillName)
	}
	k := readKept(t, file)
	if done := k.Counts["seen"]; done == 0 || done >= 2000 || int64(k.Position) != done || k.Seconds <= 0 {
		t.Errorf("kept %+v", k)
	}
	if code, _, errs := m.run(t, "backfill", "1-5", "--resume="+file); code != exitFailed || !strings.Contains(errs, "belongs to activityd backfill of all members") {
		t.Errorf("another range: exit code %d: %s", code, errs)
	}
	// Sets beyond the position are there already.
	out := m.backfill(t, "--resume="+file)
	if !strings.HasPrefix(out, "2000 members seen: ") {
		t.Errorf("said %q", out)
	}
	m.wantSets(t, 2000)
	if k := readKept(t, file); k.Command != "" {
		t.Errorf("left in the end: %+v", k)
	}
}

// A signal finishes what is under way, and says how to go on.
func TestBackfillStopsAtASignal(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 2000)
	c := m.spawn(t, "backfill", "--rate=400", "--progress=1ms")
	eventually(t, "some sets are built", func() bool { return m.client.DBSize(t.Context()).Val() > 100 })
	c.signal(t, syscall.SIGINT)
	if code := c.wait(); code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	after := regexp.MustCompile(`go on with --after (\d+)`).FindStringSubmatch(c.said())
	if after == nil || !strings.Contains(c.said(), "stopped by a signal") {
		t.Fatalf("said %s", c.said())
	}
	position, err := strconv.Atoi(after[1])
	must(t, err)
	m.wantSets(t, position) // all below it, and nothing was left half done
	wantSummary(t, m.backfill(t, "--after="+after[1]), 2000-position, 2000-position, 0)
	m.wantSets(t, 2000)
}

// Redis hangs, and MySQL dies and comes back.
func TestBackfillOutlastsItsServers(t *testing.T) {
	t.Parallel()
	db := servertest.OwnMySQL(t)
	m := massesOn(t, 2000, db.DSN(servertest.Database), servertest.Redis(t))
	c := m.spawn(t, "backfill", "--rate=200")
	eventually(t, "some sets are built", func() bool { return m.client.DBSize(t.Context()).Val() > 100 })
	must(t, m.redis.Pause())
	held := func() bool { return strings.LastIndex(c.said(), "held up") > strings.LastIndex(c.said(), "going on") }
	eventually(t, "it is held up", held)
	must(t, m.redis.Resume())
	eventually(t, "it goes on", func() bool { return !held() })
	must(t, db.Kill())
	must(t, db.Restart(t.Context()))
	if code := c.wait(); code != exitOK {
		t.Fatalf("exit code %d: %s", code, c.said())
	}
	if !strings.HasPrefix(c.stdout.String(), "2000 members seen: ") {
		t.Errorf("said %s", c.stdout.String())
	}
	m.wantSets(t, 2000)
	if said := strings.Count(c.said(), "held up"); said > 3 {
		t.Errorf("said %d times that it is held up: %s", said, c.said())
	}
}

// The data of a server that was restarted may be old, and are deleted: the sets have to be
// built again.
func TestBackfillEndsWhenRedisIsRestarted(t *testing.T) {
	t.Parallel()
	m := massesOn(t, 1000, servertest.MySQLDSN(t), servertest.Redis(t, localserver.AOF...))
	c := m.spawn(t, "backfill", "--rate=200")
	eventually(t, "some sets are built", func() bool { return m.client.DBSize(t.Context()).Val() > 100 })
	must(t, m.redis.Kill())
	eventually(t, "it is held up", func() bool { return strings.Contains(c.said(), "held up") })
	must(t, m.redis.Restart(t.Context()))
	if code := c.wait(); code != exitFailed || !strings.Contains(c.said(), "sets were lost while this ran") {
		t.Fatalf("exit code %d: %s", code, c.said())
	}
	m.backfill(t)
	m.wantSets(t, 1000)
}

// It begins although its servers are not there yet.
func TestBackfillWaitsForItsServers(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 50)
	must(t, m.redis.Kill())
	c := m.spawn(t, "backfill")
	eventually(t, "it is held up", func() bool { return strings.Contains(c.said(), "held up") })
	must(t, m.redis.Restart(t.Context()))
	if code := c.wait(); code != exitOK {
		t.Fatalf("exit code %d: %s", code, c.said())
	}
	m.wantSets(t, 50)
}

// It makes way while a server is slow, and comes back.
func TestBackfillSlowsDown(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 6000)
	proxy := servertest.NewProxy(t, m.redis.Addr())
	m.url = proxy.RedisURL()
	c := m.spawn(t, "backfill", "--rate=50")
	eventually(t, "it knows what is usual", func() bool { return m.client.DBSize(t.Context()).Val() > 150 })
	modes := regexp.MustCompile(`(?m)slowed down: .*|all servers answer as usual.*`)
	lastMode := func() string {
		said := modes.FindAllString(c.said(), -1)
		if len(said) == 0 {
			return "all servers answer as usual"
		}
		return said[len(said)-1]
	}
	usual := func() bool { return strings.HasPrefix(lastMode(), "all") }
	// 200 ms there and back, and what a busy machine adds.
	slow := regexp.MustCompile(`^slowed down: Redis answers in ([4-9]\d\d|\d{4,}) ms`)
	// A busy machine may slow it down by itself just before the delay, which it then does not
	// report, because it is slowed down already.
	for try := 1; !slow.MatchString(lastMode()); try++ {
		if try > 5 {
			t.Fatalf("the delay does not slow it down: %s", c.said())
		}
		eventually(t, "all is as usual", usual)
		proxy.Delay(200 * time.Millisecond)
		eventually(t, "it slows down", func() bool { return !usual() })
		proxy.Delay(0)
	}
	eventually(t, "it is as quick as before", usual)
	c.signal(t, syscall.SIGINT)
	if code := c.wait(); code != exitFailed {
		t.Errorf("exit code %d: %s", code, c.said())
	}
}
