package audit

import (
	"context"
	"time"

	"github.com/activityd/activityd/internal/index"
)

// watch raises the generation, notices losses, and writes the summary's lines.
func (p *Patrol) watch(ctx context.Context) error {
	w := &watcher{Patrol: p}
	for ctx.Err() == nil {
		if p.options.Watch {
			if now, err := p.options.Ledger.RaiseGeneration(ctx); err == nil { // Redis away is no loss yet
				w.see(ctx, now)
			}
		}
		p.summary.write(ctx, false)
		pause(ctx, p.options.Tick)
	}
	return nil
}

// watcher is the watch of this process over Redis.
type watcher struct {
	*Patrol
	last   index.Generation
	losses int       // not logged yet
	logged time.Time // when losses were logged last
}

// see compares a generation with the last one. A loss is known by the time that the
// first process to notice it stored. A time that could not be stored is stored by a later
// call.
func (w *watcher) see(ctx context.Context, now index.Generation) {
	known, loss := w.lost.Load(), ""
	switch {
	case now.Rewound(w.last):
		loss = Rewound
	case now.Replaced(w.last):
		loss = Replaced
	}
	w.last = now
	switch {
	case now.LostAt > known:
		w.lost.Store(now.LostAt)
	case loss != "":
		w.lost.Store(max(time.Now().UnixMilli(), known+1))
	}
	lost := w.lost.Load()
	if lost > now.LostAt {
		_ = w.options.Ledger.NoteLoss(ctx, lost)
	}
	if lost > known {
		select {
		case w.noticed <- struct{}{}:
		default:
		}
	}
	if loss != "" {
		w.report(ctx, loss)
	}
}

// report counts a loss and logs it, at most once a minute: servers may be replaced all the
// time.
func (w *watcher) report(ctx context.Context, loss string) {
	redisLosses.WithLabelValues(loss).Inc()
	w.losses++
	if time.Since(w.logged) < summaryInterval {
		return
	}
	what := "Redis lost data, or may have: all sets are looked at"
	if w.options.Rate == 0 {
		what = "Redis lost data, or may have, and this process does not sweep: if none does, run `activityd verify --repair`"
	}
	w.options.Log.WarnContext(ctx, what, "how", loss, "times", w.losses)
	w.losses, w.logged = 0, time.Now()
}
