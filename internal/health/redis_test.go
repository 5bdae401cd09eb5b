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
	"github.com/activityd/activityd/internal/redisnodes"
)

var (
	errAway    = fmt.Errorf("x: %w", redisnodes.ErrUnavailable)
	errUnknown = fmt.Errorf("y: %w", redisnodes.ErrUnknown)
)

// linesOf runs do with the nodes of a cluster, and returns the lines of the log without
// their times.
func linesOf(t *testing.T, client redis.UniversalClient, do func(tell func(nodes ...redisnodes.NodeStatus), r *Redis)) (lines []string) {
	t.Helper()
	defer func() { _ = client.Close() }()
	synctest.Test(t, func(t *testing.T) {
		log := &bytes.Buffer{}
		r := NewRedis(client, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "for" {
				return slog.Attr{}
			}
			return a
		}})))
		do(func(nodes ...redisnodes.NodeStatus) {
			began := time.Now()
			<-time.After(100 * time.Millisecond)
			r.Report(t.Context(), began, redisnodes.Status{Nodes: nodes})
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
	a, b := redisnodes.NodeStatus{Node: "a:1"}, redisnodes.NodeStatus{Node: "b:1"}
	with := func(n redisnodes.NodeStatus, err error) redisnodes.NodeStatus {
		n.Err = err
		return n
	}
	type tell = func(nodes ...redisnodes.NodeStatus)
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
		"one server": {
			newServer(), func(tell tell, _ *Redis) {
				tell(a)
				tell(with(a, errAway))
				tell(with(a, errAway))
				tell(with(a, errUnknown))
				tell(a)
			}, []string{
				`WARN msg="server cannot be used" server=Redis failures=1 error="x: redis unavailable"`,
				`INFO msg="server can be used again" server=Redis after=3s failures=3`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := linesOf(t, test.client, test.do)
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
		r := NewRedis(nil, slog.New(slog.DiscardHandler))
		r.Report(t.Context(), time.Now(), test.status)
		if diff := cmp.Diff(test.want, r.component()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Tasks wait for a server that cannot be used.
func TestWhatTasksWaitFor(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{errAway: true, redisnodes.ErrStamp: true, errUnknown: true, context.Canceled: false} {
		if waits := Waits(err); waits != want {
			t.Errorf("%v: waits %v, want %v", err, waits, want)
		}
	}
}
