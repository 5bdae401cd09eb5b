package index

import "time"

// Observe counts the end of an operation.
func (ix *Index) Observe(op string, start time.Time, err error) {
	ix.observe(operation(op), start, err)
}
