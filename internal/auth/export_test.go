package auth

import (
	"time"

	"github.com/activityd/activityd/internal/member"
)

// NewViewerLimits returns what takes a request from the bucket of a viewer, and says how many
// buckets there are.
func NewViewerLimits(limit Limit, most int) func(id member.ID) (time.Duration, bool, int) {
	l := &viewerLimits{limit: limit, most: most}
	return func(id member.ID) (time.Duration, bool, int) {
		wait, ok := l.take(id)
		return wait, ok, len(l.buckets)
	}
}
