package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/redisnodes"
	"github.com/activityd/activityd/internal/tasks"
)

// Redis is the nodes that have the sets: one server, or the masters of a cluster. It logs what
// [redisnodes.Nodes.Watch] reports, one line for each change, and is what tasks wait for, as a
// [queue.Dependency] of the name [tasks.NeedsSets]. It is safe for concurrent use.
type Redis struct {
	// Stream is the log of the node that has the stream; of one server, its own.
	Stream *outage.Log

	log     *slog.Logger
	all     *outage.Log // of one server, or a cluster of which no node can be found
	isOne   bool        // not a cluster
	nodes   Nodes
	back    chan struct{}
	waiting atomic.Pointer[waitingTask]

	// The following are used by Report only.
	reports int // so far
	told    map[string]*node
	masters []string // that were logged
	before  []string // the masters of the report before
	waits   int      // reports of tasks that wait for no known reason
}

// node is what was reported of a node.
type node struct {
	*outage.Log

	name    string    // in the log
	usable  int       // the last report after which tasks could use it
	unknown time.Time // since when its sets may be old; zero: they are known
}

// waitingTask is the error of a task that waits.
type waitingTask struct {
	at  time.Time
	err error
}

// Nodes is what a [Redis] asks; it is an [index.Index].
type Nodes interface {
	StateOf(ctx context.Context, user member.ID) (redisnodes.State, error)
	Seen() (s redisnodes.Status, isFresh bool)
	Status(ctx context.Context) redisnodes.Status
}

// NewRedis returns the Redis of some nodes, of which it need not be known yet whether they can be
// used.
func NewRedis(client redis.UniversalClient, nodes Nodes, log *slog.Logger) *Redis {
	_, isCluster := client.(*redis.ClusterClient)
	r := &Redis{
		log: log, all: outage.New(log, "Redis"), isOne: !isCluster, nodes: nodes, back: make(chan struct{}, 1),
		reports: 1, told: make(map[string]*node),
	}
	r.Stream = r.all
	if isCluster {
		r.Stream = outage.New(log, "Redis (stream)")
	}
	return r
}

// Report logs what changed since the report before, as a look at the nodes that began at a time
// found it. Its calls must not overlap.
func (r *Redis) Report(ctx context.Context, began time.Time, s redisnodes.Status) {
	r.reports++
	if len(s.Nodes) == 0 {
		r.all.Report(ctx, began, s.Err())
		return
	}
	if !r.isOne {
		r.all.Report(ctx, began, nil)
	}
	r.reportMasters(ctx, s)
	for _, status := range s.Nodes {
		n := r.node(status.Node)
		if status.State.TakesWrites() {
			if n.usable < r.reports-1 { // it is back
				select {
				case r.back <- struct{}{}:
				default: // one is waiting
				}
			}
			n.usable = r.reports
		}
		r.reportUnknown(ctx, n, status.Err)
		err := status.Err
		if errors.Is(err, redisnodes.ErrUnknown) {
			err = nil // it answers
		}
		n.Report(ctx, began, err)
	}
	r.reportWaiting(ctx, began, s.Err())
}

// node returns what was reported of the node at an address.
func (r *Redis) node(address string) *node {
	n := r.told[address]
	if n == nil {
		n = &node{Log: r.all, name: "Redis"}
		if !r.isOne {
			n.name = "Redis " + address
			n.Log = outage.New(r.log, n.name)
		}
		r.told[address] = n
	}
	return n
}

// reportUnknown logs that the sets of a node became unknown, or known again. While a node cannot
// be used, neither changes.
func (r *Redis) reportUnknown(ctx context.Context, n *node, err error) {
	switch was, is := !n.unknown.IsZero(), errors.Is(err, redisnodes.ErrUnknown); {
	case is && !was:
		n.unknown = time.Now()
		r.log.WarnContext(ctx, "sets may be old", "server", n.name, "then", "reads walk until these sets are deleted")
	case was && err == nil:
		r.log.InfoContext(ctx, "sets are known again", "server", n.name, "after", time.Since(n.unknown).Round(time.Millisecond))
		n.unknown = time.Time{}
	}
}

// reportMasters logs a change of the masters once two reports in a row agree: while a replica
// takes over, the servers may not.
func (r *Redis) reportMasters(ctx context.Context, s redisnodes.Status) {
	var now []string
	for _, node := range s.Nodes {
		now = append(now, node.Node)
	}
	agreed := slices.Equal(now, r.before)
	r.before = now
	if !agreed || slices.Equal(now, r.masters) {
		return
	}
	if r.masters != nil {
		came := slices.DeleteFunc(slices.Clone(now), func(node string) bool { return slices.Contains(r.masters, node) })
		left := slices.DeleteFunc(slices.Clone(r.masters), func(node string) bool { return slices.Contains(now, node) })
		r.log.WarnContext(ctx, "masters of Redis changed", "came", came, "left", left, "masters", len(now))
	}
	// If a node that left comes back, that is another outage.
	maps.DeleteFunc(r.told, func(address string, _ *node) bool { return !slices.Contains(now, address) })
	r.masters = now
}

// Tasks that wait for no known reason are logged at the third report that finds them, and then
// at every 60th, which is once a minute.
const (
	firstWaits = 3
	waitsEvery = 60
)

// reportWaiting logs that tasks wait though the probes before and after find nothing wrong,
// as where an ACL forbids some keys.
func (r *Redis) reportWaiting(ctx context.Context, began time.Time, probe error) {
	w := r.waiting.Load()
	switch {
	case probe != nil:
		r.waiting.Store(nil)
		r.waits = 0
	case w != nil && began.After(w.at): // otherwise the next probe decides
		r.waiting.Store(nil)
		r.waits++
		if r.waits%waitsEvery == firstWaits {
			r.log.WarnContext(ctx, "tasks wait though Redis answers", "error", w.err)
		}
	}
}

// Waits implements [queue.Dependency].
func (r *Redis) Waits(err error) bool {
	if !errors.Is(err, redisnodes.ErrUnavailable) && !errors.Is(err, redisnodes.ErrStamp) {
		return false
	}
	if r.waiting.Load() == nil { // the first one since the last report
		r.waiting.CompareAndSwap(nil, &waitingTask{time.Now(), err})
	}
	return true
}

// Usable implements [queue.Dependency]. A task that writes to the sets of followers may need any
// node.
func (r *Redis) Usable(kind string, key uint64) (usable, known bool) {
	if !slices.Contains(tasks.Changing(tasks.OwnSet), kind) {
		return false, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond) // as a rule it is not needed: the client knows the slots
	defer cancel()
	state, err := r.nodes.StateOf(ctx, member.ID(key))
	return state.TakesWrites(), !errors.Is(err, redisnodes.ErrUnseen)
}

// Partly implements [queue.Dependency].
func (r *Redis) Partly() bool {
	s, ok := r.nodes.Seen()
	return ok && 0 < s.Away && s.Away < 1
}

// Back implements [queue.Dependency].
func (r *Redis) Back() <-chan struct{} { return r.back }

// componentOf returns the health of Redis. Its Detail is public, and has no addresses.
func componentOf(s redisnodes.Status) api.Component {
	err := s.Err()
	if err == nil || len(s.Nodes) > 0 && s.Away == 0 { // or those that cannot be used have no sets
		return api.Component{Usable: true}
	}
	why, then := redisnodes.Reason(err), "reads are answered from the database, tasks wait"
	switch {
	case errors.Is(err, redisnodes.ErrStamp):
		why, then = err.Error(), ""
	case errors.Is(err, redisnodes.ErrUnknown):
		then = "reads are answered from the database"
	case errors.Is(err, redisnodes.ErrRefused):
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
