package main

import (
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

const (
	sweepName    = "activityd/audit-sweep"
	backfillName = "activityd/backfill/all"
)

// lockOf returns the state of a name.
func lockOf(t *testing.T, db *sql.DB, name string) once.State {
	t.Helper()
	r, err := once.NewMySQL(db).Get(t.Context(), name)
	must(t, err)
	return r.State
}

// awaitHeld waits until a process holds a name by a later acquisition than that of a fence.
func awaitHeld(t *testing.T, db *sql.DB, name string, after once.Fence) (s once.State) {
	t.Helper()
	eventually(t, "a process holds "+name, func() bool {
		s = lockOf(t, db, name)
		return s.Phase == once.Held && s.Fence > after
	})
	return s
}

// age lets the lease of a name end: its process has died.
func age(t *testing.T, db *sql.DB, name string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), "UPDATE once_keys SET lease_ends = lease_ends - 60000, forget_at = forget_at - 60000, changes = changes + 1 WHERE name = ?", name)
	must(t, err)
}

func TestTheSecondBackfillIsRefused(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 2000)
	c := m.spawn(t, "backfill", "--rate=50")
	awaitHeld(t, m.db, backfillName, 0)
	code, out, errs := m.run(t, "backfill", "--rate=300")
	for _, want := range []string{"activityd backfill of all members is under way already", fmt.Sprintf("/%d@", c.cmd.Process.Pid), "wait for it, or stop it"} {
		if code != exitFailed || out != "" || !strings.Contains(errs, want) {
			t.Errorf("exit code %d: %s%s, want %s", code, out, errs, want)
		}
	}
	m.backfill(t, "1-10")
	for _, flag := range []string{"--repair", "--answers=0"} {
		if code, _, errs := m.run(t, "verify", flag, "1-10"); code != exitOK {
			t.Errorf("verify %s: exit code %d: %s", flag, code, errs)
		}
	}
	c.signal(t, syscall.SIGINT)
	if code := c.wait(); code != exitFailed || !strings.Contains(c.said(), "stopped by a signal") {
		t.Errorf("the first one: exit code %d: %s", code, c.said())
	}
	m.backfill(t) // the name is free at once
	m.wantSets(t, 2000)
	if s := lockOf(t, m.db, backfillName); s.Phase != once.Free {
		t.Errorf("in the end: %+v", s)
	}
}

// A serve that is stopped hands the sweep to another one within the lease of a minute: by
// a notification.
func TestAStoppedServeHandsTheSweepOver(t *testing.T) {
	t.Parallel()
	first := startInjured(t, 0, 1000)
	held := awaitHeld(t, first.db, sweepName, 0)
	second := start(t, configFor(t, first.config.mysqlDSN, first.config.redisURL, "ACTIVITYD_AUDIT_SWEEP_RATE=1000"))
	eventually(t, "the second one is ready", func() bool {
		var status int
		_ = second.get(t, "/readyz", &status)
		return status == 200
	})
	must(t, first.stop())
	awaitHeld(t, first.db, sweepName, held.Fence)
}

// What a serve that was killed has swept, the next one does not sweep again.
func TestAKilledServeLeavesTheSweepToOthers(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 3000)
	killed := spawn(t, "--mysql-dsn="+m.dsn, "--redis-url="+m.url, "ACTIVITYD_AUDIT_SWEEP_RATE=50")
	held := awaitHeld(t, m.db, sweepName, 0)
	position := func() string { return m.client.Get(t.Context(), "activityd_{sweep}_state").Val() }
	eventually(t, "some are swept", func() bool { return strings.Contains(position(), `"after"`) })
	killed.signal(t, syscall.SIGKILL)
	_ = killed.cmd.Wait() // killed
	before := position()
	age(t, m.db, sweepName)
	start(t, configFor(t, m.dsn, m.url, "ACTIVITYD_AUDIT_SWEEP_RATE=50"))
	awaitHeld(t, m.db, sweepName, held.Fence)
	eventually(t, "it goes on", func() bool { return position() != before })
	began := func(state string) string { return strings.Split(state, ",")[0] }
	if now := position(); began(now) != began(before) {
		t.Errorf("the sweep goes on at %s, want the round of %s", now, before)
	}
}

// Workers that start before MySQL sweep when it is there.
func TestTheSweepBeginsWhenMySQLComes(t *testing.T) {
	t.Parallel()
	db, redisServer := servertest.OwnMySQL(t), servertest.Redis(t)
	must(t, db.Kill())
	log := &safeLog{}
	startLogged(t, configFor(t, db.DSN(servertest.Database), redisServer.URL()), slog.New(slog.NewTextHandler(log, nil)))
	eventually(t, "the log has it", func() bool { return len(log.lines("level=WARN", "audit stands still", "work=sweep")) > 0 })
	must(t, db.Restart(t.Context()))
	own, err := mysql.Open(db.DSN(servertest.Database))
	must(t, err)
	t.Cleanup(func() { _ = own.Close() })
	var phase string
	eventually(t, "it sweeps", func() bool {
		err := own.QueryRowContext(t.Context(), "SELECT phase FROM once_keys WHERE name = ?", sweepName).Scan(&phase)
		return err == nil && phase == "held"
	})
	if n := len(log.lines("stands still")); n != 1 {
		t.Errorf("%d lines: %s", n, strings.Join(log.lines("stands still"), ""))
	}
}
