package auth

import "github.com/activityd/activityd/internal/member"

// MaxBuckets is for tests.
const MaxBuckets = maxBuckets

// NewTake returns a function that takes a request from the bucket of a viewer, and returns the number of buckets.
func NewTake() func(id member.ID, limit Limit) (buckets int, err error) {
	l := &limits[member.ID]{}
	return func(id member.ID, limit Limit) (int, error) {
		err := l.take(id, limit, "this")
		return len(l.buckets), err
	}
}
