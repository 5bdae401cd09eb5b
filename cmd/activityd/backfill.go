package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/health"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// memberRange is the members from first to last, both included.
type memberRange struct{ first, last member.ID }

// allMembers is the range of all members.
var allMembers = memberRange{1, math.MaxUint64}

// rangeUse is how the commands name the members; maxRate bounds their --rate.
const (
	rangeUse = "[MEMBER | FROM-[TO]]"
	maxRate  = 1_000_000
)

// parseRange parses a member, a range of members, or nothing for all.
func parseRange(args []string) (r memberRange, err error) {
	if len(args) == 0 {
		return allMembers, nil
	}
	from, to, isRange := strings.Cut(args[0], "-")
	r.first, err = member.Parse(from)
	switch {
	case !isRange:
		r.last = r.first
	case to == "":
		r.last = allMembers.last
	default:
		var wrong error
		r.last, wrong = member.Parse(to)
		err = cmp.Or(err, wrong)
	}
	if err == nil && r.last < r.first {
		err = fmt.Errorf("%s ends before it begins", args[0])
	}
	if err != nil {
		return memberRange{}, fmt.Errorf("MEMBER or FROM-TO: %w", err)
	}
	return r, nil
}

// String returns the range as [parseRange] reads it.
func (r memberRange) String() string {
	if r.last == allMembers.last {
		return r.first.String() + "-"
	}
	return r.first.String() + "-" + r.last.String()
}

// checkNone returns an error for a range without members. A site may have none yet.
func (r memberRange) checkNone() error {
	if r == allMembers {
		return nil
	}
	return fmt.Errorf("%w from %s to %s", contacts.ErrNoMember, r.first, r.last)
}

// backfill is the command of that name.
type backfill struct {
	*backend
	*progress

	existing, cancel bool
	rate             int
	members          memberRange
}

func newBackfill() *cobra.Command {
	c, b := &config{}, &backfill{}
	cmd := &cobra.Command{
		Use:   "backfill " + rangeUse,
		Short: "Build the sets of all members, or of some",
		Long: "Build the missing sets of all members, or of some, beside the live traffic. It enqueues ranges of members,\n" +
			"and works on them beside the workers of other processes. An interrupt leaves it to these; the same command\n" +
			"without a range joins it again, on any host. While MySQL or Redis is away it waits. A member that fails gets\n" +
			"a refill of its own. docs/operate.md says more.\n" +
			"Exit codes: 0 it is done; 1 it is not, or not for all members.",
		Example: "  activityd backfill\n  activityd backfill 1000000-1999999 --rate 2000\n  activityd backfill 4711 --existing",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if b.members, err = parseRange(args); err == nil && b.cancel && (len(args) > 0 || b.existing) {
				err = errors.New("--cancel: takes no members: it ends the backfill that is under way")
			}
			if c.materialize == materializeActive && !b.existing && !b.cancel {
				err = errors.Join(err, errors.New("--materialize=active: missing sets are built as members read, and not before: "+
					"want --existing, to refill those that are there"))
			}
			if err := errors.Join(err, within("rate", b.rate, 0, maxRate)); err != nil {
				return err
			}
			b.progress = &progress{w: cmd.ErrOrStderr()}
			return withBackend(cmd, c, b.progress, func(ctx context.Context, servers *backend) error {
				b.backend = servers
				defer runWake(ctx, b.wake, b)()
				return b.run(ctx, cmd)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&b.existing, "existing", false, "refill sets that are there, too")
	f.BoolVar(&b.cancel, "cancel", false, "end the backfill that is under way")
	f.IntVar(&b.rate, "rate", 0, "max members a second; 0: as many as the servers can do")
	c.backendFlags(f)
	return cmd
}

// run begins the backfill, joins it, or ends it.
func (b *backfill) run(ctx context.Context, cmd *cobra.Command) error {
	under, err := b.ranges(ctx)
	switch isUnder := !through(under); {
	case err != nil:
		return err
	case b.cancel && !isUnder:
		return errors.New("--cancel: no backfill is under way")
	case b.cancel:
		return b.end(ctx)
	case isUnder && (b.members != allMembers || b.existing):
		return fmt.Errorf("a backfill is under way since %s: see it with `activityd backfill`, or end it with `activityd backfill --cancel`",
			under[0].Began.Local().Format(time.DateTime))
	case isUnder:
		b.say("joined the backfill that began at %s", under[0].Began.Local().Format(time.DateTime))
	default:
		list, err := tasks.NewRefillRanges(ctx, b.store, b.members.first, b.members.last, b.existing, b.rate)
		if err == nil && len(list) == 0 {
			err = b.members.checkNone()
		}
		if err == nil && len(list) > 0 {
			if _, err = b.queue.Enqueue(ctx, list); err == nil {
				under, err = b.ranges(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
	done := backfilled{}
	done.see(under)
	err = b.work(ctx, &done)
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %s are done; what is left waits for workers: the same command joins it, and --cancel ends it", errSignalled, &done)
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), &done); err != nil || done.failed == 0 {
		return err
	}
	return fmt.Errorf("%d members failed, the last was %s; refills of their own try again: activityd tasks list --type refill; "+
		"a page that was given up: --type refill_range", done.failed, done.last)
}

// ranges returns the ranges of the last backfill, for two seconds also when they are at their end.
func (b *backfill) ranges(ctx context.Context) ([]tasks.RangeArgs, error) {
	list, err := tasks.UnfinishedRanges(ctx, b.queue, tasks.RefillRange)
	var last time.Time
	for _, r := range list {
		if r.Began.After(last) {
			last = r.Began
		}
	}
	return slices.DeleteFunc(list, func(r tasks.RangeArgs) bool { return !r.Began.Equal(last) }), err
}

// through reports that all ranges are at their end.
func through(ranges []tasks.RangeArgs) bool {
	return !slices.ContainsFunc(ranges, func(r tasks.RangeArgs) bool { return !r.AtEnd() })
}

// work works on the ranges beside the workers of the service, and shows how far they are, until they are at their end or ctx ends.
func (b *backfill) work(ctx context.Context, done *backfilled) error {
	o := b.config.poolOptions()
	o.Workers = slices.DeleteFunc(o.Workers, func(w queue.Workers) bool { return w.Queue != tasks.QueueBackfill })
	o.Log, o.Away = b.log, health.Waits
	pool := queue.NewPool(b.queue, tasks.Handlers(b.index, b.store, b.queue, b.handlerOptions()), o)
	working, stop := context.WithCancel(ctx)
	defer stop()
	group, working := errgroup.WithContext(working)
	group.Go(func() error { return b.watchRedis(working) })
	group.Go(func() error { return pool.Run(working) })
	err := b.watch(working, done)
	stop()
	return errors.Join(err, group.Wait())
}

// watchEvery is how often the queue is asked how far the ranges are.
const watchEvery = 300 * time.Millisecond

// watch shows how far the ranges are until they are at their end, or ctx ends. That is no error. While MySQL is away it
// waits.
func (b *backfill) watch(ctx context.Context, done *backfilled) error {
	held := outage.Of(b.log, "held up, trying again", "going on")
	for ; ctx.Err() == nil && !through(slices.Collect(maps.Values(done.ranges))); _ = retry.Sleep(ctx, watchEvery) {
		asked := time.Now()
		ranges, err := b.ranges(ctx)
		if err != nil && !tasks.IsOfAll(err) {
			return err
		}
		if held.Report(ctx, asked, err); err != nil {
			continue
		}
		if len(ranges) == 0 {
			return fmt.Errorf("the backfill was cancelled, or ended while this process stood still: %s are known to be done; "+
				"`activityd backfill` builds the rest", done)
		}
		done.see(ranges)
		note := ""
		if done.failed > 0 {
			note = fmt.Sprintf("; %d failed, the last was %s", done.failed, done.last)
		}
		if paused, _ := b.queue.Paused(ctx); slices.Contains(paused, tasks.QueueBackfill) { // if that is not known, it is not said
			note += "; paused: activityd tasks resume " + tasks.QueueBackfill
		}
		b.moved(done.done, done.all, note)
	}
	return nil
}

// backfilled is how far a backfill is, as the queue tells it.
type backfilled struct {
	ranges            map[member.ID]tasks.RangeArgs // by their ends, as they were seen last: those at their end are gone soon
	all, done, failed int64
	last              string // of the members that failed, with its error
	took              time.Duration
}

// see takes in the ranges that there are.
func (d *backfilled) see(ranges []tasks.RangeArgs) {
	if d.ranges == nil {
		d.ranges = make(map[member.ID]tasks.RangeArgs)
	}
	for _, r := range ranges {
		d.ranges[r.To], d.all, d.took = r, r.All, time.Since(r.Began)
	}
	d.done, d.failed = d.all, 0
	for _, r := range d.ranges {
		d.failed, d.last = d.failed+r.Failed, cmp.Or(r.Last, d.last)
		if !r.AtEnd() {
			d.done -= max(0, r.Total-r.Seen)
		}
	}
}

// String is the summary.
func (d *backfilled) String() string {
	return fmt.Sprintf("%d of %d members in %s, %.0f a second", d.done, d.all, d.took.Round(100*time.Millisecond), float64(d.done)/max(d.took.Seconds(), 0.001))
}

// end ends the backfill that is under way. While its queue is paused no range goes on.
func (b *backfill) end(ctx context.Context) error {
	changed, err := b.queue.Pause(ctx, tasks.QueueBackfill)
	if err != nil {
		return err
	}
	match := queue.Filter{Queues: []string{tasks.QueueBackfill}, Kinds: []string{tasks.RefillRange}, States: []queue.State{queue.Waiting, queue.Scheduled}}
	for left := 1; left > 0 && err == nil; err = cmp.Or(err, retry.Sleep(ctx, watchEvery)) {
		var list []tasks.RangeArgs
		if _, err = b.queue.Discard(ctx, match, 1000); err == nil {
			list, err = b.ranges(ctx)
		}
		left = len(list)
	}
	if changed {
		_, resumed := b.queue.Resume(context.WithoutCancel(ctx), tasks.QueueBackfill)
		err = errors.Join(err, resumed)
	}
	if err == nil {
		b.say("the backfill is cancelled; what is built stays")
	}
	return err
}
