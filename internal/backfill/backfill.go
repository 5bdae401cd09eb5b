// Package backfill builds the sets of many members at once: for a Redis that is
// new or was emptied, without waiting for the members to come one by one.
//
// It is a refill, guarded as every other, so that it may run beside the live
// traffic, beside itself, and be broken off anywhere. Two things make it quick.
// One query reads the most recent contacts of many members, and one round trip
// each begins and writes all of their updates. And sets that are there are left
// alone: they are kept by the tasks.
package backfill

import (
	"context"
	"errors"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/sweep"
	"github.com/activityd/activityd/internal/tasks"
)

// What is counted.
const (
	Seen    = "seen"    // members who were looked at: the sum of all others
	Built   = "built"   // sets that were built, or refilled
	Skipped = "skipped" // sets that were there and left alone
	Empty   = "empty"   // members with nobody to put in: no contact of theirs ever uploaded
	Absent  = "absent"  // members without a set who, by choice, got none
)

// Index is what a [Builder] asks of the sets.
type Index interface {
	Look(ctx context.Context, users []member.ID) ([]index.Set, error)
}

// Refiller builds sets; [tasks.RefillHandler] is one.
type Refiller interface {
	// Refill returns how many contacts were found for each of users, and the
	// errors of those whose set could not be refilled.
	Refill(ctx context.Context, users []member.ID) (found map[member.ID]int, failed map[member.ID]error)
}

// Builder builds sets. It is safe for concurrent use.
type Builder struct {
	Index    Index
	Refiller Refiller
	// Existing says that sets that are there are refilled, too.
	Existing bool
	// ActiveOnly leaves missing sets missing, for a site that keeps the sets of
	// active members only.
	ActiveOnly bool
}

// Build builds the sets of users, and counts what it did. With an error it
// returns who is left; see [Judge]. It is a [sweep.Visit].
func (b *Builder) Build(ctx context.Context, users []member.ID) (sweep.Counts, []member.ID, error) {
	counts := sweep.Counts{}
	wanted, err := b.choose(ctx, users, counts)
	if err != nil {
		return nil, users, err
	}
	if len(wanted) == 0 {
		return counts, nil, nil
	}
	found, failed := b.Refiller.Refill(ctx, wanted)
	var left []member.ID
	for _, user := range wanted {
		switch {
		case failed[user] != nil:
			left = append(left, user)
			err = worse(err, failed[user])
			continue
		case found[user] == 0:
			counts[Empty]++
		default:
			counts[Built]++
		}
		counts[Seen]++
	}
	return counts, left, err
}

// choose returns whose sets are to be built, and counts the others. What is no set
// of ours is not left alone.
func (b *Builder) choose(ctx context.Context, users []member.ID, counts sweep.Counts) (wanted []member.ID, err error) {
	if b.Existing && !b.ActiveOnly {
		return users, nil
	}
	sets, err := b.Index.Look(ctx, users)
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		switch {
		case !set.Known && b.ActiveOnly:
			counts[Absent]++
		case set.Known && set.Foreign == 0 && !b.Existing:
			counts[Skipped]++
		default:
			wanted = append(wanted, set.User)
			continue
		}
		counts[Seen]++
	}
	return wanted, nil
}

// worse returns the error that matters more: one that ends the work, and then one
// that belongs to a member.
func worse(a, b error) error {
	weight := map[sweep.Fault]int{sweep.Away: 0, sweep.Own: 1, sweep.Fatal: 2}
	if a == nil || weight[Judge(b)] > weight[Judge(a)] {
		return b
	}
	return a
}

// Judge tells what an error means. A server that is away, full or busy is waited
// for; a Redis without the database that is selected is not. A transaction that was given up in favour of another, a query that took too
// long, and a set that others kept changing belong to those for whom it was.
func Judge(err error) sweep.Fault {
	switch {
	case errors.Is(err, index.ErrNoDatabase):
		return sweep.Fatal
	case errors.Is(err, mysql.ErrUnavailable), errors.Is(err, index.ErrUnavailable):
		return sweep.Away
	case errors.Is(err, tasks.ErrContended), mysql.IsRetryable(err), mysql.IsTooSlow(err):
		return sweep.Own
	}
	return sweep.Fatal
}
