// Package newest answers with what a slow question last found, so that those who want to know,
// such as a probe or a scrape, need not wait for it.
package newest

import (
	"sync"
	"time"
)

// Answer is the latest one of a question. It is safe for concurrent use.
type Answer[V any] struct {
	ask   func() (v V, keep time.Duration)
	mu    sync.Mutex
	value V
	next  time.Time     // when it may be asked again
	known bool          // value is an answer
	asked chan struct{} // is closed when the question under way is answered; nil: there is none
}

// New returns the answer to a question that is not asked yet. ask must return within a bounded time;
// the answer is kept for as long as it says, and not asked again before.
func New[V any](ask func() (v V, keep time.Duration)) *Answer[V] { return &Answer[V]{ask: ask} }

// Get returns the latest answer. If that is too old it asks, once at a time, and waits for a while:
// what then is not answered is shown by the next call, and the answer before it, if there was one, by
// this one.
func (a *Answer[V]) Get(wait time.Duration) (v V, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.next) {
		return a.value, a.known
	}
	asked := a.asked
	if asked == nil {
		asked = make(chan struct{})
		a.asked = asked
		go func() {
			v, keep := a.ask()
			a.mu.Lock()
			defer a.mu.Unlock()
			a.value, a.known, a.next, a.asked = v, true, time.Now().Add(keep), nil
			close(asked)
		}()
	}
	a.mu.Unlock()
	timer := time.NewTimer(wait)
	select {
	case <-asked:
	case <-timer.C:
	}
	timer.Stop()
	a.mu.Lock()
	return a.value, a.known
}
