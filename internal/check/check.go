package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// Sets is the index, for a checker.
type Sets interface {
	Settings() index.Settings
	Look(ctx context.Context, users []member.ID) []index.Set
}

// Truth is MySQL, for a checker. It must be the primary: a replica lags behind the tasks.
type Truth interface {
	Relations(ctx context.Context, pairs []contacts.Pair) (map[contacts.Pair]uint64, error)
	TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]contacts.Contact, error)
	LastUploads(ctx context.Context, ids []member.ID) (map[member.ID]uint64, error)
	Newest(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Newest, error)
	Walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Walked, error)
	Broadcasts(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Broadcast, error)
}

// Tasks is the queue, for a checker.
type Tasks interface {
	Pending(ctx context.Context, kinds []string, keys []uint64) (map[uint64]bool, error)
	List(ctx context.Context, match queue.Filter, limit int) ([]queue.Record, error)
	Enqueue(ctx context.Context, batch []queue.New) (ids []uint64, err error)
}

// Reader reads by way of the index, as the service does, but without hints: they would repair the set.
type Reader interface {
	Read(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error)
}

// Options configure a [Checker]. Sets, Truth and Tasks are required.
type Options struct {
	Sets       Sets
	Truth      Truth
	Tasks      Tasks
	Reader     Reader        // for [Checker.CheckAnswers] only
	ActiveOnly bool          // a missing set is no error: only the sets of members that read are kept
	Pause      time.Duration // between the first and the second look at a suspicion; four times as long before the third; 0: 250 ms
}

// Checker compares sets and answers with MySQL. It changes nothing, but for [Checker.Repair]. It is safe for
// concurrent use.
type Checker struct{ options Options }

// New returns a checker.
func New(o Options) *Checker {
	o.Pause = cmp.Or(o.Pause, 250*time.Millisecond)
	return &Checker{o}
}

// Check compares the sets of members with MySQL, each once, with a few statements for all. An error or waste was seen
// three times, with pauses between, so that it takes a second or two where something is wrong. [Report].Failed has the
// members that cannot be compared: the node of the set is away, or MySQL gives up. An error of a server, or an error
// of all members, is returned.
func (c *Checker) Check(ctx context.Context, members []member.ID) (Report, error) {
	return c.check(ctx, members, c.look)
}

// A difference is confirmed when so many looks in a row found it. A set that is not at rest after maxLooks is given up
// as unsettled.
const (
	confirmations = 3
	maxLooks      = 7
)

// looked is the result of a look at a member.
type looked struct {
	moved   bool  // it changed while it was compared: nothing is known
	skipped bool  // there is nothing to compare
	failed  error // why it cannot be compared now
	found   []Finding
}

type look func(context.Context, []member.ID) (map[member.ID]looked, error)

// check looks at members together, or at each alone where that fails.
func (c *Checker) check(ctx context.Context, members []member.ID, look look) (r Report, err error) {
	members = slices.Compact(slices.Sorted(slices.Values(members)))
	r.Failed = make(map[member.ID]error)
	failed, err := tasks.Apart(members, func(ids []member.ID) error {
		part, err := c.lookOn(ctx, ids, look)
		if err == nil {
			r.Add(part)
		}
		return err
	})
	if err != nil {
		return Report{}, err
	}
	r.Add(Report{Failed: failed})
	return r, nil
}

// lookOn looks until each difference is either explained by pending tasks or confirmed. While a set moves nothing is
// known, and earlier looks do not count.
func (c *Checker) lookOn(ctx context.Context, members []member.ID, look look) (Report, error) {
	members = slices.Clone(members)
	r := Report{Failed: make(map[member.ID]error)}
	streaks := make(map[member.ID]map[Finding]int, len(members)) // looks in a row
	for try := 0; try < maxLooks && len(members) > 0; try++ {
		if err := c.rest(ctx, try); err != nil {
			return Report{}, err
		}
		all, err := look(ctx, members)
		if err != nil {
			return Report{}, err
		}
		members = slices.DeleteFunc(members, func(id member.ID) (settled bool) {
			l, next := all[id], make(map[Finding]int)
			settled = !l.moved
			for _, f := range l.found {
				if f.Weight != Lag {
					next[f] = streaks[id][f] + 1
					settled = settled && next[f] >= confirmations
				}
			}
			switch streaks[id] = next; {
			case l.failed != nil:
				r.Failed[id] = l.failed
			case l.skipped:
				r.Skipped = append(r.Skipped, id)
			case settled:
				r.Checked++
				r.Findings = append(r.Findings, l.found...)
			}
			return settled
		})
	}
	r.Unsettled = len(members)
	return r, nil
}

// rest pauses before a look: not before the first look, then for Pause, then for four times as long, less up to half
// of that.
func (c *Checker) rest(ctx context.Context, try int) error {
	if try == 0 {
		return nil
	}
	d := c.options.Pause
	if try > 1 {
		d *= 4
	}
	if err := retry.Sleep(ctx, retry.Jitter(d)); err != nil {
		return fmt.Errorf("wait for a second look: %w", err)
	}
	return nil
}

// Orphans returns the ids that are no members.
func (c *Checker) Orphans(ctx context.Context, ids []member.ID) ([]member.ID, error) {
	members, err := c.options.Truth.LastUploads(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("look for members: %w", err)
	}
	return slices.DeleteFunc(slices.Sorted(slices.Values(ids)), func(id member.ID) bool {
		_, isMember := members[id]
		return isMember
	}), nil
}

// Repair enqueues a refill for each of some members, of the lowest priority, and returns how many. A refill repairs every
// kind of set.
func (c *Checker) Repair(ctx context.Context, members []member.ID) (enqueued int, err error) {
	batch := make([]queue.New, len(members))
	for i, id := range members {
		batch[i] = tasks.NewRefill(id)
		batch[i].Priority = queue.Idle
	}
	if _, err := c.options.Tasks.Enqueue(ctx, batch); err != nil {
		return 0, fmt.Errorf("enqueue the refills of %d sets: %w", len(batch), err)
	}
	return len(batch), nil
}
