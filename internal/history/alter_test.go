package history_test

import (
	"context"
	"slices"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// Faults outside of the index, each in the place of the right behaviour.

// lowered returns the entries with a single score lower by 1: "newer than" becomes "newer than or as new as".
func lowered(entries []index.Entry, at int) []index.Entry {
	entries = slices.Clone(entries)
	entries[at].Score--
	return entries
}

// lenientSecond and lenientLowest do not change a set whose second entry is the lowest.
func lenientSecond(entries []index.Entry) []index.Entry {
	if len(entries) < 3 {
		return entries
	}
	return lowered(entries, 1)
}

func lenientLowest(entries []index.Entry) []index.Entry {
	if len(entries) < 3 {
		return entries
	}
	return lowered(entries, len(entries)-1)
}

// readEarly makes handlers read the truth before they begin.
func readEarly(s *stage) {
	truth := &earlyStore{store: s.store, read: map[*actor]earlyRead{}}
	s.store = truth
	s.backend.sets = earlyIndex{s.backend.sets, s, truth}
}

type earlyStore struct {
	store
	read map[*actor]earlyRead
}

type earlyRead struct {
	relations map[contacts.Pair]uint64
	top       map[member.ID][]contacts.Contact
}

type earlyIndex struct {
	sets
	stage *stage
	truth *earlyStore
}

func (x earlyIndex) Begin(ctx context.Context, users []member.ID) []index.Update {
	if a, ok := ctx.Value(actorKey{}).(*actor); ok {
		err := x.truth.readAll(ctx, a, users, x.stage)
		if err == nil {
			err = a.park(place{call: "Begin, after the reads", writing: true})
		}
		if err != nil {
			updates := make([]index.Update, len(users))
			for i, user := range users {
				updates[i] = index.Update{Member: user, Err: err}
			}
			return updates
		}
	}
	return x.sets.Begin(ctx, users)
}

// readAll reads all that there may be asked for about the users.
func (e *earlyStore) readAll(ctx context.Context, a *actor, users []member.ID, s *stage) (err error) {
	var pairs []contacts.Pair
	for _, user := range users {
		for _, contact := range s.everybody() {
			pairs = append(pairs, contacts.Pair{User: user, Contact: contact})
		}
	}
	var r earlyRead
	if r.relations, err = e.store.Relations(ctx, pairs); err == nil {
		r.top, err = e.store.TopContacts(ctx, users, s.settings.Max)
	}
	e.read[a] = r
	return err
}

func (e *earlyStore) Relations(ctx context.Context, pairs []contacts.Pair) (map[contacts.Pair]uint64, error) {
	if a, ok := ctx.Value(actorKey{}).(*actor); ok {
		return e.read[a].relations, nil
	}
	return e.store.Relations(ctx, pairs)
}

func (e *earlyStore) TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]contacts.Contact, error) {
	if a, ok := ctx.Value(actorKey{}).(*actor); ok {
		return e.read[a].top, nil
	}
	return e.store.TopContacts(ctx, users, limit)
}

// cachePhotos keeps photos that were visible at some time.
func cachePhotos(s *stage) {
	s.store = &cachingStore{store: s.store, cached: map[contacts.Pair]contacts.Album{}}
}

type cachingStore struct {
	store
	cached map[contacts.Pair]contacts.Album
}

func (c *cachingStore) Look(ctx context.Context, v contacts.Viewer, owner member.ID, limit int, bound uint64) (contacts.Look, error) {
	found, err := c.store.Look(ctx, v, owner, limit, bound)
	pair := contacts.Pair{User: v.ID, Contact: owner}
	if kept, ok := c.cached[pair]; ok && len(kept.Photos) >= limit {
		kept.Photos = kept.Photos[:limit]
		found.Album = kept
	}
	c.cached[pair] = found.Album
	return found, err
}
