package recent

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// shared lets callers with the same key share one call. Unlike singleflight, a caller gets
// only the result of a call that began after its do: an older result may show a photo that
// was made private in between. A caller that comes while a call runs shares the next one,
// which begins when the first has ended.
//
// The zero value is ready for use.
type shared[K comparable, V any] struct {
	mu     sync.Mutex
	latest map[K]*sharedCall[V] // the last one of each key, until it has ended
}

// sharedCall is one call and its waiters.
type sharedCall[V any] struct {
	cancel  context.CancelFunc
	begun   bool          // no more callers may join; guarded by mu, as is waiters
	waiters int           // 0 cancels the call
	done    chan struct{} // closed when value and err are set
	value   V
	err     error
}

// do returns the result of a call of fn that begins after do was called. The call is
// cancelled when none of its callers waits any more, or after timeout; it has the values
// of the first caller's context.
func (s *shared[K, V]) do(ctx context.Context, timeout time.Duration, key K, fn func(context.Context) (V, error)) (V, error) {
	c := s.join(ctx, timeout, key, fn)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.waiters--
		if c.waiters == 0 {
			c.cancel()
		}
	}()
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
		var none V
		return none, context.Cause(ctx)
	}
}

// join returns the call that begins next, and starts one if there is none.
func (s *shared[K, V]) join(ctx context.Context, timeout time.Duration, key K, fn func(context.Context) (V, error)) *sharedCall[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	previous := s.latest[key]
	if previous != nil && !previous.begun && previous.waiters > 0 {
		previous.waiters++
		return previous
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &sharedCall[V]{cancel: cancel, waiters: 1, done: make(chan struct{})}
	if s.latest == nil {
		s.latest = make(map[K]*sharedCall[V])
	}
	s.latest[key] = c
	go func() {
		defer cancel()
		if previous != nil {
			<-previous.done
		}
		s.run(ctx, timeout, key, c, fn)
	}()
	return c
}

func (s *shared[K, V]) run(ctx context.Context, timeout time.Duration, key K, c *sharedCall[V], fn func(context.Context) (V, error)) {
	s.mu.Lock()
	c.begun = true
	s.mu.Unlock()
	defer close(c.done)
	defer func() {
		if p := recover(); p != nil { // no caller's recover reaches this goroutine
			c.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.latest[key] == c {
			delete(s.latest, key)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c.value, c.err = fn(ctx)
}
