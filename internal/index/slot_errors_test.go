package index_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/redisnodes"
)

// What a node replies for one set of several concerns that set alone. What passes is
// repeated within the call; the rest is an error with a reason for people.
func TestErrorRepliesForOneSet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reply, reason string
		passes        bool // it is repeated within the call
		refused       bool
	}{
		{"MOVED 1 %s", "slots of the cluster are being moved", true, false},
		{"ASK 1 %s", "slots of the cluster are being moved", true, false},
		{"TRYAGAIN Multiple keys request during rehashing of slot", "slots of the cluster are being moved", true, false},
		{"READONLY You can't write against a read only replica.", "READONLY", true, true},
		{"LOADING Redis is loading the dataset in memory", "LOADING", false, false},
		{"CLUSTERDOWN Hash slot not served", "no node of the cluster has the slot", false, false},
		{"CLUSTERDOWN The cluster is down", "cluster-require-full-coverage no", false, false},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "MASTERDOWN", false, false},
	} {
		t.Run(c.reply, func(t *testing.T) {
			t.Parallel()
			fake := miniredis.RunT(t)
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{fake.Addr()}, MaxRetries: -1, ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
			t.Cleanup(func() { _ = client.Close() })
			ix := index.New(client, index.Options{Settings: settings(t, 10, 20, 0)})
			const victim, neighbour = member.ID(71001), member.ID(71002)
			users := []member.ID{victim, neighbour}
			s := several{bench: bench{Index: ix}, users: users}
			must(t, s.Probe(t.Context()))
			s.fill(t, 3)
			reply := c.reply
			if strings.Contains(reply, "%s") {
				reply = fmt.Sprintf(reply, fake.Addr())
			}
			var times atomic.Int64 // it is still replied
			fake.Server().SetPreHook(func(peer *server.Peer, _ string, args ...string) bool {
				concerns := slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, victim.String()) })
				if !concerns || times.Add(-1) < 0 {
					return false
				}
				peer.WriteError(reply)
				return true
			})
			check := func(what string, user member.ID, err error, passes bool) {
				t.Helper()
				switch {
				case (user == neighbour || passes) && err != nil:
					t.Errorf("%s for %s: %v", what, user, err)
				case user == victim && !passes && (!errors.Is(err, index.ErrUnavailable) || errors.Is(err, index.ErrRefused) != c.refused || !strings.Contains(redisnodes.Reason(err), c.reason)):
					t.Errorf("%s: %v, for the reason %q", what, err, redisnodes.Reason(err))
				}
			}
			for _, passes := range []bool{true, false} {
				if passes && !c.passes {
					continue
				}
				again := func() { times.Store(map[bool]int64{true: 2, false: 1 << 40}[passes]) }
				var calls sync.WaitGroup
				each := func(call func()) {
					again()
					if passes { // so that each has its own error replies
						call()
						return
					}
					calls.Go(call) // each is repeated for repeatFor
				}
				for _, user := range users {
					each(func() {
						got, err := ix.Candidates(t.Context(), user)
						if len(got) > 0 && errors.Is(err, index.ErrBehind) { // a write was refused by then
							err = nil
						}
						check("read", user, err, passes)
					})
				}
				each(func() {
					for _, set := range ix.Look(t.Context(), users) {
						check("look", set.Member, set.Err, passes)
					}
				})
				each(func() {
					missing, failed := ix.Add(t.Context(), toAll(users, index.Entry{Contact: 2, Score: 900}))
					for _, user := range users {
						check("add", user, failed[user], passes)
					}
					if len(missing) > 0 {
						t.Errorf("add: missing %v", missing)
					}
				})
				each(func() {
					for _, u := range ix.Begin(t.Context(), users) {
						check("begin", u.Member, u.Err, passes)
					}
				})
				calls.Wait()
				times.Store(0)
				var changes []index.Change
				for _, u := range ix.Begin(t.Context(), users) {
					check("begin", u.Member, u.Err, true)
					changes = append(changes, index.Change{Update: u, Add: entries(5, 500)})
				}
				again()
				for i, r := range ix.Apply(t.Context(), changes) {
					check("apply", users[i], r.Err, passes)
				}
			}
			times.Store(0)
			for _, set := range ix.Look(t.Context(), users) {
				if set.Err != nil || set.Member == neighbour && len(set.Members) != 4 {
					t.Errorf("in the end: %+v", set)
				}
			}
		})
	}
}
