package push

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/queue"
)

// verdict is what becomes of a delivery by the result of its message.
type verdict struct {
	state  State         // of the receipt; "": none, it is tried again
	reason string        // of the receipt, or why it is tried again
	after  time.Duration // when it is tried again
	prune  bool          // the device is gone
}

// judge decides on a result. pause is how long the delivery waits by itself, origin how
// long its push service is left alone, and left how long it is until its events expire. One
// that would have to wait for longer is tried a last time before that.
func judge(r Result, pause, origin, left time.Duration) verdict {
	switch r.Outcome {
	case Accepted:
		return verdict{state: StateAccepted, reason: r.Reason}
	case Gone:
		return verdict{state: StateFailed, reason: because(r), prune: true}
	case Rejected:
		return verdict{state: StateFailed, reason: because(r)}
	}
	after := max(pause, origin)
	if r.Outcome == Wait || r.Outcome == Credentials {
		after = max(after, min(cmp.Or(r.After, r.Pause), maxWait))
	}
	if after >= left && left <= 2*lastTry {
		return verdict{state: StateFailed, reason: because(r)}
	}
	return verdict{reason: because(r), after: after}
}

// because is why a message was not accepted.
func because(r Result) string {
	if r.Reason != "" {
		return r.Reason
	}
	if r.Status != 0 {
		return fmt.Sprintf("status %d", r.Status)
	}
	return string(r.Outcome)
}

// The pause of a delivery that is tried again is the half of its event's age: so it
// doubles, roughly, and a notification that is of use for a minute only is tried some
// times in that minute. It does not count attempts, as these are no fault of the task.
const (
	minRetryPause = time.Second
	maxRetryPause = time.Minute
	// lastTry is how long before its events expire a delivery is tried again that would
	// have to wait for longer, if there is twice that time.
	lastTry = 5 * time.Second
)

// retryPause returns the pause of a delivery of an event of that age, with jitter.
func retryPause(age time.Duration) time.Duration {
	return max(minRetryPause, retry.Jitter(max(0, min(age, 2*maxRetryPause)/2)))
}

// The pause of a delivery that another process may have the keys for.
const (
	minNoKeysPause = 5 * time.Second
	maxNoKeysPause = 10 * time.Minute
)

// noKeysPause returns the pause of a delivery of an event of that age: like retryPause, but
// longer, as the others may never have the keys either.
func noKeysPause(age time.Duration) time.Duration {
	return max(minNoKeysPause, min(age, 2*maxNoKeysPause)/2)
}

// rounded returns a pause of which a batch has few different ones, as the queue writes
// those that share one by one statement.
func rounded(d time.Duration) time.Duration {
	step := time.Second
	for d > 16*step {
		step *= 2
	}
	return (d + step - 1).Truncate(step)
}

// outcome is what becomes of a job. What is over of it is recorded; what has to be done again is a
// task of its own, one for all of the job that waits for as long, or one for a burst and a device; or the same task, if
// that is all of it.
func (b *batch) outcome(j *job) (o queue.Outcome) {
	if j.err != nil {
		return queue.Outcome{Err: j.err}
	}
	isOwed := false
	waits := make(map[time.Duration][]*asked)
	isLeft := false // some of it is left to tasks for bursts
	for _, one := range j.all {
		if s := b.inFlight[one]; s != nil {
			postponed.WithLabelValues(slow).Inc()
			wait := rounded(b.Timeout + detachedMargin)
			if silence := b.silence(s.looked, s.pass.unproven); silence > wait {
				wait = b.gather(b.pause(silence, b.left(s.looked)), b.left(s.looked))
			}
			one.later(wait, errSlow)
		}
		if _, isUnwritten := b.unwritten[one]; isUnwritten && (one.again == nil || len(j.all) > 1 || one.byBurst) {
			isOwed = true
		}
		isLeft = isLeft || one.byBurst
		if one.again != nil {
			waits[one.again.after] = append(waits[one.again.after], one)
		}
	}
	order := slices.Sorted(maps.Keys(waits))
	switch {
	case isOwed: // then no other task may say that a part is over, or that it waits
		return queue.Outcome{Err: queue.Later(min(slices.Max(append(order, recordAgain)), rounded(b.Timeout+detachedMargin)), errOwed)}
	// A burst is continued by another task, which has a dedupe key: its own has none since it began, and of several that
	// wait, for the end of quiet hours or for a push service, two may begin at once, in two processes, and send the same.
	// What is left of a task that targets is for deliver tasks.
	case !isLeft && j.task.Kind == Deliver && !j.isBurst() && len(order) == 1 && len(waits[order[0]]) == len(j.all):
		return queue.Outcome{Err: queue.Later(order[0], j.all[0].again.why)}
	}
	for _, after := range order {
		o.Next = append(o.Next, j.rest(waits[after], after)...)
	}
	return o
}

// rest returns the tasks for what of a job has to wait for so long.
func (j *job) rest(all []*asked, after time.Duration) (list []queue.New) {
	rest := Delivery{Event: j.payload.Event, Task: j.payload.Task, Burst: j.payload.Burst}
	add := func(d Delivery) {
		n := d.task()
		n.Queue, n.Priority, n.Delay = j.task.Queue, j.task.Priority, after
		list = append(list, n)
	}
	for _, one := range all {
		if !one.byBurst {
			rest.To = append(rest.To, one.to)
			continue
		}
		alone := rest
		alone.To, alone.Burst = []Recipient{one.to}, hex.EncodeToString(j.burst[:])
		add(alone)
	}
	if len(rest.To) > 0 {
		add(rest)
	}
	return list
}
