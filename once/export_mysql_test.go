package once

import (
	"context"
	"errors"
)

// Purge deletes some rows whose states are forgotten, due or not.
func (m *MySQL) Purge(ctx context.Context) error { return m.purge(ctx) }

// PurgeRows is how many it deletes at most.
const PurgeRows = purgeRows

// PurgeLate is Purge, and calls between after it has chosen the rows.
func (m *MySQL) PurgeLate(ctx context.Context, between func()) error {
	names, highest, err := m.forgotten(ctx)
	if err != nil {
		return err
	}
	between()
	return m.remove(ctx, names, highest)
}

// ApplyLate tries to apply an operation once to a name that has a row, and calls between
// after it has read the row. It reports whether it was applied.
func (m *MySQL) ApplyLate(ctx context.Context, name string, op Operation, between func()) (applied bool, err error) {
	r, err := m.read(ctx, name)
	if err != nil {
		return false, err
	}
	s, _ := Step(r.known(), r.now, r.state.Fence+1, op)
	between()
	_, err = m.update(ctx, r, s)
	if errors.Is(err, errChanged) {
		return false, nil
	}
	return err == nil, err
}
