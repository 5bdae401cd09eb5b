package push

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/activityd/activityd/queue"
)

// fate is the end of a delivery by an attempt.
type fate struct {
	delivery

	state  State // of its receipt; "": there is none
	reason string
	id     string // the push service's
	gone   Pruned // the device is no more; zero: it is
	// why its task is to be done again for it, and when; nil: it is over. A pending delivery is for a burst task.
	why   error
	again time.Duration
}

// The pause of a delivery that is tried again is the half of its event's age: so it
// doubles, roughly, and a notification that is of use for a minute only is tried some
// times in that minute. It does not count attempts, as they are no fault of the task.
const (
	minRetryPause = time.Second
	maxRetryPause = time.Minute
	// lastTry is how long before its events expire a delivery is tried again that would
	// have to wait for longer, if there is twice that time.
	lastTry = 5 * time.Second
	// The pause of a delivery that another process may have the keys for.
	minNoKeysPause = 5 * time.Second
	maxNoKeysPause = 10 * time.Minute
)

// retryPause returns the pause of a delivery of an event of that age.
func retryPause(age time.Duration) time.Duration {
	return min(max(minRetryPause, age/2), maxRetryPause)
}

// noKeysPause is like retryPause, but longer, as no process may ever have the keys.
func noKeysPause(age time.Duration) time.Duration {
	return min(max(minNoKeysPause, age/2), maxNoKeysPause)
}

// rounded returns a pause like many of its batch: each different pause is a task.
func rounded(d time.Duration) time.Duration {
	step := time.Second
	for d > 16*step {
		step *= 2
	}
	return (d + step - 1).Truncate(step)
}

func judgeAll(answers []answer, jitter float64) (fates []fate) {
	for _, a := range answers {
		fates = append(fates, judge(a, jitter)...)
	}
	return fates
}

// judge decides on the result of a message. jitter, below 1, makes pauses longer by up to a quarter.
func judge(a answer, jitter float64) []fate {
	reason := because(a.Result)
	switch a.Outcome {
	case Accepted:
		fates := a.all(fate{state: StateAccepted, reason: string(Doubled), id: a.ID}) // the last counts them
		fates[len(fates)-1].reason = a.Reason
		return fates
	case Gone:
		return a.all(fate{state: StateFailed, reason: reason, gone: Pruned{Device: a.device.ID, Reason: reason, Since: a.GoneSince}})
	case Rejected: // its content: the rest may be accepted
		fates := a.all(fate{state: StatePending, why: whyAgain(a.device.Platform, a.Result), again: minRetryPause})
		fates[len(fates)-1] = fate{delivery: fates[len(fates)-1].delivery, state: StateFailed, reason: reason}
		return fates
	}
	after := a.After // of a message that did not leave
	if a.sent {
		after = max(retryPause(a.age()), a.asks(), a.left)
	}
	after = rounded(after + time.Duration(jitter*float64(after/4)))
	switch left := a.message.left(); {
	case after < left:
	case left > 2*lastTry:
		after = (left - lastTry).Truncate(time.Second)
	case a.sent:
		return a.all(fate{state: StateFailed, reason: reason})
	case a.Reason == noKeys:
		return a.all(fate{state: StateSkipped, reason: string(Off)})
	default: // until it has expired, as the look then finds
		after = rounded(max(left, 1))
	}
	return a.all(fate{why: whyAgain(a.device.Platform, a.Result), again: after})
}

// asks is how long the push service asks that the message waits.
func (r Result) asks() time.Duration {
	return min(cmp.Or(r.After, r.Pause), longestAsked)
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

// receiptsOf returns the receipts of fates.
func receiptsOf(fates []fate) (list []Receipt) {
	for _, f := range fates {
		if f.state != "" {
			list = append(list, Receipt{
				Event: f.event.Number, Member: f.to.Member, Device: f.to.Device,
				State: f.state, Reason: f.reason, ProviderID: f.id, Burst: f.event.Burst(),
			})
		}
	}
	return list
}

// goneOf returns the devices that are no more.
func goneOf(fates []fate) (list []Pruned) {
	for _, f := range fates {
		if f.gone.Device != 0 && !slices.Contains(list, f.gone) {
			list = append(list, f.gone)
		}
	}
	return list
}

// put gives fates to their jobs.
func put(fates []fate) {
	for _, f := range fates {
		f.job.fates = append(f.job.fates, f)
		switch {
		case errors.Is(f.why, errQuiet):
			postponed.WithLabelValues(quietHours).Inc()
		case errors.Is(f.why, errBurst):
			postponed.WithLabelValues(ofBurst).Inc()
		case f.state == StateSkipped, f.state == "" && f.why == nil:
			reason := f.reason
			if reason == string(Expired) && f.facts != nil && f.facts.Now.Before(f.event.Expires) {
				reason = quietHours // which end later
			}
			skipped.WithLabelValues(reason).Inc()
		}
	}
}

func outcomes(jobs []*job) []queue.Outcome {
	list := make([]queue.Outcome, len(jobs))
	for i, j := range jobs {
		switch {
		case j.err != nil:
			list[i].Err = j.err
		case j.task.Kind == Burst:
			list[i] = j.burstOutcome()
		default:
			list[i] = j.outcome()
		}
	}
	return list
}

// burstOutcome is the outcome of a burst task. Events that still wait are for another task, with the dedupe key that a task loses
// when it begins: of a burst, at most a task waits and a task runs.
func (j *job) burstOutcome() (o queue.Outcome) {
	again, isOver := time.Duration(0), true
	for _, f := range j.fates {
		if f.why != nil && (isOver || f.again < again) {
			again, isOver = f.again, false
		}
	}
	if !isOver || j.more {
		e := StoredEvent{Number: j.payload.Event}
		o.Next = append(o.Next, j.follow(Burst, &e, j.payload, again))
	}
	return o
}

// outcome is the outcome of any other task. Devices that are over have their receipts. Devices of the same pause are a
// follow-up, or the same task, if it names just these devices. A task that names members is followed by a task that names their devices,
// so that a device that goes meanwhile has its receipt. Each device that waits for its burst is a burst task.
func (j *job) outcome() (o queue.Outcome) {
	o.Next = j.next
	waits := make(map[time.Duration][]Recipient)
	var why error
	for _, f := range j.fates {
		switch {
		case f.why == nil:
		case f.to.Member == 0: // of all followers
			return queue.Outcome{Err: queue.Later(f.again, f.why)}
		case f.state == StatePending:
			o.Next = append(o.Next, j.follow(Burst, f.event, Payload{To: []Recipient{f.to}, Burst: f.event.Burst()}, f.again))
		default:
			waits[f.again], why = append(waits[f.again], f.to), f.why
		}
	}
	for _, after := range slices.Sorted(maps.Keys(waits)) {
		if len(waits[after]) == len(j.fates) && j.task.Kind == Deliver && !slices.ContainsFunc(j.payload.To, isWhole) {
			return queue.Outcome{Err: queue.Later(after, why)}
		}
		for some := range slices.Chunk(waits[after], maxTo) {
			o.Next = append(o.Next, j.follow(Deliver, j.event, Payload{To: some}, after))
		}
	}
	return o
}
