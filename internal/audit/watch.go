package audit

import (
	"context"
	"time"

	"github.com/activityd/activityd/internal/index"
)

// tickEvery is the time between two ticks of a process.
const tickEvery = 2 * time.Second

// watch makes the marks of Redis rise, tells when they did not, and makes the
// teller tell what it kept back.
func (p *Patrol) watch(ctx context.Context) error {
	w := &watcher{Patrol: p}
	for ctx.Err() == nil {
		if p.options.Watch {
			if now, err := p.options.Ledger.Tick(ctx); err == nil { // Redis away is no loss yet
				w.see(ctx, now)
			}
		}
		p.teller.tell(ctx, false)
		pause(ctx, p.options.Tick)
	}
	return nil
}

// watcher is the process' part in the watch over Redis.
type watcher struct {
	*Patrol
	marks  marks
	losses int       // not told yet
	told   time.Time // when the log was told last
}

// see takes in one tick. A loss that this process is not the first to notice is
// known by what the first one noted, so that all speak of the same one. What could
// not be noted is noted after a later tick.
func (w *watcher) see(ctx context.Context, now index.Marks) {
	known, loss := w.lost.Load(), w.marks.see(now)
	switch {
	case now.Lost > known:
		w.lost.Store(now.Lost)
	case loss != "":
		w.lost.Store(max(w.options.Now().UnixMilli(), known+1))
	}
	lost := w.lost.Load()
	if lost > now.Lost {
		_ = w.options.Ledger.NoteLoss(ctx, lost)
	}
	if lost > known {
		select {
		case w.hurry <- struct{}{}:
		default:
		}
	}
	if loss != "" {
		w.tell(ctx, loss)
	}
}

// tell tells of a loss; the log once a minute, since servers may be replaced all
// the time.
func (w *watcher) tell(ctx context.Context, l Loss) {
	redisLosses.WithLabelValues(string(l)).Inc()
	w.losses++
	now := w.options.Now()
	if now.Sub(w.told) < tellEvery {
		return
	}
	what := "Redis lost data, or may have: all sets are looked at"
	if w.options.Rate == 0 {
		what = "Redis lost data, or may have, and this process does not sweep: if none does, run `activityd verify --repair`"
	}
	w.options.Log.WarnContext(ctx, what, "how", l, "times", w.losses)
	w.losses, w.told = 0, now
}

// marks is what a process saw last. Each mark is raised by every process and
// lowered by none, and each process sees what its own raise made of it: were
// nothing lost, that would be more every time.
type marks struct{ last index.Marks }

// see compares with the last time. What was never seen before is no loss, unless
// what lies in Redis says so.
func (m *marks) see(now index.Marks) (l Loss) {
	last := m.last
	m.last = now
	for i, count := range now.Counts {
		if i < len(last.Counts) && count <= last.Counts[i] {
			return Rewound
		}
	}
	if now.Replaced || last.Server != "" && now.Server != "" && last.Server != now.Server {
		return Replaced
	}
	return ""
}
