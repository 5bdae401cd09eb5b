package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// refillBatch is how many refills a worker claims at once.
const refillBatch = 128

// refillWorkers is how many workers refill at once.
const refillWorkers = 4

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

// benchRefill measures how fast sets are refilled after Redis lost all data.
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
	way := func(name string, workers, some int, do func(context.Context, []member.ID) error) contender {
		return contender{name: name, prepare: flush, run: func(ctx context.Context) (int, error) { return len(users), inParallel(ctx, workers, some, users, do) }}
	}
	all, err := s.runs(ctx, []contender{
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

// refillPlainly is the obvious way: no guard, no check of what is in the set.
func (s *suite) refillPlainly(ctx context.Context, users []member.ID) error {
	for _, user := range users {
		members, err := s.recentPlainly(ctx, user)
		if err != nil {
			return err
		}
		if err := s.client.ZAdd(ctx, index.UserKey(user), members...).Err(); err != nil {
			return err
		}
	}
	return nil
}

func (s *suite) recentPlainly(ctx context.Context, user member.ID) (members []redis.Z, err error) {
	rows, err := s.db.QueryContext(ctx, `
SELECT u.id, u.last_upload FROM contacts c STRAIGHT_JOIN users u ON u.id = c.contact_id
WHERE c.user_id = ? AND u.last_upload > 0 ORDER BY u.last_upload DESC, u.id DESC LIMIT ?`, user, stars)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, lastUpload uint64
		if err := rows.Scan(&id, &lastUpload); err != nil {
			return nil, err
		}
		members = append(members, redis.Z{Score: float64(lastUpload), Member: strconv.FormatUint(id, 10)})
	}
	return members, rows.Err()
}
