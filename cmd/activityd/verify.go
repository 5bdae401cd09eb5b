package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	limits "golang.org/x/time/rate"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/check"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/tasks"
)

// verifyOptions are the flags of verify.
type verifyOptions struct {
	all      bool
	after    uint64
	rate     int
	progress time.Duration
	repair   bool
	answers  float64
	maxLag   time.Duration
	output   string

	against string
	sample  int
	limit   int
}

func newVerify() *cobra.Command {
	c, v := &config{}, &verifyOptions{}
	cmd := &cobra.Command{
		Use:   "verify " + rangeUse,
		Short: "Compare sets with MySQL, and say what is wrong",
		Long: "Compare the sets of all members, or of some, with MySQL, and say what is wrong: a contact that\n" +
			"is missing, a score that is too low, a set that is lost, and so on. With --all, or without a\n" +
			"range, sets of deleted members are looked for, too.\n\n" +
			"A finding is an error; or lag, when a task is pending that will see to it; or waste, which\n" +
			"does no harm but costs a place or memory. Each is looked at three times before it is called\n" +
			"an error or waste, so that changes which are under way raise no alarm. With --repair a refill is\n" +
			"enqueued for each set with an error or waste; workers do it.\n\n" +
			"While MySQL or Redis is away it waits. A signal ends it; what is printed then says how to go on.\n\n" +
			"With --against nothing of that is done, and Redis is not asked: the statement by which your site finds\n" +
			"what a member is shown, one SELECT with :viewer, runs beside activityd's own walk through MySQL, for\n" +
			"--sample members, both in one read-only transaction. The first column is the id of a photo, in the\n" +
			"order in which they are shown. It prints how many answers differ in which way, and the smallest\n" +
			"example of each. --mysql-dsn may have a user with no right but SELECT.\n\n" +
			"Exit codes:\n" +
			"  0  nothing is wrong (waste is not, nor is lag younger than --max-lag)\n" +
			"  2  errors were found, whether a repair was enqueued or not, or lag is older than --max-lag, or answers differ\n" +
			"  1  it could not be verified to the end" +
			outputHelp + " The last line is the summary.",
		Example: "  activityd verify 4711\n" +
			"  activityd verify --rate 500\n" +
			"  activityd verify 1-1000000 --repair --answers 0.01 -o json\n" +
			"  activityd verify --against \"$(cat homepage.sql)\" --sample 5000",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			within, wrong := parseRange(args, v.all)
			if err := errors.Join(wrong, v.check(), c.check(cmd.Flags())); err != nil {
				return err
			}
			if v.against != "" {
				return runAgainst(cmd, c, v, within)
			}
			return runVerify(cmd, c, within, v)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&v.all, "all", false, "all members, as without MEMBER or FROM-TO")
	f.Uint64Var(&v.after, "after", 0, "go on after this member")
	f.IntVar(&v.rate, "rate", 0, "max members a second; 0: as many as the servers can do")
	progressFlag(f, &v.progress)
	f.BoolVar(&v.repair, "repair", false, "enqueue a refill for each set that is wrong")
	f.Float64Var(&v.answers, "answers", 0, "`share` of the members whose answer is compared, too, 0 to 1: each costs a walk")
	f.DurationVar(&v.maxLag, "max-lag", check.DefaultLagLimit, "how long ago a pending task that explains a lag may have been enqueued")
	f.StringVar(&v.against, "against", "", "your own `SELECT` with :viewer, whose answers are compared instead of the sets")
	f.IntVar(&v.sample, "sample", 1000, "members at most to compare with --against, chosen by chance")
	f.IntVar(&v.limit, "limit", defaultExplained, "photos that your page shows at most: the value of :limit with --against")
	for _, other := range []string{"repair", "answers", "max-lag", "after"} {
		cmd.MarkFlagsMutuallyExclusive("against", other)
	}
	outputFlag(f, &v.output)
	c.mysqlFlags(f)
	c.redisFlags(f)
	c.indexFlags(f)
	return cmd
}

func (v *verifyOptions) check() error {
	if !(v.answers >= 0 && v.answers <= 1) {
		return fmt.Errorf("--answers: is %g: want 0 to 1", v.answers)
	}
	if v.rate < 0 {
		return fmt.Errorf("--rate: is %d: want 0 or more", v.rate)
	}
	if v.maxLag <= 0 {
		return fmt.Errorf("--max-lag: is %v: want more than 0", v.maxLag)
	}
	if v.sample < 1 || v.limit < 1 || v.limit > api.MaxPhotos {
		return fmt.Errorf("--sample: is %d: want 1 or more; --limit: is %d: want 1 to %d", v.sample, v.limit, api.MaxPhotos)
	}
	return nil
}

// verification compares sets, and prints the findings.
type verification struct {
	backend
	*reporter

	options  *verifyOptions
	within   memberRange
	checker  *check.Checker
	printer  *findingPrinter
	pace     *limits.Limiter
	total    int64
	position member.ID // the members up to it are done
	counts   counts
	took     time.Duration
	leftOut  memberList // whose answers were not compared
	undone   memberList // at whom a server failed, or whose node is away
}

// counts are numbers of members, sets, answers, and of findings by "class/cause".
type counts map[string]int64

func (n counts) add(name string, more int) { n[name] += int64(more) }

// What is counted beside the findings.
const (
	countSeen      = "seen"
	countChecked   = "checked"
	countErroneous = "erroneous"
	countUnsettled = "unsettled"
	countAnswers   = "answers"
	countLeftOut   = "left out" // answers
	countRepairs   = "repairs"
	countLasting   = "lasting" // lags
	countUndone    = "failed"
)

// verifyBatch is how many sets are compared at once.
const verifyBatch = 256

func runVerify(cmd *cobra.Command, c *config, within memberRange, options *verifyOptions) (err error) {
	c.setLife = 0 // a look does not prolong the life of a set
	v := &verification{
		reporter: newReporter(cmd.ErrOrStderr(), options.progress), options: options, within: within, counts: counts{},
		printer: newFindingPrinter(cmd.OutOrStdout(), options.output), pace: limits.NewLimiter(limits.Inf, 1),
	}
	if v.backend, err = openBackend(c, newLogger(c, v.reporter)); err != nil {
		return err
	}
	defer func() { _ = v.closers.close() }() // each call's own error was checked
	ctx := cmd.Context()
	if err := v.checkServers(ctx); err != nil {
		return err
	}
	defer runWake(ctx, v.wake, v.reporter)()
	v.checker = check.New(check.Options{
		Sets: v.index, Truth: v.store, Tasks: v.queue, ActiveOnly: c.materialize == materializeActive, LagLimit: options.maxLag,
		Reader: recent.NewReader(v.index, v.store, noHints{}, c.readerOptions(v.index.Settings())),
	})
	if options.rate > 0 {
		v.pace = limits.NewLimiter(limits.Limit(options.rate), v.batch())
	}
	if v.total, _, _, err = v.store.CountMembers(ctx, within.first, within.last); err != nil {
		return err
	}
	if err := within.checkNone(); v.total == 0 && err != nil {
		return err
	}
	err = v.run(ctx)
	if printing := v.printer.summary(v, err == nil); err != nil || printing != nil {
		return errors.Join(err, printing)
	}
	return v.conclude()
}

// run compares the members of the range, and then the sets of no member.
func (v *verification) run(ctx context.Context) error {
	defer func(start time.Time) { v.took = time.Since(start) }(time.Now())
	args := tasks.RangeArgs{After: max(v.within.first-1, member.ID(v.options.after)), To: v.within.last}
	for more := true; more; v.position = args.After {
		var page []member.ID
		err := v.outlast(ctx, func() (err error) {
			page, args, more, err = tasks.PageOf(ctx, v.store, args, v.batch())
			return err
		})
		if err == nil && len(page) > 0 {
			err = v.visit(ctx, page)
		}
		if err != nil && v.position > 0 {
			err = fmt.Errorf("%w\nall members up to %s are done; go on with --after %s", err, v.position, v.position)
		}
		if err != nil {
			return err
		}
		v.counts.add(countSeen, len(page))
		v.moved(v.counts[countSeen], v.total, "")
	}
	if v.within != allMembers {
		return nil
	}
	err := v.index.EachStored(ctx, func(ctx context.Context, owners []member.ID) error {
		for some := range slices.Chunk(owners, v.batch()) {
			if err := v.visitOrphans(ctx, some); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for sets of no member: %w", err)
	}
	return nil
}

func (v *verification) batch() int {
	if v.options.rate > 0 {
		return min(verifyBatch, v.options.rate)
	}
	return verifyBatch
}

// outlast calls do until a server is back that is away.
func (v *verification) outlast(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		asked := time.Now()
		err := do()
		away := errors.Is(err, mysql.ErrUnavailable) || errors.Is(err, index.ErrUnavailable)
		if ctx.Err() != nil {
			return errSignalled
		}
		if !away {
			v.held.Report(ctx, asked, nil)
			return err
		}
		v.held.Report(ctx, asked, err)
		_ = retry.Sleep(ctx, retry.Backoff(try, 200*time.Millisecond, 5*time.Second)) // ctx is looked at
	}
}

// visit compares the sets of members, and some of the answers.
func (v *verification) visit(ctx context.Context, members []member.ID) error {
	if v.pace.WaitN(ctx, len(members)) != nil {
		return errSignalled
	}
	err := v.checkSets(ctx, members)
	for _, id := range members {
		if err != nil || rand.Float64() >= v.options.answers {
			continue
		}
		err = v.outlast(ctx, func() error {
			r, err := v.checker.CheckAnswers(ctx, []member.ID{id})
			if err != nil {
				return err
			}
			v.counts.add(countAnswers, r.Checked)
			v.counts.add(countLeftOut, len(r.Skipped))
			v.leftOut.add(r.Skipped...)
			return v.report(ctx, r)
		})
	}
	return err
}

func (v *verification) checkSets(ctx context.Context, members []member.ID) error {
	return v.outlast(ctx, func() error {
		r, failed, err := v.checker.Members(ctx, members)
		if err == nil && len(r.Unreachable) == len(members) {
			err = r.Away // it is waited for
		}
		if err != nil {
			return err
		}
		for id, err := range failed {
			v.say("member %s could not be compared: %v", id, err)
			v.undone.add(id)
		}
		v.undone.add(r.Unreachable...)
		v.counts.add(countUndone, len(failed)+len(r.Unreachable))
		v.counts.add(countChecked, r.Checked)
		return v.report(ctx, r)
	})
}

// visitOrphans compares the sets of those owners that are no members, which a walk over the members does not meet.
func (v *verification) visitOrphans(ctx context.Context, owners []member.ID) error {
	if v.pace.WaitN(ctx, len(owners)) != nil {
		return errSignalled
	}
	var orphans []member.ID
	err := v.outlast(ctx, func() (err error) {
		orphans, err = v.checker.Orphans(ctx, owners)
		return err
	})
	if err != nil || len(orphans) == 0 {
		return err
	}
	return v.checkSets(ctx, orphans)
}

// report counts, repairs and prints what was found.
func (v *verification) report(ctx context.Context, r check.Report) error {
	v.counts.add(countErroneous, r.Erroneous)
	v.counts.add(countUnsettled, r.Unsettled)
	for _, f := range r.Findings {
		v.counts.add(string(f.Weight)+"/"+string(f.Cause), 1)
		if f.Lasting {
			v.counts.add(countLasting, 1)
		}
	}
	if v.options.repair {
		n, err := v.checker.Repair(ctx, r.Users(check.Error, check.Waste))
		if err != nil {
			return err
		}
		v.counts.add(countRepairs, n)
	}
	return v.printer.print(r.Findings)
}

// conclude returns the error that ends a verification: that something is wrong, or late for too long, or could not be
// judged.
func (v *verification) conclude() (undone error) {
	n := v.counts
	if n[countUndone] > 0 {
		undone = fmt.Errorf("%d members could not be compared: %s; run it for them again", n[countUndone], v.undone.first(n[countUndone]))
	}
	if n[countUnsettled] > 0 {
		undone = errors.Join(undone, fmt.Errorf("%d sets or answers changed too often to be judged: verify again", n[countUnsettled]))
	}
	var wrong error
	if n[countErroneous] > 0 {
		then := "--repair enqueues refills"
		if v.options.repair {
			then = "refills are enqueued: verify again when the workers have done them"
		}
		wrong = fmt.Errorf("%d sets or answers are wrong; %s", n[countErroneous], then)
	}
	if n[countLasting] > 0 {
		wrong = errors.Join(wrong, fmt.Errorf("%d findings of lag for longer than --max-lag %v: tasks are pending and not done; "+
			"do workers run, and does Redis take writes? /readyz says so", n[countLasting], v.options.maxLag))
	}
	if wrong == nil {
		return undone
	}
	return &exitError{exitWrong, errors.Join(wrong, undone)}
}

// maxFindings is how many findings of a class are printed one by one. JSON has all.
const maxFindings = 100

// findingPrinter writes findings as they come. It is safe for concurrent use.
type findingPrinter struct {
	mu       sync.Mutex
	w        io.Writer
	json     *json.Encoder        // nil: as text
	found    map[check.Weight]int // text: how many there were of each class
	lagSince time.Time            // the earliest; zero: none, or not known
}

func newFindingPrinter(w io.Writer, output string) *findingPrinter {
	p := &findingPrinter{w: w, found: map[check.Weight]int{}}
	if output == outputJSON {
		p.json = newLineEncoder(w)
	}
	return p
}

// findingJSON is a finding as a line of JSON.
type findingJSON struct {
	User    member.ID    `json:"user"`
	Contact member.ID    `json:"contact,omitzero"`
	Class   check.Weight `json:"class"`
	Cause   check.Cause  `json:"cause"`
	Stored  uint64       `json:"stored"`
	Actual  uint64       `json:"actual"`
	Since   time.Time    `json:"since,omitzero"`
	Lasting bool         `json:"lasting,omitzero"`
	Detail  string       `json:"detail,omitzero"`
}

// print writes findings, of each class the first, and as text no lag: it will pass, and
// is in the table.
func (p *findingPrinter) print(findings []check.Finding) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range findings {
		if !f.Since.IsZero() && (p.lagSince.IsZero() || f.Since.Before(p.lagSince)) {
			p.lagSince = f.Since.UTC()
		}
		var err error
		switch {
		case p.json != nil:
			err = p.json.Encode(findingJSON{f.User, f.Contact, f.Weight, f.Cause, f.Stored, f.Actual, f.Since.UTC(), f.Lasting, f.Detail})
		case f.Weight != check.Lag:
			p.found[f.Weight]++
			if p.found[f.Weight] <= maxFindings {
				_, err = fmt.Fprintln(p.w, inspect.OneLine(f.String()))
			}
		}
		if err != nil {
			return fmt.Errorf("print the findings: %w", err)
		}
	}
	return nil
}

// summary ends the output: how many there were of what, whether it came to the end or not.
func (p *findingPrinter) summary(v *verification, complete bool) error {
	n := v.counts
	if p.json != nil {
		summary := map[string]any{
			"complete": complete, "checked": n[countChecked], "answers": n[countAnswers], "answers_left_out": n[countLeftOut], "erroneous": n[countErroneous],
			"unsettled": n[countUnsettled], "repairs": n[countRepairs], "lasting": n[countLasting],
			"failed": n[countUndone], "findings": findingCounts(n), "seconds": v.took.Seconds(),
		}
		if !p.lagSince.IsZero() {
			summary["lag_since"] = p.lagSince
		}
		return p.json.Encode(map[string]any{"summary": summary})
	}
	var text strings.Builder
	for _, class := range check.Weights() {
		if more := p.found[class] - maxFindings; more > 0 {
			fmt.Fprintf(&text, "%s: and %d more, all of them with --output=json\n", class, more)
		}
	}
	if n[countLeftOut] > 0 {
		fmt.Fprintf(&text, "%d answers were not compared, as the index had no part in them: those of members %s\n", n[countLeftOut], v.leftOut.first(n[countLeftOut]))
	}
	if counts := findingCounts(n); len(counts) > 0 {
		table := newTable(&text)
		_, _ = fmt.Fprintln(table, "FOUND\tCLASS\tCAUSE") // into memory
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			class, cause, _ := strings.Cut(name, "/")
			_, _ = fmt.Fprintf(table, "%d\t%s\t%s\n", counts[name], class, cause)
		}
		_ = table.Flush()
	}
	text.WriteString("checked")
	if !complete {
		text.WriteString(" so far")
	}
	fmt.Fprintf(&text, ": %d sets, %d answers; %d wrong", n[countChecked], n[countAnswers], n[countErroneous])
	if n[countUnsettled] > 0 {
		fmt.Fprintf(&text, ", %d changed too often to be judged", n[countUnsettled])
	}
	if !p.lagSince.IsZero() {
		fmt.Fprintf(&text, ", lag since %s UTC (%s)", p.lagSince.Format(time.DateTime), inspect.Duration(time.Since(p.lagSince)))
	}
	if n[countUndone] > 0 {
		fmt.Fprintf(&text, ", %d failed", n[countUndone])
	}
	if n[countRepairs] > 0 {
		fmt.Fprintf(&text, ", %d refills enqueued", n[countRepairs])
	}
	_, err := fmt.Fprintf(p.w, "%s; %s\n", text.String(), rateOf(v.took, n[countChecked]))
	return err
}

// findingCounts are the counts of findings, by class and cause.
func findingCounts(n counts) map[string]int64 {
	found := make(map[string]int64)
	for name, count := range n {
		if strings.Contains(name, "/") {
			found[name] = count
		}
	}
	return found
}

// rateOf describes how fast n were done.
func rateOf(took time.Duration, n int64) string {
	return fmt.Sprintf("%s, %.0f a second", took.Round(100*time.Millisecond), float64(n)/max(took.Seconds(), 0.001))
}

// memberList keeps the first of many members, for a message.
type memberList struct {
	mu      sync.Mutex
	members []member.ID
}

// maxNamed is how many members a [memberList] names.
const maxNamed = 10

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
