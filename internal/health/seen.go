package health

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// seen answers whether the set of a member can be used, by the last look at the nodes.
type seen struct {
	index *index.Index
	// nodeOf returns the address of the node that has a member's set; nil: there is one server.
	nodeOf  func(ctx context.Context, user member.ID) (string, error)
	last    atomic.Pointer[lastStatus]
	lagging atomic.Pointer[map[string]time.Time] // by node: since when it can be used again
	errs    map[string]error                     // the last of each node; nil: it can be used. note alone uses it
}

// lastStatus is the last status, and when it was reported.
type lastStatus struct {
	index.Status

	at time.Time
}

const (
	// statusTTL is how long a status is used. It is longer than the time between two reports of
	// [index.Index.Watch], even while a node does not answer.
	statusTTL = 4 * time.Second
	// lagFor is how long the sets of a node that is back count as behind. By then the tasks that
	// waited for it are usually done.
	lagFor = 5 * time.Second
)

// nodeOf returns what knows the node of a member's set; nil: there is one server.
func nodeOf(client redis.UniversalClient) func(ctx context.Context, user member.ID) (string, error) {
	cluster, isCluster := client.(*redis.ClusterClient)
	if !isCluster {
		return nil
	}
	return func(ctx context.Context, user member.ID) (string, error) {
		master, err := cluster.MasterForKey(ctx, index.UserKey(user))
		if err != nil {
			return "", err
		}
		return master.Options().Addr, nil
	}
}

// isOne reports whether it is one server, and no cluster.
func (s *seen) isOne() bool { return s.nodeOf == nil }

// note keeps a status, and which nodes lag: one that could not be reached, and lost nothing, has
// its sets at once, while its tasks still wait.
func (s *seen) note(status index.Status) {
	now := time.Now()
	s.last.Store(&lastStatus{status, now})
	if len(status.Nodes) == 0 {
		for node := range s.errs { // none is found
			s.errs[node] = status.Err()
		}
		return
	}
	lagging, errs := make(map[string]time.Time), make(map[string]error)
	for _, node := range status.Nodes {
		before := s.errs[node.Node]
		errs[node.Node] = node.Err
		since, lags := s.lags(node.Node)
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
	s.errs = errs
	s.lagging.Store(&lagging)
}

// takesTasks reports whether tasks can be done with a node of that status. Sets that may be
// old are no hindrance: what is written to them is deleted with them.
func takesTasks(err error) bool { return err == nil || errors.Is(err, index.ErrUnknown) }

// lags returns since when the sets of a node have been behind, if they are.
func (s *seen) lags(node string) (since time.Time, lags bool) {
	if all := s.lagging.Load(); all != nil {
		since, lags = (*all)[node]
	}
	return since, lags && time.Since(since) < lagFor
}

// Lags reports whether the node of the member's set came back less than lagFor ago, so that the
// tasks that waited for it may not be done.
func (s *seen) Lags(ctx context.Context, user member.ID) bool {
	all := s.lagging.Load()
	if all == nil || len(*all) == 0 {
		return false
	}
	for node := range *all {
		if _, lags := s.lags(node); lags {
			if s.isOne() {
				return true
			}
			if address, err := s.nodeOf(ctx, user); err == nil && address == node {
				return true
			}
		}
	}
	return false
}

// takesTasks reports whether tasks can use the node of the member's set, if that is known.
func (s *seen) takesTasks(ctx context.Context, user member.ID) (takes, known bool) {
	status, ok := s.fresh()
	if !ok {
		return false, false
	}
	if s.isOne() {
		return takesTasks(status.Err()), true
	}
	address, err := s.nodeOf(ctx, user)
	i := slices.IndexFunc(status.Nodes, func(node index.NodeStatus) bool { return node.Node == address })
	if err != nil || i < 0 {
		return false, false
	}
	return takesTasks(status.Nodes[i].Err), true
}

// fresh returns the last status, if it is fresh.
func (s *seen) fresh() (status index.Status, ok bool) {
	last := s.last.Load()
	if last == nil || time.Since(last.at) >= statusTTL {
		return status, false
	}
	return last.Status, true
}

// status returns the last status, or a new one.
func (s *seen) status(ctx context.Context) index.Status {
	if last, ok := s.fresh(); ok {
		return last
	}
	return s.index.Probe(ctx)
}
