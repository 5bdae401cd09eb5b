package main

import (
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

// An outage of either server logs a line when it begins and a line when it is over, however many workers and probes
// find out.
func TestAnOutageIsTwoLinesOfTheLog(t *testing.T) {
	t.Parallel()
	db, redisServer := servertest.OwnMySQL(t), servertest.Redis(t)
	p := spawnServe(t, db.DSN(servertest.Database), redisServer.URL(), "--workers=default=30,fan_out=10,refill=10", "ACTIVITYD_AUDIT_SWEEP_RATE=0")
	of := func(server, message string) (n int) {
		for _, line := range p.logged(message) {
			if line["server"] == server {
				n++
			}
		}
		return n
	}
	const gone, again = "server cannot be used", "server can be used again"
	awaitMetric(t, p.metrics, "activityd_stats_success 1")
	must(t, db.Kill())
	_, _ = page(t, p.metrics+"/readyz")               // a probe finds out, too
	awaitMetric(t, p.metrics, "activityd_mysql_up 0") // some seconds later
	must(t, db.Restart(t.Context()))
	eventually(t, "MySQL is back", func() bool { return of("MySQL", again) > 0 })
	awaitMetric(t, p.metrics, "activityd_stats_success 1")

	must(t, redisServer.Kill())
	members := site.NewMySQL(queueOf(t, db.DSN(servertest.Database)))
	for id := range member.ID(50) {
		must(t, members.SetContact(t.Context(), 1+id, 100, site.Grant{}))
	}
	// tasks are postponed again and again
	awaitMetric(t, p.metrics, `activityd_tasks_finished_total{outcome="postponed",queue="default",type="add_contact"} `, 200)
	must(t, redisServer.Restart(t.Context()))
	eventually(t, "Redis is back", func() bool { return of("Redis", again) > 0 })
	awaitMetric(t, p.metrics, `activityd_tasks_finished_total{outcome="done",queue="default",type="add_contact"} 50`)
	for _, server := range []string{"MySQL", "Redis"} {
		if of(server, gone) != 1 || of(server, again) != 1 {
			t.Errorf("%s went and came back once, says the log in\n%s", server, p.log.String())
		}
	}
	for _, line := range p.logged("ERROR") {
		if !strings.Contains(line["msg"], "call failed while the server answers others") { // the machine is busy
			t.Errorf("an error: %v", line)
		}
	}
}
