package clustertest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/testing/localserver"
)

// Watched is a private Redis or Valkey with a replica, and three Sentinels that make the
// replica the master when the master is dead.
type Watched struct {
	// Nodes are the first master and its replica. A failover changes the roles, not this order. They have no
	// ID.
	Nodes []*Node
	// Sentinels have no ID either.
	Sentinels []*Node
}

// watchedName is the name of the master for the Sentinels.
const watchedName = "index"

// StartWatched starts a master, its replica and three Sentinels. It returns once the replica follows and the
// Sentinels know of each other and of the replica. Sentinels take a master for dead that does not answer for
// downAfter. args are added to the command lines of master and replica, which keep nothing on disk. ctx
// bounds the start only.
func StartWatched(ctx context.Context, downAfter time.Duration, args ...string) (*Watched, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("%s took longer than %v to start", "the Redis with Sentinels", startTimeout))
	defer cancel()
	w := &Watched{}
	if err := w.start(ctx, downAfter, args); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *Watched) start(ctx context.Context, downAfter time.Duration, args []string) error {
	const sentinels = 3
	host, port, err := FreePorts(ctx, 2+sentinels)
	if err != nil {
		return err
	}
	args = append([]string{"--repl-diskless-sync-delay", "0", "--replica-announce-ip", host}, args...)
	n, err := startNode(ctx, host, port, args...)
	if err != nil {
		return err
	}
	w.Nodes = append(w.Nodes, n)
	master := n.HostPort
	n, err = startNode(ctx, host, port+1, append([]string{"--replicaof", fmt.Sprint(host, " ", port)}, args...)...)
	if err != nil {
		return err
	}
	w.Nodes = append(w.Nodes, n)
	if err := await(ctx, "follow "+master, n.follows(ctx)); err != nil {
		return err
	}
	for i := range sentinels {
		r, err := localserver.StartSentinel(ctx,
			"bind "+host,
			fmt.Sprint("port ", port+2+i),
			"sentinel announce-ip "+host,
			fmt.Sprintf("sentinel monitor %s %s %d %d", watchedName, host, port, sentinels/2+1),
			fmt.Sprintf("sentinel down-after-milliseconds %s %d", watchedName, downAfter.Milliseconds()),
			fmt.Sprintf("sentinel failover-timeout %s %d", watchedName, max(3*time.Second, 3*downAfter).Milliseconds()))
		if err != nil {
			return err
		}
		w.Sentinels = append(w.Sentinels, newNode(r, host, port+2+i))
	}
	for _, s := range w.Sentinels {
		if err := await(ctx, "watch "+master, func() error { return s.watches(ctx, sentinels-1) }); err != nil {
			return fmt.Errorf("%s: %w", s.HostPort, err)
		}
	}
	return nil
}

// watches returns an error unless the Sentinel knows the replica, and the number of other Sentinels.
func (n *Node) watches(ctx context.Context, others int) error {
	reply := redis.NewMapStringStringCmd(ctx, "SENTINEL", "MASTER", watchedName)
	_ = n.Client.Process(ctx, reply) // reply has the error
	known, err := reply.Result()
	if err != nil {
		return err
	}
	if known["num-slaves"] != "1" || known["num-other-sentinels"] != strconv.Itoa(others) || known["flags"] != "master" {
		return fmt.Errorf("it knows %v", known)
	}
	return nil
}

// follows returns a function whose error is nil once the replica has its master's data.
func (n *Node) follows(ctx context.Context) func() error {
	return func() error {
		info, err := n.Client.Info(ctx, "replication").Result()
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = fmt.Errorf("it does not follow: %s", info)
		}
		return err
	}
}

// Addrs are the addresses of the Sentinels.
func (w *Watched) Addrs() []string {
	addrs := make([]string, len(w.Sentinels))
	for i, s := range w.Sentinels {
		addrs[i] = s.HostPort
	}
	return addrs
}

// FailoverOptions are go-redis' options for a client of the master.
func (w *Watched) FailoverOptions() *redis.FailoverOptions {
	return &redis.FailoverOptions{MasterName: watchedName, SentinelAddrs: w.Addrs(), ContextTimeoutEnabled: true}
}

// URL is the address for activityd's --redis-url.
func (w *Watched) URL() string {
	addrs := w.Addrs()
	query := url.Values{"master_name": {watchedName}, "addr": addrs[1:]}
	return "redis+sentinel://" + addrs[0] + "?" + query.Encode()
}

// Close stops all servers and removes their folders.
func (w *Watched) Close() error {
	var group errgroup.Group
	for _, n := range append(append([]*Node(nil), w.Sentinels...), w.Nodes...) {
		group.Go(n.Close)
	}
	return group.Wait()
}
