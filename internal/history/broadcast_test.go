package history_test

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// In half of the random histories members become broadcast members and cease to be, at an operator's command.
// A command changes no viewer's answer, and so it happens in calm, too.

// broadcasts is the additional state of a stage with broadcast members.
type broadcasts struct {
	asked map[member.ID]bool // members that an operator named or removed, and whether they are broadcast members
	last  member.ID          // the member that came or went last

	// For mutations.
	forgetsAbove bool // reads do not see the broadcast contacts
	forgetsBelow bool // reads do not see the newest broadcast upload below the set's first
	forgetsRows  bool // uploads by broadcast members are not written to their rows
	leavesAtOnce bool // a member that leaves is not fanned out
}

// broadcastStore stops actors at the calls that only histories with broadcast members have, and has the mutations.
type broadcastStore struct {
	actingStore

	b *broadcasts
}

// truth returns the store of the handlers and the reads.
func (s *stage) truth() store {
	if s.broadcasts == nil {
		return actingStore{s.store}
	}
	return broadcastStore{actingStore{s.store}, s.broadcasts}
}

func (s broadcastStore) Broadcasts(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Broadcast, error) {
	return acting(ctx, "Broadcasts", false, func() (map[member.ID]contacts.Broadcast, error) { return s.store.Broadcasts(ctx, ids) })
}

func (s broadcastStore) RaiseBroadcast(ctx context.Context, id member.ID, lastUpload uint64) error {
	_, err := acting(ctx, "RaiseBroadcast", true, func() (struct{}, error) {
		if s.b.forgetsRows {
			return struct{}{}, nil
		}
		return struct{}{}, s.store.RaiseBroadcast(ctx, id, lastUpload)
	})
	return err
}

func (s broadcastStore) DeleteBroadcast(ctx context.Context, id member.ID, leaving int64) error {
	_, err := acting(ctx, "DeleteBroadcast", true, func() (struct{}, error) { return struct{}{}, s.store.DeleteBroadcast(ctx, id, leaving) })
	return err
}

func (s broadcastStore) Look(ctx context.Context, v contacts.Viewer, owner member.ID, limit int, bound uint64) (contacts.Look, error) {
	l, err := s.actingStore.Look(ctx, v, owner, limit, bound)
	if s.b.forgetsAbove {
		l.Above = nil
	}
	if s.b.forgetsBelow {
		l.Below = 0
	}
	return l, err
}

func (s broadcastStore) Compare(ctx context.Context, v contacts.Viewer, owners []member.ID, bound uint64) (contacts.Comparison, error) {
	c, err := s.actingStore.Compare(ctx, v, owners, bound)
	if s.b.forgetsAbove {
		c.Broadcasts, c.Standings = nil, c.Standings[:len(c.Standings)-len(c.Broadcasts)]
	}
	return c, err
}

// comesOrGoes makes a member a broadcast member, or makes a broadcast member leave, like the commands of an
// operator.
func (h *history) comesOrGoes() error {
	id := h.someMember()
	rows, err := h.store.Broadcasts(h.ctx, []member.ID{id})
	if err != nil {
		return err
	}
	b, isBroadcast := rows[id]
	if isBroadcast && b.Leaving == 0 {
		return h.goes(id)
	}
	if !h.world.members[id] {
		return nil
	}
	h.logf("%s becomes a broadcast member", id)
	h.counted.broadcasts++
	h.asked[id], h.last = true, id
	return h.store.AddBroadcast(h.ctx, id, true)
}

// goes has a broadcast member leave.
func (h *history) goes(id member.ID) error {
	h.logf("%s is to be no broadcast member", id)
	h.counted.broadcasts++
	h.asked[id], h.last = false, id
	b, err := h.store.LeaveBroadcast(h.ctx, id)
	if err != nil {
		return err
	}
	n := tasks.NewLeaving(b)
	if h.leavesAtOnce {
		if n.Payload, err = json.Marshal(tasks.BroadcastArgs{Leaving: b.Leaving, Done: true}); err != nil {
			return err
		}
	}
	return h.enqueue(n)
}

// isBroadcast reports whether a member is a broadcast member now, or leaves.
func (s *stage) isBroadcast(id member.ID) bool {
	if s.broadcasts == nil {
		return false
	}
	rows, err := s.store.Broadcasts(s.ctx, []member.ID{id})
	return err == nil && rows[id].ID != 0
}

// deletesRow reports whether a task deletes the row of a member that leaves. The task comes an hour after its
// predecessor, and no read lasts so long between its look at a set and its question to MySQL.
func deletesRow(t queue.Task) bool {
	args, err := tasks.ArgsOf[tasks.BroadcastArgs](t)
	return t.Kind == tasks.Broadcast && err == nil && args.Done
}

// reading reports whether a read is under way.
func (h *history) reading() bool {
	return slices.ContainsFunc(h.actors, func(a *actor) bool { return a.request != nil })
}

// judgeBroadcasts judges the rows, at rest.
func (s *stage) judgeBroadcasts() error {
	if s.broadcasts == nil {
		return nil
	}
	for id, isBroadcast := range s.asked {
		rows, err := s.store.Broadcasts(s.ctx, []member.ID{id})
		if err != nil {
			return err
		}
		switch b, found := rows[id]; {
		case found != isBroadcast || b.Leaving != 0:
			return violation("%s came to rest as %+v, and was to be a broadcast member: %v", id, b, isBroadcast)
		case found && s.world.members[id] && b.LastUpload < s.world.last[id]:
			return violation("broadcast member %s uploaded at %d, and its row has %d", id, s.world.last[id], b.LastUpload)
		}
	}
	return nil
}
