package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// Sets is what the audit asks of the index.
type Sets interface {
	Settings() index.Settings
	Look(ctx context.Context, users []member.ID) []index.Set
}

// Truth is what the audit asks of MySQL. It must be the primary: what a replica
// says lags behind the tasks.
type Truth interface {
	Relations(ctx context.Context, pairs []contacts.Pair) (map[contacts.Pair]uint64, error)
	TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]contacts.Contact, error)
	Existing(ctx context.Context, ids []member.ID) (map[member.ID]bool, error)
	Newest(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Newest, error)
	Walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Walked, error)
	Broadcasts(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Broadcast, error)
}

// Tasks is what the audit asks of the queue.
type Tasks interface {
	Pending(ctx context.Context, kinds []string, keys []uint64) (map[uint64]bool, error)
	List(ctx context.Context, match queue.Filter, limit int) ([]queue.Record, error)
	Enqueue(ctx context.Context, batch []queue.New) (ids []uint64, err error)
}

// Reader reads by way of the index, as the service does, but without hints, which
// would repair what is to be found.
type Reader interface {
	Read(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error)
}

// The defaults of [Options].
const (
	DefaultPause    = 250 * time.Millisecond
	DefaultLagLimit = 10 * time.Minute
)

// Options say what an [Auditor] audits and how. Sets, Truth and Tasks are
// required; the zero value of the rest stands for its default.
type Options struct {
	Sets  Sets
	Truth Truth
	Tasks Tasks
	// Reader is needed for [Auditor.CheckAnswers] only.
	Reader Reader
	// ActiveOnly says that a missing set is no error, because only the sets of members
	// that read are kept.
	ActiveOnly bool
	// Pause is the time between the first and the second look at a suspicion; before
	// the third it is four times as long.
	Pause time.Duration
	// LagLimit is how long a task may be pending before its lag is called lasting.
	LagLimit time.Duration
	// Now is the clock for LagLimit; nil: time.Now.
	Now func() time.Time
	// Pacer lets each look begin when the servers bear it; the pauses between looks are
	// outside. Nil: they begin at once.
	Pacer *bulk.Pacer
}

// Auditor compares sets and answers with MySQL. It changes nothing, but for
// [Auditor.Repair]. It is safe for concurrent use.
type Auditor struct{ options Options }

// New returns an auditor.
func New(o Options) *Auditor {
	o.Pause = cmp.Or(o.Pause, DefaultPause)
	o.LagLimit = cmp.Or(o.LagLimit, DefaultLagLimit)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Auditor{o}
}

// Check compares the sets of members with MySQL, each once, with a few statements for
// all. An error or waste was seen three times, with pauses between, so that it takes a
// second or two where something is wrong. Sets of a node of Redis that cannot be used are
// left out. It fails when MySQL cannot be asked, or Redis refuses; the errors are those of
// packages mysql and index.
func (a *Auditor) Check(ctx context.Context, members []member.ID) (Report, error) {
	return a.check(ctx, members, a.look)
}

// Orphans returns those of ids that are no members.
func (a *Auditor) Orphans(ctx context.Context, ids []member.ID) ([]member.ID, error) {
	members, err := a.options.Truth.Existing(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("look for members: %w", err)
	}
	orphans := slices.DeleteFunc(slices.Clone(ids), func(id member.ID) bool { return members[id] })
	slices.Sort(orphans)
	return orphans, nil
}

// lookFunc looks once at the set or the answer of each of the members.
type lookFunc func(ctx context.Context, members []member.ID) (map[member.ID]looked, error)

// A difference is confirmed when this many looks in a row found it. A set that is not at
// rest after maxLooks is given up as unsettled.
const (
	confirmations = 3
	maxLooks      = 7
)

// check looks until each difference is either explained or confirmed.
func (a *Auditor) check(ctx context.Context, members []member.ID, look lookFunc) (Report, error) {
	members = slices.Compact(slices.Sorted(slices.Values(members)))
	r := Report{Checked: len(members)}
	seen := make(map[member.ID]sightings, len(members))
	for try := range maxLooks {
		if err := a.rest(ctx, try); err != nil {
			return Report{}, err
		}
		var found map[member.ID]looked
		err := a.work(ctx, &r, func() (err error) {
			found, err = look(ctx, members)
			return err
		})
		if err != nil {
			return Report{}, err
		}
		members = slices.DeleteFunc(members, func(id member.ID) bool {
			l := found[id]
			switch {
			case l.away != nil:
				r.Unreachable = append(r.Unreachable, id)
				r.Away = l.away
				return true
			case l.skipped:
				r.Skipped = append(r.Skipped, id)
				return true
			}
			next, settled := seen[id].add(l)
			seen[id] = next
			if !settled {
				return false
			}
			if slices.ContainsFunc(l.suspects, func(f Finding) bool { return f.Class == Error }) {
				r.Erroneous++
			}
			switch l.private {
			case privateCovered:
				r.PrivateCovered++
			case privateBeyond:
				r.PrivateBeyond++
			case noPrivate:
			}
			r.Findings = append(r.Findings, l.suspects...)
			return true
		})
		if len(members) == 0 {
			break
		}
	}
	r.Unsettled = len(members)
	r.Checked -= len(members) + len(r.Skipped) + len(r.Unreachable)
	if len(r.Findings) == 0 {
		return r, nil
	}
	err := a.work(ctx, &r, func() error { return a.explain(ctx, r.Findings) })
	return r, err
}

// work calls do when the pacer lets it, and counts the time.
func (a *Auditor) work(ctx context.Context, r *Report, do func() error) error {
	if a.options.Pacer != nil {
		leave, err := a.options.Pacer.Enter(ctx, 1)
		if err != nil {
			return err
		}
		defer leave()
	}
	defer func(start time.Time) { r.Looking += time.Since(start) }(time.Now())
	return do()
}

// sightings are how many looks in a row found a difference of one member's set or
// answer, by all that makes two differences the same.
type sightings map[sighting]int

type sighting struct {
	contact        member.ID
	cause          Cause
	stored, actual uint64
}

// add adds a look, and reports whether the member is settled: each difference is
// explained by pending tasks, or confirmed. While the set moves nothing is known, and
// earlier looks do not count.
func (s sightings) add(l looked) (next sightings, settled bool) {
	next, settled = make(sightings), !l.moved
	for _, f := range l.suspects {
		if f.Class == Lag {
			continue
		}
		key := sighting{f.Contact, f.Cause, f.Stored, f.Actual}
		next[key] = s[key] + 1
		settled = settled && next[key] >= confirmations
	}
	return next, settled
}

// rest pauses before a look: not before the first, then for a time that grows fourfold,
// up to a bound, of between half and all of that.
func (a *Auditor) rest(ctx context.Context, try int) error {
	if try == 0 {
		return nil
	}
	d := a.options.Pause
	for range min(try, confirmations) - 1 {
		d *= 4
	}
	if err := retry.Sleep(ctx, retry.Jitter(d)); err != nil {
		return fmt.Errorf("wait for a second look: %w", err)
	}
	return nil
}

// repairsAtOnce keeps the transactions that enqueue refills short.
const repairsAtOnce = 200

// Repair enqueues a refill for each of the members, of the lowest priority, and returns how many. A refill repairs every kind of set.
func (a *Auditor) Repair(ctx context.Context, members []member.ID) (enqueued int, err error) {
	unique := slices.Compact(slices.Sorted(slices.Values(members)))
	for some := range slices.Chunk(unique, repairsAtOnce) {
		batch := make([]queue.New, len(some))
		for i, id := range some {
			batch[i] = tasks.NewRefill(id)
			batch[i].Priority = queue.Idle
		}
		if _, err := a.options.Tasks.Enqueue(ctx, batch); err != nil {
			return enqueued, fmt.Errorf("enqueue the refills of %d sets: %w", len(unique)-enqueued, err)
		}
		enqueued += len(some)
	}
	return enqueued, nil
}
