package index

import (
	"time"

	"github.com/activityd/activityd/internal/redisnodes"
)

func init() { //nolint:gochecknoinits // before any test runs
	redisnodes.RepeatFor, redisnodes.FindTimeout, redisnodes.ProbeTimeout = 5*time.Second, 10*time.Second, 10*time.Second
}

// Observe counts the end of an operation.
func (ix *Index) Observe(op string, start time.Time, err error) {
	ix.observe(operation(op), start, err)
}

// ForgetCopies has the index read the copies of the broadcast set again.
func (ix *Index) ForgetCopies() { ix.copies = &copies{} }
