package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

// safeLog is a log that is read while it is written.
type safeLog struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

// lines returns the lines that hold all words.
func (l *safeLog) lines(words ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.out.String()) {
		holds := true
		for _, word := range words {
			holds = holds && strings.Contains(line, word)
		}
		if holds {
			found = append(found, line)
		}
	}
	return found
}

// An outage of either server logs a line when it begins and a line when it is over, however many workers and probes
// find out.
func TestAnOutageIsTwoLinesOfTheLog(t *testing.T) {
	t.Parallel()
	db, redisServer := servertest.OwnMySQL(t), servertest.Redis(t)
	log := &safeLog{}
	url := startObserved(t, log, db.DSN(servertest.Database), redisServer.URL(),
		"--workers=default=30,fan_out=10,refill=10", "ACTIVITYD_AUDIT_SWEEP_RATE=0")
	shows := func(metric string) {
		t.Helper()
		eventually(t, metric, func() bool {
			_, body := page(t, url+"/metrics")
			return strings.Contains(body, metric)
		})
	}
	back := func(server string) {
		t.Helper()
		eventually(t, server+" is back", func() bool { return len(log.lines("can be used again", "server="+server)) > 0 })
	}
	shows("activityd_stats_success 1")

	must(t, db.Kill())
	_, _ = page(t, url+"/readyz") // a probe finds out, too
	shows("activityd_mysql_up 0") // some seconds later
	must(t, db.Restart(t.Context()))
	back("MySQL")
	shows("activityd_stats_success 1")

	must(t, redisServer.Kill())
	sql, err := openMySQL(configFor(t, db.DSN(servertest.Database), redisServer.URL()), 4)
	must(t, err)
	defer func() { _ = sql.Close() }()
	members := site.NewMySQL(sql)
	for id := range member.ID(50) {
		must(t, members.SetContact(t.Context(), 1+id, 100, site.Grant{}))
	}
	eventually(t, "tasks were postponed again and again", func() bool {
		_, body := page(t, url+"/metrics")
		var postponed int
		for line := range strings.Lines(body) {
			if n, ok := strings.CutPrefix(line, `activityd_tasks_finished_total{outcome="postponed",queue="default",type="add_contact"} `); ok {
				_, err := fmt.Sscan(n, &postponed)
				must(t, err)
			}
		}
		return postponed >= 200
	})
	must(t, redisServer.Restart(t.Context()))
	back("Redis")
	shows(`activityd_tasks_finished_total{outcome="done",queue="default",type="add_contact"} 50`)

	for _, server := range []string{"MySQL", "Redis"} {
		gone, again := log.lines("server cannot be used", "server="+server), log.lines("server can be used again", "server="+server)
		if len(gone) != 1 || len(again) != 1 {
			t.Errorf("%s went and came back once, says the log in\n%s%s", server, strings.Join(gone, ""), strings.Join(again, ""))
		}
	}
	// The third is of package wake, whose messages Redis carries. The audit has lines of its own, and so has the
	// stream, whose group was lost with all data of Redis.
	all := append(log.lines("level=WARN"), log.lines("level=ERROR")...)
	all = slices.DeleteFunc(all, func(line string) bool {
		return strings.Contains(line, "the audit is slowed down") || strings.Contains(line, "lost data") ||
			strings.Contains(line, "stream group lost and made again") ||
			strings.Contains(line, "call failed while the server answers others") // the machine is busy
	})
	if len(all) != 3 {
		t.Errorf("%d lines of trouble, want 3:\n%s", len(all), strings.Join(all, ""))
	}
}

// A process of workers alone that is not scraped logs a MySQL that is away
// when it starts.
func TestWorkersLogThatMySQLIsAwayAtTheStart(t *testing.T) {
	t.Parallel()
	db, redisServer := servertest.OwnMySQL(t), servertest.Redis(t)
	must(t, db.Kill())
	log := &safeLog{}
	c := configFor(t, db.DSN(servertest.Database), redisServer.URL(), "--role=workers", "--metrics-listen=", "ACTIVITYD_AUDIT_SWEEP_RATE=0")
	c.auditShare = 0
	startLogged(t, c, slog.New(slog.NewTextHandler(log, nil)))
	eventually(t, "the log has the outage", func() bool { return len(log.lines("server cannot be used", "server=MySQL")) > 0 })
	must(t, db.Restart(t.Context()))
	eventually(t, "the log has its end", func() bool { return len(log.lines("server can be used again", "server=MySQL")) > 0 })
	eventually(t, "the log says that it is ready", func() bool { return len(log.lines("msg=ready")) > 0 })
	ofRedis := func(line string) bool { return strings.Contains(line, "server=Redis") } // whose sets it has, MySQL says
	if all := slices.DeleteFunc(append(log.lines("level=WARN"), log.lines("can be used again")...), ofRedis); len(all) != 3 || !strings.Contains(all[1], `"not ready"`) {
		t.Errorf("%d lines, want one when it begins, one at the end of the start, and one when it ends:\n%s", len(all), strings.Join(all, ""))
	}
}

// /readyz reports each fact about a server once.
func TestHealthSaysWhyRedisCannotBeUsed(t *testing.T) {
	t.Parallel()
	redisServer := servertest.Redis(t)
	s, err := openService(configFor(t, servertest.MySQLDSN(t), redisServer.URL()), slog.New(slog.DiscardHandler))
	must(t, err)
	defer func() { must(t, s.close()) }()
	must(t, redisServer.Kill())
	if got, want := s.health.Check(t.Context()).Redis.Detail, "it cannot be reached: reads are answered from the database, tasks wait"; got != want {
		t.Errorf("detail %q, want %q", got, want)
	}
}

// A probe has a connection of its own: requests that hold all connections of the pool take no process out of the load
// balancer. A MySQL that answered a moment ago, and is late, is busy. A MySQL that goes on to hang is away.
func TestHealthOfABusyMySQL(t *testing.T) {
	t.Parallel()
	server := servertest.OwnMySQL(t)
	s, err := openService(configFor(t, server.DSN(servertest.Database), servertest.Redis(t).URL(), "ACTIVITYD_MYSQL_CONNECTIONS=4"), slog.New(slog.DiscardHandler))
	must(t, err)
	defer func() { must(t, s.close()) }()
	check := func() api.Component {
		ctx, cancel := context.WithTimeout(t.Context(), api.CheckTimeout)
		defer cancel()
		return s.health.Check(ctx).MySQL
	}
	well := func(c api.Component) bool { return c.Usable && c.Detail == "" }
	busy := func(c api.Component) bool { return c.Usable && strings.HasPrefix(c.Detail, "busy") }
	away := func(c api.Component) bool { return !c.Usable && c.Detail == "cannot be reached" }
	eventually(t, "MySQL answers", func() bool { return well(check()) })
	for range s.db.Stats().MaxOpenConnections { // all connections for reads and tasks
		held, err := s.db.Conn(t.Context())
		must(t, err)
		t.Cleanup(func() { _ = held.Close() })
	}
	eventually(t, "the probe is answered", func() bool { return well(check()) })

	must(t, server.Pause())
	eventually(t, "MySQL is away", func() bool {
		c := check()
		if !busy(c) && !away(c) {
			t.Errorf("MySQL hangs: %+v", c)
		}
		return away(c)
	})
	must(t, server.Resume())
	eventually(t, "MySQL answers again", func() bool { return well(check()) })
}
