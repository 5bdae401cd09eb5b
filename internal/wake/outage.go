package wake

import (
	"context"
	"log/slog"
	"sync"
)

// half is one of the two things that can fail.
type half int

const (
	publishing half = 1 << iota
	subscribing
)

// outage logs the beginning and the end of the time in which either half fails,
// once each.
type outage struct {
	log *slog.Logger

	mu   sync.Mutex
	away half // those that fail
}

// report says how the latest try of one half ended.
func (o *outage) report(ctx context.Context, h half, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.away
	if err != nil {
		o.away |= h
	} else {
		o.away &^= h
	}
	switch {
	case before == 0 && o.away != 0:
		o.log.WarnContext(ctx, "Redis cannot wake workers: tasks that other processes enqueue are found by polling until it is back", "error", err)
	case before != 0 && o.away == 0:
		o.log.InfoContext(ctx, "Redis wakes workers again")
	}
}
