package queue

import (
	"context"
	"sync/atomic"
	"time"
)

// Lag knows how far behind the work is: how long ago, by queue, the oldest task became
// due that is not done, as of some seconds ago. It is safe for concurrent use.
type Lag struct {
	due  func(context.Context) (map[string]time.Duration, error)
	last atomic.Pointer[lagSeen]
}

// lagSeen is what the last look that succeeded saw.
type lagSeen struct {
	at  time.Time
	due map[string]time.Duration
}

const (
	// lagLook is how often a Lag looks, and how long a look may take.
	lagLook = 2 * time.Second
	// lagKept is for how long what was seen is shown while looks fail.
	lagKept = 10 * time.Second
)

// NewLag returns a Lag of what due returns, as [MySQLQueue.Due] does. It knows nothing
// before [Lag.Run].
func NewLag(due func(context.Context) (map[string]time.Duration, error)) *Lag {
	return &Lag{due: due}
}

// Run looks at once and then every two seconds, until ctx ends; it returns nil. That
// looks fail is reported by others, which ask the same database.
func (l *Lag) Run(ctx context.Context) error {
	tick := time.NewTicker(lagLook)
	defer tick.Stop()
	for {
		bounded, cancel := context.WithTimeout(ctx, lagLook)
		if due, err := l.due(bounded); err == nil {
			l.last.Store(&lagSeen{time.Now(), due})
		}
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Due returns what was seen, 0 for a queue in which nothing is due; nil when that is not
// known. It costs nothing.
func (l *Lag) Due() map[string]time.Duration {
	seen := l.last.Load()
	if seen == nil || time.Since(seen.at) > lagKept {
		return nil
	}
	return seen.due
}
