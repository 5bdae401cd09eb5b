package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/queue"
)

// The kinds that go over many members. A task does some hundred members, and its follow-up goes on behind them: a
// chain. The chains of refill_range build the sets of a range, several at a time; the chain of check_range is the
// sweep of package check.
const (
	RefillRange = "refill_range"
	CheckRange  = "check_range"
)

var (
	refillRange = kind{
		Name: RefillRange, Workers: queue.Workers{Queue: QueueBackfill, Count: 3},
		DedupeKey: func(_ uint64, payload json.RawMessage) (string, error) {
			a, err := decode[RangeArgs](payload)
			return fmt.Sprintf("refill_range:%d-%d,%t", a.After, a.To, a.Existing), err
		},
		Handler: func(w work) queue.Handler { return RefillRangeHandler(w) },
	}
	checkRange = kind{
		Name: CheckRange, Workers: queue.Workers{Queue: QueueCheck, Count: 1},
		// All are the same work: two sweeps merge as soon as both wait.
		DedupeKey: func(_ uint64, payload json.RawMessage) (string, error) {
			_, err := decode[RangeArgs](payload)
			return CheckRange, err
		},
		Handler: func(w work) queue.Handler { return orNone(w.Check, CheckRange) },
	}
)

// RangeArgs are the payload of refill_range and check_range: the rest of a range, and how far the chain is.
type RangeArgs struct {
	After    member.ID `json:"after,omitzero"` // the members up to it are done
	To       member.ID `json:"to,omitzero"`    // the last member; 0: there is no bound
	Existing bool      `json:"existing,omitzero"`
	Rate     int       `json:"rate,omitzero"` // members a second; 0: as many as the servers bear

	Began  time.Time `json:"began,omitzero"`
	All    int64     `json:"all,omitzero"`    // members of all ranges that were enqueued together
	Total  int64     `json:"total,omitzero"`  // members of this range
	Seen   int64     `json:"seen,omitzero"`   // members that are done, or left to a range of their own
	Failed int64     `json:"failed,omitzero"` // members that got a refill of their own, as they failed
	Last   string    `json:"last,omitzero"`   // the last member that failed, with its error
}

// AtEnd reports that all of a range is done. The task of a range at its end only reports, for two seconds.
func (a RangeArgs) AtEnd() bool { return a.To > 0 && a.After >= a.To }

// Covers reports whether the range is to do a member still.
func (a RangeArgs) Covers(id member.ID) bool { return a.After < id && id <= a.To }

// NewCheckRange is the first task of the sweep, or its next task.
func NewCheckRange(a RangeArgs) queue.New { return checkRange.task(0, a) }

// UnfinishedRanges returns the unfinished ranges of a kind, maxRanges at most.
func UnfinishedRanges(ctx context.Context, q interface {
	List(ctx context.Context, match queue.Filter, limit int) ([]queue.Record, error)
}, kind string,
) (ranges []RangeArgs, err error) {
	list, err := q.List(ctx, queue.Filter{
		Queues: []string{QueueBackfill, QueueCheck}, Kinds: []string{kind}, States: []queue.State{queue.Waiting, queue.Scheduled, queue.Running},
	}, maxRanges)
	if err != nil {
		return nil, fmt.Errorf("list the tasks of %s: %w", kind, err)
	}
	for _, r := range list {
		if a, err := decode[RangeArgs](r.Payload); err == nil {
			ranges = append(ranges, a)
		}
	}
	return ranges, nil
}

// How a range is divided.
const (
	rangeSize = 500 // members of a task at most
	maxChains = 8
	chainRate = 500 // members a second for each chain
	maxRanges = 100 // that are listed
	endShown  = 2 * time.Second

	// Where a read takes slowRead or more, members wait, too. The chain then rests for restFactor times as long, up to
	// maxRest.
	slowRead   = 8 * time.Millisecond
	restFactor = 20
	maxRest    = 3 * time.Second
)

// NewRefillRanges returns the chains that build the sets of the members from first to last, at a rate in all.
// Sets that are there are left alone unless existing is set. It returns none where there are no members. The chains
// have as many members each, as ids may have wide gaps.
func NewRefillRanges(ctx context.Context, store Store, first, last member.ID, existing bool, rate int) (list []queue.New, err error) {
	all, err := store.CountMembers(ctx, first, last)
	if err != nil || all == 0 {
		return nil, err
	}
	chains := int64(maxChains)
	if rate > 0 {
		chains = min(chains, int64(1+rate/chainRate))
	}
	size := max((all+chains-1)/chains, 2*rangeSize)
	a := RangeArgs{To: first - 1, Existing: existing, Began: time.Now().UTC(), All: all}
	if rate > 0 {
		a.Rate = max(1, rate/int((all+size-1)/size))
	}
	for left := all; left > 0 && a.To < last; left -= size {
		a.After, a.Total, a.To = a.To, min(left, size), last
		if left > size {
			id, err := store.NthMember(ctx, a.After, size)
			if err != nil {
				return nil, err
			}
			a.To = cmp.Or(id, last)
		}
		list = append(list, refillRange.task(0, a))
	}
	return list, nil
}

// PageOf returns the next members of a range, limit at most, and how the range goes on behind them: more is
// false at its end.
func PageOf(ctx context.Context, store Store, a RangeArgs, limit int) (page []member.ID, next RangeArgs, more bool, err error) {
	page, err = store.Members(ctx, a.After, limit)
	more = len(page) == limit
	if n := len(page); a.To > 0 && n > 0 && page[n-1] >= a.To {
		more = false
		page = slices.DeleteFunc(page, func(id member.ID) bool { return id > a.To })
	}
	if n := len(page); n > 0 {
		a.After, a.Seen = page[n-1], a.Seen+int64(n)
	}
	return page, a, more, err
}

// RefillRangeHandler handles refill_range. A member that fails gets a refill of its own: the queue tries it again, and
// keeps it with its error when it is dead. The chain goes on, to a task that is [RangeArgs.AtEnd]. While a server that
// the page needs is away, the page comes again. It yields to reads, see yield.
type RefillRangeHandler work

// Handle implements [queue.Handler].
func (h RefillRangeHandler) Handle(ctx context.Context, batch []queue.Task) []queue.Outcome {
	all := make([]queue.Outcome, len(batch))
	for i, t := range batch {
		all[i] = h.do(ctx, t)
	}
	return all
}

func (h RefillRangeHandler) do(ctx context.Context, t queue.Task) (o queue.Outcome) {
	args, err := ArgsOf[RangeArgs](t)
	if err != nil || args.AtEnd() {
		return queue.Outcome{Err: err}
	}
	limit := rangeSize
	if args.Rate > 0 {
		limit = min(limit, max(1, 2*args.Rate)) // about two seconds
	}
	page, next, more, err := PageOf(ctx, h.Store, args, limit)
	if err != nil {
		return queue.Outcome{Err: err}
	}
	failed, err := h.build(ctx, page, args.Existing)
	if IsAway(err) {
		return queue.Outcome{Err: queue.Later(awayPause, err)}
	}
	for _, id := range slices.Sorted(maps.Keys(failed)) {
		next.Failed, next.Last = next.Failed+1, fmt.Sprintf("member %s: %.200v", id, failed[id])
		h.Log.WarnContext(ctx, "refill failed", "member", id.String(), "error", failed[id], "then", "it gets a task of its own")
		n := NewRefill(id)
		n.Priority = queue.Idle
		o.Next = append(o.Next, n)
	}
	if o.Err = err; err != nil { // it goes on if this page is given up in the end
		next.Failed, next.Last = next.Failed+int64(len(page)), fmt.Sprintf("of the page after member %s: %.200v", args.After, err)
	}
	delay := time.Duration(len(page)) * time.Second / time.Duration(max(1, args.Rate))
	switch {
	case !more:
		next.After, delay = args.To, endShown
	case args.Rate == 0:
		delay = 0
	}
	follow := refillRange.task(0, next)
	follow.DedupeKey, follow.Delay = "", delay // nothing repeats it
	o.Next = append(o.Next, follow)
	if err == nil && len(page) > 0 {
		h.yield(ctx, page[0])
	}
	return o
}

// build builds the sets of members: of a set that is there only with existing, or where its key is not activityd's. It
// returns the errors of single members, or the error that concerns the page: a node that is away before all, as the page
// then waits.
func (h RefillRangeHandler) build(ctx context.Context, page []member.ID, existing bool) (failed map[member.ID]error, err error) {
	var wanted []member.ID
	for _, set := range h.Index.Look(ctx, page) {
		switch {
		case set.Err != nil:
			return nil, set.Err
		case set.Known && (existing || set.Foreign > 0) || !set.Known && !h.ActiveOnly:
			wanted = append(wanted, set.Member)
		}
	}
	failed = RefillHandler(h).Refill(ctx, wanted)
	isOfPage := func(error) bool { return len(failed) == len(wanted) }
	for _, is := range []func(error) bool{IsAway, IsOfAll, isOfPage} {
		for _, err := range failed {
			if is(err) {
				return nil, err
			}
		}
	}
	backfilled.WithLabelValues("skipped").Add(float64(len(page) - len(wanted)))
	backfilled.WithLabelValues("built").Add(float64(len(wanted) - len(failed)))
	backfilled.WithLabelValues("failed").Add(float64(len(failed)))
	return failed, nil
}

// Apart does something for members, and, where that fails, for each of them alone: a member may have so many contacts
// that MySQL gives up. It returns the errors of single members. An error of a server, or an error that all members
// meet, is returned as err.
func Apart(members []member.ID, do func([]member.ID) error) (failed map[member.ID]error, err error) {
	if err = do(members); err == nil || len(members) <= 1 || IsOfAll(err) {
		return nil, err
	}
	failed = make(map[member.ID]error)
	for _, id := range members {
		if err = do([]member.ID{id}); IsOfAll(err) {
			return nil, err
		} else if err != nil {
			failed[id] = err
		}
	}
	if len(failed) == len(members) {
		return nil, err
	}
	return failed, nil
}

// IsAway reports whether an error says that the sets of a node of Redis cannot be used now.
func IsAway(err error) bool {
	return errors.Is(err, index.ErrUnavailable) || errors.Is(err, index.ErrUnknown)
}

// IsOfAll reports whether an error is that of a server, of the settings or of a context, and of no member.
func IsOfAll(err error) bool {
	return IsAway(err) || slices.ContainsFunc([]error{mysql.ErrUnavailable, index.ErrSettings, context.Canceled, context.DeadlineExceeded},
		func(of error) bool { return errors.Is(err, of) })
}

// yield reads as a member does, and rests where that is slow. It keeps the worker, so that no chain goes on
// instead.
func (h RefillRangeHandler) yield(ctx context.Context, viewer member.ID) {
	if h.Read == nil {
		return
	}
	start := time.Now()
	_ = h.Read(ctx, viewer) // only its duration counts
	if took := time.Since(start); took >= slowRead {
		_ = retry.Sleep(ctx, min(restFactor*took, maxRest)) // the page is done
	}
}
