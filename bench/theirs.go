package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
)

// theirs is asynq on the same Redis, with a handler as one would write it: it
// reads the contact and its last upload, and writes the set. It has none of what
// makes the index safe against late and repeated tasks.
type theirs struct {
	*ground
	client      *asynq.Client
	inspector   *asynq.Inspector
	concurrency int
	pairs       *tasks.PairHandler // if set, does the work instead
}

func newTheirs(g *ground, concurrency int) *theirs {
	t := &theirs{ground: g, client: asynq.NewClient(g.asynqRedis()), inspector: asynq.NewInspector(g.asynqRedis()), concurrency: concurrency}
	g.closers = append(g.closers, t.client, t.inspector)
	return t
}

func (g *ground) asynqRedis() asynq.RedisClientOpt {
	return asynq.RedisClientOpt{Network: "unix", Addr: g.redis.Addr()}
}

const (
	theirQueue = "default"
	theirType  = "add_contact"
)

// work implements [side].
//
// An idle server looks for tasks once a second. That is what the time to the
// start measures; the rate shall not suffer from it.
func (t *theirs) work(_ context.Context, done *countdown) (stop func() error, err error) {
	config := asynq.Config{TaskCheckInterval: 10 * time.Millisecond}
	return t.workWith(config, func(ctx context.Context, task *asynq.Task) error {
		err := t.handle(ctx, task)
		if err == nil {
			done.done(1)
		}
		return err
	})
}

// workWith starts a server. Settings that are not given are asynq's defaults.
func (t *theirs) workWith(config asynq.Config, handle func(context.Context, *asynq.Task) error) (stop func() error, err error) {
	config.Concurrency, config.LogLevel = t.concurrency, asynq.FatalLevel
	server := asynq.NewServer(t.asynqRedis(), config)
	if err := server.Start(asynq.HandlerFunc(handle)); err != nil {
		return nil, err
	}
	return func() error { server.Shutdown(); return nil }, nil
}

// left implements [side].
func (t *theirs) left(context.Context) (int, error) {
	info, err := t.inspector.GetQueueInfo(theirQueue)
	if errors.Is(err, asynq.ErrQueueNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size, nil
}

func (t *theirs) enqueue(ctx context.Context, p contacts.Pair) error {
	payload, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = t.client.EnqueueContext(ctx, asynq.NewTask(theirType, payload))
	return err
}

// oneByOne enqueues in the only way that asynq has.
func (t *theirs) oneByOne(producers int) func(context.Context, []contacts.Pair) error {
	return func(ctx context.Context, pairs []contacts.Pair) error {
		return inParallel(ctx, producers, pairs, t.enqueue)
	}
}

// withChange commits a contact and then enqueues its task: asynq cannot join the
// transaction, and a crash between the two loses the task.
func (t *theirs) withChange(producers int) func(context.Context, []contacts.Pair) error {
	return func(ctx context.Context, pairs []contacts.Pair) error {
		return inParallel(ctx, producers, pairs, func(ctx context.Context, p contacts.Pair) error {
			err := inTransaction(ctx, t.db, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, insertContact, p.User, p.Contact, time.Now().Unix())
				return err
			})
			if err != nil {
				return err
			}
			return t.enqueue(ctx, p)
		})
	}
}

// handle does the work of one task: a query, and a pipeline of two commands.
func (t *theirs) handle(ctx context.Context, task *asynq.Task) error {
	var p contacts.Pair
	if err := json.Unmarshal(task.Payload(), &p); err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	if t.pairs != nil {
		return t.handleSafely(ctx, p)
	}
	var lastUpload uint64
	err := t.db.QueryRowContext(ctx, "SELECT COALESCE(u.last_upload, 0) FROM contacts c JOIN users u ON u.id = c.contact_id"+
		" WHERE c.user_id = ? AND c.contact_id = ?", p.User, p.Contact).Scan(&lastUpload)
	key := index.UserKey(p.User)
	if errors.Is(err, sql.ErrNoRows) {
		return t.ground.client.ZRem(ctx, key, p.Contact.String()).Err()
	}
	if err != nil || lastUpload == 0 {
		return err
	}
	_, err = t.ground.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.ZAddGT(ctx, key, redis.Z{Score: float64(lastUpload), Member: p.Contact.String()})
		pipe.ZRemRangeByRank(ctx, key, 0, int64(-t.index.Settings().Max-1))
		return nil
	})
	return err
}

// handleSafely does the work with activityd's handler, which asynq gives one task
// at a time.
func (t *theirs) handleSafely(ctx context.Context, p contacts.Pair) error {
	args, err := json.Marshal(tasks.Args{Contact: p.Contact})
	if err != nil {
		return err
	}
	return t.pairs.Handle(ctx, []queue.Task{{Kind: tasks.AddContact, Key: uint64(p.User), Payload: args}})[0].Err
}
