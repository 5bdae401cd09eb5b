package health

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
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/tasks"
)

// Redis is the nodes that have the sets: one server, or the masters of a cluster. It logs what
// [index.Index.Watch] reports, one line for each change, and is what tasks wait for, as a
// [queue.Dependency] of the name [tasks.NeedsSets]. It is safe for concurrent use.
type Redis struct {
	// Stream is the log of the node that has the stream; of one server, its own.
	Stream *outage.Log

	log   *slog.Logger
	all   *outage.Log // of one server, or a cluster of which no node can be found
	isOne bool        // not a cluster
	back  chan struct{}
	seen
	waiting atomic.Pointer[waitingTask]

	// The following are used by Report only.
	logs    map[string]*outage.Log // by node
	unknown map[string]time.Time   // since when the sets of a node are unknown
	usable  map[string]bool        // the nodes of the last report: whether tasks could use them
	masters []string               // that were logged
	before  []string               // the masters of the report before
	waits   int                    // reports of tasks that wait for no known reason
}

// waitingTask is the error of a task that waits.
type waitingTask struct {
	at  time.Time
	err error
}

// NewRedis returns the Redis of an index.
func NewRedis(client redis.UniversalClient, ix *index.Index, log *slog.Logger) *Redis {
	r := &Redis{
		log: log, all: outage.New(log, "Redis"), back: make(chan struct{}, 1), seen: seen{index: ix, nodeOf: nodeOf(client)},
		logs: make(map[string]*outage.Log), unknown: make(map[string]time.Time), usable: make(map[string]bool),
	}
	if r.isOne = r.nodeOf == nil; r.isOne {
		r.Stream = r.all
	} else {
		r.Stream = outage.New(log, "Redis (stream)")
	}
	return r
}

// Report logs what changed since the report before, as a look at the nodes that began at a time
// found it. Its calls must not overlap.
func (r *Redis) Report(ctx context.Context, began time.Time, s index.Status) {
	r.note(s)
	if len(s.Nodes) == 0 {
		r.all.Report(ctx, began, s.Err())
		clear(r.usable) // none is found
		return
	}
	if !r.isOne {
		r.all.Report(ctx, began, nil)
	}
	r.reportMasters(ctx, s)
	r.reportBack(s)
	for _, node := range s.Nodes {
		r.reportUnknown(ctx, node)
		err := node.Err
		if errors.Is(err, index.ErrUnknown) {
			err = nil // it answers
		}
		r.logOf(node.Node).Report(ctx, began, err)
	}
	r.reportWaiting(ctx, began, s.Err())
}

// reportBack says that a node can be used that could not, or was not known.
func (r *Redis) reportBack(s index.Status) {
	before, isBack := r.usable, false
	r.usable = make(map[string]bool)
	for _, node := range s.Nodes {
		r.usable[node.Node] = takesTasks(node.Err)
		isBack = isBack || r.usable[node.Node] && !before[node.Node]
	}
	if isBack {
		notify(r.back)
	}
}

// name returns the name of a node in the log.
func (r *Redis) name(node string) string {
	if r.isOne {
		return "Redis"
	}
	return "Redis " + node
}

func (r *Redis) logOf(node string) *outage.Log {
	if r.isOne {
		return r.all
	}
	o := r.logs[node]
	if o == nil {
		o = outage.New(r.log, r.name(node))
		r.logs[node] = o
	}
	return o
}

// reportUnknown logs that the sets of a node became unknown, or known again. While a node cannot
// be used, neither changes.
func (r *Redis) reportUnknown(ctx context.Context, node index.NodeStatus) {
	since, was := r.unknown[node.Node]
	switch is := errors.Is(node.Err, index.ErrUnknown); {
	case is && !was:
		r.unknown[node.Node] = time.Now()
		r.log.WarnContext(ctx, "sets may be old", "server", r.name(node.Node), "then", "reads walk until these sets are deleted")
	case was && node.Err == nil:
		delete(r.unknown, node.Node)
		r.log.InfoContext(ctx, "sets are known again", "server", r.name(node.Node), "after", time.Since(since).Round(time.Millisecond))
	}
}

// reportMasters logs a change of the masters once two reports in a row agree: while a replica
// takes over, the servers may not.
func (r *Redis) reportMasters(ctx context.Context, s index.Status) {
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
		isIn := func(list []string) func(string) bool {
			return func(node string) bool { return slices.Contains(list, node) }
		}
		came := slices.DeleteFunc(slices.Clone(now), isIn(r.masters))
		left := slices.DeleteFunc(slices.Clone(r.masters), isIn(now))
		r.log.WarnContext(ctx, "masters of Redis changed", "came", came, "left", left, "masters", len(now))
		for _, node := range left { // if it comes back, that is another outage
			delete(r.logs, node)
			delete(r.unknown, node)
		}
	}
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
	if !errors.Is(err, index.ErrUnavailable) && !errors.Is(err, index.ErrSettings) {
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
	return r.takesTasks(ctx, member.ID(key))
}

// Partly implements [queue.Dependency].
func (r *Redis) Partly() bool {
	s, ok := r.fresh()
	return ok && 0 < s.Away && s.Away < 1
}

// Back implements [queue.Dependency].
func (r *Redis) Back() <-chan struct{} { return r.back }

// componentOf returns the health of Redis. Its Detail is public, and has no addresses.
func componentOf(s index.Status) api.Component {
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
