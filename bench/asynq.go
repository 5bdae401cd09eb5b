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
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// asynqQueue is asynq on the same Redis, with a handler as one would write it: it
// reads the contact and its last upload, and writes the set. It has none of what
// makes the index safe against late and repeated tasks.
type asynqQueue struct {
	*backend
	client      *asynq.Client
	inspector   *asynq.Inspector
	concurrency int
	pairs       *tasks.PairHandler // if set, does the work instead
}

func newAsynq(b *backend, concurrency int) *asynqQueue {
	a := &asynqQueue{backend: b, client: asynq.NewClient(b.asynqRedis()), inspector: asynq.NewInspector(b.asynqRedis()), concurrency: concurrency}
	b.closers = append(b.closers, a.client, a.inspector)
	return a
}

func (b *backend) asynqRedis() asynq.RedisClientOpt {
	return asynq.RedisClientOpt{Network: "unix", Addr: b.redis.Addr()}
}

const (
	asynqDefault = "default"
	asynqType    = "add_contact"
)

// work implements [system].
//
// By default an idle server looks for tasks once a second. The part "wake" measures
// that; the rate is measured without it.
func (a *asynqQueue) work(_ context.Context, done *countdown) (stop func() error, err error) {
	config := asynq.Config{TaskCheckInterval: 10 * time.Millisecond}
	return a.workWith(config, func(ctx context.Context, task *asynq.Task) error {
		err := a.handle(ctx, task)
		if err == nil {
			done.done(1)
		}
		return err
	})
}

// workWith starts a server. Unset fields of config are asynq's defaults.
func (a *asynqQueue) workWith(config asynq.Config, handle func(context.Context, *asynq.Task) error) (stop func() error, err error) {
	config.Concurrency, config.LogLevel = a.concurrency, asynq.FatalLevel
	server := asynq.NewServer(a.asynqRedis(), config)
	if err := server.Start(asynq.HandlerFunc(handle)); err != nil {
		return nil, err
	}
	return func() error { server.Shutdown(); return nil }, nil
}

// left implements [system].
func (a *asynqQueue) left(context.Context) (int, error) {
	info, err := a.inspector.GetQueueInfo(asynqDefault)
	if errors.Is(err, asynq.ErrQueueNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size, nil
}

func (a *asynqQueue) enqueue(ctx context.Context, pairs []contacts.Pair) error {
	for _, p := range pairs {
		payload, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if _, err := a.client.EnqueueContext(ctx, asynq.NewTask(asynqType, payload)); err != nil {
			return err
		}
	}
	return nil
}

// enqueueAfterChange commits contacts and then enqueues their tasks: asynq cannot join
// the transaction, and a crash between the two loses the task.
func (a *asynqQueue) enqueueAfterChange(ctx context.Context, pairs []contacts.Pair) error {
	for _, p := range pairs {
		err := inTransaction(ctx, a.db, func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, insertContact, p.User, p.Contact, time.Now().Unix())
			return err
		})
		if err != nil {
			return err
		}
		if err := a.enqueue(ctx, []contacts.Pair{p}); err != nil {
			return err
		}
	}
	return nil
}

// handle does the work of one task: a query, and a pipeline of two commands.
func (a *asynqQueue) handle(ctx context.Context, task *asynq.Task) error {
	var p contacts.Pair
	if err := json.Unmarshal(task.Payload(), &p); err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	if a.pairs != nil {
		return a.handleSafely(ctx, p)
	}
	var lastUpload uint64
	err := a.db.QueryRowContext(ctx, "SELECT COALESCE(u.last_upload, 0) FROM contacts c JOIN users u ON u.id = c.contact_id"+
		" WHERE c.user_id = ? AND c.contact_id = ?", p.User, p.Contact).Scan(&lastUpload)
	key := index.UserKey(p.User)
	if errors.Is(err, sql.ErrNoRows) {
		return a.backend.client.ZRem(ctx, key, p.Contact.String()).Err()
	}
	if err != nil || lastUpload == 0 {
		return err
	}
	_, err = a.backend.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.ZAddGT(ctx, key, redis.Z{Score: float64(lastUpload), Member: p.Contact.String()})
		pipe.ZRemRangeByRank(ctx, key, 0, int64(-a.index.Settings().Max-1))
		return nil
	})
	return err
}

// handleSafely does the work with activityd's handler, which asynq gives one task
// at a time.
func (a *asynqQueue) handleSafely(ctx context.Context, p contacts.Pair) error {
	args, err := json.Marshal(tasks.ContactArgs{Contact: p.Contact})
	if err != nil {
		return err
	}
	return a.pairs.Handle(ctx, []queue.Task{{Kind: tasks.AddContact, Key: uint64(p.User), Payload: args}})[0].Err
}
