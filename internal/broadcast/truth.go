package broadcast

import (
	"context"
	"slices"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// Store is what a [Truth] asks; [contacts.MySQL] is one.
type Store interface {
	siteStore
	memberStore
}

// siteStore is what it asks about members of the site.
type siteStore interface {
	LastUploads(ctx context.Context, ids []member.ID) (map[member.ID]uint64, error)
	Relations(ctx context.Context, pairs []contacts.Pair) (map[contacts.Pair]uint64, error)
	TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]contacts.Contact, error)
	Existing(ctx context.Context, ids []member.ID) (map[member.ID]bool, error)
	Members(ctx context.Context, after member.ID, limit int) ([]member.ID, error)
	CountMembers(ctx context.Context, first, last member.ID) (int64, error)
	Newest(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Newest, error)
	Walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Walked, error)
}

// memberStore is what it asks about broadcast members.
type memberStore interface {
	Broadcasts(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Broadcast, error)
	AnyBroadcast(ctx context.Context) (bool, error)
	FollowerPagesAnd(ctx context.Context, pages []contacts.FollowerPage, limit int) ([][]member.ID, map[member.ID]contacts.BroadcastState, error)
	BroadcastUploads(ctx context.Context) (list []contacts.Contact, some bool, err error)
	ChangeBroadcast(ctx context.Context, id member.ID, was, to contacts.Broadcast) error
	HasFollowers(ctx context.Context, id member.ID, n int) (bool, error)
}

// Truth is what the sets are to be like: a store, where copies of the broadcast set are members as long as there
// are broadcast members, whose contacts they are. Of a broadcast member the copies are the followers, and
// while it joins or leaves, they come with its own. Its methods are as safe for
// concurrent use as those of the store.
type Truth struct{ Store }

// sinceEver is the last upload of a copy, as its own contact: it keeps the set of a copy there that has no other one.
const sinceEver = 1

// Relations is as that of the store.
func (t Truth) Relations(ctx context.Context, pairs []contacts.Pair) (map[contacts.Pair]uint64, error) {
	isCopys := func(p contacts.Pair) bool { return p.User.IsCopy() }
	if !slices.ContainsFunc(pairs, isCopys) {
		return t.Store.Relations(ctx, pairs)
	}
	found, err := t.Store.Relations(ctx, slices.DeleteFunc(slices.Clone(pairs), isCopys))
	if err != nil {
		return nil, err
	}
	list, some, err := t.BroadcastUploads(ctx)
	if err != nil {
		return nil, err
	}
	uploads := make(map[member.ID]uint64, len(list))
	for _, c := range list {
		uploads[c.ID] = c.LastUpload
	}
	for _, p := range pairs {
		at, isOne := uploads[p.Contact]
		switch {
		case !isCopys(p):
		case isOne:
			found[p] = at
		case p.Contact == p.User && some:
			found[p] = sinceEver
		}
	}
	return found, nil
}

// TopContacts is as that of the store; of copies it returns all contacts.
func (t Truth) TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]contacts.Contact, error) {
	if !slices.ContainsFunc(users, member.ID.IsCopy) {
		return t.Store.TopContacts(ctx, users, limit)
	}
	top, err := t.Store.TopContacts(ctx, slices.DeleteFunc(slices.Clone(users), member.ID.IsCopy), limit)
	if err != nil {
		return nil, err
	}
	list, some, err := t.BroadcastUploads(ctx)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(c contacts.Contact) bool { return c.LastUpload == 0 })
	contacts.SortByRecency(list)
	for _, user := range users {
		if user.IsCopy() && some {
			top[user] = append(slices.Clone(list), contacts.Contact{ID: user, LastUpload: sinceEver})
		}
	}
	return top, nil
}

// Existing is as that of the store.
func (t Truth) Existing(ctx context.Context, ids []member.ID) (map[member.ID]bool, error) {
	found, err := t.Store.Existing(ctx, ids)
	if err != nil || !slices.ContainsFunc(ids, member.ID.IsCopy) {
		return found, err
	}
	some, err := t.AnyBroadcast(ctx)
	for _, id := range ids {
		if id.IsCopy() && some {
			found[id] = true
		}
	}
	return found, err
}

// FollowerPages returns pages of the followers of members, as [contacts.MySQL.FollowerPages] does.
func (t Truth) FollowerPages(ctx context.Context, pages []contacts.FollowerPage, limit int) ([][]member.ID, error) {
	found, states, err := t.FollowerPagesAnd(ctx, pages, limit)
	if err != nil {
		return nil, err
	}
	for i, p := range pages {
		if states[p.Of] != contacts.NoMember {
			found[i] = withCopies(found[i], p.After, limit)
		}
	}
	return found, nil
}

// Members is as that of the store.
func (t Truth) Members(ctx context.Context, after member.ID, limit int) ([]member.ID, error) {
	list, err := t.Store.Members(ctx, after, limit)
	if err != nil {
		return nil, err
	}
	with := withCopies(list, after, limit)
	if slices.Equal(with, list) {
		return list, nil
	}
	some, err := t.AnyBroadcast(ctx)
	if some {
		list = with
	}
	return list, err
}

// withCopies adds the copies above after to a page of ids above after, which has limit at most.
func withCopies(page []member.ID, after member.ID, limit int) []member.ID {
	all := slices.Clone(page)
	for _, id := range member.Copies {
		if id > after {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return all[:min(len(all), limit)]
}
