package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/queue"
)

// Broadcast is the kind that carries a change of the state of a broadcast member through, and has members join by themselves.
// BroadcastLook is the kind that has them leave, and is always scheduled for those: it changes no set itself, so that sets that are
// behind do not wait for it. Only activityd enqueues them. Package broadcast has the states.
const (
	Broadcast     = "broadcast"
	BroadcastLook = "broadcast_look"
)

var broadcasting = kind{
	Name: Broadcast, Workers: queue.Workers{Queue: QueueFanOut, Count: 2, Batch: 4}, Changes: FollowerSets,
	DedupeKey: func(of uint64, payload json.RawMessage) (string, error) {
		args, err := decode[BroadcastArgs](payload)
		return fmt.Sprintf("broadcast:%d:%d:%d:%t", of, args.Change, args.After, args.Settled), err
	},
	Handler: newBroadcastHandler,
}

var broadcastLook = kind{
	Name: BroadcastLook, Workers: broadcasting.Workers,
	DedupeKey: func(of uint64, payload json.RawMessage) (string, error) {
		args, err := decode[BroadcastArgs](payload)
		return fmt.Sprintf("broadcast_look:%d:%d", of, args.Change), err
	},
	Handler: newBroadcastHandler,
}

// BroadcastArgs are the payload of broadcast, and of broadcast_look, which has only the change.
type BroadcastArgs struct {
	Change  uint64    `json:"change,omitzero"`  // what is carried through; a later one ends it; 0: the member has so many followers that it is to join
	After   member.ID `json:"after,omitzero"`   // leaving: the followers up to this id have the last upload
	Settled bool      `json:"settled,omitzero"` // the time of settling is over
}

// Settling is for how long a row is there before its member's uploads are fanned out no more, and after the
// fan-out that comes before its end. See package broadcast.
const Settling = 4 * time.Second

// lookEvery is how often a broadcast member that no operator has named is looked at.
const lookEvery = 24 * time.Hour

// NewBroadcast returns the tasks of a change of a broadcast member's state, which joins or else leaves.
func NewBroadcast(of member.ID, change uint64, joins bool) []queue.New {
	list := []queue.New{broadcasting.task(of, BroadcastArgs{Change: change})}
	if joins {
		list = append(list, refillCopies()...)
	}
	return list
}

// settled returns the task that ends a change, after a while. What it waits for is committed when the task
// before it begins: so the time counts from then on, however long a transaction took.
func settled(of member.ID, args BroadcastArgs) []queue.New {
	args.Settled = true
	n := broadcasting.task(of, args)
	n.Delay = Settling
	return []queue.New{n}
}

// refillCopies returns the tasks that make the copies of the broadcast set like the table.
func refillCopies() (list []queue.New) {
	for _, id := range member.Copies {
		list = append(list, NewRefill(id))
	}
	return list
}

func newBroadcastHandler(w work) queue.Handler {
	return BroadcastHandler{UploadHandler{Index: w.Index, Store: w.Store, Queue: w.Queue, PartSize: w.PartSize, ActiveOnly: w.ActiveOnly, BroadcastAt: w.BroadcastAt}}
}

// BroadcastHandler handles broadcast and broadcast_look. A member that joins has its fan-out ended; one that leaves
// is fanned out to all its followers, page by page, and is then no broadcast member any more. A page is done when
// all sets of it that are there have the upload: it waits for a node that is away.
type BroadcastHandler struct{ UploadHandler }

// Handle implements [queue.Handler].
func (h BroadcastHandler) Handle(ctx context.Context, batch []queue.Task) []queue.Outcome {
	all := make([]queue.Outcome, len(batch))
	for i, t := range batch {
		args, err := ArgsOf[BroadcastArgs](t)
		if err == nil {
			all[i].Next, err = h.carryOn(ctx, t.Kind, member.ID(t.Key), args)
		}
		all[i].Err = err
	}
	return all
}

func (h BroadcastHandler) carryOn(ctx context.Context, kind string, id member.ID, args BroadcastArgs) (next []queue.New, err error) {
	rows, err := h.Store.Broadcasts(ctx, []member.ID{id})
	if err != nil {
		return nil, err
	}
	switch is := rows[id]; {
	case kind == BroadcastLook:
		return h.look(ctx, id, args.Change, is)
	case args.Change == 0:
		return h.join(ctx, id, is)
	case is.State == contacts.NoMember: // this task may have taken it away, and crashed
		return refillCopies(), nil
	case is.Change != args.Change:
		return nil, nil
	case is.State == contacts.Joining && !args.Settled:
		return settled(id, args), nil
	case is.State == contacts.Joining:
		return h.lookLater(id, is), h.Store.ChangeBroadcast(ctx, id, is, contacts.Broadcast{State: contacts.Joined, Change: is.Change})
	case is.State == contacts.Joined: // this task may have made it so, and crashed
		return h.lookLater(id, is), nil
	case args.Settled:
		return refillCopies(), h.Store.ChangeBroadcast(ctx, id, is, contacts.Broadcast{})
	}
	return h.fanOut(ctx, id, args)
}

// join makes a member join whose fan-out went to so many followers, unless it is a broadcast member. A repetition, after a crash, goes on
// with the change that it finds.
func (h BroadcastHandler) join(ctx context.Context, id member.ID, is contacts.Broadcast) ([]queue.New, error) {
	if is.State == contacts.NoMember {
		if err := h.Store.ChangeBroadcast(ctx, id, is, contacts.Broadcast{State: contacts.Joining, Change: contacts.NewChange()}); err != nil {
			return nil, err
		}
		rows, err := h.Store.Broadcasts(ctx, []member.ID{id})
		if err != nil {
			return nil, err
		}
		is = rows[id]
	}
	if is.State != contacts.Joining {
		return nil, nil
	}
	return NewBroadcast(id, is.Change, true), nil
}

// lookLater returns the next look at a broadcast member that no operator has named.
func (h BroadcastHandler) lookLater(id member.ID, is contacts.Broadcast) []queue.New {
	if is.Named {
		return nil
	}
	n := broadcastLook.task(id, BroadcastArgs{Change: is.Change})
	n.Delay = lookEvery
	return []queue.New{n}
}

// look has a broadcast member leave that has lost half of the followers that made it one; with BroadcastAt 0,
// however many it has. The number of that change is the one after its own: so a repetition, after a crash, finds
// what it has begun.
func (h BroadcastHandler) look(ctx context.Context, id member.ID, change uint64, is contacts.Broadcast) ([]queue.New, error) {
	leaving := contacts.Broadcast{State: contacts.Leaving, Change: change + 1, Named: is.Named}
	if is == leaving {
		return NewBroadcast(id, leaving.Change, false), nil
	}
	if is.State != contacts.Joined || is.Change != change || is.Named {
		return nil, nil
	}
	if h.BroadcastAt > 0 {
		if many, err := h.Store.HasFollowers(ctx, id, h.BroadcastAt/2); many || err != nil {
			return h.lookLater(id, is), err
		}
	}
	return NewBroadcast(id, leaving.Change, false), h.Store.ChangeBroadcast(ctx, id, is, leaving)
}

// fanOut writes the last upload to the sets of a part of the followers, and returns what comes after it.
func (h BroadcastHandler) fanOut(ctx context.Context, id member.ID, args BroadcastArgs) (next []queue.New, err error) {
	more := true
	for done := 0; more && done < h.PartSize; done += h.pageSize() {
		if args.After, more, err = h.page(ctx, id, args.After); err != nil {
			return nil, err
		}
	}
	if more {
		return []queue.New{broadcasting.task(id, args)}, nil
	}
	return settled(id, args), nil
}

// page writes to the sets of a page of followers above after. It returns the last of them, and whether there may be
// more.
func (h BroadcastHandler) page(ctx context.Context, id, after member.ID) (last member.ID, more bool, err error) {
	// The last upload first: one that comes later has a task, which finds the member leaving.
	uploads, err := h.Store.LastUploads(ctx, []member.ID{id})
	if err != nil || uploads[id] == 0 {
		return after, false, err
	}
	pages, err := h.Store.FollowerPages(ctx, []contacts.FollowerPage{{Of: id, After: after}}, h.pageSize())
	if err != nil {
		return after, false, fmt.Errorf("followers of %s: %w", id, err)
	}
	followers := pages[0]
	if len(followers) == 0 {
		return after, false, nil
	}
	additions := make([]index.Addition, len(followers))
	for i, user := range followers {
		additions[i] = index.Addition{Member: user, Entry: index.Entry{Contact: id, Score: uploads[id]}}
	}
	missing, failed := h.Index.Add(ctx, additions)
	for _, err := range failed {
		return after, false, err
	}
	if !h.ActiveOnly {
		if err := h.refill(ctx, missing); err != nil {
			return after, false, err
		}
	}
	return followers[len(followers)-1], len(followers) == h.pageSize(), nil
}
