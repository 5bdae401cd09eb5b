package queue

import "time"

// Observer is told what happens to tasks, for metrics. Its methods are called
// from many goroutines, must be quick, and must not call back.
type Observer interface {
	// Enqueued: n tasks of a type were enqueued by this process; absorbed of
	// them by tasks that waited already.
	Enqueued(kind string, n, absorbed int)
	// Started: a worker of this process starts a task which waited so long, as
	// the database's clock has it, since it was enqueued or became due.
	Started(queue string, kind string, waited time.Duration)
	// Finished: the handler was through with the task after took.
	Finished(queue string, kind string, outcome Outcome, took time.Duration)
	// TookOver: the leases of n tasks, of whatever process, ran out.
	TookOver(n int)
	// LeasesLost: this process was through with n tasks whose leases it had
	// lost; its results were refused.
	LeasesLost(n int)
	// Dropped: n tasks expired before they were started.
	Dropped(n int)
	// UploadAbsorbed: an upload that began took n others with it.
	UploadAbsorbed(n int)
	// FannedOut: a fan-out ended that told so many followers; lag is the time
	// from the upload's task to the last of them.
	FannedOut(followers int, lag time.Duration)
	// Conflicted: the guarded updates of n sets conflicted and began again.
	Conflicted(n int)
	// Refilled: n sets were read anew from MySQL.
	Refilled(n int)
}

// Outcome says how a task's run ended.
type Outcome string

// The outcomes.
const (
	OutcomeDone      Outcome = "done"
	OutcomeRetried   Outcome = "retried"   // an attempt was used up; it will run again
	OutcomePostponed Outcome = "postponed" // it runs again, and that was not its fault
	OutcomeDied      Outcome = "died"
)

// Unobserved is an [Observer] that does nothing.
type Unobserved struct{}

// Enqueued implements [Observer].
func (Unobserved) Enqueued(string, int, int) {}

// Started implements [Observer].
func (Unobserved) Started(string, string, time.Duration) {}

// Finished implements [Observer].
func (Unobserved) Finished(string, string, Outcome, time.Duration) {}

// TookOver implements [Observer].
func (Unobserved) TookOver(int) {}

// LeasesLost implements [Observer].
func (Unobserved) LeasesLost(int) {}

// Dropped implements [Observer].
func (Unobserved) Dropped(int) {}

// UploadAbsorbed implements [Observer].
func (Unobserved) UploadAbsorbed(int) {}

// FannedOut implements [Observer].
func (Unobserved) FannedOut(int, time.Duration) {}

// Conflicted implements [Observer].
func (Unobserved) Conflicted(int) {}

// Refilled implements [Observer].
func (Unobserved) Refilled(int) {}
