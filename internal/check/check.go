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

// DefaultLagLimit is the default of [Options].LagLimit.
const DefaultLagLimit = 10 * time.Minute

// Options configure a [Checker]. Sets, Truth and Tasks are required.
type Options struct {
	Sets       Sets
	Truth      Truth
	Tasks      Tasks
	Reader     Reader           // for [Checker.CheckAnswers] only
	ActiveOnly bool             // a missing set is no error: only the sets of members that read are kept
	Pause      time.Duration    // between the first and the second look at a suspicion; four times as long before the third; 0: 250 ms
	LagLimit   time.Duration    // how long a task may be pending before its lag is called lasting; 0: DefaultLagLimit
	Now        func() time.Time // the clock for LagLimit; nil: time.Now
}

// Checker compares sets and answers with MySQL. It changes nothing, but for [Checker.Repair]. It is safe for
// concurrent use.
type Checker struct{ options Options }

// New returns a checker.
func New(o Options) *Checker {
	o.Pause, o.LagLimit = cmp.Or(o.Pause, 250*time.Millisecond), cmp.Or(o.LagLimit, DefaultLagLimit)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Checker{o}
}

// Check compares the sets of members with MySQL, each once, with a few statements for all. An error or waste was seen
// three times, with pauses between, so that it takes a second or two where something is wrong. Sets of a node of Redis
// that cannot be used are left out. It fails when MySQL cannot be asked, or Redis refuses, with
// the errors of packages mysql and index.
func (c *Checker) Check(ctx context.Context, members []member.ID) (Report, error) {
	return c.check(ctx, members, c.look)
}

// A difference is confirmed when so many looks in a row found it. A set that is not at rest after maxLooks is given up
// as unsettled.
const (
	confirmations = 3
	maxLooks      = 7
)

// check looks until each difference is either explained or confirmed.
func (c *Checker) check(
	ctx context.Context, members []member.ID, look func(context.Context, []member.ID) (map[member.ID]looked, error),
) (Report, error) {
	members = slices.Compact(slices.Sorted(slices.Values(members)))
	r := Report{Checked: len(members)}
	streaks := make(map[member.ID]streak, len(members))
	for try := 0; try < maxLooks && len(members) > 0; try++ {
		if err := c.rest(ctx, try); err != nil {
			return Report{}, err
		}
		found, err := look(ctx, members)
		if err != nil {
			return Report{}, err
		}
		members = slices.DeleteFunc(members, func(id member.ID) bool {
			switch l := found[id]; {
			case l.away != nil:
				r.Unreachable, r.Away = append(r.Unreachable, id), l.away
			case l.skipped:
				r.Skipped = append(r.Skipped, id)
			default:
				next, settled := streaks[id].add(l)
				streaks[id] = next
				if !settled {
					return false
				}
				if slices.ContainsFunc(l.suspects, func(f Finding) bool { return f.Weight == Error }) {
					r.Erroneous++
				}
				r.Findings = append(r.Findings, l.suspects...)
			}
			return true
		})
	}
	r.Unsettled = len(members)
	r.Checked -= len(members) + len(r.Skipped) + len(r.Unreachable)
	return r, c.explain(ctx, r.Findings)
}

// streak says how many looks in a row found a difference of a member's set or answer, by all that makes two
// differences the same.
type streak map[difference]int

type difference struct {
	contact        member.ID
	cause          Cause
	stored, actual uint64
}

// add adds a look, and reports whether the member is settled: each difference is explained by pending tasks, or
// confirmed. While the set moves nothing is known, and earlier looks do not count.
func (s streak) add(l looked) (next streak, settled bool) {
	next, settled = make(streak), !l.moved
	for _, f := range l.suspects {
		if f.Weight == Lag {
			continue
		}
		key := difference{f.Contact, f.Cause, f.Stored, f.Actual}
		next[key] = s[key] + 1
		settled = settled && next[key] >= confirmations
	}
	return next, settled
}

// rest pauses before a look: not before the first, then for a time that grows fourfold, up to a bound, of between half
// and all of that.
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

// Members checks members as [Checker.Check] does. Where that fails, it checks each of them alone: failed are the
// errors of the members at whom it fails nevertheless: a member may have so many contacts that MySQL gives up. An
// error that all members meet, or of a server that is away, is none of theirs, and returned.
func (c *Checker) Members(ctx context.Context, members []member.ID) (r Report, failed map[member.ID]error, err error) {
	r, err = c.Check(ctx, members)
	if err == nil || len(members) < 2 || tasks.IsOfAll(err) {
		return r, nil, err
	}
	failed = make(map[member.ID]error)
	for _, id := range members {
		one, err := c.Check(ctx, []member.ID{id})
		if failed[id] = err; err == nil {
			delete(failed, id)
			r.Add(one)
		}
		if tasks.IsOfAll(err) {
			return Report{}, nil, err
		}
	}
	if len(failed) == len(members) {
		return Report{}, nil, err
	}
	return r, failed, nil
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

// repairsAtOnce keeps the transactions that enqueue refills short.
const repairsAtOnce = 200

// Repair enqueues a refill for each of the members, of the lowest priority, and returns how many. A refill repairs
// every kind of set.
func (c *Checker) Repair(ctx context.Context, members []member.ID) (enqueued int, err error) {
	unique := slices.Compact(slices.Sorted(slices.Values(members)))
	for some := range slices.Chunk(unique, repairsAtOnce) {
		batch := make([]queue.New, len(some))
		for i, id := range some {
			batch[i] = tasks.NewRefill(id)
			batch[i].Priority = queue.Idle
		}
		if _, err := c.options.Tasks.Enqueue(ctx, batch); err != nil {
			return enqueued, fmt.Errorf("enqueue the refills of %d sets: %w", len(unique)-enqueued, err)
		}
		enqueued += len(some)
	}
	return enqueued, nil
}
