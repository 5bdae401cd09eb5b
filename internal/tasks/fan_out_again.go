package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/queue"
)

// FanOutAgain is the kind that does a page of a fan-out again, because some of its sets could not be written to. Only
// activityd enqueues it. To add an upload twice changes nothing, so all sets of the page are written to.
//
// It is no fan-out under way: a later upload of the member need not wait for a node that may be away for hours.
const FanOutAgain = "fan_out_again"

var fanOutAgain = kind{
	Name: FanOutAgain, Workers: queue.Workers{Queue: QueueFanOutAgain, Count: 1, Batch: 100}, Changes: FollowerSets,
	DedupeKey: func(of uint64, payload json.RawMessage) (string, error) {
		args, err := decode[PartArgs](payload)
		key := []string{FanOutAgain, strconv.FormatUint(of, 10), args.After.String(), args.To.String()}
		for _, user := range args.For {
			key = append(key, user.String())
		}
		return strings.Join(key, ":"), err
	},
	Handler: newUploadHandler, Group: "uploads",
}

const (
	// againPause is how long a page is left alone at first. Until then, further uploads add nothing to do.
	againPause = 500 * time.Millisecond
	// awayPause is how long a page is left alone while its nodes are away. It is shorter than a node
	// that is back counts as behind.
	awayPause = 3 * time.Second
	// maxFor bounds the names of nodes in a dedupe key.
	maxFor = 2
)

// awayWait is how long a batch waits for the nodes of its pages, so that a long outage costs the queue little.
var awayWait = time.Second

// again is the task that does a page again once the node of a set of it can be used. The page ends with
// the follower to; 0: it is all that is left of the fan-out.
func (p *part) again(ix Index, at place, to member.ID, failed []member.ID) queue.New {
	byNode := make(map[string]member.ID)
	for _, user := range failed {
		node, _ := ix.NodeOf(user)
		if first, ok := byNode[node]; !ok || user < first {
			byNode[node] = user
		}
	}
	users := slices.Sorted(maps.Values(byNode))
	n := fanOutAgain.task(at.Of, PartArgs{After: at.After, To: to, For: users[:min(len(users), maxFor)], Since: p.since})
	n.Delay = retry.Jitter(againPause)
	return n
}

// postpone leaves each task whose nodes are all away to a later one, and returns the places of these tasks. The later one is new, so
// that it has its dedupe key: of a page at most one task waits, however many uploads come. While all of the batch
// has to wait, it waits a moment.
func (h UploadHandler) postpone(ctx context.Context, batch []queue.Task, all []queue.Outcome) map[int]bool {
	for began := time.Now(); ; {
		away := make(map[int]bool)
		for i, t := range batch {
			if args, bad := ArgsOf[PartArgs](t); bad == nil && h.areAway(args.For) {
				away[i] = true
			}
		}
		if len(away) == len(batch) && time.Since(began) < awayWait && retry.Sleep(ctx, awayWait/10) == nil {
			continue
		}
		for i := range away {
			n := queue.New{Kind: batch[i].Kind, Key: batch[i].Key, Payload: batch[i].Payload, Queue: QueueFanOutAgain, Delay: retry.Jitter(awayPause)}
			n.DedupeKey, _ = fanOutAgain.DedupeKey(n.Key, n.Payload) // it was decoded above
			all[i].Next = []queue.New{n}
		}
		return away
	}
}

// areAway reports whether the sets of none of some users can be written to.
func (h UploadHandler) areAway(users []member.ID) bool {
	return len(users) > 0 && !slices.ContainsFunc(users, func(user member.ID) bool {
		_, isUsable := h.Index.NodeOf(user)
		return isUsable
	})
}

// partKey is the dedupe key of a part of a fan-out: "fan_out:7:9" is the part of all
// followers of 7 above 9.
func partKey(of uint64, args PartArgs) string {
	return fmt.Sprintf("%s:%d:%s", FanOut, of, args.After)
}
