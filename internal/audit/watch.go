package audit

import (
	"context"
	"time"
)

// watch notices losses, and writes the summary's lines.
func (p *Patrol) watch(ctx context.Context) error {
	known := time.Now().UnixMilli() // what was lost before is not news
	for ctx.Err() == nil {
		if lost := p.options.LostAt(); lost > known {
			known = lost
			redisLosses.Inc()
			switch {
			case p.options.Rate == 0:
				p.options.Log.WarnContext(ctx, "Redis is new, or lost data, and this process does not sweep: if none does, run `activityd backfill`")
			case p.options.Build == nil:
				p.options.Log.InfoContext(ctx, "Redis is new, or lost data: sets that are missing are built as members read")
			}
		}
		p.summary.write(ctx, false)
		pause(ctx, p.options.Tick)
	}
	return nil
}
