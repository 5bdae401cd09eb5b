package index

import (
	"time"

	"github.com/activityd/activityd/internal/redisnodes"
)

func init() {
	redisnodes.RepeatFor, redisnodes.FindTimeout, redisnodes.ProbeTimeout = 5*time.Second, 10*time.Second, 10*time.Second
}

// Observe counts the end of an operation.
func (ix *Index) Observe(op string, start time.Time, err error) {
	ix.observe(operation(op), start, err)
}
