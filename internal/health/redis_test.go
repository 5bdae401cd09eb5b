package health

import (
	"bytes"
	"context"
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
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
)

var (
	errAway    = fmt.Errorf("x: %w", index.ErrUnavailable)
	errUnknown = fmt.Errorf("y: %w", index.ErrUnknown)
)

// reported runs do with the nodes of a cluster, and returns the lines of the log without
// their times.
func reported(t *testing.T, client redis.UniversalClient, do func(tell func(nodes ...index.NodeStatus), r *Redis)) (lines []string) {
	t.Helper()
	defer func() { _ = client.Close() }()
	synctest.Test(t, func(t *testing.T) {
		log := &bytes.Buffer{}
		r := NewRedis(client, nil, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "for" {
				return slog.Attr{}
			}
			return a
		}})))
		do(func(nodes ...index.NodeStatus) {
			began := time.Now()
			<-time.After(100 * time.Millisecond)
			r.Report(t.Context(), began, index.Status{Nodes: nodes})
			<-time.After(900 * time.Millisecond)
		}, r)
		for line := range strings.Lines(log.String()) {
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
	a, b, c := index.NodeStatus{Node: "a:1"}, index.NodeStatus{Node: "b:1"}, index.NodeStatus{Node: "c:1"}
	with := func(n index.NodeStatus, err error) index.NodeStatus {
		n.Err = err
		return n
	}
	type tell = func(nodes ...index.NodeStatus)
	for name, test := range map[string]struct {
		client redis.UniversalClient
		do     func(tell tell, r *Redis)
		want   []string
	}{
		"one node goes and comes back": {
			newCluster(), func(tell tell, _ *Redis) {
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
			newCluster(), func(tell tell, _ *Redis) {
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
			newCluster(), func(tell tell, _ *Redis) {
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
			newServer(), func(tell tell, _ *Redis) {
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
			newCluster(), func(tell tell, r *Redis) {
				for range 5 {
					tell(a, b)
					r.Waits(errAway)
					tell(a, with(b, errAway))
					r.Waits(errAway)
					tell(a, with(b, errAway))
					r.Waits(errAway)
					tell(a, b)
				}
			}, []string{
				`WARN msg="server cannot be used" server="Redis b:1" failures=1 error="x: redis unavailable"`,
				`INFO msg="server can be used again" server="Redis b:1" after=2s failures=2`,
			},
		},
		"tasks wait for no known reason": {
			newCluster(), func(tell tell, r *Redis) {
				for range 50 {
					r.Waits(errAway)
					tell(a, b)
				}
			}, []string{`WARN msg="tasks wait though Redis answers" error="x: redis unavailable"`},
		},
		"no node is found": {
			newCluster(), func(tell tell, r *Redis) {
				for range 2 {
					r.all.Report(t.Context(), time.Now(), errAway)
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
	well, away := index.NodeStatus{Node: "a:1"}, index.NodeStatus{Node: "b:1", Err: errAway}
	for name, test := range map[string]struct {
		status index.Status
		want   api.Component
	}{
		"all is well":          {index.Status{Nodes: []index.NodeStatus{well}}, api.Component{Usable: true}},
		"a node without slots": {index.Status{Nodes: []index.NodeStatus{well, away}}, api.Component{Usable: true}},
		"a part": {index.Status{Nodes: []index.NodeStatus{well, away}, Away: 0.5}, api.Component{
			Usable: true, Away: 0.5,
			Detail: "1 of 2 nodes cannot be used (it cannot be reached): for the members whose sets they have, reads are answered from the database, tasks wait",
			Nodes:  []api.Node{{Address: "b:1", Detail: "it cannot be reached"}},
		}},
		"all": {index.Status{Nodes: []index.NodeStatus{away, away}, Away: 1}, api.Component{
			Detail: "it cannot be reached: reads are answered from the database, tasks wait",
		}},
		"may be old": {index.Status{Nodes: []index.NodeStatus{{Node: "a:1", Err: errUnknown}}, Away: 1}, api.Component{
			Detail: "it came back with data that may be old, which are deleted: reads are answered from the database",
		}},
	} {
		if diff := cmp.Diff(test.want, componentOf(test.status)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A node that is back is reported once. Reads of its members walk for a while if it has kept
// its sets.
func TestNodesThatAreBack(t *testing.T) {
	t.Parallel()
	const viewer = 7
	for name, test := range map[string]struct {
		before []error
		usable bool // before
		lags   bool
		backs  int
	}{
		"away":                {[]error{errAway}, false, true, 2},
		"away, then unknown":  {[]error{errAway, errUnknown}, true, false, 2},
		"unknown, later away": {[]error{errUnknown, errAway}, false, true, 2},
		"unknown":             {[]error{errUnknown}, true, false, 1},
		"refused":             {[]error{fmt.Errorf("z: %w", index.ErrRefused)}, false, false, 2},
		"always well":         {[]error{nil}, true, false, 1},
	} {
		for _, isOne := range []bool{false, true} {
			t.Run(fmt.Sprint(name, isOne), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := NewRedis(nil, nil, slog.New(slog.DiscardHandler))
					if !isOne {
						r.nodeOf = func(context.Context, member.ID) (string, error) { return "b:1", nil }
					}
					backs := 0
					tell := func(err error) {
						list := []index.NodeStatus{{Node: "a:1"}, {Node: "b:1", Err: err}}
						if isOne {
							list = list[1:]
						}
						r.Report(t.Context(), time.Now(), index.Status{Nodes: list})
						<-time.After(time.Second)
						select {
						case <-r.Back():
							backs++
						default:
						}
					}
					usable := func() (usable, known bool) { return r.Usable(tasks.AddContact, viewer) }
					if usable, known := usable(); usable || known {
						t.Errorf("before the first look: usable %v, known %v", usable, known)
					}
					tell(nil)
					for _, err := range test.before {
						tell(err)
					}
					if usable, known := usable(); usable != test.usable || !known {
						t.Errorf("usable %v, known %v", usable, known)
					}
					if r.Lags(t.Context(), viewer) {
						t.Error("lags before it is back")
					}
					tell(nil)
					if lags := r.Lags(t.Context(), viewer); lags != test.lags || backs != test.backs {
						t.Errorf("lags: %v; %d times back, want %d", lags, backs, test.backs)
					}
					for range 5 {
						tell(nil)
					}
					if r.Lags(t.Context(), viewer) || backs != test.backs {
						t.Errorf("still lags, or back again: %d", backs)
					}
				})
			})
		}
	}
}

// Only of a task about one set is it known which node it needs.
func TestWhatTasksNeed(t *testing.T) {
	t.Parallel()
	r := NewRedis(nil, nil, slog.New(slog.DiscardHandler))
	r.Report(t.Context(), time.Now(), index.Status{Nodes: []index.NodeStatus{{Node: "a:1"}}})
	for kind, want := range map[string]bool{tasks.AddContact: true, tasks.Refill: true, tasks.Upload: false, tasks.FanOutSlots: false} {
		if usable, known := r.Usable(kind, 7); usable != want || known != want {
			t.Errorf("%s: usable %v, known %v, want %v", kind, usable, known, want)
		}
	}
	for err, want := range map[error]bool{errAway: true, index.ErrSettings: true, errUnknown: false, context.Canceled: false} {
		if waits := r.Waits(err); waits != want {
			t.Errorf("%v: waits %v, want %v", err, waits, want)
		}
	}
}

// Workers go on with the tasks of other nodes while it is known that there are some.
func TestPartly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := NewRedis(nil, nil, slog.New(slog.DiscardHandler))
		if r.Partly() {
			t.Error("before the first look")
		}
		for away, want := range map[float64]bool{0: false, 0.3: true, 1: false} {
			r.Report(t.Context(), time.Now(), index.Status{Nodes: []index.NodeStatus{{Node: "a:1"}}, Away: away})
			if got := r.Partly(); got != want {
				t.Errorf("%v away: %v", away, got)
			}
			<-time.After(5 * time.Second)
			if r.Partly() {
				t.Error("the last look was long ago")
			}
		}
	})
}
