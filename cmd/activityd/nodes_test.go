package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/redisnodes"
	"github.com/activityd/activityd/internal/tasks"
)

// When one of three masters dies, its share is away, and only it, until it is back.
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
		`"slots_away":0.333`, `"nodes":[{"address":"`+dead.HostPort+`","detail":"it cannot be reached"}]`)
	for i, n := range cluster.Nodes {
		label := `{node="` + n.HostPort + `"} `
		awaitMetric(t, metrics, fmt.Sprintf("activityd_redis_up%s%d", label, min(i, 1)))
		awaitMetric(t, metrics, fmt.Sprintf("activityd_redis_writable%s%d", label, min(i, 1)))
		awaitMetric(t, metrics, fmt.Sprintf("activityd_redis_known%s1", label))
	}
	awaitMetric(t, metrics, "activityd_redis_slots_away_ratio ", 0.33)
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
	eventually(t, "only its tasks wait", func() bool { return r.count(t, "TRUE") == deadViewers })
	if n := r.count(t, "attempts > IF(state = 'running', 1, 0)"); n > 0 {
		t.Errorf("%d tasks have used up an attempt", n)
	}

	must(t, dead.Restart(t.Context()))
	must(t, cluster.AwaitOK(t.Context()))
	r.awaitReady(t, `"status":"ok","components"`, `"redis":{"status":"ok"}`)
	r.awaitTasks(t)
	awaitMetric(t, metrics, `activityd_redis_up{node="`+dead.HostPort+`"} 1`)
	awaitMetric(t, metrics, "activityd_redis_slots_away_ratio 0")
	r.awaitIndexed(t, first, last, "102")
	for words, want := range map[string]int{
		`msg="server cannot be used" server="Redis ` + dead.HostPort + `"`:    1,
		`msg="server can be used again" server="Redis ` + dead.HostPort + `"`: 1,
		`msg="masters of Redis changed"`:                                      0,
		`msg="sets may be old"`:                                               0,
		`msg="tasks wait though`:                                              0,
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

// A node that hangs, and goes on, loses nothing: what waited for it is done.
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
		n := r.count(t, "TRUE")
		return 0 < n && n <= last-first
	})
	// As after hours, with many others. The workers claim tasks at the same time, so it may
	// have to be done again.
	must(t, mysql.Transact(t.Context(), r.db, "postpone the tasks", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "UPDATE tasks SET due_at = due_at + 250000 WHERE state = 'scheduled'")
		return err
	}))
	must(t, cluster.Nodes[0].Resume())
	r.awaitTasks(t)
	r.awaitReady(t, `"status":"ok","components"`)
	r.awaitIndexed(t, first, last, "102")
}

var (
	errAway    = fmt.Errorf("x: %w", index.ErrUnavailable)
	errUnknown = fmt.Errorf("y: %w", index.ErrUnknown)
)

// reported runs do with the nodes of a cluster, and returns the lines of the log without
// their times.
func reported(t *testing.T, client redis.UniversalClient, do func(tell func(nodes ...redisnodes.NodeStatus), n *nodes)) (lines []string) {
	t.Helper()
	defer func() { must(t, client.Close()) }()
	synctest.Test(t, func(t *testing.T) {
		log := &safeLog{}
		n := newNodes(client, nil, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "for" {
				return slog.Attr{}
			}
			return a
		}})))
		do(func(nodes ...redisnodes.NodeStatus) {
			began := time.Now()
			<-time.After(100 * time.Millisecond)
			n.report(t.Context(), began, redisnodes.Status{Nodes: nodes})
			<-time.After(900 * time.Millisecond)
		}, n)
		for _, line := range log.lines("") {
			lines = append(lines, strings.TrimSpace(strings.TrimPrefix(line, "level=")))
		}
	})
	return lines
}

// Each change is logged once, however many reports there are.
func TestNodeChangesAreLogged(t *testing.T) {
	t.Parallel()
	newCluster := func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"x:1"}})
	}
	newServer := func() redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: "x:1"}) }
	a, b, c := redisnodes.NodeStatus{Node: "a:1"}, redisnodes.NodeStatus{Node: "b:1"}, redisnodes.NodeStatus{Node: "c:1"}
	with := func(n redisnodes.NodeStatus, err error) redisnodes.NodeStatus {
		n.Err = err
		return n
	}
	type tell = func(nodes ...redisnodes.NodeStatus)
	for name, test := range map[string]struct {
		client redis.UniversalClient
		do     func(tell tell, n *nodes)
		want   []string
	}{
		"one node goes and comes back": {
			newCluster(), func(tell tell, _ *nodes) {
				for range 3 {
					tell(a, b)
				}
				for range 5 {
					tell(a, with(b, errAway))
				}
				for range 3 {
					tell(a, b)
				}
			}, []string{
				`WARN msg="server cannot be used" server="Redis b:1" failures=1 error="x: redis unavailable"`,
				`INFO msg="server can be used again" server="Redis b:1" after=5s failures=5`,
			},
		},
		"a replica takes over, while the servers do not agree": {
			newCluster(), func(tell tell, _ *nodes) {
				tell(a, b)
				tell(a, b)
				tell(a, with(b, errAway))
				tell(a, with(c, errUnknown))
				tell(a, with(b, errAway))
				for range 3 {
					tell(a, with(c, errUnknown))
				}
				for range 3 {
					tell(a, c)
				}
			}, []string{
				`WARN msg="server cannot be used" server="Redis b:1" failures=1 error="x: redis unavailable"`,
				`WARN msg="sets may be old" server="Redis c:1" then="reads walk until these sets are deleted"`,
				`WARN msg="masters of Redis changed" came=[c:1] left=[b:1] masters=2`,
				`INFO msg="sets are known again" server="Redis c:1" after=5s`,
			},
		},
		"what is unknown stays so while the node is away": {
			newCluster(), func(tell tell, _ *nodes) {
				tell(a, with(b, errUnknown))
				tell(a, with(b, errAway))
				tell(a, with(b, errUnknown))
				tell(a, b)
			}, []string{
				`WARN msg="sets may be old" server="Redis b:1" then="reads walk until these sets are deleted"`,
				`WARN msg="server cannot be used" server="Redis b:1" failures=1 error="x: redis unavailable"`,
				`INFO msg="server can be used again" server="Redis b:1" after=1s failures=1`,
				`INFO msg="sets are known again" server="Redis b:1" after=3s`,
			},
		},
		"one server": {
			newServer(), func(tell tell, _ *nodes) {
				tell(a)
				tell(with(a, errAway))
				tell(with(a, errAway))
				tell(with(a, errUnknown))
				tell(a)
			}, []string{
				`WARN msg="server cannot be used" server=Redis failures=1 error="x: redis unavailable"`,
				`WARN msg="sets may be old" server=Redis then="reads walk until these sets are deleted"`,
				`INFO msg="server can be used again" server=Redis after=2s failures=2`,
				`INFO msg="sets are known again" server=Redis after=1s`,
			},
		},
		"tasks wait for a node that is away": {
			newCluster(), func(tell tell, n *nodes) {
				for range 5 {
					tell(a, b)
					n.tasksWait(errAway)
					tell(a, with(b, errAway))
					n.tasksWait(errAway)
					tell(a, with(b, errAway))
					n.tasksWait(errAway)
					tell(a, b)
				}
			}, []string{
				`WARN msg="server cannot be used" server="Redis b:1" failures=1 error="x: redis unavailable"`,
				`INFO msg="server can be used again" server="Redis b:1" after=2s failures=2`,
			},
		},
		"tasks wait for no known reason": {
			newCluster(), func(tell tell, n *nodes) {
				for range 50 {
					n.tasksWait(errAway)
					tell(a, b)
				}
			}, []string{`WARN msg="tasks wait though Redis answers" error="x: redis unavailable"`},
		},
		"no node is found": {
			newCluster(), func(tell tell, n *nodes) {
				for range 2 {
					n.outage.Report(t.Context(), time.Now(), errAway)
				}
				tell(a, b)
			}, []string{
				`WARN msg="server cannot be used" server=Redis failures=1 error="x: redis unavailable"`,
				`INFO msg="server can be used again" server=Redis after=100ms failures=2`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := reported(t, test.client, test.do)
			if name == "tasks wait for a node that is away" { // the outage recurs, and may be logged again
				got = got[:min(len(got), len(test.want))]
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
		})
	}
}

// The public part of the health has the share that is away, and no addresses.
func TestHealthOfNodes(t *testing.T) {
	t.Parallel()
	well, away := redisnodes.NodeStatus{Node: "a:1"}, redisnodes.NodeStatus{Node: "b:1", Err: errAway}
	for name, test := range map[string]struct {
		status redisnodes.Status
		want   api.Component
	}{
		"all is well":          {redisnodes.Status{Nodes: []redisnodes.NodeStatus{well}}, api.Component{Usable: true}},
		"a node without slots": {redisnodes.Status{Nodes: []redisnodes.NodeStatus{well, away}}, api.Component{Usable: true}},
		"a part": {redisnodes.Status{Nodes: []redisnodes.NodeStatus{well, away}, Away: 0.5}, api.Component{
			Usable: true, Away: 0.5,
			Detail: "1 of 2 nodes cannot be used (it cannot be reached): for the members whose sets they have, reads are answered from the database, tasks wait",
			Nodes:  []api.Node{{Address: "b:1", Detail: "it cannot be reached"}},
		}},
		"all": {redisnodes.Status{Nodes: []redisnodes.NodeStatus{away, away}, Away: 1}, api.Component{
			Detail: "it cannot be reached: reads are answered from the database, tasks wait",
		}},
		"may be old": {redisnodes.Status{Nodes: []redisnodes.NodeStatus{{Node: "a:1", Err: errUnknown}}, Away: 1}, api.Component{
			Detail: "it came back with data that may be old, which are deleted: reads are answered from the database",
		}},
	} {
		if diff := cmp.Diff(test.want, healthOf(test.status)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// believed is what is known of a member's node.
type believed struct {
	state redisnodes.State
	err   error
}

func (b *believed) StateOf(context.Context, member.ID) (redisnodes.State, error) {
	return b.state, b.err
}
func (*believed) Seen() (redisnodes.Status, bool) { return redisnodes.Status{}, false }

// A node that takes writes again is reported once.
func TestNodesThatAreBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before []redisnodes.State
		backs  int
	}{
		"away":                {[]redisnodes.State{redisnodes.Away}, 2},
		"away, then unknown":  {[]redisnodes.State{redisnodes.Away, redisnodes.Unknown}, 2},
		"unknown, later away": {[]redisnodes.State{redisnodes.Unknown, redisnodes.Away}, 2},
		"unknown":             {[]redisnodes.State{redisnodes.Unknown}, 1},
		"refused":             {[]redisnodes.State{redisnodes.Refusing}, 2},
		"always well":         {[]redisnodes.State{redisnodes.Usable}, 1},
	} {
		client := redis.NewClient(&redis.Options{})
		n := newNodes(client, nil, slog.New(slog.DiscardHandler))
		backs := 0
		n.back = func() { backs++ }
		tell := func(state redisnodes.State) {
			n.report(t.Context(), time.Now(), redisnodes.Status{Nodes: []redisnodes.NodeStatus{{Node: "b:1", State: state}}})
		}
		tell(redisnodes.Usable)
		for _, state := range test.before {
			tell(state)
		}
		for range 5 {
			tell(redisnodes.Behind)
		}
		if backs != test.backs {
			t.Errorf("%s: %d times back, want %d", name, backs, test.backs)
		}
		must(t, client.Close())
	}
}

// Only of a task about one set is it known which node it waits for.
func TestTasksThatMayBeReady(t *testing.T) {
	t.Parallel()
	b := &believed{}
	n := &nodes{index: b}
	for kind, want := range map[string][2]bool{
		tasks.AddContact: {true, true}, tasks.Refill: {true, true}, tasks.Upload: {true, false}, tasks.FanOutSlots: {true, false},
		"deliver": {false, false},
	} {
		if ready, sure := n.ready(kind, 7); [2]bool{ready, sure} != want {
			t.Errorf("%s: ready %v, sure %v, want %v", kind, ready, sure, want)
		}
	}
	for name, c := range map[string]struct {
		believed
		ready, sure bool
	}{
		"unseen":   {believed{redisnodes.Unknown, redisnodes.ErrUnseen}, true, false},
		"unknown":  {believed{redisnodes.Unknown, errUnknown}, true, true},
		"behind":   {believed{redisnodes.Behind, nil}, true, true},
		"refusing": {believed{redisnodes.Refusing, index.ErrRefused}, false, false},
		"away":     {believed{redisnodes.Away, errAway}, false, false},
	} {
		*b = c.believed
		if ready, sure := n.ready(tasks.AddContact, 7); ready != c.ready || sure != c.sure {
			t.Errorf("%s: ready %v, sure %v", name, ready, sure)
		}
	}
}
