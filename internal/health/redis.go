package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/redisnodes"
)

// Redis is the nodes that have the sets: a server, or the masters of a cluster. It logs the changes that
// [redisnodes.Nodes.Watch] reports, and tasks wait for it. It is safe for concurrent use.
type Redis struct {
	// Stream is the log of the node that has the stream; without a cluster, of the server.
	Stream *outage.Log

	log   *slog.Logger
	all   *outage.Log            // of the server, or a cluster whose nodes cannot be found
	isOne bool                   // not a cluster
	told  map[string]*outage.Log // by node; used by Report only
	last  atomic.Pointer[reported]
}

// reported is the last report.
type reported struct {
	at time.Time
	redisnodes.Status
}

// NewRedis returns the Redis behind a client.
func NewRedis(client redis.UniversalClient, log *slog.Logger) *Redis {
	_, isCluster := client.(*redis.ClusterClient)
	r := &Redis{log: log, all: outage.New(log, "Redis"), isOne: !isCluster, told: make(map[string]*outage.Log)}
	r.Stream = r.all
	if isCluster {
		r.Stream = outage.New(log, "Redis (stream)")
	}
	return r
}

// Report keeps the state of the nodes, and logs the changes since the report before; began is when the look at the nodes
// began. Its calls must not overlap.
func (r *Redis) Report(ctx context.Context, began time.Time, s redisnodes.Status) {
	r.last.Store(&reported{time.Now(), s})
	if len(s.Nodes) == 0 || !r.isOne {
		r.all.Report(ctx, began, s.FindErr())
	}
	for _, n := range s.Nodes {
		r.node(n.Node).Report(ctx, began, n.Err)
	}
}

// node returns the log of the node at an address.
func (r *Redis) node(address string) *outage.Log {
	if r.isOne {
		return r.all
	}
	if r.told[address] == nil {
		r.told[address] = outage.New(r.log, "Redis "+address)
	}
	return r.told[address]
}

// Waits reports whether the error of a task says that it has to wait for Redis; see [queue.PoolOptions].Away.
func Waits(err error) bool {
	return errors.Is(err, redisnodes.ErrUnavailable) || errors.Is(err, redisnodes.ErrStamp)
}

// component returns the health of Redis by the last report. Its Detail is public, and has no addresses.
func (r *Redis) component() api.Component {
	s := r.last.Load()
	switch {
	case s == nil:
		return api.Component{Detail: notAsked}
	case time.Since(s.at) > knownFor:
		return api.Component{Detail: tooOld}
	}
	err := s.Err()
	if err == nil || len(s.Nodes) > 0 && s.Away == 0 { // or the nodes that cannot be used have no sets
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
		return api.Component{Detail: strings.TrimSuffix(why+": "+then, ": ")}
	}
	why = fmt.Sprintf("%d of %d nodes cannot be used (%s)", len(away), len(s.Nodes), why)
	if then != "" {
		then = "for the members whose sets they have, " + then
	}
	return api.Component{Usable: true, Detail: strings.TrimSuffix(why+": "+then, ": "), Away: s.Away, Nodes: away}
}
