package index

import "time"

func init() { repeatFor, findTimeout, probeTimeout = 5*time.Second, 10*time.Second, 10*time.Second } //nolint:gochecknoinits // before any test runs

// Observe counts the end of an operation.
func (ix *Index) Observe(op string, start time.Time, err error) {
	ix.observe(operation(op), start, err)
}
