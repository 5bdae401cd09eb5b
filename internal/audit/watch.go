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
	var seen marks
	for ctx.Err() == nil {
		if p.options.Watch {
			if now, err := p.options.Ledger.Tick(ctx); err == nil { // Redis away is no loss yet
				if loss := seen.see(now); loss != "" {
					p.redisLost(ctx, loss)
				}
			}
		}
		p.teller.tell(ctx, false)
		pause(ctx, p.options.Tick)
	}
	return nil
}

// redisLost makes the sweep start anew, as fast as it may.
func (p *Patrol) redisLost(ctx context.Context, l Loss) {
	p.options.Observer.RedisLost(l)
	p.options.Log.WarnContext(ctx, "Redis lost data, or may have: all sets are looked at", "how", l, "hurry", p.options.Rate > 0)
	p.lost.Store(p.options.Now().UnixMilli())
	select {
	case p.hurry <- struct{}{}:
	default:
	}
}

// marks is what a process saw last. Each mark is raised by every process and
// lowered by none, and each process sees what its own raise made of it: were
// nothing lost, that would be more every time.
type marks struct{ last index.Marks }

// see compares with the last time. What was never seen before is no loss.
func (m *marks) see(now index.Marks) (l Loss) {
	last := m.last
	m.last = now
	for i, count := range now.Counts {
		if i < len(last.Counts) && count <= last.Counts[i] {
			return Rewound
		}
	}
	if last.Server != "" && now.Server != "" && last.Server != now.Server {
		return Replaced
	}
	return ""
}
