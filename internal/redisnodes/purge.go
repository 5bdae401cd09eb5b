package redisnodes

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/retry"
)

const (
	purgeTTL  = 15 * time.Second // of the lock of the process that deletes the data of a node
	purgeRest = 1                // after a page that took t there is a pause of purgeRest times t
)

// keepScript extends the lock of a purge, or deletes it, while it is of this process.
//
//	KEYS[1]  the lock
//	ARGV[1]  the token
//	ARGV[2]  its TTL in milliseconds, 0 to delete it
//	returns  1; 0 if it is of another process, or none
var keepScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
`)

// errPurgeLost says that the lock of a purge ended, and another process may have it.
var errPurgeLost = errors.New("the lock of the purge was lost")

// purge deletes all data of the node, if no other process does, and then settles it.
//
// A process that was paused past its lock deletes no further page: the data may be those that
// were made since another process settled the node.
func (ns *Nodes) purge(ctx context.Context, in *inspection) {
	n := in.node
	if len(in.tags) == 0 || !n.purging.CompareAndSwap(false, true) {
		return
	}
	ns.purges.Go(func() {
		defer n.purging.Store(false)
		lock, token := purgeKey(in.tags[0].tag), rand.Text()
		if got, err := n.client.SetNX(ctx, lock, token, purgeTTL).Result(); err != nil || !got {
			return
		}
		keep := func(ttl time.Duration) error {
			kept, err := keepScript.Run(ctx, n.client, []string{lock}, token, ttl.Milliseconds()).Int()
			if err == nil && kept == 0 {
				err = errPurgeLost
			}
			return err
		}
		err := n.EachPage(ctx, func(keys []string) error {
			if err := keep(purgeTTL); err != nil {
				return err
			}
			began := time.Now()
			if err := n.unlink(ctx, keys); err != nil {
				return err
			}
			return retry.Sleep(ctx, purgeRest*time.Since(began))
		})
		if err == nil {
			err = keep(purgeTTL)
		}
		if err == nil {
			ns.probing.Lock()
			ns.settle(ctx, in, ns.now().UnixMilli())
			ns.probing.Unlock()
			err = keep(0)
		}
		_ = err // the next probe starts over with what is left
	})
}

// EachPage calls do with the keys of the data of the node, see [Options], a page at a time.
func (n *Node) EachPage(ctx context.Context, do func(keys []string) error) error {
	for cursor := uint64(0); ; {
		keys, next, err := n.client.Scan(ctx, cursor, n.nodes.options.Pattern, PageSize).Result()
		if err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		keys = slices.DeleteFunc(keys, func(key string) bool { return !n.nodes.options.Owns(key) }) // other programs have keys, too
		if len(keys) > 0 {
			if err := do(keys); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// unlink deletes keys of the node, one a command, since a cluster node refuses a
// command whose keys lie in several slots. Keys that have moved to another node are left.
func (n *Node) unlink(ctx context.Context, keys []string) error {
	cmds, err := n.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			pipe.Unlink(ctx, key)
		}
		return nil
	})
	if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil && !hasMoved(c.Err()) }) || len(cmds) == 0 && err != nil {
		return fmt.Errorf("unlink: %w", err)
	}
	return nil
}

// Clear deletes all data, what lies beside them, and more keys. It calls deleting with the keys of
// the data, a page at a time. No process may write until it returns.
func (ns *Nodes) Clear(ctx context.Context, more []string, deleting func(keys []string)) error {
	nodes, err := ns.Masters(ctx)
	for _, n := range nodes {
		if err != nil {
			break
		}
		err = n.EachPage(ctx, func(keys []string) error {
			deleting(keys)
			return n.unlink(ctx, keys)
		})
		n.trusted.Store(0)
	}
	if err == nil {
		_, err = ns.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, key := range append(ns.ownKeys(), more...) {
				pipe.Del(ctx, key)
			}
			return nil
		})
	}
	return Translate(ctx, "reset", err)
}
