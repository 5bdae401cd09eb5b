package tasks

import (
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
)

// part is what a task does of a fan-out, page by page, and what is known of the whole.
type part struct {
	tasks []int // those of the batch that it does, by place
	since int64 // when the first of the uploads was enqueued, unix milliseconds; 0: not known
	told  int   // followers, by the parts and pages before it
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
	p.told = max(p.told, args.Told)
	p.priority = min(p.priority, t.Priority)
	return p
}

// join returns a part that does the tasks of both, which have come to the same page.
func (p *part) join(other *part) *part {
	if other != nil {
		p.tasks = append(p.tasks, other.tasks...)
		p.upload = p.upload || other.upload
		p.told, p.priority = max(p.told, other.told), min(p.priority, other.priority)
	}
	return p
}

// successor is the task that does what is left from a page on. It is as urgent as its
// upload, but never less than usual: a later upload of the same member waits for it, and
// may be urgent itself.
func (p *part) successor(page contacts.FollowerPage) queue.New {
	n := fanOut.task(page.Of, PartArgs{After: page.After, Since: p.since, Told: p.told})
	n.Priority = min(p.priority, queue.Normal)
	return n
}

// lag is the time from the upload's task to now. Times of the database's clock
// are compared with each other only.
func (p *part) lag() time.Duration {
	return max(0, p.claimed.Sub(time.UnixMilli(p.since))+time.Since(p.start))
}

// countEnds counts the fan-outs that end with one of the pages, but for those
// whose beginning was not noted.
func (h UploadHandler) countEnds(pages []contacts.FollowerPage, followers [][]member.ID, parts map[contacts.FollowerPage]*part) {
	for i, page := range pages {
		if p, n := parts[page], len(followers[i]); n < h.pageSize() && p.since > 0 {
			fanOutFollowers.Observe(float64(p.told + n))
			uploadToIndexSeconds.Observe(p.lag().Seconds())
		}
	}
}
