package recent

import "time"

// Observer is told what happens to reads, for metrics. Its methods are called
// from many goroutines, must be quick, and must not call back.
type Observer interface {
	// Answered: a read ended after took, with what [Reader.Read] returned.
	Answered(a Answer, err error, took time.Duration)
	// WalkBegan and WalkEnded: a walk has got its turn, and is over. Several
	// reads may share one walk.
	WalkBegan()
	WalkEnded()
	// WalkRefused: a walk did not get its turn in time.
	WalkRefused()
}

// Unobserved is an [Observer] that does nothing.
type Unobserved struct{}

// Answered implements [Observer].
func (Unobserved) Answered(Answer, error, time.Duration) {}

// WalkBegan implements [Observer].
func (Unobserved) WalkBegan() {}

// WalkEnded implements [Observer].
func (Unobserved) WalkEnded() {}

// WalkRefused implements [Observer].
func (Unobserved) WalkRefused() {}

// The reasons for a walk, as [Trace] has them.
const (
	SetMissing       = "set_missing"
	SetMalformed     = "set_malformed"
	OtherSettings    = "other_settings"    // the sets were built with other settings
	RedisUnavailable = "redis_unavailable" // or slower than [Options.IndexWait]
	WritesRefused    = "writes_refused"    // see [Options.Stale]
	NothingVisible   = "nothing_visible"   // of any candidate
	BestTooOld       = "best_too_old"      // the best candidate is not newer than the lowest score
	PhotosChanged    = "photos_changed"    // while they were read
)
