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

// rangeUse is how the commands name the members.
const rangeUse = "[MEMBER | FROM-TO | --all]"

// parseRange parses a member, a range of members, or nothing for all.
func parseRange(args []string, all bool) (memberRange, error) {
	switch {
	case len(args) == 0:
		return allMembers, nil
	case all:
		return memberRange{}, errors.New("--all is given beside a member or a range: want one of the two")
	}
	from, to, isRange := strings.Cut(args[0], "-")
	if !isRange {
		to = from
	}
	first, err := member.Parse(from)
	if err != nil {
		return memberRange{}, fmt.Errorf("MEMBER or FROM-TO: %w", err)
	}
	last, err := member.Parse(to)
	if err != nil {
		return memberRange{}, fmt.Errorf("FROM-TO: %w", err)
	}
	if last < first {
		return memberRange{}, fmt.Errorf("FROM-TO: %s: the range ends before it begins", args[0])
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
	*reporter

	all, existing, cancel bool
	rate                  int
	progress              time.Duration
	within                memberRange
	config                *config
	log                   *slog.Logger
}

func newBackfill() *cobra.Command {
	b := &backfill{config: &config{}}
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
			within, wrong := parseRange(args, b.all)
			b.within = within
			if b.rate < 0 {
				wrong = errors.Join(wrong, fmt.Errorf("--rate: is %d: want 0 or more", b.rate))
			}
			if b.cancel && (len(args) > 0 || b.existing) {
				wrong = errors.Join(wrong, errors.New("--cancel: takes no members: it ends the backfill that is under way"))
			}
			if b.config.materialize == materializeActive && !b.existing && !b.cancel {
				wrong = errors.Join(wrong, fmt.Errorf("--materialize=%s: missing sets are built as members read, and not before: "+
					"want --existing, to refill those that are there", materializeActive))
			}
			if err := errors.Join(wrong, b.config.check(cmd.Flags())); err != nil {
				return err
			}
			return b.run(cmd, len(args) > 0 || b.all || b.existing)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&b.all, "all", false, "all members, as without MEMBER or FROM-TO")
	f.BoolVar(&b.existing, "existing", false, "refill sets that are there, too")
	f.BoolVar(&b.cancel, "cancel", false, "end the backfill that is under way")
	f.IntVar(&b.rate, "rate", 0, "max members a second; 0: as many as the servers can do")
	progressFlag(f, &b.progress)
	b.config.mysqlFlags(f)
	b.config.redisFlags(f)
	b.config.indexFlags(f)
	return cmd
}

// run begins the backfill or joins it; chosen says that the command names members or --existing.
func (b *backfill) run(cmd *cobra.Command, chosen bool) (err error) {
	ctx := cmd.Context()
	b.reporter = newReporter(cmd.ErrOrStderr(), b.progress)
	b.log = newLogger(b.config, b.reporter)
	if b.backend, err = openBackend(b.config, b.log); err != nil {
		return err
	}
	defer func() { _ = b.closers.close() }() // each call's own error was checked
	if err := b.checkServers(ctx); err != nil {
		return err
	}
	defer runWake(ctx, b.wake, b.reporter)()
	under, err := b.ranges(ctx)
	switch {
	case err != nil:
		return err
	case b.cancel:
		return b.end(ctx, !through(under))
	case through(under):
		if err = b.enqueue(ctx); err == nil {
			under, err = b.ranges(ctx)
		}
	case chosen:
		err = fmt.Errorf("a backfill is under way since %s: see it with `activityd backfill`, or end it with `activityd backfill --cancel`",
			under[0].Began.Local().Format(time.DateTime))
	default:
		b.say("joined the backfill that began at %s", under[0].Began.Local().Format(time.DateTime))
	}
	if err != nil {
		return err
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
	if _, err := checkSchema(ctx, b.db, nil); err != nil {
		return advised(0, err)
	}
	if err := b.id.read(ctx); err != nil {
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

func (b *backfill) enqueue(ctx context.Context) error {
	list, err := tasks.NewRefillRanges(ctx, b.store, b.within.first, b.within.last, b.existing, b.rate)
	if err != nil || len(list) == 0 {
		return cmp.Or(err, b.within.checkNone())
	}
	_, err = b.queue.Enqueue(ctx, list)
	return err
}

// work works on the ranges beside the workers of the service, and shows how far they are, until they are at their end or ctx ends.
func (b *backfill) work(ctx context.Context, under []tasks.RangeArgs) (done backfilled, err error) {
	nodes := health.NewRedis(b.redis, b.index, b.log)
	reads := recent.NewReader(b.index, b.store, noHints{}, b.config.readerOptions(b.index.Settings()))
	handlers := tasks.Handlers(b.index, b.store, b.queue, tasks.HandlerOptions{
		ActiveOnly: b.config.materialize == materializeActive, Log: b.log, Read: readOf(reads),
	})
	o := b.config.poolOptions()
	for _, w := range o.Workers {
		if w.Queue == tasks.QueueBackfill {
			o.Workers = []queue.Workers{w}
		}
	}
	o.Log, o.Away = b.log, nodes.Waits
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
	for ; ctx.Err() == nil && !done.through(); _ = retry.Sleep(ctx, watchEvery) {
		asked := time.Now()
		ranges, err := b.ranges(ctx)
		if err != nil && !tasks.IsOfAll(err) {
			return done, err
		}
		if b.held.Report(ctx, asked, err); err != nil {
			continue
		}
		if len(ranges) == 0 {
			return done, fmt.Errorf("the backfill was cancelled, or ended while this process stood still: %s are known to be done; "+
				"`activityd backfill` builds the rest", done)
		}
		paused, _ := b.queue.Paused(ctx) // if that is not known, it is not said
		done = done.with(ranges)
		b.show(done, paused)
	}
	return done, nil
}

// backfilled is how far a backfill is, as the queue tells it.
type backfilled struct {
	began     time.Time
	took      time.Duration
	all, done int64
	failed    int64
	last      string // of the members that failed, with its error
	ranges    map[member.ID]tasks.RangeArgs
}

// with returns how far it is with the ranges that there are. Ranges that are gone stay as they were seen last.
func (d backfilled) with(ranges []tasks.RangeArgs) backfilled {
	next := backfilled{began: d.began, all: d.all, last: d.last, ranges: make(map[member.ID]tasks.RangeArgs)}
	maps.Copy(next.ranges, d.ranges)
	for _, r := range ranges {
		next.began, next.all, next.ranges[r.To] = r.Began, r.All, r
	}
	next.done = next.all
	for _, r := range next.ranges {
		if next.failed += r.Failed; r.Last != "" {
			next.last = r.Last
		}
		if !r.AtEnd() {
			next.done -= max(0, r.Total-r.Seen)
		}
	}
	if next.all > 0 {
		next.took = time.Since(next.began)
	}
	return next
}

func (d backfilled) through() bool { return through(slices.Collect(maps.Values(d.ranges))) }

// String is the summary.
func (d backfilled) String() string {
	return fmt.Sprintf("%d of %d members in %s, %.0f a second", d.done, d.all, d.took.Round(100*time.Millisecond), float64(d.done)/max(d.took.Seconds(), 0.001))
}

// show shows how far the ranges are.
func (b *backfill) show(d backfilled, paused []string) {
	var notes []string
	if d.failed > 0 {
		notes = append(notes, fmt.Sprintf("%d failed, the last was %s", d.failed, d.last))
	}
	for _, name := range paused {
		if name == tasks.QueueBackfill {
			notes = append(notes, "paused: activityd tasks resume "+name)
		}
	}
	b.moved(d.done, d.all, strings.Join(notes, "; "))
}

// end ends the backfill that is under way. While its queue is paused no range goes on.
func (b *backfill) end(ctx context.Context, under bool) error {
	if !under {
		return errors.New("--cancel: no backfill is under way")
	}
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
