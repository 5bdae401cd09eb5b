// Package newest keeps the last answer to a slow question, so that a probe or a scrape need not wait for it.
package newest

import (
	"sync"
	"time"
)

// Answer is the latest answer to a question. It is safe for concurrent use.
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

// Get returns the latest answer. If that is too old it asks, once at a time, and waits for a while.
// A later answer is for the next call; this call gets the answer before, if any.
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
