package history_test

import (
	"cmp"
	"context"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// watched is the index of a history, and judges every write by the sets that were there before. It also
// counts the writes to each set and its guard, and so detects a conflict without a cause. With such
// conflicts, updates could keep each other from ever finishing.
type watched struct {
	sets
	stage  *stage
	writes map[member.ID]int
}

func newWatched(s *stage) *watched {
	return &watched{sets: failing{s.backend.sets, s}, stage: s, writes: map[member.ID]int{}}
}

func (x *watched) violate(err error) {
	if x.stage.violated == nil {
		x.stage.violated = err
	}
}

func (x *watched) Begin(ctx context.Context, users []member.ID) []index.Update {
	updates := x.sets.Begin(ctx, users)
	if a, ok := ctx.Value(actorKey{}).(*actor); ok {
		for _, user := range users {
			a.begun[user] = x.writes[user]
		}
	}
	return updates
}

func (x *watched) Apply(ctx context.Context, changes []index.Change) []index.Result {
	users := make([]member.ID, len(changes))
	mayMake := map[member.ID]bool{}
	for i, c := range changes {
		users[i] = c.Member
		mayMake[c.Member] = c.WithRefill && len(c.Refill) > 0
	}
	var results []index.Result
	x.judged(ctx, users, mayMake, func() { results = x.sets.Apply(ctx, changes) })
	a, acted := ctx.Value(actorKey{}).(*actor)
	for i, r := range results {
		user := changes[i].Member
		switch {
		case r.Err != nil: // it may have been written
			x.lost(user)
		case r.Outcome == index.Applied:
			x.writes[user]++
		case acted:
			x.stage.counted.conflicts++
			if a.begun[user] == x.writes[user] {
				x.violate(violation("an update of %s was in conflict though nothing had been written", user))
			}
		}
	}
	return results
}

func (x *watched) Add(ctx context.Context, additions []index.Addition) (missing []member.ID, failed map[member.ID]error) {
	users := make([]member.ID, len(additions))
	for i, a := range additions {
		users[i] = a.Member
		x.writes[a.Member]++
	}
	x.judged(ctx, users, nil, func() { missing, failed = x.sets.Add(ctx, additions) })
	return missing, failed
}

// judged calls write, and judges the sets of users. write may create the sets in mayMake.
func (x *watched) judged(ctx context.Context, users []member.ID, mayMake map[member.ID]bool, write func()) {
	before := x.Look(ctx, users)
	write()
	for i, set := range x.Look(ctx, users) {
		switch s := x.stage.settings; {
		case cmp.Or(set.Err, before[i].Err) != nil:
			x.violate(cmp.Or(set.Err, before[i].Err))
		case !set.Known:
		case set.Size > s.Max:
			x.violate(violation("I3: the set of %s has %d members: %v", set.Member, set.Size, set.Members))
		case !before[i].Known && !mayMake[set.Member]:
			x.violate(violation("I4: the set of %s came into being without a refill: %v", set.Member, set.Members))
		case x.stage.calm:
			if err := x.stage.world.checkSet(set, s); err != nil {
				x.violate(err)
			}
		}
	}
}

// lost notes that sets or guards may have been lost: updates may conflict for it.
func (x *watched) lost(users ...member.ID) {
	for _, user := range users {
		x.writes[user]++
	}
}
