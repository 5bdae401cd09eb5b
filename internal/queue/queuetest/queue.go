package queuetest

import (
	"context"
	"time"

	"github.com/activityd/activityd/internal/queue"
)

// Queue is a queue: [queue.MySQLQueue], which says what the methods do, or [Memory]. One
// suite of tests holds both to the same.
type Queue interface {
	Enqueue(ctx context.Context, batch []queue.New) (ids []uint64, err error)
	EnqueueOnce(ctx context.Context, key string, batch []queue.New) (ids []uint64, replayed bool, err error)
	Claim(ctx context.Context, name string, n int, lease time.Duration) ([]queue.Task, error)
	Extend(ctx context.Context, held []queue.Task, lease time.Duration) (lost int, err error)
	Finish(ctx context.Context, results []queue.Result) (lost int, err error)
	Sweep(ctx context.Context) (queue.Swept, error)
	Active(ctx context.Context, kind string, keys []uint64) (map[uint64]bool, error)
	Absorb(ctx context.Context, held []queue.Task) (absorbed int, err error)
	Count(ctx context.Context) (queue.Counts, error)
	Full(ctx context.Context, limit int) (bool, error)
	Stats(ctx context.Context) (queue.Stats, error)
	Pending(ctx context.Context, kinds []string, keys []uint64) (map[uint64]bool, error)
	List(ctx context.Context, match queue.Filter, limit int) ([]queue.Record, error)
	Retry(ctx context.Context, match queue.Filter, limit int) (int, error)
	Discard(ctx context.Context, match queue.Filter, limit int) (int, error)
	Pause(ctx context.Context, name string) (changed bool, err error)
	Resume(ctx context.Context, name string) (changed bool, err error)
	Paused(ctx context.Context) ([]string, error)
}
