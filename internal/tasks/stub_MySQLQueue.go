package tasks

import (
	"context"
	"errors"
	"time"
)

var errStubMySQLQueue = errors.New("under construction")

func (q *MySQLQueue) EnqueueOnce(context.Context, string, []New) ([]uint64, bool, error) {
	return nil, false, errStubMySQLQueue
}
func (q *MySQLQueue) Extend(context.Context, []Task, time.Duration) (int, error) {
	return 0, errStubMySQLQueue
}
func (q *MySQLQueue) Stats(context.Context) (Stats, error) { return Stats{}, errStubMySQLQueue }
func (q *MySQLQueue) List(context.Context, Filter, int) ([]Record, error) {
	return nil, errStubMySQLQueue
}
func (q *MySQLQueue) Retry(context.Context, Filter, int) (int, error)   { return 0, errStubMySQLQueue }
func (q *MySQLQueue) Discard(context.Context, Filter, int) (int, error) { return 0, errStubMySQLQueue }
func (q *MySQLQueue) Pause(context.Context, string) (bool, error)       { return false, errStubMySQLQueue }
func (q *MySQLQueue) Resume(context.Context, string) (bool, error)      { return false, errStubMySQLQueue }
func (q *MySQLQueue) Paused(context.Context) ([]string, error)          { return nil, nil }

// Full is under construction.
func (q *MySQLQueue) Full(context.Context, int) (bool, error) { return false, nil }
