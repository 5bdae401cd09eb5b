package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/once"
)

// process has what a process of its own would have: connections, and a notifier that is
// relayed over Redis.
type process struct {
	lockStores

	client   *redis.Client
	notifier notify.Notifier
	stop     func() error
}

func (b *lockBench) newProcess(ctx context.Context) (p *process, err error) {
	p = &process{}
	db, err := b.openDB()
	if err != nil {
		return nil, err
	}
	if p.client, err = b.openRedis(); err != nil {
		return nil, err
	}
	p.lockStores = newLockStores(db, p.client)
	p.stop, err = b.relay(ctx, &p.notifier)
	return p, err
}

// takeover is a name that one process holds and another one waits for.
type takeover struct {
	giveUp  chan struct{} // closed to end the first attempt
	started chan struct{} // closed at the start of the second one
	running *errgroup.Group
}

// measureTakeovers measures the time from the end of an attempt that failed to the start of
// the next one.
func (b *lockBench) measureTakeovers(ctx context.Context) (err error) {
	first, err := b.newProcess(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, first.stop()) }()
	second, err := b.newProcess(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, second.stop()) }()
	two := [2]*process{first, second}
	list := []contender{
		b.takeovers("activityd, on Redis", func(ctx context.Context) (*takeover, error) {
			return b.takeOver(ctx, two, func(p *process) once.Store { return p.redis })
		}),
		b.takeovers("activityd, on MySQL", func(ctx context.Context) (*takeover, error) {
			return b.takeOver(ctx, two, func(p *process) once.Store { return p.mysql })
		}),
		b.takeovers("redsync, which looks every 50 to 250 ms", func(ctx context.Context) (*takeover, error) {
			return b.takeOverByRedsync(ctx, two)
		}),
	}
	if err := b.client.FlushDB(ctx).Err(); err != nil {
		return err
	}
	all, err := b.calls(ctx, b.options.wakes, 0, list)
	if err != nil {
		return err
	}
	part := fmt.Sprintf("From the end of a failed attempt to the start of the next, in another process, %d samples in each round", b.options.wakes)
	for i, c := range list {
		for _, q := range quantiles {
			f := figure{Part: part, Name: c.name + ", " + q.name, Unit: "ms", Value: all[c.name].spread(atQuantile(q.q))}
			if q.q == 0.5 && i < 2 {
				f.Aim = atMost(10)
			}
			b.results.add(f)
		}
	}
	return nil
}

// takeovers returns a contender that ends an attempt and waits for the next one. It pauses
// for a random time before, so that those who poll are met at a random moment.
func (b *lockBench) takeovers(name string, begin func(context.Context) (*takeover, error)) contender {
	var t *takeover
	return contender{
		name: name,
		prepare: func(ctx context.Context) (err error) {
			if t, err = begin(ctx); err != nil {
				return err
			}
			return retry.Sleep(ctx, rand.N(b.options.idle)/4)
		},
		run: func(ctx context.Context) (int, error) {
			close(t.giveUp)
			return 1, await(ctx, t.started)
		},
		after: func(context.Context) error { return t.running.Wait() },
	}
}

func await(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errFailed = errors.New("failed on purpose")

// takeOver begins an attempt in the first of two processes, which will fail, and has the
// second one wait. It returns when it does.
func (b *lockBench) takeOver(ctx context.Context, two [2]*process, storeOf func(*process) once.Store) (*takeover, error) {
	t := &takeover{giveUp: make(chan struct{}), started: make(chan struct{})}
	t.running, ctx = errgroup.WithContext(ctx)
	held, waiting := make(chan struct{}), make(chan struct{})
	key := once.Key{Name: b.newName(), Lease: lease}
	t.running.Go(func() error {
		o := once.New(storeOf(two[0]), once.Options{Notifier: &two[0].notifier})
		_, err := o.Do(ctx, key, func(ctx context.Context, a once.Attempt) error {
			if a.Number > 1 { // on a machine so busy that the other process was slower than the pause of this one
				close(t.started)
				return nil
			}
			close(held)
			return errors.Join(errFailed, await(ctx, t.giveUp))
		})
		return err
	})
	if err := await(ctx, held); err != nil {
		return nil, err
	}
	t.running.Go(func() error {
		locked := sync.OnceFunc(func() { close(waiting) })
		o := once.New(storeOf(two[1]), once.Options{Notifier: &two[1].notifier, Hooks: once.Hooks{Locked: func(string, once.State) { locked() }}})
		_, err := o.Do(ctx, key, func(context.Context, once.Attempt) error {
			close(t.started)
			return nil
		})
		return err
	})
	return t, await(ctx, waiting)
}

// takeOverByRedsync is takeOver with mutexes.
func (b *lockBench) takeOverByRedsync(ctx context.Context, two [2]*process) (*takeover, error) {
	t := &takeover{giveUp: make(chan struct{}), started: make(chan struct{})}
	t.running, ctx = errgroup.WithContext(ctx)
	name := b.newName()
	var mutexes [2]*redsync.Mutex
	for i, p := range two {
		mutexes[i] = redsync.New(goredis.NewPool(p.client)).NewMutex(name, redsync.WithExpiry(lease), redsync.WithTries(1000))
	}
	if err := mutexes[0].LockContext(ctx); err != nil {
		return nil, err
	}
	t.running.Go(func() error {
		if err := await(ctx, t.giveUp); err != nil {
			return err
		}
		_, err := mutexes[0].UnlockContext(ctx)
		return err
	})
	t.running.Go(func() error {
		if err := mutexes[1].LockContext(ctx); err != nil {
			return err
		}
		close(t.started)
		_, err := mutexes[1].UnlockContext(ctx)
		return err
	})
	return t, nil
}
