package metrics

import "context"

// Look is one look of Watch.
func (m *Metrics) Look(ctx context.Context, queue Queue) { m.watch.look(ctx, queue) }
