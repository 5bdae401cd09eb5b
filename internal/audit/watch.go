package audit

import (
	"context"
	"time"
)

// watch notices losses, and writes the summary's lines.
func (p *Patrol) watch(ctx context.Context) error {
	known := time.Now().UnixMilli() // earlier losses are not reported
	for ctx.Err() == nil {
		if lost := p.options.LostAt(); lost > known {
			known = lost
			redisLosses.Inc()
			switch {
			case p.options.Rate == 0:
				p.options.Log.WarnContext(ctx, "redis is new or lost data", "rebuild", "not by this process", "command", "activityd backfill")
			case p.options.Build == nil:
				p.options.Log.InfoContext(ctx, "redis is new or lost data", "rebuild", "as members read")
			}
		}
		p.summary.write(ctx, false)
		pause(ctx, p.options.Tick)
	}
	return nil
}
