package redisnodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/retry"
)

const (
	purgeTTL     = 15 * time.Second // of the note that a process deletes the data of a node
	purgeTimeout = 5 * time.Second  // of a command
	// PageSize bounds the commands in one pipeline, and the keys of a SCAN, so that a large
	// batch neither fills the server's buffers nor delays other clients for long.
	PageSize = 1000
)

// purge deletes all data of a node, and then stores a record, unless a process does; if it fails the next probe starts over. Two
// at once do no harm. It uses a single connection, and so a single start of the server, if the probe found that server.
func (ns *Nodes) purge(ctx context.Context, f found) {
	n, tags := f.node, slices.Sorted(maps.Keys(f.records))
	_ = n.with(purgeTimeout, func(client *redis.Client) error {
		c, lock := client.Conn(), ns.key(tags[0])+"_purge"
		if got, err := c.SetNX(ctx, lock, 1, purgeTTL).Result(); err == nil && !got {
			return nil
		} // a server that is full refuses, and is to be emptied all the same
		defer c.Del(context.WithoutCancel(ctx), lock)
		believed := n.belief.Load()
		if now := n.look(ctx, c); now.err != nil || now.run != f.run || !maps.Equal(now.records, f.records) {
			return now.err
		}
		if err := ns.empty(ctx, c, tags, func([]string) { c.PExpire(ctx, lock, purgeTTL) }); err != nil {
			return err
		}
		if believed != nil && believed.run == f.run { // this process has deleted what may lack its writes
			n.belief.CompareAndSwap(believed, &belief{run: f.run})
		}
		return ns.settle(ctx, c, f, recordOf(ns.options.Stamp(), f.run, time.Now().UnixNano()))
	})
}

// settle stores a record for a server under its tags.
func (ns *Nodes) settle(ctx context.Context, c redis.Cmdable, f found, record string) error {
	return each(ctx, c, slices.Collect(maps.Keys(f.records)), func(pipe redis.Pipeliner, tag string) {
		pipe.Set(ctx, ns.key(tag), record, 0)
	})
}

// empty deletes all data of a server, a page at a time, with a pause as long as the page took, and calls deleted. The records
// go first, so that a replica that is made then has none for old data.
func (ns *Nodes) empty(ctx context.Context, c redis.Cmdable, tags []string, deleted func(keys []string)) error {
	if err := each(ctx, c, tags, func(pipe redis.Pipeliner, tag string) { pipe.Unlink(ctx, ns.key(tag)) }); err != nil {
		return err
	}
	began := time.Now()
	return ns.scan(ctx, c, func(keys []string) error {
		if err := each(ctx, c, keys, func(pipe redis.Pipeliner, key string) { pipe.Unlink(ctx, key) }); err != nil {
			return err
		}
		deleted(keys)
		err := retry.Sleep(ctx, time.Since(began))
		began = time.Now()
		return err
	})
}

// each sends a command for each key, pipelined: a node of a cluster refuses a command with keys of
// several slots. A key that has moved to another node is no error.
func each(ctx context.Context, c redis.Cmdable, keys []string, send func(pipe redis.Pipeliner, key string)) error {
	pipe := c.Pipeline()
	for _, key := range keys {
		send(pipe, key)
	}
	cmds, err := pipe.Exec(ctx)
	for _, cmd := range cmds {
		if failed := cmd.Err(); failed != nil && !hasMoved(failed) {
			return failed
		}
	}
	if hasMoved(err) {
		return nil
	}
	return err
}

// scan calls do with the keys of the data of a server, see [Options], a page at a time.
func (ns *Nodes) scan(ctx context.Context, c redis.Cmdable, do func(keys []string) error) error {
	for cursor := uint64(0); ; {
		keys, next, err := c.Scan(ctx, cursor, ns.options.Pattern, PageSize).Result()
		if err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		keys = slices.DeleteFunc(keys, func(key string) bool { return !ns.options.Owns(key) }) // programs of the site have keys, too
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

// EachPage calls do with the keys of the data, node by node, a page at a time. It leaves out the data of a
// node that cannot be used, and returns its error at the end. It ends with the first error of do.
func (ns *Nodes) EachPage(ctx context.Context, do func(keys []string) error) (err error) {
	ns.Status(ctx)
	nodes, away := ns.masters(ctx)
	for _, n := range nodes {
		state := n.state()
		if takesCalls(state) {
			state = n.with(purgeTimeout, func(c *redis.Client) error {
				return ns.scan(ctx, c, func(keys []string) error { err = do(keys); return err })
			})
		}
		if err != nil {
			return err
		}
		away = cmp.Or(away, state)
	}
	return Translate(ctx, "scan", away)
}

// Clear deletes all data, and the records. It calls deleted with the keys of the data, a page at a
// time. No process may write until it returns.
func (ns *Nodes) Clear(ctx context.Context, deleted func(keys []string)) error {
	nodes, err := ns.masters(ctx)
	for _, n := range nodes {
		err = errors.Join(err, n.with(purgeTimeout, func(c *redis.Client) error { return ns.empty(ctx, c, ns.tags(), deleted) }))
	}
	ns.last.Store(nil) // the next call probes
	return Translate(ctx, "reset", err)
}
