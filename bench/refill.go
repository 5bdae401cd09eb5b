package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/queue/queuetest"
	"github.com/activityd/activityd/internal/tasks"
)

// refillBatch is how many refills a worker claims at once.
const refillBatch = 128

// refillWorkers are how many refill at once, as many as a service has at home there
// and that help.
const refillWorkers = 4

// inChunks calls do for some users at a time, from a number of goroutines.
func inChunks(ctx context.Context, workers, some int, users []member.ID, do func(context.Context, []member.ID) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for ids := range slices.Chunk(users, some) {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return do(ctx, ids)
		})
	}
	return group.Wait()
}

// refillOf refills sets as a task does.
func refillOf(handler *tasks.RefillHandler) func(context.Context, []member.ID) error {
	return func(ctx context.Context, ids []member.ID) error {
		batch := make([]queue.Task, len(ids))
		for i, id := range ids {
			batch[i] = queue.Task{Kind: tasks.Refill, Key: uint64(id)}
		}
		for _, err := range queuetest.Errors(handler.Handle(ctx, batch)) {
			if err != nil {
				return fmt.Errorf("fill the sets: %w", err)
			}
		}
		return nil
	}
}

// benchRefill measures how fast sets are made anew after Redis lost everything.
func (s *suite) benchRefill(ctx context.Context) error {
	const (
		part       = "Refill after FLUSHALL"
		bulk       = "activityd, 128 viewers at once"
		single     = "activityd, one viewer at a time"
		plain      = "a query and a ZADD for each viewer"
		bulkByMany = "activityd, 128 viewers at once, by 4 workers"
		byMany     = "a query and a ZADD for each viewer, by 4 workers"
		unit       = "viewers/s"
	)
	users := s.options.site.refilled()
	refill := refillOf(&tasks.RefillHandler{Index: s.index, Store: s.store})
	flush := func(ctx context.Context) error { return s.client.FlushAll(ctx).Err() }
	way := func(name string, workers, some int, do func(context.Context, []member.ID) error) entrant {
		return entrant{name, flush, func(ctx context.Context) (int, error) { return len(users), inChunks(ctx, workers, some, users, do) }}
	}
	all, err := s.meter.alternate(ctx, s.options.rounds, s.log, []entrant{
		way(plain, 1, refillBatch, s.refillPlainly), way(byMany, refillWorkers, refillBatch, s.refillPlainly),
		way(single, 1, 1, refill), way(bulk, 1, refillBatch, refill), way(bulkByMany, refillWorkers, refillBatch, refill),
	})
	if err != nil {
		return err
	}
	s.results.rates(part, all, plain, unit, "", nil)
	s.results.rates(part, all, single, unit, plain, nil)
	s.results.rates(part, all, bulk, unit, plain, atLeast(5))
	s.results.rates(part, all, byMany, unit, plain, nil)
	s.results.rates(part, all, bulkByMany, unit, byMany, nil)
	return nil
}

// refillPlainly is how one would write it: no guard, no check of what is there.
func (s *suite) refillPlainly(ctx context.Context, users []member.ID) error {
	for _, user := range users {
		list, err := s.store.ContactsByRecency(ctx, user, nil, contacts.Cursor{}, stars)
		if err != nil {
			return err
		}
		members := make([]redis.Z, len(list))
		for i, c := range list {
			members[i] = redis.Z{Score: float64(c.LastUpload), Member: c.ID.String()}
		}
		if err := s.client.ZAdd(ctx, index.UserKey(user), members...).Err(); err != nil {
			return err
		}
	}
	return nil
}
