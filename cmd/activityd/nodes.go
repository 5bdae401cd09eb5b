package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/redisnodes"
	"github.com/activityd/activityd/internal/tasks"
)

// nodes logs what [redisnodes.Nodes.Watch] reports, one line for each change, and keeps the last
// status.
type nodes struct {
	log *slog.Logger
	// outage reports one server, or a cluster of which no node can be found.
	outage *queue.Outage
	stream *queue.Outage // of the node that has the stream; of one server, the same
	isOne  bool          // not a cluster
	index  interface {
		StateOf(ctx context.Context, user member.ID) (redisnodes.State, error)
		Seen() (s redisnodes.Status, isFresh bool)
	}
	// back is called when tasks can use a node that they could not, or that was not known.
	back func()

	waiting atomic.Pointer[waitingTask]

	// The following are used by report only.
	outages map[string]*queue.Outage // by node
	unknown map[string]time.Time     // since when the sets of a node are unknown
	writes  map[string]bool          // the last of each node: whether it took writes
	masters []string                 // that were logged
	before  []string                 // the masters of the report before
	waits   int                      // reports of tasks that wait for no known reason
}

// waitingTask is the error of a task that waits for Redis.
type waitingTask struct {
	at  time.Time
	err error
}

func newNodes(client redis.UniversalClient, ix *index.Index, log *slog.Logger) *nodes {
	_, isCluster := client.(*redis.ClusterClient)
	n := &nodes{
		log: log, index: ix, outage: queue.NewOutage(log, "Redis"), isOne: !isCluster,
		outages: make(map[string]*queue.Outage), unknown: make(map[string]time.Time),
		back: func() {},
	}
	n.stream = n.outage
	if isCluster {
		n.stream = queue.NewOutage(log, "Redis (stream)")
	}
	return n
}

// name returns the name of a node in the log.
func (n *nodes) name(node string) string {
	if n.isOne {
		return "Redis"
	}
	return "Redis " + node
}

// report logs what changed since the report before. Its calls must not overlap.
func (n *nodes) report(ctx context.Context, began time.Time, s redisnodes.Status) {
	if len(s.Nodes) == 0 {
		n.outage.Report(ctx, began, s.Err())
		clear(n.writes) // none is found
		return
	}
	if !n.isOne {
		n.outage.Report(ctx, began, nil)
	}
	n.reportMasters(ctx, s)
	n.reportBack(s)
	for _, node := range s.Nodes {
		n.reportUnknown(ctx, node)
		err := node.Err
		if errors.Is(err, index.ErrUnknown) {
			err = nil // it answers
		}
		n.outageOf(node.Node).Report(ctx, began, err)
	}
	n.reportWaiting(ctx, began, s.Err())
}

// reportBack calls back if a node takes writes again.
func (n *nodes) reportBack(s redisnodes.Status) {
	isBack, writes := false, make(map[string]bool)
	for _, node := range s.Nodes {
		writes[node.Node] = node.State.TakesWrites()
		isBack = isBack || writes[node.Node] && !n.writes[node.Node]
	}
	n.writes = writes
	if isBack {
		n.back()
	}
}

// ready implements Ready of [queue.PoolOptions]. A task that writes to the sets of followers may
// need any node.
func (n *nodes) ready(kind string, key uint64) (ready, sure bool) {
	switch {
	case slices.Contains(tasks.Changing(tasks.OwnSet), kind):
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond) // as a rule it is not needed: the client knows the slots
		defer cancel()
		state, err := n.index.StateOf(ctx, member.ID(key))
		isKnown := err == nil || errors.Is(err, index.ErrUnknown)
		return state.TakesWrites(), state.TakesWrites() && isKnown
	case slices.Contains(tasks.Changing(tasks.FollowerSets), kind):
		return true, false
	}
	return false, false // it waits for something else
}

func (n *nodes) outageOf(node string) *queue.Outage {
	if n.isOne {
		return n.outage
	}
	o := n.outages[node]
	if o == nil {
		o = queue.NewOutage(n.log, n.name(node))
		n.outages[node] = o
	}
	return o
}

// reportUnknown logs that the sets of a node became unknown, or known again. While a node cannot
// be used, neither changes.
func (n *nodes) reportUnknown(ctx context.Context, node redisnodes.NodeStatus) {
	since, was := n.unknown[node.Node]
	switch is := errors.Is(node.Err, index.ErrUnknown); {
	case is && !was:
		n.unknown[node.Node] = time.Now()
		n.log.WarnContext(ctx, "sets may be old", "server", n.name(node.Node), "then", "reads walk until these sets are deleted")
	case was && node.Err == nil:
		delete(n.unknown, node.Node)
		n.log.InfoContext(ctx, "sets are known again", "server", n.name(node.Node), "after", time.Since(since).Round(time.Millisecond))
	}
}

// reportMasters logs a change of the masters once two reports in a row agree: while a replica
// takes over, the servers may not.
func (n *nodes) reportMasters(ctx context.Context, s redisnodes.Status) {
	var now []string
	for _, node := range s.Nodes {
		now = append(now, node.Node)
	}
	agreed := slices.Equal(now, n.before)
	n.before = now
	if !agreed || slices.Equal(now, n.masters) {
		return
	}
	if n.masters != nil {
		isIn := func(list []string) func(string) bool {
			return func(node string) bool { return slices.Contains(list, node) }
		}
		came := slices.DeleteFunc(slices.Clone(now), isIn(n.masters))
		left := slices.DeleteFunc(slices.Clone(n.masters), isIn(now))
		n.log.WarnContext(ctx, "masters of Redis changed", "came", came, "left", left, "masters", len(now))
		for _, node := range left { // if it comes back, that is another outage
			delete(n.outages, node)
			delete(n.unknown, node)
		}
	}
	n.masters = now
}

// tasksWait takes note of the error of a task that waits for Redis.
func (n *nodes) tasksWait(err error) {
	if n.waiting.Load() == nil { // the first one since the last report
		n.waiting.CompareAndSwap(nil, &waitingTask{time.Now(), err})
	}
}

// Tasks that wait for no known reason are logged at the third report that finds them, and then
// at every 60th, which is once a minute.
const (
	firstWaits = 3
	waitsEvery = 60
)

// reportWaiting logs that tasks wait though the probes before and after find nothing wrong,
// as where an ACL forbids some keys.
func (n *nodes) reportWaiting(ctx context.Context, began time.Time, probe error) {
	w := n.waiting.Load()
	switch {
	case probe != nil:
		n.waiting.Store(nil)
		n.waits = 0
	case w != nil && began.After(w.at): // otherwise the next probe decides
		n.waiting.Store(nil)
		n.waits++
		if n.waits%waitsEvery == firstWaits {
			n.log.WarnContext(ctx, "tasks wait though Redis answers", "error", w.err)
		}
	}
}

// partly reports whether only some of the nodes cannot be used.
func (n *nodes) partly() bool {
	s, ok := n.index.Seen()
	return ok && 0 < s.Away && s.Away < 1
}

// healthOf returns the health of Redis. Its Detail is public, and has no addresses.
func healthOf(s redisnodes.Status) api.Component {
	err := s.Err()
	if err == nil || len(s.Nodes) > 0 && s.Away == 0 { // or those that cannot be used have no sets
		return api.Component{Usable: true}
	}
	why, then := redisnodes.Reason(err), "reads are answered from the database, tasks wait"
	switch {
	case errors.Is(err, index.ErrSettings):
		why, then = err.Error(), ""
	case errors.Is(err, index.ErrUnknown):
		then = "reads are answered from the database"
	case errors.Is(err, index.ErrRefused):
		then = "reads are answered from the database as far as walks are free, tasks wait"
	}
	var away []api.Node
	for _, node := range s.Nodes {
		if node.Err != nil {
			away = append(away, api.Node{Address: node.Node, Detail: redisnodes.Reason(node.Err)})
		}
	}
	if s.Away >= 1 || len(away) == 0 {
		return api.Component{Detail: clauses(why, then)}
	}
	why = fmt.Sprintf("%d of %d nodes cannot be used (%s)", len(away), len(s.Nodes), why)
	if then != "" {
		then = "for the members whose sets they have, " + then
	}
	return api.Component{Usable: true, Detail: clauses(why, then), Away: s.Away, Nodes: away}
}

// clauses joins a reason and its consequence, which may be empty.
func clauses(why, then string) string {
	if then == "" {
		return why
	}
	return why + ": " + then
}
