package tasks

import "time"

// Tests provoke thousands of conflicts, and wait for none of them as long as
// servers should.
func init() { conflictPause = 20 * time.Microsecond } //nolint:gochecknoinits // before any test runs
