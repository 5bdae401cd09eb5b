package tasks

import "sync"

// Bell wakes idle workers of this process when something was enqueued through
// it. The zero Bell is ready. It is safe for concurrent use.
type Bell struct {
	mu   sync.Mutex
	rung chan struct{}
}

// Ring wakes everyone who waits now.
func (b *Bell) Ring(...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}

// Heard returns a channel that the next Ring closes. Ask for it before looking
// whether there is work, or a ring in between goes unheard.
func (b *Bell) Heard() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	return b.rung
}
