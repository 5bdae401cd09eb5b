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
	"github.com/activityd/activityd/internal/tasks"
)

// nodes logs what [index.Index.Watch] reports, one line for each change, and keeps the last
// status.
type nodes struct {
	log *slog.Logger
	// outage reports one server, or a cluster of which no node can be found.
	outage *queue.Outage
	stream *queue.Outage // of the node that has the stream; of one server, the same
	isOne  bool          // not a cluster
	// nodeOf returns the address of the node that has a member's set; "" of one server.
	nodeOf func(ctx context.Context, user member.ID) (string, error)
	// back is called when tasks can use a node that they could not, or that was not known.
	back func()

	last    atomic.Pointer[lastStatus]
	waiting atomic.Pointer[waitingTask]
	lagging atomic.Pointer[map[string]time.Time] // by node: since when it can be used again

	// The following are used by report only.
	outages map[string]*queue.Outage // by node
	unknown map[string]time.Time     // since when the sets of a node are unknown
	errs    map[string]error         // the last of each node; nil: it can be used
	masters []string                 // that were logged
	before  []string                 // the masters of the report before
	waits   int                      // reports of tasks that wait for no known reason
}

// lastStatus is the last status, and when it was reported.
type lastStatus struct {
	index.Status

	at time.Time
}

// waitingTask is the error of a task that waits for Redis.
type waitingTask struct {
	at  time.Time
	err error
}

func newNodes(client redis.UniversalClient, log *slog.Logger) *nodes {
	cluster, isCluster := client.(*redis.ClusterClient)
	n := &nodes{
		log: log, outage: queue.NewOutage(log, "Redis"), isOne: !isCluster,
		outages: make(map[string]*queue.Outage), unknown: make(map[string]time.Time),
		nodeOf: func(context.Context, member.ID) (string, error) { return "", nil },
		back:   func() {},
	}
	n.stream = n.outage
	if isCluster {
		n.nodeOf = func(ctx context.Context, user member.ID) (string, error) {
			master, err := cluster.MasterForKey(ctx, index.UserKey(user))
			if err != nil {
				return "", err
			}
			return master.Options().Addr, nil
		}
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
func (n *nodes) report(ctx context.Context, began time.Time, s index.Status) {
	n.last.Store(&lastStatus{s, time.Now()})
	if len(s.Nodes) == 0 {
		n.outage.Report(ctx, began, s.Err())
		for node := range n.errs { // none is found
			n.errs[node] = s.Err()
		}
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

// lagFor is how long the sets of a node that is back count as behind. By then the tasks that
// waited for it are usually done.
const lagFor = 5 * time.Second

// reportBack calls back if a node can be used again, and notes which nodes lag: one that could
// not be reached, and lost nothing, has its sets at once, while its tasks still wait.
func (n *nodes) reportBack(s index.Status) {
	isBack, now := false, time.Now()
	lagging, errs := make(map[string]time.Time), make(map[string]error)
	for _, node := range s.Nodes {
		before, was := n.errs[node.Node]
		errs[node.Node] = node.Err
		since, lags := n.lags(node.Node)
		isBack = isBack || takesTasks(node.Err) && (!was || !takesTasks(before))
		if node.Err != nil {
			continue
		}
		// After refusals, and for unknown sets, the index sees to it that reads walk.
		if before != nil && !errors.Is(before, index.ErrRefused) && !errors.Is(before, index.ErrUnknown) {
			lagging[node.Node] = now
		} else if lags {
			lagging[node.Node] = since
		}
	}
	n.errs = errs
	n.lagging.Store(&lagging)
	if isBack {
		n.back()
	}
}

// takesTasks reports whether tasks can be done with a node of that status. Sets that may be
// old are no hindrance: what is written to them is deleted with them.
func takesTasks(err error) bool { return err == nil || errors.Is(err, index.ErrUnknown) }

// lags returns since when the sets of a node have been behind, if they are.
func (n *nodes) lags(node string) (since time.Time, lags bool) {
	if all := n.lagging.Load(); all != nil {
		since, lags = (*all)[node]
	}
	return since, lags && time.Since(since) < lagFor
}

// isLagging reports whether the node of the member's set came back less than lagFor ago, so
// that the tasks that waited for it may not be done.
func (n *nodes) isLagging(ctx context.Context, user member.ID) bool {
	all := n.lagging.Load()
	if all == nil || len(*all) == 0 {
		return false
	}
	address, err := n.nodeOf(ctx, user)
	for node := range *all {
		if _, lags := n.lags(node); lags && err == nil && (n.isOne || node == address) {
			return true
		}
	}
	return false
}

// canUse reports whether tasks can use the node of the member's set, if that is known.
func (n *nodes) canUse(ctx context.Context, user member.ID) (usable, known bool) {
	s, ok := n.fresh()
	if !ok {
		return false, false
	}
	if n.isOne {
		return takesTasks(s.Err()), true
	}
	address, err := n.nodeOf(ctx, user)
	i := slices.IndexFunc(s.Nodes, func(node index.NodeStatus) bool { return node.Node == address })
	if err != nil || i < 0 {
		return false, false
	}
	return takesTasks(s.Nodes[i].Err), true
}

// ready implements Ready of [queue.PoolOptions]. A task that writes to the sets of followers may
// need any node.
func (n *nodes) ready(kind string, key uint64) (ready, sure bool) {
	switch {
	case slices.Contains(tasks.Changing(tasks.OwnSet), kind):
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond) // as a rule it is not needed: the client knows the slots
		defer cancel()
		usable, known := n.canUse(ctx, member.ID(key))
		return usable || !known, usable
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
func (n *nodes) reportUnknown(ctx context.Context, node index.NodeStatus) {
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
func (n *nodes) reportMasters(ctx context.Context, s index.Status) {
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

// statusTTL is how long a status is used. It is longer than the time between two reports of
// [index.Index.Watch], even while a node does not answer.
const statusTTL = 4 * time.Second

// fresh returns the last status, if it is fresh.
func (n *nodes) fresh() (s index.Status, ok bool) {
	last := n.last.Load()
	if last == nil || time.Since(last.at) >= statusTTL {
		return s, false
	}
	return last.Status, true
}

// partly reports whether only some of the nodes cannot be used.
func (n *nodes) partly() bool {
	s, ok := n.fresh()
	return ok && 0 < s.Away && s.Away < 1
}

// healthOf returns the health of Redis. Its Detail is public, and has no addresses.
func healthOf(s index.Status) api.Component {
	err := s.Err()
	if err == nil || len(s.Nodes) > 0 && s.Away == 0 { // or those that cannot be used have no sets
		return api.Component{Usable: true}
	}
	why, then := index.Reason(err), "reads are answered from the database, tasks wait"
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
			away = append(away, api.Node{Address: node.Node, Detail: index.Reason(node.Err)})
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
