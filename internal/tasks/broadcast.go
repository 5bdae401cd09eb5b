package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/queue"
)

// Broadcast is the kind that makes a member a broadcast member whose fan-out has come to so many followers, and
// that carries its end through. BroadcastLook is the kind that looks once a day whether the member is to cease; it is always
// scheduled and changes no set, so that sets that are behind do not wait for it. Only activityd enqueues them.
//
//	               add                        remove
//	none ──────────────────────> broadcast ─────────────> leaving
//	 ^   a row with its last upload          leaving_at set   │
//	 └────────────────────────────────────────────────────────┘
//	   a whole fan-out, an hour, the row is deleted
//
// The uploads of a member that leaves go to its row and to the sets. A read takes the set first and asks MySQL after it: if it
// took the set before the whole fan-out, it finds the row, as no read takes an hour.
const (
	Broadcast     = "broadcast"
	BroadcastLook = "broadcast_look"
)

var broadcasting = kind{
	Name: Broadcast, Workers: queue.Workers{Queue: QueueFanOut, Count: 2, Batch: 4}, Changes: FollowerSets,
	DedupeKey: func(of uint64, payload json.RawMessage) (string, error) {
		args, err := decode[BroadcastArgs](payload)
		return fmt.Sprintf("broadcast:%d:%d:%d:%t", of, args.Leaving, args.After, args.Done), err
	},
	Handler: newBroadcastHandler,
}

var broadcastLook = kind{
	Name: BroadcastLook, Workers: broadcasting.Workers,
	DedupeKey: func(of uint64, _ json.RawMessage) (string, error) { return fmt.Sprintf("broadcast_look:%d", of), nil },
	Handler:   newBroadcastHandler,
}

// BroadcastArgs are the payload of broadcast.
type BroadcastArgs struct {
	Leaving int64     `json:"leaving,omitzero"` // since when the member leaves, as in its row; 0: it has so many followers that it is to join
	After   member.ID `json:"after,omitzero"`   // the followers up to this id have the last upload
	Done    bool      `json:"done,omitzero"`    // all followers have it; an hour later the row is deleted
}

const (
	lookEvery = 24 * time.Hour
	// keepRow is for how long a row is kept after the fan-out of a member that leaves: longer than any read takes.
	keepRow = time.Hour
)

// NewLeaving returns the task that fans out a broadcast member that leaves.
func NewLeaving(b contacts.Broadcast) queue.New {
	return broadcasting.task(b.ID, BroadcastArgs{Leaving: b.Leaving})
}

func newBroadcastHandler(w work) queue.Handler {
	return BroadcastHandler{UploadHandler(w)}
}

// BroadcastHandler handles broadcast and broadcast_look. Each step may be repeated.
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

func (h BroadcastHandler) carryOn(ctx context.Context, kind string, id member.ID, args BroadcastArgs) ([]queue.New, error) {
	if kind == Broadcast && args.Leaving == 0 {
		return h.join(ctx, id)
	}
	rows, err := h.Store.Broadcasts(ctx, []member.ID{id})
	b, isBroadcast := rows[id]
	switch {
	case err != nil || !isBroadcast:
		return nil, err
	case kind == BroadcastLook:
		return h.look(ctx, b)
	case b.Leaving != args.Leaving: // it was taken back
		return nil, nil
	case args.Done:
		return nil, h.Store.DeleteBroadcast(ctx, id, args.Leaving)
	}
	return h.fanOut(ctx, id, args)
}

// join makes the row of a member whose fan-out has come to so many followers. Where there are too many rows, the member is
// fanned out as before.
func (h BroadcastHandler) join(ctx context.Context, id member.ID) ([]queue.New, error) {
	err := h.Store.AddBroadcast(ctx, id, false)
	if errors.Is(err, contacts.ErrTooManyBroadcasts) || errors.Is(err, contacts.ErrNoMember) {
		return nil, nil
	}
	return []queue.New{lookLater(id)}, err
}

func lookLater(id member.ID) queue.New {
	n := broadcastLook.task(id, struct{}{})
	n.Delay = lookEvery
	return n
}

// look has a broadcast member leave that no operator named and that has lost half of the followers that it joined with;
// with BroadcastAt 0, however many it has.
func (h BroadcastHandler) look(ctx context.Context, b contacts.Broadcast) ([]queue.New, error) {
	members, err := h.Store.LastUploads(ctx, []member.ID{b.ID})
	if b.Named || err != nil {
		return nil, err
	}
	if _, isMember := members[b.ID]; isMember && b.Leaving == 0 && h.BroadcastAt > 0 {
		if many, err := h.Store.HasFollowers(ctx, b.ID, h.BroadcastAt/2); many || err != nil {
			return []queue.New{lookLater(b.ID)}, err
		}
	}
	b, err = h.Store.LeaveBroadcast(ctx, b.ID)
	if errors.Is(err, contacts.ErrNoBroadcast) {
		return nil, nil
	}
	return []queue.New{NewLeaving(b), lookLater(b.ID)}, err // the next look finds the fan-out done, or repeats it
}

// fanOut writes the last upload to the sets of a page of followers, and returns the task that comes after it. A page
// is done when all sets that are there have the upload: it waits for a node that is away.
func (h BroadcastHandler) fanOut(ctx context.Context, id member.ID, args BroadcastArgs) ([]queue.New, error) {
	p := &page{Task: queue.Task{Key: uint64(id)}, PartArgs: PartArgs{After: args.After}}
	// It reads the last upload first: a later upload has a task, which finds the member leaving.
	h.write(ctx, []*page{p})
	switch {
	case p.err != nil:
		return nil, p.err
	case len(p.away) > 0:
		return nil, fmt.Errorf("%d nodes of the followers of %s: %w", len(p.away), id, index.ErrUnavailable)
	}
	args.After, args.Done = p.last, p.last == 0
	n := broadcasting.task(id, args)
	if args.Done {
		n.Delay = keepRow
	}
	return []queue.New{n}, nil
}
