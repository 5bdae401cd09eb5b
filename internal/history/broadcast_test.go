package history_test

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/activityd/activityd/internal/broadcast"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// In half of the random histories members become broadcast members and cease to be, as an operator says. That is
// no change of what any viewer is to be shown, and so it happens in calm, too.

// broadcasts is what a stage with broadcast members has besides.
type broadcasts struct {
	asked map[member.ID]bool // who is to be one, as was said last; with all others that never were it is none
	last  member.ID          // who came or went last
	page  int                // how many of a copy a read gets at first

	// What mutations change.
	forgetsBound bool // reads take those that they got for all
	forgetsCopy  bool // reads do not look at the copy
	stopsAtOnce  bool // a fan-out ends when it finds its uploader broadcast
	leavesAtOnce bool // one that leaves is fanned out to nobody
}

// truth is what the handlers ask.
func (s *stage) truth() tasks.Store {
	if s.broadcasts == nil {
		return actingStore{s.store}
	}
	return stoppingTruth{broadcast.Truth{Store: broadcastStore{actingStore{s.store}}}, s.broadcasts}
}

// broadcastStore stops actors at the calls that only histories with broadcast members have.
type broadcastStore struct{ actingStore }

func (s broadcastStore) Broadcasts(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Broadcast, error) {
	return acting(ctx, "Broadcasts", false, func() (map[member.ID]contacts.Broadcast, error) { return s.store.Broadcasts(ctx, ids) })
}

type pagesAnd struct {
	pages  [][]member.ID
	states map[member.ID]contacts.BroadcastState
}

func (s broadcastStore) FollowerPagesAnd(ctx context.Context, pages []contacts.FollowerPage, limit int) ([][]member.ID, map[member.ID]contacts.BroadcastState, error) {
	found, err := acting(ctx, "FollowerPages", false, func() (f pagesAnd, err error) {
		f.pages, f.states, err = s.store.FollowerPagesAnd(ctx, pages, limit)
		return f, err
	})
	return found.pages, found.states, err
}

func (s broadcastStore) AnyBroadcast(ctx context.Context) (bool, error) {
	return acting(ctx, "AnyBroadcast", false, func() (bool, error) { return s.store.AnyBroadcast(ctx) })
}

func (s broadcastStore) BroadcastUploads(ctx context.Context) (list []contacts.Contact, some bool, err error) {
	list, err = acting(ctx, "BroadcastUploads", false, func() ([]contacts.Contact, error) {
		list, some, err = s.store.BroadcastUploads(ctx)
		return list, err
	})
	contacts.SortByRecency(list)
	return list, some, err
}

func (s broadcastStore) ChangeBroadcast(ctx context.Context, id member.ID, was, to contacts.Broadcast) error {
	_, err := acting(ctx, "ChangeBroadcast", true, func() (struct{}, error) { return struct{}{}, s.store.ChangeBroadcast(ctx, id, was, to) })
	return err
}

type photosAnd struct {
	album   contacts.Album
	related []member.ID
}

func (s broadcastStore) VisiblePhotosAnd(ctx context.Context, v contacts.Viewer, owner member.ID, limit int, others []member.ID) (contacts.Album, []member.ID, error) {
	found, err := acting(ctx, "VisiblePhotosAnd", false, func() (f photosAnd, err error) {
		f.album, f.related, err = s.store.VisiblePhotosAnd(ctx, v, owner, limit, others)
		return f, err
	})
	return found.album, found.related, err
}

// stoppingTruth may leave the copies out of all pages but the first.
type stoppingTruth struct {
	broadcast.Truth

	b *broadcasts
}

func (s stoppingTruth) FollowerPages(ctx context.Context, pages []contacts.FollowerPage, limit int) ([][]member.ID, error) {
	found, err := s.Truth.FollowerPages(ctx, pages, limit)
	for i, page := range found {
		if s.b.stopsAtOnce && pages[i].After > 0 {
			found[i] = slices.DeleteFunc(page, member.ID.IsCopy)
		}
	}
	return found, err
}

// proposedBroadcasts is what a read gets of a copy.
func (s *stage) proposedBroadcasts(ctx context.Context, b index.Copy) index.Copy {
	if s.forgetsCopy {
		return index.Copy{}
	}
	b = s.cut(b, s.page)
	if more := b.More; more != nil {
		b.More = func(_ context.Context, above uint64) index.Copy {
			got, err := acting(ctx, "More", false, func() (index.Copy, error) { return more(ctx, above), nil })
			if err != nil {
				return index.Copy{Of: b.Of, Err: err}
			}
			return s.cut(got, s.page+2)
		}
	}
	return b
}

// cut leaves the first n.
func (s *stage) cut(b index.Copy, n int) index.Copy {
	if len(b.Entries) > n {
		b.Entries, b.Bound = b.Entries[:n], b.Entries[n].Score
	}
	if s.forgetsBound {
		b.Bound = 0
	}
	return b
}

// comesOrGoes makes a member a broadcast member or, if it is one, has it cease to be.
func (h *history) comesOrGoes() error {
	id := h.someMember()
	rows, err := h.store.Broadcasts(h.ctx, []member.ID{id})
	if err != nil {
		return err
	}
	to, is := contacts.Joining, rows[id].State
	switch {
	case is == contacts.Joining, is == contacts.Joined:
		to = contacts.Leaving
	case !h.world.members[id]:
		return nil
	}
	h.counted.broadcasts++
	change := uint64(h.counted.broadcasts)
	h.logf("%s is %s, change %d", id, to, change)
	h.asked[id], h.last = to == contacts.Joining, id
	h.site.Store.SetBroadcast(id, contacts.Broadcast{State: to, Change: change, Named: true})
	list := tasks.NewBroadcast(id, change, to == contacts.Joining)
	if h.leavesAtOnce && to == contacts.Leaving {
		if list[0].Payload, err = json.Marshal(tasks.BroadcastArgs{Change: change, Settled: true}); err != nil {
			return err
		}
	}
	for _, n := range list {
		if err := h.enqueue(n); err != nil {
			return err
		}
	}
	return nil
}

// isBroadcast reports whether a member is a broadcast member now, in whatever state.
func (s *stage) isBroadcast(id member.ID) bool {
	if s.broadcasts == nil {
		return false
	}
	rows, err := s.store.Broadcasts(s.ctx, []member.ID{id})
	return err == nil && rows[id].State != contacts.NoMember
}

// settles reports whether a task ends a change of state. It comes 2 s after the one before it, and no read lasts
// so long between its looks at sets and its question who is a broadcast member.
func settles(t queue.Task) bool {
	args, err := tasks.ArgsOf[tasks.BroadcastArgs](t)
	return t.Kind == tasks.Broadcast && err == nil && args.Settled
}

// reading reports whether a read is under way.
func (h *history) reading() bool {
	return slices.ContainsFunc(h.actors, func(a *actor) bool { return a.request != nil })
}

// judgeBroadcasts judges the states, and the copies that exist, at rest.
func (s *stage) judgeBroadcasts() error {
	if s.broadcasts == nil {
		return nil
	}
	some := false
	for id, isOne := range s.asked {
		rows, err := s.store.Broadcasts(s.ctx, []member.ID{id})
		if err != nil {
			return err
		}
		want := contacts.NoMember
		if isOne {
			want, some = contacts.Joined, true
		}
		if got := rows[id].State; got != want {
			return violation("%s came to rest as %q, and was to be %q", id, got, want)
		}
	}
	for _, set := range s.backend.Look(s.ctx, member.Copies[:]) {
		if err := s.judgeCopy(set, some); err != nil {
			return err
		}
	}
	return nil
}

// judgeCopy judges a copy of the broadcast set, by whether there are broadcast members.
func (s *stage) judgeCopy(set index.Set, some bool) error {
	score := make(map[member.ID]uint64)
	for _, e := range set.Members {
		score[e.Contact] = e.Score
	}
	switch {
	case set.Err != nil || !set.Known:
		return set.Err
	case !some:
		return violation("there are no broadcast members, and there is a copy: %v", set.Members)
	case set.Foreign > 0 || score[set.Member] != 1:
		return violation("the copy does not contain itself, or what is foreign: %+v", set)
	}
	for id, isOne := range s.asked {
		if isOne && score[id] < s.world.last[id] {
			return violation("broadcast member %s uploaded at %d, the copy %s has it at %d", id, s.world.last[id], set.Member, score[id])
		}
	}
	return nil
}
