package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/queue"
)

// The kinds that go over many members. A task does some hundred members, and its follow-up goes on behind them:
// a chain. The chains of refill_range build the sets of a range, several at a time; the chain of check_range is
// the sweep of package check.
const (
	RefillRange = "refill_range"
	CheckRange  = "check_range"
)

var (
	refillRange = kind{
		Name: RefillRange, Workers: queue.Workers{Queue: QueueBackfill, Count: 3}, NeedsSets: true,
		DedupeKey: func(_ uint64, payload json.RawMessage) (string, error) {
			a, err := decode[RangeArgs](payload)
			return fmt.Sprintf("refill_range:%d-%d,%t", a.After, a.To, a.Existing), err
		},
		Handler: func(w work) queue.Handler {
			return &RefillRangeHandler{
				Refiller: RefillHandler{Index: w.Index, Store: w.Store, ConflictPause: w.ConflictPause},
				Members:  w.Store, ActiveOnly: w.ActiveOnly, Read: w.Read, Log: cmp.Or(w.Log, slog.Default()),
			}
		},
	}
	checkRange = kind{
		Name: CheckRange, Workers: queue.Workers{Queue: QueueCheck, Count: 1}, NeedsSets: true,
		// All are the same work: two sweeps merge as soon as both wait.
		DedupeKey: func(_ uint64, payload json.RawMessage) (string, error) {
			_, err := decode[RangeArgs](payload)
			return CheckRange, err
		},
		Handler: func(w work) queue.Handler {
			if w.Check == nil {
				return noHandler{CheckRange}
			}
			return w.Check
		},
	}
)

// RangeArgs are the payload of refill_range and check_range: the rest of a range, and how far the chain is.
type RangeArgs struct {
	After    member.ID `json:"after,omitzero"` // the members up to it are done
	To       member.ID `json:"to,omitzero"`    // the last member; 0: there is no bound
	Existing bool      `json:"existing,omitzero"`
	Rate     int       `json:"rate,omitzero"` // members a second; 0: as many as the servers bear

	Began  time.Time `json:"began,omitzero"`
	Ended  time.Time `json:"ended,omitzero"`  // of the sweep: when the round before ended
	All    int64     `json:"all,omitzero"`    // members of all ranges that were enqueued together
	Total  int64     `json:"total,omitzero"`  // members of this range
	Seen   int64     `json:"seen,omitzero"`   // members that are done
	Failed int64     `json:"failed,omitzero"` // members that got a refill of their own, as they failed
	Last   string    `json:"last,omitzero"`   // of the members that failed, the last with its error
}

// AtEnd reports that all of a range is done. Such a task only tells those who watch; it goes away after two seconds.
func (a RangeArgs) AtEnd() bool { return a.To > 0 && a.After >= a.To }

// NewCheckRange is the first task of the sweep, or its next task.
func NewCheckRange(a RangeArgs) queue.New { return checkRange.task(0, a) }

// Members lists members; [contacts.MySQL] does.
type Members interface {
	Members(ctx context.Context, after member.ID, limit int) ([]member.ID, error)
	CountMembers(ctx context.Context, first, last member.ID) (n int64, lowest, highest member.ID, err error)
}

// Unfinished are the states of tasks that are to be done.
var Unfinished = []queue.State{queue.Waiting, queue.Scheduled, queue.Running}

// lister lists tasks; [queue.Queue] does.
type lister interface {
	List(ctx context.Context, match queue.Filter, limit int) ([]queue.Record, error)
}

// UnfinishedRanges returns the unfinished ranges of a kind, 100 at most.
func UnfinishedRanges(ctx context.Context, q lister, kind string) ([]RangeArgs, error) {
	queues := []string{QueueBackfill}
	if kind == CheckRange {
		queues = []string{QueueCheck}
	}
	list, err := q.List(ctx, queue.Filter{Queues: queues, Kinds: []string{kind}, States: Unfinished}, 100)
	if err != nil {
		return nil, fmt.Errorf("list the tasks of %s: %w", kind, err)
	}
	ranges := make([]RangeArgs, 0, len(list))
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
	someRange = 8   // chains at least, of a large range
	chainRate = 500 // members a second for which a chain more is worth it
	endShown  = 2 * time.Second
)

// NewRefillRanges returns the chains that build the sets of the members from first to last, at a rate in all.
// Sets that are there are left alone unless existing is set. It returns none where there are no members.
func NewRefillRanges(ctx context.Context, members Members, first, last member.ID, existing bool, rate int) ([]queue.New, error) {
	all, lowest, highest, err := members.CountMembers(ctx, first, last)
	if err != nil || all == 0 {
		return nil, err
	}
	chains := int64(someRange)
	if rate > 0 {
		chains = min(chains, int64(1+rate/chainRate))
	}
	ranges, err := divide(ctx, members, RangeArgs{After: lowest - 1, To: highest, Total: all}, max(all/chains, 2*rangeSize))
	if err != nil {
		return nil, err
	}
	began, list := time.Now().UTC(), make([]queue.New, len(ranges))
	for i, a := range ranges {
		a.Existing, a.Began, a.All = existing, began, all
		if rate > 0 {
			a.Rate = max(1, rate/len(ranges))
		}
		list[i] = refillRange.task(0, a)
	}
	return list, nil
}

// divide divides a range until none has more than so many members. It halves the ids between the first member and
// the last, as ids may have wide gaps. No range is without members.
func divide(ctx context.Context, members Members, a RangeArgs, most int64) ([]RangeArgs, error) {
	if a.Total <= most {
		return []RangeArgs{a}, nil
	}
	middle := a.After + (a.To-a.After)/2
	var all []RangeArgs
	for _, half := range [][2]member.ID{{a.After + 1, middle}, {middle + 1, a.To}} {
		total, lowest, highest, err := members.CountMembers(ctx, half[0], half[1])
		if err != nil {
			return nil, err
		}
		if total == 0 {
			continue
		}
		some, err := divide(ctx, members, RangeArgs{After: lowest - 1, To: highest, Total: total}, most)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// PageOf returns the next members of a range, limit at most, and how the range goes on behind them: more is
// false at its end.
func PageOf(ctx context.Context, members Members, a RangeArgs, limit int) (page []member.ID, next RangeArgs, more bool, err error) {
	page, err = members.Members(ctx, a.After, limit)
	full := len(page) == limit
	if a.To > 0 {
		page = slices.DeleteFunc(page, func(id member.ID) bool { return id > a.To })
	}
	next = a
	if len(page) > 0 {
		next.After, next.Seen = page[len(page)-1], a.Seen+int64(len(page))
	}
	return page, next, full && (a.To == 0 || next.After < a.To) && len(page) > 0, err
}

// RefillRangeHandler handles refill_range. A member at which something fails gets a refill of its own: the
// queue tries it again, and keeps it with its error when it is dead. The chain goes on, to a task that is [RangeArgs.AtEnd].
// While the servers cannot be used, the page comes again. It yields to reads, see yield.
type RefillRangeHandler struct {
	Refiller RefillHandler
	Members  Members
	// ActiveOnly leaves missing sets missing until their user's next read.
	ActiveOnly bool
	// Read reads as the service does, for the time that it takes; nil: the chain yields to nothing.
	Read func(ctx context.Context, viewer member.ID) error
	Log  *slog.Logger
}

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
	page, next, more, err := PageOf(ctx, h.Members, args, limit)
	if err != nil {
		return queue.Outcome{Err: err}
	}
	failed, err := h.refill(ctx, page, args.Existing)
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
	var delay time.Duration
	if args.Rate > 0 {
		delay = time.Duration(len(page)) * time.Second / time.Duration(args.Rate)
	}
	if !more {
		next.After, delay = args.To, endShown
	}
	n := refillRange.task(0, next)
	n.DedupeKey, n.Delay = "", delay // nothing repeats it
	o.Next = append(o.Next, n)
	if err == nil && len(page) > 0 {
		h.yield(ctx, page[0])
	}
	return o
}

// refill builds the sets of some members. It returns the errors of the members at whom it failed, or the error that
// concerns them all.
func (h RefillRangeHandler) refill(ctx context.Context, page []member.ID, existing bool) (failed map[member.ID]error, err error) {
	wanted, err := h.choose(ctx, page, existing)
	if err != nil || len(wanted) == 0 {
		return nil, err
	}
	found, failed := h.Refiller.Refill(ctx, wanted)
	if len(failed) == len(wanted) && ofAll(failed) == nil { // a member spoils the statement for all
		clear(failed)
		for _, id := range wanted {
			one, bad := h.Refiller.Refill(ctx, []member.ID{id})
			maps.Copy(found, one)
			maps.Copy(failed, bad)
		}
	}
	if err := ofAll(failed); err != nil {
		return nil, err
	}
	if len(failed) == len(wanted) { // it is none of theirs
		return nil, failed[wanted[0]]
	}
	for _, id := range wanted {
		switch {
		case failed[id] != nil:
			backfilled.WithLabelValues("failed").Inc()
		case found[id] == 0:
			backfilled.WithLabelValues("empty").Inc()
		default:
			backfilled.WithLabelValues("built").Inc()
		}
	}
	return failed, nil
}

// ofAll returns an error that is no member's own, if there is one.
func ofAll(failed map[member.ID]error) error {
	for _, err := range failed {
		if IsOfAll(err) {
			return err
		}
	}
	return nil
}

// IsOfAll reports whether an error is no member's own: that of a server, of the settings or of a context.
func IsOfAll(err error) bool {
	for _, of := range []error{mysql.ErrUnavailable, index.ErrUnavailable, index.ErrUnknown, index.ErrSettings, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// choose returns the members whose sets are to be built. A key that activityd did not write is replaced.
func (h RefillRangeHandler) choose(ctx context.Context, page []member.ID, existing bool) (wanted []member.ID, err error) {
	if existing && !h.ActiveOnly {
		return page, nil
	}
	for _, set := range h.Refiller.Index.Look(ctx, page) {
		switch {
		case set.Err != nil:
			return nil, set.Err
		case !set.Known && h.ActiveOnly, set.Known && set.Foreign == 0 && !existing:
			backfilled.WithLabelValues("skipped").Inc()
		default:
			wanted = append(wanted, set.Member)
		}
	}
	return wanted, nil
}

// Where a read takes slowRead or more, members wait, too. The chain then rests for restFactor times as long,
// up to maxRest.
const (
	slowRead   = 8 * time.Millisecond
	restFactor = 20
	maxRest    = 3 * time.Second
)

// yield reads as a member does, and rests where that is slow. It keeps the worker, so that no chain goes on
// instead.
func (h RefillRangeHandler) yield(ctx context.Context, viewer member.ID) {
	if h.Read == nil {
		return
	}
	start := time.Now()
	_ = h.Read(ctx, viewer) // how long it takes counts, whatever it finds
	if took := time.Since(start); took >= slowRead {
		backfillRests.Inc()
		_ = retry.Sleep(ctx, min(restFactor*took, maxRest)) // the page is done
	}
}
