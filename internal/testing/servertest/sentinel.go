package servertest

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/localserver"
)

// Watched is a Redis or Valkey with a replica, and three Sentinels that make the replica the master when the master
// is dead.
type Watched struct {
	// Nodes are the first master and its replica. A failover changes the roles, not this order.
	Nodes     []*Node
	Sentinels []*Node
}

// watchedName is the name of the master for the Sentinels.
const watchedName = "index"

// NewWatched returns servers that are this test's alone, once the replica follows and the Sentinels know of each other
// and of the replica. Sentinels take a master for dead that does not answer for downAfter. args are added to the
// command lines of master and replica, which keep nothing on disk.
func NewWatched(t testing.TB, downAfter time.Duration, args ...string) *Watched {
	t.Helper()
	const sentinels = 3
	host, port := freePorts(t, 2+sentinels)
	master, replica := newNode(host, port), newNode(host, port+1)
	w := &Watched{Nodes: []*Node{master, replica}}
	args = append([]string{"--repl-diskless-sync-delay", "0", "--replica-announce-ip", host}, args...)
	master.listen(t, args...)
	replica.listen(t, append([]string{"--replicaof", fmt.Sprint(host, " ", port)}, args...)...)
	await(t, "the replica has its master's data", func() error {
		info, err := replica.Client.Info(t.Context(), "replication").Result()
		if err == nil && !strings.Contains(info, "master_link_status:up") {
			err = fmt.Errorf("it does not follow: %s", info)
		}
		return err
	})
	for i := range sentinels {
		n := newNode(host, port+2+i)
		r, err := localserver.StartSentinel(t.Context(),
			"bind "+host,
			fmt.Sprint("port ", n.port),
			"sentinel announce-ip "+host,
			fmt.Sprintf("sentinel monitor %s %s %d %d", watchedName, host, port, sentinels/2+1),
			fmt.Sprintf("sentinel down-after-milliseconds %s %d", watchedName, downAfter.Milliseconds()),
			fmt.Sprintf("sentinel failover-timeout %s %d", watchedName, max(3*time.Second, 3*downAfter).Milliseconds()))
		n.runs(t, ending(t, r, err))
		w.Sentinels = append(w.Sentinels, n)
	}
	for _, n := range w.Sentinels {
		await(t, n.HostPort+" watches the master", func() error { return n.watches(t.Context(), sentinels-1) })
	}
	return w
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

// FailoverOptions are go-redis' options for a client of the master.
func (w *Watched) FailoverOptions() *redis.FailoverOptions {
	return &redis.FailoverOptions{MasterName: watchedName, SentinelAddrs: addrs(w.Sentinels), ContextTimeoutEnabled: true}
}

// URL is the address for activityd's --redis-url.
func (w *Watched) URL() string {
	list := addrs(w.Sentinels)
	return "redis+sentinel://" + list[0] + "?" + url.Values{"master_name": {watchedName}, "addr": list[1:]}.Encode()
}
