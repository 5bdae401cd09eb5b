package index

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// Reset deletes all sets and all other keys of activityd, and returns how many sets
// there were. Foreign keys stay. It is the way to other settings. No process may write
// until it returns, or a set of the old settings could outlive it.
func (ix *Index) Reset(ctx context.Context) (sets int64, err error) {
	var count atomic.Int64
	drop := func(ctx context.Context, node redis.UniversalClient) error {
		n, err := dropSets(ctx, node)
		count.Add(n)
		return err
	}
	err = ix.client.eachServer(ctx, drop)
	if err == nil {
		err = ix.dropOwn(ctx)
	}
	ix.trustedUntil.Store(0)
	return count.Load(), translate(ctx, "reset", err)
}

// dropSets unlinks the sets of one server, one key a command, since a cluster
// node refuses a command whose keys lie in several slots.
func dropSets(ctx context.Context, node redis.UniversalClient) (n int64, err error) {
	var cursor uint64
	for {
		keys, next, err := node.Scan(ctx, cursor, userKeyPrefix+"*", pipelineSize).Result()
		if err != nil {
			return n, fmt.Errorf("scan: %w", err)
		}
		cmds, err := node.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, key := range keys {
				pipe.Unlink(ctx, key)
			}
			return nil
		})
		if err != nil {
			return n, fmt.Errorf("unlink: %w", err)
		}
		n += int64(len(cmds))
		if cursor = next; cursor == 0 {
			return n, nil
		}
	}
}

// dropOwn deletes the keys that are no sets, one key a command, too.
func (ix *Index) dropOwn(ctx context.Context) error {
	_, err := ix.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range ownKeys(ix.client) {
			pipe.Del(ctx, key)
		}
		return nil
	})
	return err
}
