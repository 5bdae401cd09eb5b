package main

import (
	"cmp"
	"context"
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
	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
)

// verifyOptions are the flags of verify.
type verifyOptions struct {
	rate    int
	repair  bool
	answers float64
	asJSON  bool

	against string
	sample  int
	limit   int
}

func newVerify() *cobra.Command {
	c, v := &config{}, &verifyOptions{}
	cmd := &cobra.Command{
		Use:   "verify " + rangeUse,
		Short: "Compare sets with MySQL, and say what is wrong",
		Long: "Compare the sets of all members, or of some, with MySQL, and say what is wrong: an error; lag, when a task is\n" +
			"pending that will see to it; or waste, which costs a place or memory. Without an end of the range, sets of\n" +
			"deleted members are looked for, too. With --against, the answers of your site's own SELECT are compared\n" +
			"with activityd's instead, for a sample of the members. docs/operate.md and docs/setup.md say more.\n" +
			"Exit codes: 0 nothing is wrong; 2 errors were found, or answers differ; 1 it could not be verified to the end.",
		Example: "  activityd verify 4711 --repair\n  activityd verify --rate 500\n  activityd verify 1000000- --answers 0.01 --json\n" +
			"  activityd verify --against \"$(cat homepage.sql)\" --sample 5000",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			members, wrong := parseRange(args)
			if err := errors.Join(wrong, within("answers", v.answers, 0, 1), within("rate", v.rate, 0, maxRate),
				within("sample", v.sample, 1, 1_000_000_000),
				within("limit", v.limit, 1, api.MaxPhotos)); err != nil {
				return err
			}
			if v.against != "" {
				return v.runAgainst(cmd, c, members)
			}
			c.setLife = 0 // a look does not prolong the life of a set
			p := &progress{w: cmd.ErrOrStderr()}
			return withBackend(cmd, c, p, func(ctx context.Context, b *backend) error {
				defer runWake(ctx, b.wake, p)()
				return v.run(ctx, b, p, cmd.OutOrStdout(), members)
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&v.rate, "rate", 0, "max members a second; 0: as many as the servers can do")
	f.BoolVar(&v.repair, "repair", false, "enqueue a refill for each set that is wrong")
	f.Float64Var(&v.answers, "answers", 0, "`share` of the members whose answer is compared, too, 0 to 1: each costs a walk")
	f.StringVar(&v.against, "against", "", "your own `SELECT` with :viewer, whose answers are compared instead of the sets")
	f.IntVar(&v.sample, "sample", 1000, "members at most to compare with --against, chosen by chance")
	f.IntVar(&v.limit, "limit", defaultExplained, "photos that your page shows at most: the value of :limit with --against")
	for _, other := range []string{"repair", "answers"} {
		cmd.MarkFlagsMutuallyExclusive("against", other)
	}
	jsonFlag(f, &v.asJSON)
	c.backendFlags(f)
	return cmd
}

// verification compares sets, and prints the findings.
type verification struct {
	*verifyOptions
	*progress

	checker *check.Checker
	pace    *limits.Limiter
	batch   int // sets that are compared at once
	out     io.Writer
	sum     verified
}

// verified is the summary of a verification.
type verified struct {
	Complete  bool           `json:"complete"`
	Checked   int            `json:"checked"`
	Answers   int            `json:"answers"`
	LeftOut   int            `json:"answers_left_out"` // of members in whose answers the index has no part
	Erroneous int            `json:"erroneous"`
	Unsettled int            `json:"unsettled"` // that changed too often to be judged
	Repairs   int            `json:"repairs"`
	Failed    int            `json:"failed"`
	Findings  map[string]int `json:"findings"` // by "class/cause"
	Seconds   float64        `json:"seconds"`
}

// run compares the sets of members, and says what is wrong.
func (o *verifyOptions) run(ctx context.Context, b *backend, p *progress, out io.Writer, members memberRange) error {
	v := &verification{
		verifyOptions: o, progress: p, out: out, checker: b.checker(), sum: verified{Findings: map[string]int{}}, batch: 256,
	}
	if o.rate > 0 {
		v.batch = min(v.batch, o.rate)
	}
	v.pace = limits.NewLimiter(cmp.Or(limits.Limit(o.rate), limits.Inf), v.batch)
	total, err := b.store.CountMembers(ctx, members.first, members.last)
	if err == nil && total == 0 {
		err = members.checkNone()
	}
	if err != nil {
		return err
	}
	start := time.Now()
	if err = v.members(ctx, b, members, total); err == nil && members.last == allMembers.last {
		err = b.index.EachStored(ctx, v.orphans)
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", errSignalled, err)
	}
	v.sum.Complete, v.sum.Seconds = err == nil, time.Since(start).Seconds()
	if err := errors.Join(err, v.printSummary()); err != nil {
		return err
	}
	return v.conclude()
}

// members compares the members of the range.
func (v *verification) members(ctx context.Context, b *backend, members memberRange, total int64) error {
	args, seen := tasks.RangeArgs{After: members.first - 1, To: members.last}, int64(0)
	for more := true; more; {
		page, next, further, err := tasks.PageOf(ctx, b.store, args, v.batch)
		if err == nil {
			err = v.pace.WaitN(ctx, len(page))
		}
		if err == nil {
			err = v.check(ctx, v.checker.Check, &v.sum.Checked, page)
		}
		if err == nil {
			some := slices.DeleteFunc(slices.Clone(page), func(member.ID) bool { return rand.Float64() >= v.answers })
			err = v.check(ctx, v.checker.CheckAnswers, &v.sum.Answers, some)
		}
		if err != nil && seen > 0 {
			err = fmt.Errorf("%w\nall members up to %s are done; go on with %s", err, args.After, memberRange{args.After + 1, args.To})
		}
		if err != nil {
			return err
		}
		args, more, seen = next, further, seen+int64(len(page))
		v.moved(seen, total, "")
	}
	return nil
}

// orphans compares the sets of no member among the owners of sets.
func (v *verification) orphans(ctx context.Context, owners []member.ID) error {
	for some := range slices.Chunk(owners, v.batch) {
		err := v.pace.WaitN(ctx, len(some))
		if err == nil {
			some, err = v.checker.Orphans(ctx, some)
		}
		if err == nil {
			err = v.check(ctx, v.checker.Check, &v.sum.Checked, some)
		}
		if err != nil {
			return fmt.Errorf("look for sets of no member: %w", err)
		}
	}
	return nil
}

// check compares the sets or the answers of members, counts them, and repairs and prints the findings.
func (v *verification) check(
	ctx context.Context, compare func(context.Context, []member.ID) (check.Report, error), checked *int, members []member.ID,
) error {
	if len(members) == 0 {
		return nil
	}
	r, err := compare(ctx, members)
	if err == nil && v.repair {
		var n int
		n, err = v.checker.Repair(ctx, r.Wrong)
		v.sum.Repairs += n
	}
	if err != nil {
		return err
	}
	for id, err := range r.Failed {
		if len(r.Failed) == len(members) {
			return err // the node is away, if there is but one
		}
		v.say("member %s could not be compared: %v", id, err)
	}
	*checked += r.Checked
	v.sum.Failed += len(r.Failed)
	v.sum.LeftOut += len(r.Skipped)
	v.sum.Erroneous += r.Erroneous
	v.sum.Unsettled += r.Unsettled
	for _, f := range r.Findings {
		v.sum.Findings[string(f.Weight)+"/"+string(f.Cause)]++
		switch {
		case v.asJSON:
			err = printJSON(v.out, f)
		case f.Weight != check.Lag: // which will pass, and is in the table
			_, err = fmt.Fprintln(v.out, inspect.OneLine(f.String()))
		}
		if err != nil {
			return fmt.Errorf("print the findings: %w", err)
		}
	}
	return nil
}

// conclude returns the error that ends a verification: a difference, or members without a verdict.
func (v *verification) conclude() (err error) {
	if n := v.sum.Failed; n > 0 {
		err = fmt.Errorf("%d members could not be compared; the reasons are above", n)
	}
	if n := v.sum.Unsettled; n > 0 {
		err = errors.Join(err, fmt.Errorf("%d sets or answers changed too often to be judged: verify again", n))
	}
	if v.sum.Erroneous == 0 {
		return err
	}
	then := "--repair enqueues refills"
	if v.repair {
		then = "refills are enqueued: verify again when the workers have done them"
	}
	return &exitError{exitWrong, errors.Join(fmt.Errorf("%d sets or answers are wrong; %s", v.sum.Erroneous, then), err)}
}

// printSummary ends the output.
func (v *verification) printSummary() error {
	n := v.sum
	if v.asJSON {
		return printJSON(v.out, map[string]verified{"summary": n})
	}
	if len(n.Findings) > 0 {
		table := inspect.Table{Head: []string{"FOUND", "CLASS", "CAUSE"}}
		for _, name := range slices.Sorted(maps.Keys(n.Findings)) {
			class, cause, _ := strings.Cut(name, "/")
			table.Rows = append(table.Rows, []string{fmt.Sprint(n.Findings[name]), class, cause})
		}
		if err := printTable(v.out, table); err != nil {
			return err
		}
	}
	var text strings.Builder
	text.WriteString(map[bool]string{true: "checked", false: "checked so far"}[n.Complete])
	fmt.Fprintf(&text, ": %d sets, %d answers; %d wrong", n.Checked, n.Answers, n.Erroneous)
	for _, part := range []struct {
		n    int
		what string
	}{
		{n.Unsettled, "changed too often to be judged"},
		{n.Failed, "failed"},
		{n.Repairs, "refills enqueued"},
		{n.LeftOut, "answers left out, as the index had no part in them"},
	} {
		if part.n > 0 {
			fmt.Fprintf(&text, ", %d %s", part.n, part.what)
		}
	}
	_, err := fmt.Fprintf(v.out, "%s; %.1fs, %.0f a second\n", text.String(), n.Seconds, float64(n.Checked)/max(n.Seconds, 0.001))
	return err
}
