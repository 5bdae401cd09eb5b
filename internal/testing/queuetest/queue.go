package queuetest

import (
	"context"
	"time"

	"github.com/activityd/activityd/queue"
)

// Queue is the interface of [queue.Queue], which documents the methods, and of [Memory]. A single suite tests
// both.
type Queue interface {
	queue.Store
	Operator
	Enqueue(ctx context.Context, batch []queue.New) (ids []uint64, err error)
	EnqueueOnce(ctx context.Context, key string, batch []queue.New) (ids []uint64, replayed bool, err error)
	Active(ctx context.Context, kind string, keys []uint64) (map[uint64]bool, error)
	Dedupe(ctx context.Context, held []queue.Task) (deduped int, err error)
	CountWaiting(ctx context.Context, limit int) (int, error)
}

// Operator is the side of a queue that people use.
type Operator interface {
	Stats(ctx context.Context) (queue.Stats, error)
	Pending(ctx context.Context, kinds []string, keys []uint64) (map[uint64]bool, error)
	List(ctx context.Context, match queue.Filter, limit int) ([]queue.Record, error)
	Retry(ctx context.Context, match queue.Filter, limit int) (int, error)
	Discard(ctx context.Context, match queue.Filter, limit int) (int, error)
	Cancel(ctx context.Context, match queue.Filter) (int, error)
	Due(ctx context.Context, kinds ...string) (map[string]time.Duration, error)
	Pause(ctx context.Context, name string) (changed bool, err error)
	Paused(ctx context.Context) ([]string, error)
	Resume(ctx context.Context, name string) (changed bool, err error)
}
