package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

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
