package audit

import (
	"sync"
	"time"
)

// budget grants so much in a minute.
type budget struct {
	perMinute int
	now       func() time.Time

	mu    sync.Mutex
	since time.Time // when the minute began
	spent int
}

// take grants up to n.
func (b *budget) take(n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := b.now(); now.Sub(b.since) >= time.Minute {
		b.since, b.spent = now, 0
	}
	granted := min(n, b.perMinute-b.spent)
	b.spent += granted
	return granted
}
