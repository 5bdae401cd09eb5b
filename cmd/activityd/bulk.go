package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/redisnodes"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/tasks"
)

// bulkOptions are the flags that backfill and verify share.
type bulkOptions struct {
	all      bool
	after    uint64
	resume   string
	parallel int
	rate     int
	pace     string
	progress time.Duration
}

func (o *bulkOptions) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.all, "all", false, "all members, as without MEMBER or FROM-TO")
	f.Uint64Var(&o.after, "after", 0, "go on after this member")
	f.StringVar(&o.resume, "resume", "", "keep the position in this `file`, and go on there if it exists; it is removed in the end")
	f.IntVar(&o.parallel, "parallel", 4, "max batches at once; fewer while a server is slow")
	f.IntVar(&o.rate, "rate", 0, "max members a second; 0: as many as the servers can do")
	paceFlag(f, &o.pace)
	progressFlag(f, &o.progress)
}

// The values of --pace.
const (
	paceYield = "yield"
	paceFull  = "full"
)

func paceFlag(f *pflag.FlagSet, pace *string) {
	f.StringVar(pace, "pace", paceYield, "`yield`: go slower while a server is slow; or full: only wait for one that does not answer")
}

func checkPace(pace string) error {
	if pace != paceYield && pace != paceFull {
		return fmt.Errorf("--pace: is %q: want %s or %s", pace, paceYield, paceFull)
	}
	return nil
}

func (o *bulkOptions) check(f *pflag.FlagSet) error {
	var errs []error
	if o.parallel < 1 || o.parallel > 64 {
		errs = append(errs, fmt.Errorf("--parallel: is %d: want 1 to 64", o.parallel))
	}
	if o.rate < 0 {
		errs = append(errs, fmt.Errorf("--rate: is %d: want 0 or more", o.rate))
	}
	errs = append(errs, checkPace(o.pace))
	if o.resume != "" && f.Changed("after") {
		errs = append(errs, errors.New("--after is given beside --resume: want one of the two"))
	}
	return errors.Join(errs...)
}

// rangeUse is how the commands name the members.
const rangeUse = "[MEMBER | FROM-TO | --all]"

// parseRange parses a member, a range of members, or nothing for all.
func parseRange(args []string, all bool) (bulk.Range, error) {
	switch {
	case len(args) == 0:
		return bulk.All, nil
	case all:
		return bulk.Range{}, errors.New("--all is given beside a member or a range: want one of the two")
	}
	from, to, isRange := strings.Cut(args[0], "-")
	if !isRange {
		to = from
	}
	first, err := member.Parse(from)
	if err != nil {
		return bulk.Range{}, fmt.Errorf("MEMBER or FROM-TO: %w", err)
	}
	last, err := member.Parse(to)
	if err != nil {
		return bulk.Range{}, fmt.Errorf("FROM-TO: %w", err)
	}
	if last < first {
		return bulk.Range{}, fmt.Errorf("FROM-TO: %s: the range ends before it begins", args[0])
	}
	return bulk.Range{First: first, Last: last}, nil
}

// bulkCommand is a command under way that goes over many members.
type bulkCommand struct {
	backend
	*reporter

	job bulk.Job
}

// openBulk opens the servers, and prepares a job to which its visit is to be added.
// writes says that it makes or repairs sets. It keeps the TTL of sets as it is, unless
// touches says that making a set is a use of it.
func openBulk(cmd *cobra.Command, c *config, o *bulkOptions, work bulk.Work, within bulk.Range, writes, touches bool) (_ *bulkCommand, err error) {
	place, err := mysql.Place(c.mysqlDSN)
	if err != nil {
		return nil, fmt.Errorf("--mysql-dsn (%s): %w", settings.Variable("mysql-dsn"), err)
	}
	sum := sha256.Sum256([]byte(place))
	work.Members, work.Site = within.String(), hex.EncodeToString(sum[:8])
	if !touches {
		c.setLife = 0
	}
	b := &bulkCommand{reporter: newReporter(cmd.ErrOrStderr(), o.progress)}
	if b.backend, err = openBackend(c, newLogger(c, b.reporter)); err != nil {
		return nil, err
	}
	b.job = bulk.Job{
		Work: work, Range: within, File: o.resume, After: member.ID(o.after), Parallel: o.parallel, Rate: o.rate, Full: o.pace == paceFull,
		Store: b.store, Generations: b.index, Writes: writes, Once: b.once, Reporter: b.reporter,
		Schema:   b.checkSchema,
		Settings: func(ctx context.Context) error { return b.checkSettings(ctx, c.materialize, writes) },
	}
	if writes {
		b.job.Watch = func(ctx context.Context) { _ = b.index.Watch(ctx, func(time.Time, redisnodes.Status) {}) } // it ends without an error
	}
	return b, nil
}

func (b *bulkCommand) close() { _ = b.closers.close() } // each call's own error was checked

// checkSchema refuses tables that are wrong: sets would be built from them.
func (b *bulkCommand) checkSchema(ctx context.Context) error {
	_, err := checkSchema(ctx, b.db, nil)
	if _, wrong := errors.AsType[*schemaError](err); wrong {
		return err
	}
	return bulk.Refused("MySQL", err)
}

// checkSettings refuses sets of another database, or that were built with other settings. It compares
// --materialize with that of serve, too: where a mistake would build all sets, or miss
// some, it is an error.
func (b *bulkCommand) checkSettings(ctx context.Context, materialize string, writes bool) error {
	if err := b.id.read(ctx); err != nil {
		return bulk.Refused("MySQL", err)
	}
	if err := b.index.Check(ctx); err != nil {
		return err
	}
	kept, err := b.ledger.Materialize(ctx)
	if err != nil || kept == "" || kept == materialize {
		return err
	}
	err = fmt.Errorf("--materialize (%s): is %s, but the sets in Redis are kept with --materialize=%s: want the same here, "+
		"or start serve with the other first", settings.Variable("materialize"), materialize, kept)
	if !writes {
		_, err = fmt.Fprintf(b.reporter, "activityd: warning: %v\n", err)
		return err
	}
	return err
}

// run runs the job, and says how to go on where it was stopped. Without counts in the
// result nothing was begun.
func (b *bulkCommand) run(ctx context.Context) (bulk.Result, error) {
	r, err := b.job.Run(ctx)
	if errors.Is(err, bulk.ErrStopped) {
		err = errSignalled
	}
	err = namedRedis(err)
	if err == nil || r.Counts == nil || r.Position == 0 || errors.Is(err, bulk.ErrLost) || errors.Is(err, bulk.ErrPartlyLost) {
		return r, err
	}
	then := fmt.Sprintf("go on with --after %s", r.Position)
	if b.job.File != "" {
		then = "the same command goes on there"
	}
	return r, fmt.Errorf("%w\nall members up to %s are done; %s", err, r.Position, then)
}

// errGivenUp ends a run in which some members were given up; nil if none was.
func (b *bulkCommand) errGivenUp(counts bulk.Counts) error {
	n := counts[bulk.Failed]
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d members failed every time and were given up: %s; the reasons are above, run it for them again", n, b.givenUp.first(n))
}

// rate describes how fast n were done.
func rate(r bulk.Result, n int64) string {
	return fmt.Sprintf("%s, %.0f a second", r.Took.Round(100*time.Millisecond), float64(n)/max(r.Took.Seconds(), 0.001))
}

// maxNamed is how many members a [memberList] names.
const maxNamed = 10

// memberList keeps the first of many members, for a message.
type memberList struct {
	mu      sync.Mutex
	members []member.ID
}

func (l *memberList) add(members ...member.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.members = append(l.members, members[:min(len(members), maxNamed-len(l.members))]...)
}

// first names them as the first of n.
func (l *memberList) first(n int64) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var names []string
	for _, id := range l.members {
		names = append(names, id.String())
	}
	if int64(len(names)) < n {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

func newBackfill() *cobra.Command {
	c, o := &config{}, &bulkOptions{}
	var existing bool
	cmd := &cobra.Command{
		Use:   "backfill " + rangeUse,
		Short: "Build the sets of all members, or of some",
		Long: "Build the sets of all members, or of some: for a Redis that is new or was emptied. Sets that\n" +
			"are there are left alone, unless --existing says otherwise. It needs no workers, and may run\n" +
			"beside the live traffic, and on several hosts over other ranges: it is guarded as every task\n" +
			"is. The second of two over the same range is refused.\n\n" +
			"It watches how fast MySQL and Redis answer, and goes slower where they do. While one of them\n" +
			"is away it waits. A signal finishes the batches under way; what is printed then says how to go\n" +
			"on, and with --resume the same command does. It may also be killed.\n\n" +
			"With --materialize=active no missing set is built: they are built as members read.\n" +
			"--existing refills those that are there.\n\n" +
			"A member that fails every time, for a reason of its own, is given up in the end, and named. If\n" +
			"Redis loses the sets while it runs, the command ends: run it again.\n\n" +
			"Exit codes: 0 it is done; 1 it is not, or not for all members.",
		Example: "  activityd backfill\n" +
			"  activityd backfill 1000000-1999999 --resume backfill.json\n" +
			"  activityd backfill 4711 --existing",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			within, wrong := parseRange(args, o.all)
			errs := []error{wrong, o.check(cmd.Flags()), c.check(cmd.Flags())}
			if c.materialize == materializeActive && !existing {
				errs = append(errs, fmt.Errorf("--materialize=%s: missing sets are built as members read, and not before: "+
					"want --existing, to refill those that are there", materializeActive))
			}
			if err := errors.Join(errs...); err != nil {
				return err
			}
			return runBackfill(cmd, c, o, within, existing)
		},
	}
	o.flags(cmd.Flags())
	cmd.Flags().BoolVar(&existing, "existing", false, "refill sets that are there, too")
	c.mysqlFlags(cmd.Flags())
	c.redisFlags(cmd.Flags())
	c.indexFlags(cmd.Flags())
	return cmd
}

func runBackfill(cmd *cobra.Command, c *config, o *bulkOptions, within bulk.Range, existing bool) error {
	work := bulk.Work{Command: "backfill"}
	if existing {
		work.Options = "--existing"
	}
	b, err := openBulk(cmd, c, o, work, within, true, true)
	if err != nil {
		return err
	}
	defer b.close()
	builder := &bulk.Builder{
		Index: b.index, Refiller: &tasks.RefillHandler{Index: b.index, Store: b.store},
		Existing: existing, ActiveOnly: c.materialize == materializeActive,
	}
	b.job.Visit = builder.Build
	r, err := b.run(cmd.Context())
	switch {
	case err != nil && r.Counts == nil: // nothing was begun
		return err
	case err != nil:
		return fmt.Errorf("%w\n%s", err, backfillSummary(r))
	}
	if _, err = fmt.Fprintln(cmd.OutOrStdout(), backfillSummary(r)); err != nil {
		return err
	}
	return b.errGivenUp(r.Counts)
}

// backfillSummary says what was done, in one line.
func backfillSummary(r bulk.Result) string {
	n := r.Counts
	text := fmt.Sprintf("%d members seen: %d sets built, %d skipped because they were there, %d without contacts that uploaded",
		n[bulk.Seen], n[bulk.Built], n[bulk.Skipped], n[bulk.Empty])
	if n[bulk.Absent] > 0 {
		text += fmt.Sprintf(", %d left without a set", n[bulk.Absent])
	}
	if n[bulk.Failed] > 0 {
		text += fmt.Sprintf(", %d failed", n[bulk.Failed])
	}
	return text + "; " + rate(r, n[bulk.Seen])
}
