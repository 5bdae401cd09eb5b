package history_test

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/indextest"
)

// sets is the index, as handlers, reads and judges see it.
type sets interface {
	tasks.Index
	recent.Index
	Look(ctx context.Context, users []member.ID) []index.Set
}

// backend is where a history keeps its sets, and how they get lost.
type backend struct {
	sets
	forgetSet   func(ctx context.Context, user member.ID) error
	forgetGuard func(ctx context.Context, user member.ID) error
	forgetAll   func(ctx context.Context) error
}

// opener opens an empty backend.
type opener func(ctx context.Context, s index.Settings) (backend, error)

// forgetful is the interface of all backends in memory.
type forgetful interface {
	sets
	Forget(user member.ID)
	ForgetGuard(user member.ID)
	ForgetAll()
}

func inMemory(_ context.Context, s index.Settings) (backend, error) {
	return over(indextest.NewMemory(s)), nil
}

func over(m forgetful) backend {
	return backend{
		sets:        m,
		forgetSet:   func(_ context.Context, user member.ID) error { m.Forget(user); return nil },
		forgetGuard: func(_ context.Context, user member.ID) error { m.ForgetGuard(user); return nil },
		forgetAll:   func(context.Context) error { m.ForgetAll(); return nil },
	}
}

// inRedis keeps the sets in a Redis that belongs to the history alone.
func inRedis(client *redis.Client) opener {
	var former *index.Index
	return func(ctx context.Context, s index.Settings) (backend, error) {
		del := func(ctx context.Context, key string) error { return client.Del(ctx, key).Err() }
		if former != nil {
			_ = former.Close() // nothing is under way
		}
		ix := index.New(client, index.Options{Settings: s, GuardLife: time.Hour})
		former = ix
		forgetAll := func(ctx context.Context) error {
			if err := client.FlushAll(ctx).Err(); err != nil {
				return err
			}
			return ix.Probe(ctx).Err()
		}
		return backend{
			sets:        ix,
			forgetSet:   func(ctx context.Context, user member.ID) error { return del(ctx, index.UserKey(user)) },
			forgetGuard: func(ctx context.Context, user member.ID) error { return del(ctx, "guard_{"+index.UserKey(user)+"}") },
			forgetAll:   forgetAll,
		}, forgetAll(ctx)
	}
}
