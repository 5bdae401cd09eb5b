package redisnodes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/retry"
)

const (
	purgeTTL     = 15 * time.Second // of the note that a process deletes the data of a node
	purgeTimeout = 5 * time.Second  // of one of its commands
	purgeRest    = 1                // after a page that took t there is a pause of purgeRest times t
	// PageSize bounds the commands in one pipeline, and the keys of one SCAN, so that one large
	// batch neither fills the server's buffers nor delays other clients for long.
	PageSize = 1000
)

// purge deletes all data of a node, and then stores its run, unless a process does. Two at once do no harm.
// It uses one connection, so all that it does is done on one start of one server, if that is still the one that was inspected.
func (ns *Nodes) purge(ctx context.Context, in inspection) {
	n := in.node
	if !n.purging.CompareAndSwap(false, true) {
		return
	}
	defer n.purging.Store(false)
	client := n.plainClient(purgeTimeout)
	defer client.Close() //nolint:errcheck // nothing depends on it
	c := client.Conn()
	defer c.Close() //nolint:errcheck // likewise
	lock := ""
	for tag := range in.stored {
		lock = max(lock, ns.key(tag)+"_purge")
	}
	if got, err := c.SetNX(ctx, lock, 1, purgeTTL).Result(); err == nil && !got {
		return
	} // a server that is full refuses, and is to be emptied all the same
	f, err := ns.look(ctx, c)
	isSame := err == nil && f.run == in.run && maps.Equal(f.stored, in.stored)
	if isSame {
		err = ns.empty(ctx, c, in, lock)
	}
	_ = c.Del(context.WithoutCancel(ctx), lock)
	if isSame && err == nil {
		ns.kick()
	} // else the next probe starts over with what is left
}

// empty deletes all data of the server of a connection, and then stores its run. What is stored beside the data goes first, so
// that a replica which is made meanwhile has it for no data.
func (ns *Nodes) empty(ctx context.Context, c redis.Cmdable, in inspection, lock string) error {
	var keys []string
	for tag := range in.stored {
		keys = append(keys, ns.key(tag))
	}
	if err := unlink(ctx, c, keys); err != nil {
		return err
	}
	began := time.Now()
	err := ns.eachPage(ctx, c, func(keys []string) error {
		if err := unlink(ctx, c, keys); err != nil {
			return err
		}
		_ = c.PExpire(ctx, lock, purgeTTL) // nothing depends on it
		err := retry.Sleep(ctx, purgeRest*time.Since(began))
		began = time.Now()
		return err
	})
	if err != nil {
		return err
	}
	return ns.settle(ctx, c, in, ns.next(in))
}

// next notes that this process deleted the data of a server, and returns a new token for it.
func (ns *Nodes) next(in inspection) int64 {
	ns.probing.Lock()
	defer ns.probing.Unlock()
	n := in.node
	for _, s := range in.stored {
		n.token = max(n.token, s.token)
	}
	n.emptied, n.token = in.run, max(n.token+1, time.Now().UnixNano())
	return n.token
}

// settle stores the run of a server under its tags.
func (ns *Nodes) settle(ctx context.Context, c redis.Cmdable, in inspection, token int64) error {
	cmds, err := c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for tag := range in.stored {
			pipe.Set(ctx, ns.key(tag), stored{ns.options.Stamp(), in.run, token}.String(), 0)
		}
		return nil
	})
	return failed(cmds, err)
}

// eachPage calls do with the keys of the data of a server, see [Options], a page at a time.
func (ns *Nodes) eachPage(ctx context.Context, c redis.Cmdable, do func(keys []string) error) error {
	for cursor := uint64(0); ; {
		keys, next, err := c.Scan(ctx, cursor, ns.options.Pattern, PageSize).Result()
		if err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		keys = slices.DeleteFunc(keys, func(key string) bool { return !ns.options.Owns(key) }) // other programs have keys, too
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

// unlink deletes keys of a server, one a command, since a cluster node refuses a command whose keys
// lie in several slots.
func unlink(ctx context.Context, c redis.Cmdable, keys []string) error {
	cmds, err := c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			pipe.Unlink(ctx, key)
		}
		return nil
	})
	return failed(cmds, err)
}

// failed returns an error if a command failed, but not one whose key has moved to another node.
func failed(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !hasMoved(err) {
			return err
		}
	}
	if hasMoved(err) {
		return nil
	}
	return err
}

// EachPage calls do with the keys of the data, of one node after the other, a page at a time. What lies on a
// node that cannot be used is left out, and its error returned after the others. It ends with the first error of do.
func (ns *Nodes) EachPage(ctx context.Context, do func(keys []string) error) error {
	nodes, away := ns.masters(ctx)
	for _, n := range nodes {
		var ended error
		c := n.plainClient(purgeTimeout)
		f, err := ns.look(ctx, c)
		if err == nil {
			err = n.believe(f)
		}
		if err == nil {
			err = ns.eachPage(ctx, c, func(keys []string) error { ended = do(keys); return ended })
		}
		_ = c.Close() // nothing depends on it
		if ended != nil {
			return ended
		}
		away = cmp.Or(away, err)
	}
	return Translate(ctx, "scan", away)
}

// Clear deletes all data, and what lies beside them. It calls deleting with the keys of the data, a page at a
// time. No process may write until it returns.
func (ns *Nodes) Clear(ctx context.Context, deleting func(keys []string)) error {
	nodes, err := ns.masters(ctx)
	for _, n := range nodes {
		c := n.plainClient(purgeTimeout)
		if err == nil {
			err = ns.eachPage(ctx, c, func(keys []string) error {
				deleting(keys)
				return unlink(ctx, c, keys)
			})
		}
		for _, tag := range ns.tags() {
			if err == nil {
				err = unlink(ctx, c, []string{ns.key(tag), ns.key(tag) + "_purge"})
			}
		}
		_ = c.Close() // nothing depends on it
	}
	ns.last.Store(nil) // the next call probes
	return Translate(ctx, "reset", err)
}
