package index

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Reset deletes all sets and all other keys of activityd, and returns how many sets
// there were. Foreign keys stay. It is the way to other settings. No process may write
// until it returns, or a set of the old settings could outlive it.
func (ix *Index) Reset(ctx context.Context) (sets int64, err error) {
	nodes, err := ix.client.masters(ctx)
	for _, n := range nodes {
		if err != nil {
			break
		}
		err = eachPage(ctx, n.Client, func(keys []string) error {
			sets += int64(len(ownersOf(keys)))
			return unlink(ctx, n.Client, keys)
		})
		n.trustedUntil.Store(0)
	}
	if err == nil {
		err = ix.dropOwn(ctx)
	}
	return sets, translate(ctx, "reset", err)
}

// dropOwn deletes the keys that are no sets, one key a command, too.
func (ix *Index) dropOwn(ctx context.Context) error {
	_, err := ix.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range ownKeys(ix.client.UniversalClient) {
			pipe.Del(ctx, key)
		}
		return nil
	})
	return err
}
