package audit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/tasks"
)

// Check compares the sets of users with MySQL, each user once, with a few statements
// for all. Whatever it calls an error or waste it has seen three times, with pauses
// between, so it takes a second or two where something is wrong. It fails when MySQL or
// Redis cannot be asked; the errors are those of packages mysql and index.
func (a *Auditor) Check(ctx context.Context, users []member.ID) (Report, error) {
	return a.check(ctx, users, a.look)
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

// lookFunc looks once at something of each of the users.
type lookFunc func(ctx context.Context, users []member.ID) (map[member.ID]looked, error)

// How often something is looked at: a suspicion is believed when confirmations
// looks in a row found it; whatever has not come to rest after maxLooks is given up as
// unsettled.
const (
	confirmations = 3
	maxLooks      = 7
)

// check looks until everything that it saw is either explained or confirmed.
func (a *Auditor) check(ctx context.Context, users []member.ID, look lookFunc) (Report, error) {
	users = slices.Compact(slices.Sorted(slices.Values(users)))
	r := Report{Checked: len(users)}
	var suspects []suspicion
	open := make(map[member.ID]*watched, len(users))
	for _, user := range users {
		open[user] = &watched{}
	}
	for try := range maxLooks {
		if err := rest(ctx, try, a.options.Pause); err != nil {
			return Report{}, err
		}
		var found map[member.ID]looked
		err := a.work(ctx, &r, func() (err error) {
			found, err = look(ctx, users)
			return err
		})
		if err != nil {
			return Report{}, err
		}
		users = slices.DeleteFunc(users, func(user member.ID) bool {
			settled := open[user].see(found[user])
			if settled {
				suspects = append(suspects, r.settle(user, open[user])...)
			}
			return settled
		})
		if len(users) == 0 {
			break
		}
	}
	r.Unsettled = len(users)
	r.Checked -= len(users) + len(r.Skipped)
	if len(suspects) == 0 {
		return r, nil
	}
	err := a.work(ctx, &r, func() error { return a.explain(ctx, suspects) })
	for _, s := range suspects {
		r.Findings = append(r.Findings, s.Finding)
	}
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

// settle counts in what was seen of one user, and returns it.
func (r *Report) settle(user member.ID, w *watched) []suspicion {
	if w.skipped {
		r.Skipped = append(r.Skipped, user)
		return nil
	}
	if slices.ContainsFunc(w.found, func(s suspicion) bool { return s.Class == Error }) {
		r.Erroneous++
	}
	return w.found
}

// watched is what several looks have seen of one user.
type watched struct {
	seen    map[suspect]int // how many looks in a row
	found   []suspicion     // by the last look
	skipped bool
}

// suspect is what makes two looks speak of the same thing.
type suspect struct {
	contact        member.ID
	cause          Cause
	stored, actual uint64
}

// see takes in one look and tells whether the case is closed: everything is
// explained by pending tasks or confirmed. While the set moves nothing is known,
// and what was seen before counts for nothing.
func (w *watched) see(l looked) (settled bool) {
	seen := make(map[suspect]int)
	w.found, w.skipped = l.suspects, l.skipped
	settled = !l.moved
	for _, s := range l.suspects {
		if s.Class == Lag {
			continue
		}
		key := suspect{s.Contact, s.Cause, s.Stored, s.Actual}
		seen[key] = w.seen[key] + 1
		settled = settled && seen[key] >= confirmations
	}
	w.seen = seen
	return settled
}

// rest lets time pass before a new look: none before the first, then a pause that
// grows fourfold, up to a bound, of between half and all of that.
func rest(ctx context.Context, try int, pause time.Duration) error {
	if try == 0 {
		return nil
	}
	d := pause
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

// Repair enqueues a refill for each of users, of the lowest priority, and returns
// how many. A refill repairs every kind of set.
func (a *Auditor) Repair(ctx context.Context, users []member.ID) (enqueued int, err error) {
	unique := slices.Compact(slices.Sorted(slices.Values(users)))
	for some := range slices.Chunk(unique, repairsAtOnce) {
		batch := make([]queue.New, len(some))
		for i, user := range some {
			batch[i] = tasks.NewRefill(user)
			batch[i].Priority = queue.Idle
		}
		if _, err := a.options.Tasks.Enqueue(ctx, batch); err != nil {
			return enqueued, fmt.Errorf("enqueue the refills of %d sets: %w", len(unique)-enqueued, err)
		}
		enqueued += len(some)
	}
	return enqueued, nil
}
