package bulk

import (
	"context"
	"errors"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/once"
)

// What a [Builder] counts.
const (
	Seen    = "seen"    // members that were looked at: the sum of all others
	Built   = "built"   // sets that were built or refilled
	Skipped = "skipped" // sets that were there and left alone
	Empty   = "empty"   // members without a contact that ever uploaded
	Absent  = "absent"  // members without a set that got none, by ActiveOnly
)

// Looker is what a [Builder] asks of the index.
type Looker interface {
	Look(ctx context.Context, members []member.ID) []index.Set
}

// Refiller builds sets; [tasks.RefillHandler] is one.
type Refiller interface {
	// Refill returns how many contacts were found for each of the members, and the
	// errors of those whose set could not be refilled.
	Refill(ctx context.Context, members []member.ID) (found map[member.ID]int, failed map[member.ID]error)
}

// Builder builds the sets of many members, for a Redis that is new or was emptied. It
// refills as tasks do, guarded, so it may run beside the live traffic and beside
// itself. One query reads the contacts of many members, and one round trip each begins
// and writes all of their updates. Sets that are there are left alone: tasks keep them.
// It is safe for concurrent use.
type Builder struct {
	Index    Looker
	Refiller Refiller
	// Existing says that sets that are there are refilled, too.
	Existing bool
	// ActiveOnly leaves missing sets missing, for a site that keeps the sets of
	// active members only.
	ActiveOnly bool
}

// Build builds the sets of members. It is a [Visit], whose errors are judged by
// [Judge].
func (b *Builder) Build(ctx context.Context, members []member.ID) (Counts, []member.ID, error) {
	counts := Counts{}
	wanted, left, err := b.choose(ctx, members, counts)
	if len(wanted) == 0 {
		return counts, left, err
	}
	found, failed := b.Refiller.Refill(ctx, wanted)
	for _, id := range wanted {
		switch {
		case failed[id] != nil:
			left = append(left, id)
			err = worse(err, failed[id])
			continue
		case found[id] == 0:
			counts[Empty]++
		default:
			counts[Built]++
		}
		counts[Seen]++
	}
	return counts, left, err
}

// choose returns the members whose sets are to be built, and those whose sets cannot be
// looked at, with the error that matters most; it counts the others. A key that activityd
// did not write is replaced.
func (b *Builder) choose(ctx context.Context, members []member.ID, counts Counts) (wanted, left []member.ID, err error) {
	if b.Existing && !b.ActiveOnly {
		return members, nil, nil
	}
	for _, set := range b.Index.Look(ctx, members) {
		switch {
		case set.Err != nil:
			left = append(left, set.Member)
			err = worse(err, set.Err)
			continue
		case !set.Known && b.ActiveOnly:
			counts[Absent]++
		case set.Known && set.Foreign == 0 && !b.Existing:
			counts[Skipped]++
		default:
			wanted = append(wanted, set.Member)
			continue
		}
		counts[Seen]++
	}
	return wanted, left, err
}

// worse returns the error that matters more: [Fatal] before [Own] before [Away].
func worse(a, b error) error {
	weight := map[Fault]int{Away: 0, Own: 1, Fatal: 2}
	if a == nil || weight[Judge(b)] > weight[Judge(a)] {
		return b
	}
	return a
}

// IsNodeAway reports whether an error says that the sets of a node of Redis cannot be used
// now.
func IsNodeAway(err error) bool {
	return errors.Is(err, index.ErrUnavailable) || errors.Is(err, index.ErrUnknown)
}

// Judge returns what an error of MySQL or Redis means. A server that is away, full or busy,
// or whose sets may be old, is waited for; a Redis without the selected database is not. A
// deadlock, a query that took too long, and a set that others kept changing belong to the
// members.
func Judge(err error) Fault {
	switch {
	case errors.Is(err, index.ErrNoDatabase):
		return Fatal
	case errors.Is(err, mysql.ErrUnavailable), errors.Is(err, once.ErrUnavailable), IsNodeAway(err):
		return Away
	case errors.Is(err, tasks.ErrContended), mysql.IsRetryable(err), mysql.IsTooSlow(err):
		return Own
	}
	return Fatal
}
