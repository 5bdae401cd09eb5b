package recent

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// flights lets callers who ask the same at the same time share one call. Unlike
// the usual singleflight, nobody is given the result of a call that began before
// they asked: such a result may show a photo that was made private in between.
// So a caller who comes while a call is under way shares the next one, which
// begins when the first has ended.
type flights[K comparable, V any] struct {
	mu      sync.Mutex
	waiting map[K]*flight[V] // not yet begun: may still be joined
	running map[K]*flight[V]
}

type flight[V any] struct {
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when value and err are set
	value  V
	err    error
	riders int // callers who still wait for it; none left cancels it
}

func newFlights[K comparable, V any]() *flights[K, V] {
	return &flights[K, V]{waiting: map[K]*flight[V]{}, running: map[K]*flight[V]{}}
}

// do returns the result of a call of fn that begins after do was called. The
// call lives as long as any of its callers waits, and no longer than limit; it
// keeps the values of the context of the caller who caused it.
func (f *flights[K, V]) do(ctx context.Context, limit time.Duration, key K, fn func(context.Context) (V, error)) (V, error) {
	fl := f.join(ctx, limit, key, fn)
	select {
	case <-fl.done:
		f.leave(key, fl)
		return fl.value, fl.err
	case <-ctx.Done():
		f.leave(key, fl)
		var none V
		return none, context.Cause(ctx)
	}
}

func (f *flights[K, V]) join(ctx context.Context, limit time.Duration, key K, fn func(context.Context) (V, error)) *flight[V] {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl := f.waiting[key]
	if fl == nil {
		fl = &flight[V]{done: make(chan struct{})}
		fl.ctx, fl.cancel = context.WithCancel(context.WithoutCancel(ctx)) //nolint:gosec // fly cancels it
		f.waiting[key] = fl
		go f.fly(key, fl, f.running[key], limit, fn) //nolint:contextcheck // it flies under fl.ctx
	}
	fl.riders++
	return fl
}

func (f *flights[K, V]) leave(key K, fl *flight[V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.riders--
	if fl.riders > 0 {
		return
	}
	fl.cancel()
	if f.waiting[key] == fl { // nobody may join what is cancelled
		delete(f.waiting, key)
	}
}

func (f *flights[K, V]) fly(key K, fl, previous *flight[V], limit time.Duration, fn func(context.Context) (V, error)) {
	defer close(fl.done)
	defer fl.cancel()
	if previous != nil {
		<-previous.done
	}
	f.mu.Lock()
	if f.waiting[key] == fl {
		delete(f.waiting, key)
	}
	f.running[key] = fl
	f.mu.Unlock()

	ctx, cancel := context.WithTimeout(fl.ctx, limit)
	defer cancel()
	fl.value, fl.err = safely(ctx, fn)

	f.mu.Lock()
	if f.running[key] == fl {
		delete(f.running, key)
	}
	f.mu.Unlock()
}

// safely turns a panic into an error: it would end the process otherwise, since
// no caller's recover reaches this goroutine.
func safely[V any](ctx context.Context, fn func(context.Context) (V, error)) (value V, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(ctx)
}
