package auth

import (
	"io/fs"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// MendOf returns the command that allows only this user and root to write to a
// file or folder; none if that is so.
func MendOf(path string, info fs.FileInfo) (mend string) {
	for _, e := range writable(path, info) {
		mend = e.mend
	}
	return mend
}

// NewViewerLimits returns what takes a request from the bucket of a viewer, and says how many
// buckets there are.
func NewViewerLimits(limit Limit, most int) func(id member.ID) (time.Duration, bool, int) {
	l := &viewerLimits{limit: limit, most: most}
	return func(id member.ID) (time.Duration, bool, int) {
		wait, ok := l.take(id)
		return wait, ok, len(l.recent) + len(l.older)
	}
}
