package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// When a master of three dies, its share is away, and only it, until it is back.
func TestANodeOfAClusterIsAway(t *testing.T) {
	t.Parallel()
	cluster, dsn, log := servertest.Cluster(t, 3, 0), servertest.MySQLDSN(t), &safeLog{}
	r := start(t, configFor(t, dsn, cluster.URL(), "--role=api"))
	metrics := startObserved(t, log, dsn, cluster.URL(), "--role=workers")
	r.openSite(t, dsn)
	const first, last = 110, 139 // the viewers
	dead := cluster.Nodes[0]
	r.makeSite(t, last-100)
	contact := func(id member.ID) { r.addContact(t, first, last, id) }
	contact(101)
	r.awaitTasks(t)
	isDead := make(map[int]bool) // by viewer
	for viewer := first; viewer <= last; viewer++ {
		slot, err := dead.Client.ClusterKeySlot(t.Context(), index.UserKey(member.ID(viewer))).Result()
		must(t, err)
		isDead[viewer] = slot*3/16384 == 0
	}
	r.awaitReady(t, `"status":"ok","components"`)
	for viewer := first; viewer <= last; viewer++ {
		eventually(t, fmt.Sprintf("%d is answered by the index", viewer), func() bool {
			a := r.read(t, viewer)
			if a.contact() != "101" {
				t.Fatalf("%d: answer %+v", viewer, a)
			}
			return a.Source == "index"
		})
	}

	must(t, dead.Kill())
	r.awaitReady(t, `"status":"degraded","components"`, `"redis":{"status":"degraded","detail":"1 of 3 nodes cannot be used (it cannot be reached): for the members`,
		`"nodes_away":0.333`, `"nodes":[{"address":"`+dead.HostPort+`","detail":"it cannot be reached"}]`)
	for i, n := range cluster.Nodes {
		label := `{node="` + n.HostPort + `"} `
		awaitMetric(t, metrics, fmt.Sprintf("activityd_redis_up%s%d", label, min(i, 1)))
		awaitMetric(t, metrics, fmt.Sprintf("activityd_redis_writable%s%d", label, min(i, 1)))
		awaitMetric(t, metrics, fmt.Sprintf("activityd_redis_known%s1", label))
	}
	awaitMetric(t, metrics, "activityd_redis_nodes_away_ratio ", 0.33)
	contact(102)
	deadViewers := 0
	for viewer := first; viewer <= last; viewer++ {
		want := map[bool]string{true: "database", false: "index"}[isDead[viewer]]
		deadViewers += map[bool]int{true: 1}[isDead[viewer]]
		eventually(t, fmt.Sprintf("%d sees the new contact", viewer), func() bool {
			a := r.read(t, viewer)
			if a.status != 200 || a.Source != want {
				t.Fatalf("%d: answer %+v, want one from the %s", viewer, a, want)
			}
			return a.contact() == "102"
		})
	}
	if deadViewers == 0 || deadViewers > last-first {
		t.Fatalf("%d viewers are on the node that died", deadViewers)
	}
	eventually(t, "only its tasks wait", func() bool { return len(r.open(t)) == deadViewers })
	for _, task := range r.open(t) {
		if failures(task) > 0 {
			t.Errorf("a task has used up an attempt: %+v", task)
		}
	}

	must(t, dead.Restart(t.Context()))
	must(t, cluster.AwaitOK(t.Context()))
	r.awaitReady(t, `"status":"ok","components"`, `"redis":{"status":"ok"}`)
	r.awaitTasks(t)
	awaitMetric(t, metrics, `activityd_redis_up{node="`+dead.HostPort+`"} 1`)
	awaitMetric(t, metrics, "activityd_redis_nodes_away_ratio 0")
	r.awaitIndexed(t, first, last, "102")
	for words, want := range map[string]int{
		`msg="server cannot be used" server="Redis ` + dead.HostPort + `"`:    1,
		`msg="server can be used again" server="Redis ` + dead.HostPort + `"`: 1,
	} {
		if lines := log.lines(words); len(lines) != want {
			t.Errorf("%d lines %s, want %d:\n%s", len(lines), words, want, strings.Join(log.lines(""), ""))
		}
	}
	// A busy machine may make a node that lives wait, for a moment.
	eventually(t, "all nodes are used again", func() bool {
		return len(log.lines(`msg="server cannot be used" server="Redis 127.`)) == len(log.lines(`msg="server can be used again" server="Redis 127.`))
	})
}

// A node that hangs, and goes on, loses nothing: its waiting work gets done.
func TestANodeOfAClusterGoesOn(t *testing.T) {
	t.Parallel()
	cluster, dsn := servertest.Cluster(t, 3, 0, "--cluster-node-timeout", "60000"), servertest.MySQLDSN(t)
	r := start(t, configFor(t, dsn, cluster.URL()))
	r.openSite(t, dsn)
	const first, last = 110, 139 // the viewers
	r.makeSite(t, last-100)
	contact := func(id member.ID) { r.addContact(t, first, last, id) }
	contact(101)
	r.awaitTasks(t)
	r.awaitReady(t, `"status":"ok","components"`)
	must(t, cluster.Nodes[0].Pause())
	r.awaitReady(t, `"status":"degraded","components"`)
	contact(102)
	eventually(t, "only its tasks wait", func() bool {
		n := len(r.open(t))
		return 0 < n && n <= last-first
	})
	must(t, cluster.Nodes[0].Resume())
	r.awaitTasks(t)
	r.awaitReady(t, `"status":"ok","components"`)
	r.awaitIndexed(t, first, last, "102")
}
