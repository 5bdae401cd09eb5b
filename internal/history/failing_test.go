package history_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// failing is an index some of whose users fail in the calls of actors, each by itself, with
// the effect of the call or without.
type failing struct {
	sets
	stage *stage
}

func (x failing) fails(ctx context.Context, user member.ID) (written bool, err error) {
	if _, acts := ctx.Value(actorKey{}).(*actor); !acts || x.stage.fails == nil {
		return true, nil
	}
	if written, err = x.stage.fails(user); err != nil {
		x.stage.counted.failed++
		return written, err
	}
	return true, nil
}

func (x failing) Begin(ctx context.Context, users []member.ID) []index.Update {
	updates := make([]index.Update, len(users))
	for i, user := range users {
		written, err := x.fails(ctx, user)
		if written {
			updates[i] = x.sets.Begin(ctx, []member.ID{user})[0]
		}
		if err != nil {
			updates[i] = index.Update{Member: user, Err: err}
		}
	}
	return updates
}

func (x failing) Apply(ctx context.Context, changes []index.Change) []index.Result {
	results := make([]index.Result, len(changes))
	for i, c := range changes {
		written, err := x.fails(ctx, c.Member)
		if written {
			results[i] = x.sets.Apply(ctx, []index.Change{c})[0]
		}
		if err != nil {
			results[i] = index.Result{Err: err}
		}
	}
	return results
}

func (x failing) Add(ctx context.Context, additions []index.Addition) (missing []member.ID, failed map[member.ID]error) {
	failed = make(map[member.ID]error)
	for _, a := range additions {
		written, err := x.fails(ctx, a.Member)
		if written {
			absent, more := x.sets.Add(ctx, []index.Addition{a})
			maps.Copy(failed, more)
			if err == nil {
				missing = append(missing, absent...)
			}
		}
		if err != nil {
			failed[a.Member] = err
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing), failed
}

// NodeOf names the node of a set. That it cannot be used is found out by trying.
func (failing) NodeOf(user member.ID) (node string, isUsable bool) {
	return strconv.Itoa(nodeOf(user)), true
}

// The members' sets are on nodeCount nodes.
const nodeCount = 2

func nodeOf(user member.ID) int { return int(user) % nodeCount }

// outages are the failures of a history.
type outages struct {
	shaky int             // a call for a user fails with probability 1/shaky; 0: none fails
	out   [nodeCount]bool // nodes whose calls fail
}

// fail decides whether a call fails for a user.
func (h *history) fail(user member.ID) (written bool, err error) {
	if !h.out[nodeOf(user)] && (h.shaky == 0 || h.choose(h.shaky) < h.shaky-1) {
		return true, nil
	}
	written = h.choose(3) == 2
	h.logf("the set of %s fails, written: %v", user, written)
	return written, fmt.Errorf("set of %s: %w", user, index.ErrUnavailable)
}

// turnNode makes a node fail, or ends that.
func (h *history) turnNode() {
	n := h.choose(nodeCount)
	h.out[n] = !h.out[n]
	h.logf("node %d is out: %v", n, h.out[n])
}

// restoreNode restores each failed node with a probability of 1/5.
func (h *history) restoreNode() {
	for n, out := range h.out {
		if out && h.choose(50) < 10 {
			h.logf("node %d is back", n)
			h.out[n] = false
		}
	}
}
