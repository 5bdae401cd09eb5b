package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
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
			"  0  nothing is wrong (waste is not, nor is lag)\n" +
			"  2  errors were found, whether a repair was enqueued or not, or answers differ\n" +
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
	f.StringVar(&v.against, "against", "", "your own `SELECT` with :viewer, whose answers are compared instead of the sets")
	f.IntVar(&v.sample, "sample", 1000, "members at most to compare with --against, chosen by chance")
	f.IntVar(&v.limit, "limit", defaultExplained, "photos that your page shows at most: the value of :limit with --against")
	for _, other := range []string{"repair", "answers", "after"} {
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
	if v.sample < 1 || v.limit < 1 || v.limit > api.MaxPhotos {
		return fmt.Errorf("--sample: is %d: want 1 or more; --limit: is %d: want 1 to %d", v.sample, v.limit, api.MaxPhotos)
	}
	return nil
}

// verification compares sets, and prints the findings.
type verification struct {
	backend
	*reporter

	options *verifyOptions
	within  memberRange
	checker *check.Checker
	pace    *limits.Limiter

	out     io.Writer
	json    *json.Encoder        // nil: text
	printed map[check.Weight]int // findings, as text
	seen    int64
	sum     verified
	leftOut []member.ID // the first members whose answers were not compared
	undone  []member.ID // the first members that could not be compared
}

// verified is the summary of a verification.
type verified struct {
	Complete  bool           `json:"complete"`
	Checked   int            `json:"checked"`
	Answers   int            `json:"answers"`
	LeftOut   int            `json:"answers_left_out"`
	Erroneous int            `json:"erroneous"`
	Unsettled int            `json:"unsettled"`
	Repairs   int            `json:"repairs"`
	Failed    int            `json:"failed"`
	Findings  map[string]int `json:"findings"` // by "class/cause"
	Seconds   float64        `json:"seconds"`
}

const (
	verifyBatch = 256 // sets that are compared at once
	maxNamed    = 10  // members that a message names
	maxFindings = 100 // findings of a class that are printed as text; JSON has all
)

func runVerify(cmd *cobra.Command, c *config, within memberRange, options *verifyOptions) (err error) {
	c.setLife = 0 // a look does not prolong the life of a set
	v := &verification{
		reporter: newReporter(cmd.ErrOrStderr(), options.progress), options: options, within: within,
		out: cmd.OutOrStdout(), printed: map[check.Weight]int{}, sum: verified{Findings: map[string]int{}},
	}
	if options.output == outputJSON {
		v.json = newLineEncoder(v.out)
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
		Sets: v.index, Truth: v.store, Tasks: v.queue, ActiveOnly: c.materialize == materializeActive,
		Reader: recent.NewReader(v.index, v.store, noHints{}, c.readerOptions(v.index.Settings())),
	})
	v.pace = limits.NewLimiter(cmp.Or(limits.Limit(options.rate), limits.Inf), v.batch())
	total, err := v.store.CountMembers(ctx, within.first, within.last)
	if err != nil {
		return err
	}
	if err := within.checkNone(); total == 0 && err != nil {
		return err
	}
	start := time.Now()
	err = v.run(ctx, total)
	v.sum.Complete, v.sum.Seconds = err == nil, time.Since(start).Seconds()
	if printing := v.printSummary(); err != nil || printing != nil {
		return errors.Join(err, printing)
	}
	return v.conclude()
}

// run compares the members of the range, and then the sets of no member.
func (v *verification) run(ctx context.Context, total int64) error {
	args := tasks.RangeArgs{After: max(v.within.first-1, member.ID(v.options.after)), To: v.within.last}
	for more := true; more; {
		var page []member.ID
		next := args
		err := v.outlast(ctx, func() (err error) {
			page, next, more, err = tasks.PageOf(ctx, v.store, args, v.batch())
			return err
		})
		if err == nil {
			err = v.visit(ctx, page)
		}
		if err != nil && v.seen > 0 {
			err = fmt.Errorf("%w\nall members up to %s are done; go on with --after %s", err, args.After, args.After)
		}
		if err != nil {
			return err
		}
		args, v.seen = next, v.seen+int64(len(page))
		v.moved(v.seen, total, "")
	}
	if v.within != allMembers {
		return nil
	}
	return v.runStored(ctx)
}

// runStored compares the sets of no member.
func (v *verification) runStored(ctx context.Context) error {
	err := v.index.EachStored(ctx, func(ctx context.Context, owners []member.ID) error {
		for some := range slices.Chunk(owners, v.batch()) {
			if v.pace.WaitN(ctx, len(some)) != nil {
				return errSignalled
			}
			err := v.outlast(ctx, func() (err error) {
				some, err = v.checker.Orphans(ctx, some)
				return err
			})
			if err == nil {
				err = v.check(ctx, v.checker.Check, &v.sum.Checked, some)
			}
			if err != nil {
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
	if err := v.check(ctx, v.checker.Check, &v.sum.Checked, members); err != nil {
		return err
	}
	members = slices.DeleteFunc(slices.Clone(members), func(member.ID) bool { return rand.Float64() >= v.options.answers })
	return v.check(ctx, v.checker.CheckAnswers, &v.sum.Answers, members)
}

// check compares the sets or the answers of members, counts them, and repairs and prints the findings.
func (v *verification) check(
	ctx context.Context, compare func(context.Context, []member.ID) (check.Report, error), checked *int, members []member.ID,
) error {
	if len(members) == 0 {
		return nil
	}
	var r check.Report
	err := v.outlast(ctx, func() (err error) {
		r, err = compare(ctx, members)
		for id := range r.Failed {
			if len(r.Failed) == len(members) {
				err = r.Failed[id] // all are on nodes that are away: it waits for them
			}
		}
		if err == nil && v.options.repair {
			var n int
			n, err = v.checker.Repair(ctx, r.Wrong())
			v.sum.Repairs += n
		}
		return err
	})
	if err != nil {
		return err
	}
	for id, err := range r.Failed {
		v.say("member %s could not be compared: %v", id, err)
		v.undone = append(v.undone, id)
	}
	v.leftOut = append(v.leftOut, r.Skipped...)
	v.undone, v.leftOut = v.undone[:min(len(v.undone), maxNamed)], v.leftOut[:min(len(v.leftOut), maxNamed)]
	*checked += r.Checked
	v.sum.Failed += len(r.Failed)
	v.sum.LeftOut += len(r.Skipped)
	v.sum.Erroneous += r.Erroneous()
	v.sum.Unsettled += r.Unsettled
	for _, f := range r.Findings {
		if err := v.found(f); err != nil {
			return fmt.Errorf("print the findings: %w", err)
		}
	}
	return nil
}

// findingJSON is a finding as a line of JSON.
type findingJSON struct {
	User    member.ID    `json:"user"`
	Contact member.ID    `json:"contact,omitzero"`
	Class   check.Weight `json:"class"`
	Cause   check.Cause  `json:"cause"`
	Stored  uint64       `json:"stored"`
	Actual  uint64       `json:"actual"`
	Detail  string       `json:"detail,omitzero"`
}

// found counts and prints a finding: as text the first of each class, and no lag: it will pass, and is in the table.
func (v *verification) found(f check.Finding) error {
	v.sum.Findings[string(f.Weight)+"/"+string(f.Cause)]++
	if v.json != nil {
		return v.json.Encode(findingJSON{f.User, f.Contact, f.Weight, f.Cause, f.Stored, f.Actual, f.Detail})
	}
	if v.printed[f.Weight]++; f.Weight == check.Lag || v.printed[f.Weight] > maxFindings {
		return nil
	}
	_, err := fmt.Fprintln(v.out, inspect.OneLine(f.String()))
	return err
}

// conclude returns the error that ends a verification: a difference, or members without a verdict.
func (v *verification) conclude() (undone error) {
	n := v.sum
	if n.Failed > 0 {
		undone = fmt.Errorf("%d members could not be compared: %s; run it for them again", n.Failed, firstOf(v.undone, n.Failed))
	}
	if n.Unsettled > 0 {
		undone = errors.Join(undone, fmt.Errorf("%d sets or answers changed too often to be judged: verify again", n.Unsettled))
	}
	if n.Erroneous == 0 {
		return undone
	}
	then := "--repair enqueues refills"
	if v.options.repair {
		then = "refills are enqueued: verify again when the workers have done them"
	}
	return &exitError{exitWrong, errors.Join(fmt.Errorf("%d sets or answers are wrong; %s", n.Erroneous, then), undone)}
}

// printSummary ends the output.
func (v *verification) printSummary() error {
	n := v.sum
	if v.json != nil {
		return v.json.Encode(map[string]verified{"summary": n})
	}
	var text strings.Builder
	for _, class := range []check.Weight{check.Error, check.Waste} {
		if more := v.printed[class] - maxFindings; more > 0 {
			fmt.Fprintf(&text, "%s: and %d more, all of them with --output=json\n", class, more)
		}
	}
	if n.LeftOut > 0 {
		fmt.Fprintf(&text, "%d answers were not compared, as the index had no part in them: those of members %s\n", n.LeftOut, firstOf(v.leftOut, n.LeftOut))
	}
	if len(n.Findings) > 0 {
		table := newTable(&text)
		fmt.Fprintln(table, "FOUND\tCLASS\tCAUSE") // into memory
		for _, name := range slices.Sorted(maps.Keys(n.Findings)) {
			class, cause, _ := strings.Cut(name, "/")
			fmt.Fprintf(table, "%d\t%s\t%s\n", n.Findings[name], class, cause)
		}
		_ = table.Flush()
	}
	text.WriteString("checked")
	if !n.Complete {
		text.WriteString(" so far")
	}
	fmt.Fprintf(&text, ": %d sets, %d answers; %d wrong", n.Checked, n.Answers, n.Erroneous)
	for _, part := range []struct {
		n    int
		what string
	}{{n.Unsettled, "changed too often to be judged"}, {n.Failed, "failed"}, {n.Repairs, "refills enqueued"}} {
		if part.n > 0 {
			fmt.Fprintf(&text, ", %d %s", part.n, part.what)
		}
	}
	took := time.Duration(n.Seconds * float64(time.Second)).Round(100 * time.Millisecond)
	_, err := fmt.Fprintf(v.out, "%s; %s, %.0f a second\n", text.String(), took, float64(n.Checked)/max(n.Seconds, 0.001))
	return err
}

// firstOf names members as the first of n.
func firstOf(members []member.ID, n int) string {
	var names []string
	for _, id := range members {
		names = append(names, id.String())
	}
	if len(names) < n {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}
