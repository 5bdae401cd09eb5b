package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/queue"
)

// The kinds that look again at (member, contact), which may have been added or removed.
const (
	AddContact    = "add_contact"
	RemoveContact = "remove_contact"
)

// Both kinds are the same work, so they share dedupe keys.
var (
	addContact    = pairKind(AddContact)
	removeContact = pairKind(RemoveContact)
)

func pairKind(name string) kind {
	return kind{
		Name: name, Workers: defaultWorkers, Ordered: true, Produced: true, Takes: contactField, Changes: OwnSet,
		DedupeKey: func(of uint64, payload json.RawMessage) (string, error) {
			args, err := decode[ContactArgs](payload)
			return fmt.Sprintf("pair:%d:%d", of, args.Contact), err
		},
		Group:   "contacts",
		Handler: func(w work) queue.Handler { return PairHandler(w) },
	}
}

// ContactArgs are the payload of add_contact and remove_contact.
type ContactArgs struct {
	Contact member.ID `json:"contact_id,omitzero"`
}

var contactField = &field{
	Name: "contact_id", What: "contact", Want: "a member id",
	Task: func(k kind, r *strictjson.Reader, at string, of member.ID, value json.RawMessage) queue.New {
		return k.task(of, ContactArgs{r.MemberID(at, value)})
	},
}

// NewAddContact asks to look at (user, contact) after contact was added.
func NewAddContact(user, contact member.ID) queue.New {
	return addContact.task(user, ContactArgs{Contact: contact})
}

// NewRemoveContact asks to look at (user, contact) after contact was removed.
func NewRemoveContact(user, contact member.ID) queue.New {
	return removeContact.task(user, ContactArgs{Contact: contact})
}

// PairHandler handles add_contact and remove_contact. Both look at
// (user, contact) in MySQL and make the user's set agree. That may lower a score: of a
// contact that was deleted as a member and is a member again, with an earlier last upload or
// none. A batch costs a round trip to begin, one or two queries, and a round trip to
// apply, however many users it is about.
type PairHandler work

// Handle implements [queue.Handler].
func (h PairHandler) Handle(ctx context.Context, batch []queue.Task) []queue.Outcome {
	outcomes := make([]queue.Outcome, len(batch))
	asked := make(map[member.ID][]member.ID)
	for i, t := range batch {
		args, err := ArgsOf[ContactArgs](t)
		switch {
		case err != nil:
			outcomes[i].Err = err
		case args.Contact == 0:
			outcomes[i].Err = queue.Permanent(fmt.Errorf("%w: %s task %d: contact_id is missing", queue.ErrInvalid, t.Kind, t.ID))
		default:
			asked[member.ID(t.Key)] = append(asked[member.ID(t.Key)], args.Contact)
		}
	}
	for user, list := range asked {
		// A removal counted twice would seem to leave too few members.
		asked[user] = slices.Compact(slices.Sorted(slices.Values(list)))
	}
	contactsOf := func(u index.Update) []member.ID { return asked[u.Member] }
	plan := func(ctx context.Context, updates []index.Update) ([]index.Change, error) {
		return work(h).plan(ctx, updates, contactsOf, h.conclude, h.readsRefill)
	}
	failed := guarded(ctx, h.Index, h.ConflictPause, slices.Sorted(maps.Keys(asked)), plan)
	for i, t := range batch {
		outcomes[i].Err = cmp.Or(outcomes[i].Err, failed[member.ID(t.Key)])
	}
	return outcomes
}

// conclude ends a change of asked contacts. Of the additions the lowest comes first: any contact may join a set below
// Min, but once higher contacts have filled it up to Min, a lower contact would be refused though there is room.
func (h PairHandler) conclude(c *index.Change) {
	slices.SortFunc(c.Add, func(a, b index.Entry) int { return cmp.Compare(a.Score, b.Score) })
	c.WithRefill = h.wantsRefill(*c)
}

// wantsRefill reports whether the change cannot be made from the asked contacts alone:
// there is no set yet, or it has foreign members; a score is to be lowered, and contacts
// whom it leaves behind have to come in; a removal would leave fewer than min members; or a
// contact lies outside a set that has room, so that only a refill finds the contacts that belong
// between.
func (h PairHandler) wantsRefill(c index.Change) bool {
	if !c.Known || c.Foreign || len(c.Correct) > 0 {
		return true
	}
	s, left, outside := h.Index.Settings(), len(c.Members), false
	for _, contact := range c.Remove {
		if c.Has(contact) {
			left--
		}
	}
	for _, e := range c.Add {
		outside = outside || !c.Has(e.Contact) && e.Score < c.Low()
	}
	removed := left < len(c.Members)
	return removed && left < s.Min || outside && left >= s.Min && left < s.Max
}

// readsRefill reports whether the change's refill is to be read. For a missing set
// that shall stay missing it stays empty: the change then only ends the updates
// that may be about to make the set from an older read.
func (h PairHandler) readsRefill(c index.Change) bool {
	return c.WithRefill && (c.Known || !h.ActiveOnly)
}

// plan makes sets agree with the rows of some contacts of each, by a statement for all. conclude ends each change;
// readsRefill reports whether the refill of a change is to be read.
func (w work) plan(
	ctx context.Context, updates []index.Update, contactsOf func(index.Update) []member.ID,
	conclude func(*index.Change), readsRefill func(index.Change) bool,
) ([]index.Change, error) {
	var pairs []contacts.Pair
	for _, u := range updates {
		for _, contact := range contactsOf(u) {
			pairs = append(pairs, contacts.Pair{User: u.Member, Contact: contact})
		}
	}
	now, err := w.Store.Relations(ctx, pairs)
	if err != nil {
		return nil, fmt.Errorf("look at %d contacts: %w", len(pairs), err)
	}
	changes := make([]index.Change, len(updates))
	for i, u := range updates {
		c := &changes[i]
		c.Update = u
		for _, contact := range contactsOf(u) {
			lastUpload, isContact := now[contacts.Pair{User: u.Member, Contact: contact}]
			score, isMember := u.Score(contact)
			switch {
			case !isContact, lastUpload == 0 && isMember: // it has nothing to show
				c.Remove = append(c.Remove, contact)
			case lastUpload < score: // an addition never lowers a score
				c.Correct = append(c.Correct, index.Correction{Contact: contact, Seen: score, Score: lastUpload})
			case lastUpload > 0:
				c.Add = append(c.Add, index.Entry{Contact: contact, Score: lastUpload})
			}
		}
		conclude(c)
	}
	return changes, addRefills(ctx, w.Store, w.Index.Settings().Max, changes, readsRefill)
}
