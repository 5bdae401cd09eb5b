package auth

import "github.com/activityd/activityd/internal/member"

// MaxBuckets is for tests.
const MaxBuckets = maxBuckets

// NewTake returns a function that takes a request from the bucket of a viewer, and the number of buckets.
func NewTake() func(id member.ID, limit Limit) (error, int) {
	l := &limits[member.ID]{}
	return func(id member.ID, limit Limit) (error, int) { return l.take(id, limit, "this"), len(l.buckets) }
}
