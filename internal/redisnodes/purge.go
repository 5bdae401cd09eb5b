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

// purge deletes all data of a node, and then stores a record, unless a process does. Two at once do no harm.
// It uses a single connection, and so a single start of the server, if that is still the server that the probe found.
func (ns *Nodes) purge(ctx context.Context, f found) {
	n := f.node
	client := n.plainClient(purgeTimeout)
	defer client.Close() //nolint:errcheck // nothing depends on it
	c := client.Conn()
	defer c.Close() //nolint:errcheck // likewise
	lock := ns.key(slices.Max(slices.Collect(maps.Keys(f.records)))) + "_purge"
	if got, err := c.SetNX(ctx, lock, 1, purgeTTL).Result(); err == nil && !got {
		return
	} // a server that is full refuses, and is to be emptied all the same
	defer c.Del(context.WithoutCancel(ctx), lock)
	believed := n.belief.Load()
	if now := n.look(ctx, c); now.err != nil || now.run != f.run || !maps.Equal(now.records, f.records) {
		return // the next probe starts over
	}
	if ns.empty(ctx, c, slices.Collect(maps.Keys(f.records)), func([]string) { _ = c.PExpire(ctx, lock, purgeTTL) }) != nil {
		return // likewise
	}
	if believed != nil && believed.run == f.run { // this process has deleted what may lack its writes
		n.belief.CompareAndSwap(believed, &belief{run: f.run})
	}
	_ = ns.settle(ctx, c, f, recordOf(ns.options.Stamp(), f.run, time.Now().UnixNano())) // likewise
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
	cmds, err := c.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			send(pipe, key)
		}
		return nil
	})
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
func (ns *Nodes) EachPage(ctx context.Context, do func(keys []string) error) error {
	ns.Status(ctx)
	nodes, away := ns.masters(ctx)
	for _, n := range nodes {
		var ended error
		c := n.plainClient(purgeTimeout)
		err := n.state()
		if takesCalls(err) {
			err = ns.scan(ctx, c, func(keys []string) error { ended = do(keys); return ended })
		}
		_ = c.Close() // nothing depends on it
		if ended != nil {
			return ended
		}
		away = cmp.Or(away, err)
	}
	return Translate(ctx, "scan", away)
}

// Clear deletes all data, and the records. It calls deleted with the keys of the data, a page at a
// time. No process may write until it returns.
func (ns *Nodes) Clear(ctx context.Context, deleted func(keys []string)) error {
	nodes, err := ns.masters(ctx)
	for _, n := range nodes {
		c := n.plainClient(purgeTimeout)
		err = errors.Join(err, ns.empty(ctx, c, ns.tags(), deleted), c.Close())
	}
	ns.last.Store(nil) // the next call probes
	return Translate(ctx, "reset", err)
}
