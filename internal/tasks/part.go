package tasks

import (
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/queue"
)

// place is a page of followers that a part has come to.
type place struct {
	contacts.FollowerPage

	to member.ID // the part ends with this follower; 0: with the last one
}

// part is what a task does of a fan-out, page by page, and what is known of the whole.
type part struct {
	tasks []int // those of the batch that it does, by place
	since int64 // when the first of the uploads was enqueued, unix milliseconds; 0: not known
	// updated is how many sets the parts and pages before it updated.
	updated int
	// upload: an upload is among the tasks. It does one page, so that contact changes in its
	// queue do not wait for long.
	upload   bool
	advanced bool // past its first page
	// priority is that of the most urgent of the tasks.
	priority int
	claimed  time.Time
	start    time.Time // of the batch, by the clock of this process
}

// with returns the part, or one if there is none, that does a task too.
func (p *part) with(i int, t queue.Task, args PartArgs, start time.Time) *part {
	if p == nil {
		p = &part{claimed: t.Claimed, start: start, priority: t.Priority}
	}
	since := args.Since
	if t.Kind == Upload && !t.Created.IsZero() {
		since = t.Created.UnixMilli()
	}
	if since > 0 && (p.since == 0 || since < p.since) {
		p.since = since
	}
	p.tasks = append(p.tasks, i)
	p.upload = p.upload || t.Kind == Upload
	p.updated = max(p.updated, args.Updated)
	p.priority = min(p.priority, t.Priority)
	return p
}

// join returns a part that does the tasks of both, which have come to the same page.
func (p *part) join(other *part) *part {
	if other != nil {
		p.tasks = append(p.tasks, other.tasks...)
		p.upload = p.upload || other.upload
		p.updated, p.priority = max(p.updated, other.updated), min(p.priority, other.priority)
	}
	return p
}

// successor is the task that does what is left from a page on. It is as urgent as its
// upload, but never less than usual: a later upload of the same member waits for it, and
// may be urgent itself.
func (p *part) successor(at place) queue.New {
	k := fanOut
	if at.to != 0 {
		k = fanOutAgain
	}
	n := k.task(at.Of, PartArgs{After: at.After, To: at.to, Since: p.since, Updated: p.updated})
	n.Priority = min(p.priority, queue.Normal)
	return n
}

// follow adds a follow-up to the part's tasks.
func (p *part) follow(all []queue.Outcome, n queue.New) {
	of := &all[p.tasks[0]]
	of.Next = append(of.Next, n)
}

// lag is the time from the upload's task to now. Times of the database's clock
// are compared with each other only.
func (p *part) lag() time.Duration {
	return max(0, p.claimed.Sub(time.UnixMilli(p.since))+time.Since(p.start))
}
