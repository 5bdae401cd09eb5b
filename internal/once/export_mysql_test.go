package once

import "context"

// Purge deletes some rows whose states are forgotten, due or not.
func (m *MySQL) Purge(ctx context.Context) error { return m.purge(ctx) }

// PurgeRows is how many it deletes at most.
const PurgeRows = purgeRows
