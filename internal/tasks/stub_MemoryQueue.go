package tasks

import (
	"context"
	"errors"
	"time"
)

var errStubMemoryQueue = errors.New("under construction")

func (q *MemoryQueue) EnqueueOnce(context.Context, string, []New) ([]uint64, bool, error) {
	return nil, false, errStubMemoryQueue
}
func (q *MemoryQueue) Extend(context.Context, []Task, time.Duration) (int, error) {
	return 0, errStubMemoryQueue
}
func (q *MemoryQueue) Stats(context.Context) (Stats, error) { return Stats{}, errStubMemoryQueue }
func (q *MemoryQueue) List(context.Context, Filter, int) ([]Record, error) {
	return nil, errStubMemoryQueue
}
func (q *MemoryQueue) Retry(context.Context, Filter, int) (int, error) { return 0, errStubMemoryQueue }
func (q *MemoryQueue) Discard(context.Context, Filter, int) (int, error) {
	return 0, errStubMemoryQueue
}
func (q *MemoryQueue) Pause(context.Context, string) (bool, error)  { return false, errStubMemoryQueue }
func (q *MemoryQueue) Resume(context.Context, string) (bool, error) { return false, errStubMemoryQueue }
func (q *MemoryQueue) Paused(context.Context) ([]string, error)     { return nil, nil }

// Full is under construction.
func (q *MemoryQueue) Full(context.Context, int) (bool, error) { return false, nil }
