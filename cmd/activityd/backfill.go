package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/redisnodes"
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
	rangeUse = "[MEMBER | FROM-TO]"
	maxRate  = 1_000_000
)

// parseRange parses a member, a range of members, or nothing for all.
func parseRange(args []string) (memberRange, error) {
	if len(args) == 0 {
		return allMembers, nil
	}
	from, to, isRange := strings.Cut(args[0], "-")
	if !isRange {
		to = from
	}
	first, err := member.Parse(from)
	last, err2 := member.Parse(to)
	if err = cmp.Or(err, err2); err == nil && last < first {
		err = fmt.Errorf("%s ends before it begins", args[0])
	}
	if err != nil {
		return memberRange{}, fmt.Errorf("MEMBER or FROM-TO: %w", err)
	}
	return memberRange{first, last}, nil
}

// checkNone returns an error for a range without members. A site may have none yet.
func (r memberRange) checkNone() error {
	switch {
	case r == allMembers:
		return nil
	case r.first == r.last:
		return noMember(r.first)
	}
	return fmt.Errorf("%w from %s to %s", contacts.ErrNoMember, r.first, r.last)
}

// backfill is the command of that name.
type backfill struct {
	backend
	*progress

	existing, cancel bool
	rate             int
	members          memberRange
	config           *config
	log              *slog.Logger
}

func newBackfill() *cobra.Command {
	b, interval := &backfill{config: &config{}}, time.Duration(0)
	cmd := &cobra.Command{
		Use:   "backfill " + rangeUse,
		Short: "Build the sets of all members, or of some",
		Long: "Build the sets of all members, or of some: for a Redis that is new or was emptied. Sets that\n" +
			"are there are left alone, unless --existing says otherwise. It may run beside the live traffic,\n" +
			"and goes slower while reads are slow.\n\n" +
			"It enqueues ranges of members, and works on them beside the workers of other processes. An\n" +
			"interrupt leaves it to these; the same command without a range joins it again, on any host, and\n" +
			"--cancel ends it. `activityd tasks pause backfill` pauses it. While MySQL or Redis is away it\n" +
			"waits. It may also be killed: a range is free again after the lease.\n\n" +
			"With ACTIVITYD_MATERIALIZE=active no missing set is built: they are built as members read.\n" +
			"--existing refills those that are there.\n\n" +
			"A member that fails gets a refill of its own, which is tried again, and is named.\n\n" +
			"Exit codes: 0 it is done; 1 it is not, or not for all members.",
		Example: "  activityd backfill\n" +
			"  activityd backfill 1000000-1999999 --rate 2000\n" +
			"  activityd backfill 4711 --existing",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			b.progress = newProgress(cmd.ErrOrStderr(), interval, "members")
			if b.members, err = parseRange(args); err == nil && b.cancel && (len(args) > 0 || b.existing) {
				err = errors.New("--cancel: takes no members: it ends the backfill that is under way")
			}
			if b.config.materialize == materializeActive && !b.existing && !b.cancel {
				err = errors.Join(err, fmt.Errorf("--materialize=%s: missing sets are built as members read, and not before: "+
					"want --existing, to refill those that are there", materializeActive))
			}
			if err := errors.Join(err, within("rate", b.rate, 0, maxRate), b.config.check(cmd.Flags())); err != nil {
				return err
			}
			return b.run(cmd)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&b.existing, "existing", false, "refill sets that are there, too")
	f.BoolVar(&b.cancel, "cancel", false, "end the backfill that is under way")
	f.IntVar(&b.rate, "rate", 0, "max members a second; 0: as many as the servers can do")
	progressFlag(f, &interval)
	b.config.lookFlags(f)
	return cmd
}

// run begins the backfill or joins it.
func (b *backfill) run(cmd *cobra.Command) (err error) {
	ctx := cmd.Context()
	b.log = newLogger(b.config, b)
	if b.backend, err = openBackend(b.config, b.log); err != nil {
		return err
	}
	defer func() { _ = b.closers.close() }() // each call's own error was checked
	if err := b.checkServers(ctx); err != nil {
		return err
	}
	defer runWake(ctx, b.wake, b)()
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
		if under, err = b.enqueue(ctx); err != nil {
			return err
		}
	}
	done, err := b.work(ctx, under)
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %s are done; what is left waits for workers: the same command joins it, and --cancel ends it", errSignalled, done)
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(cmd.OutOrStdout(), done); err != nil || done.failed == 0 {
		return err
	}
	return fmt.Errorf("%d members failed, the last was %s; refills of their own try again: activityd tasks list --type refill; "+
		"a page that was given up: --type refill_range", done.failed, done.last)
}

// checkServers refuses wrong tables, and sets of another database or of different settings. A Redis
// that is away is waited for.
func (b backend) checkServers(ctx context.Context) error {
	_, err := checkSchema(ctx, b.db, nil)
	if err == nil {
		err = b.id.read(ctx)
	}
	if err != nil {
		return advised(0, err)
	}
	if err := b.index.Check(ctx); isRefusal(err) {
		return namedRedis(err)
	}
	return nil
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

func (b *backfill) enqueue(ctx context.Context) ([]tasks.RangeArgs, error) {
	list, err := tasks.NewRefillRanges(ctx, b.store, b.members.first, b.members.last, b.existing, b.rate)
	if err != nil || len(list) == 0 {
		return nil, cmp.Or(err, b.members.checkNone())
	}
	if _, err = b.queue.Enqueue(ctx, list); err != nil {
		return nil, err
	}
	return b.ranges(ctx)
}

// work works on the ranges beside the workers of the service, and shows how far they are, until they are at their end or ctx ends.
func (b *backfill) work(ctx context.Context, under []tasks.RangeArgs) (done backfilled, err error) {
	nodes := health.NewRedis(b.redis, b.log)
	reads := recent.NewReader(b.index, b.store, noHints{}, b.config.readerOptions(b.index.Settings()))
	handlers := tasks.Handlers(b.index, b.store, b.queue, tasks.HandlerOptions{
		ActiveOnly: b.config.materialize == materializeActive, Log: b.log, Read: readOf(reads),
	})
	o := b.config.poolOptions()
	o.Workers = slices.DeleteFunc(o.Workers, func(w queue.Workers) bool { return w.Queue != tasks.QueueBackfill })
	o.Log, o.Away = b.log, health.Waits
	working, stop := context.WithCancel(ctx)
	defer stop()
	group, working := errgroup.WithContext(working)
	group.Go(func() error {
		return b.index.Watch(working, func(began time.Time, s redisnodes.Status) { nodes.Report(working, began, s) })
	})
	group.Go(func() error { return queue.NewPool(b.queue, handlers, o).Run(working) })
	done, err = b.watch(working, done.with(under))
	stop()
	return done, errors.Join(err, group.Wait())
}

// readOf returns a read for the time that it takes.
func readOf(r *recent.Reader) func(context.Context, member.ID) error {
	return func(ctx context.Context, id member.ID) error {
		_, err := r.Read(ctx, contacts.Viewer{ID: id}, defaultExplained)
		return err
	}
}

// watchEvery is how often the queue is asked how far the ranges are.
const watchEvery = 300 * time.Millisecond

// watch shows how far the ranges are until they are at their end, or ctx ends. That is no error. While MySQL is away it
// waits.
func (b *backfill) watch(ctx context.Context, done backfilled) (backfilled, error) {
	held := outage.Of(b.log, "held up, trying again", "going on")
	for ; ctx.Err() == nil && !through(slices.Collect(maps.Values(done.ranges))); _ = retry.Sleep(ctx, watchEvery) {
		asked := time.Now()
		ranges, err := b.ranges(ctx)
		if err != nil && !tasks.IsOfAll(err) {
			return done, err
		}
		if held.Report(ctx, asked, err); err != nil {
			continue
		}
		if len(ranges) == 0 {
			return done, fmt.Errorf("the backfill was cancelled, or ended while this process stood still: %s are known to be done; "+
				"`activityd backfill` builds the rest", done)
		}
		done = done.with(ranges)
		note := ""
		if done.failed > 0 {
			note = fmt.Sprintf("; %d failed, the last was %s", done.failed, done.last)
		}
		if paused, _ := b.queue.Paused(ctx); slices.Contains(paused, tasks.QueueBackfill) { // if that is not known, it is not said
			note += "; paused: activityd tasks resume " + tasks.QueueBackfill
		}
		b.moved(done.done, done.all, note)
	}
	return done, nil
}

// backfilled is how far a backfill is, as the queue tells it.
type backfilled struct {
	ranges            map[member.ID]tasks.RangeArgs // by their ends, as they were seen last: those at their end are gone soon
	all, done, failed int64
	last              string // of the members that failed, with its error
	took              time.Duration
}

// with returns how far it is with the ranges that there are.
func (d backfilled) with(ranges []tasks.RangeArgs) backfilled {
	next := backfilled{all: d.all, last: d.last, took: d.took, ranges: make(map[member.ID]tasks.RangeArgs)}
	maps.Copy(next.ranges, d.ranges)
	for _, r := range ranges {
		next.ranges[r.To], next.all, next.took = r, r.All, time.Since(r.Began)
	}
	next.done = next.all
	for _, r := range next.ranges {
		next.failed, next.last = next.failed+r.Failed, cmp.Or(r.Last, next.last)
		if !r.AtEnd() {
			next.done -= max(0, r.Total-r.Seen)
		}
	}
	return next
}

// String is the summary.
func (d backfilled) String() string {
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
