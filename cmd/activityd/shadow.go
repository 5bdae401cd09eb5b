package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/shadow"
)

// shadowOptions are the flags of shadow.
type shadowOptions struct {
	control  string
	limit    int
	sample   int
	rate     int
	pace     string
	duration time.Duration
	timeout  time.Duration
	progress time.Duration
	output   string
}

func newShadow() *cobra.Command {
	c, o := &config{}, &shadowOptions{}
	cmd := &cobra.Command{
		Use:   "shadow [MEMBER | FROM-TO]",
		Short: "Compare your own statement with the read, for a sample of the members",
		Long: "Run the statement by which your site finds what a member is shown beside the read of activityd, for\n" +
			"a sample of the members, and say where the two answers differ, why, and what each costs.\n\n" +
			"For each member both run in one transaction, which is read-only and sees one instant: a difference\n" +
			"is a fact. The statement is one SELECT with the placeholders :viewer and :limit; its first column\n" +
			"is the id of a photo, in the order in which they are shown. --mysql-dsn may have a user with no\n" +
			"right but SELECT. Nothing is changed.\n\n" +
			"Members are compared one after the other, at --rate at most, and slower while MySQL or Redis is\n" +
			"slow, unless --pace is full. The server ends a statement that takes longer than --timeout; three in a row end the run.\n\n" +
			"A difference has a class: hidden by theirs or by ours (block, relation, visibility, deleted), another\n" +
			"contact, unexplained, order of equals (photos of one second), lag (a task is pending). The last two\n" +
			"are harmless. The page shadow.md of the documentation says what each means.\n\n" +
			"Exit codes:\n" +
			"  0  no difference but harmless ones\n" +
			"  2  differences were found\n" +
			"  1  it could not be compared to the end, or not for all members of the sample" + outputHelp + "\n" +
			"Each difference is a line; the last line is the summary.",
		Example: "  activityd shadow --control 'SELECT p.id FROM photos p JOIN contacts c ON c.contact_id = p.owner_id\n" +
			"    WHERE c.user_id = :viewer AND … ORDER BY p.date_upload DESC, p.id DESC LIMIT :limit'\n" +
			"  activityd shadow 4711 --control \"$(cat homepage.sql)\" -o json",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			within, wrong := parseRange(args, false)
			statement, unread := shadow.ParseStatement(o.control)
			if unread != nil {
				unread = fmt.Errorf("--control: %w", unread)
			}
			if err := errors.Join(wrong, unread, o.check(), c.check(cmd.Flags())); err != nil {
				return err
			}
			return runShadow(cmd, c, o, statement, within)
		},
	}
	o.flags(cmd.Flags())
	c.lookFlags(cmd.Flags())
	return cmd
}

func (o *shadowOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.control, "control", "", "your own `statement`, with :viewer and :limit (required)")
	f.IntVar(&o.limit, "limit", defaultExplained, "photos at most, the value of :limit")
	f.IntVar(&o.sample, "sample", 1000, "members at most, chosen by chance")
	f.IntVar(&o.rate, "rate", 10, "max members a second; 0: as many as the servers can do, one after the other")
	paceFlag(f, &o.pace)
	f.DurationVar(&o.duration, "duration", 0, "end after this time, whatever is left of the sample; 0: never")
	f.DurationVar(&o.timeout, "timeout", shadow.DefaultTimeout, "after which the server ends the statement")
	progressFlag(f, &o.progress)
	outputFlag(f, &o.output)
}

// maxShadowed bounds the memory: 12 bytes for each of the two answers.
const maxShadowed = 1_000_000

func (o *shadowOptions) check() error {
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	wrong(o.limit < 1 || o.limit > api.MaxPhotos, "--limit: is %d: want 1 to %d", o.limit, api.MaxPhotos)
	wrong(o.sample < 1 || o.sample > maxShadowed, "--sample: is %d: want 1 to %d", o.sample, maxShadowed)
	wrong(o.rate < 0, "--rate: is %d: want 0 or more", o.rate)
	wrong(o.duration < 0, "--duration: is %v: want 0 or more", o.duration)
	wrong(o.timeout < 10*time.Millisecond || o.timeout > time.Minute, "--timeout: is %v: want 10ms to 1m", o.timeout)
	return errors.Join(append(errs, checkPace(o.pace))...)
}

func runShadow(cmd *cobra.Command, c *config, o *shadowOptions, statement shadow.Statement, within bulk.Range) error {
	c.setLife = 0 // a look does not prolong the life of a set
	b := &bulkCommand{reporter: newReporter(cmd.ErrOrStderr(), o.progress)}
	var err error
	if b.backend, err = openBackend(c, newLogger(c, b.reporter)); err != nil {
		return err
	}
	defer b.close()
	ctx := cmd.Context()
	db, err := openMySQL(c, 1) // its sessions have the time limit
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // it only read
	if err := b.checkSchema(ctx); err != nil {
		return err
	}
	if err := namedRedis(b.checkSettings(ctx, c.materialize, false)); err != nil {
		return err
	}
	auditor := audit.New(audit.Options{Sets: b.index, Truth: b.store, Tasks: b.queue, ActiveOnly: c.materialize == materializeActive})
	pacer := bulk.NewPacer(bulk.PacerOptions{
		Parallel: 1, Rate: o.rate, Full: o.pace == paceFull, Changed: b.Paced,
		Probes: []bulk.Probe{{Name: "MySQL", Ask: bulk.ProbeMySQL(b.store)}, {Name: "Redis", Ask: askingRedis(b.index), Floor: bulk.RedisFloor}},
	})
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		pacer.Run(watching)
	}()
	defer func() { stop(); <-watched }()
	out := &shadowPrinter{w: cmd.OutOrStdout(), asJSON: o.output == outputJSON}
	run := &shadow.Run{
		Comparer:  shadow.NewComparer(shadow.Options{DB: db, Index: b.index, Auditor: auditor, Reads: c.readerOptions(b.index.Settings()), Timeout: o.timeout}),
		Statement: statement, Limit: o.limit, Members: b.store, Range: within, Sample: o.sample, Pacer: pacer, Duration: o.duration,
		Begin: func(n int) { b.Begin(int64(n), 0, time.Time{}) }, Trouble: b.Trouble, GaveUp: b.GaveUp,
		Done: func(c shadow.Comparison) error {
			b.Moved(1)
			return out.difference(c.Difference)
		},
	}
	tally, err := run.Do(ctx)
	if ctx.Err() != nil {
		err = errSignalled
	}
	if err != nil && tally.Reads == 0 {
		return err
	}
	if printing := out.summary(tally, err == nil); err != nil || printing != nil {
		return errors.Join(err, printing)
	}
	return concludeShadow(tally)
}

// concludeShadow returns the error that ends a run that came to its end.
func concludeShadow(t *shadow.Tally) error {
	var undone error
	if n := t.TooSlow + t.Failed; n > 0 {
		undone = fmt.Errorf("%d members could not be compared; the reasons are above", n)
	}
	if n := t.Harmful(); n > 0 {
		return &exitError{exitWrong, errors.Join(fmt.Errorf("%d of %d answers differ", n, t.Reads), undone)}
	}
	return undone
}

// shadowPrinter writes what was found.
type shadowPrinter struct {
	w      io.Writer
	asJSON bool
}

// difference writes a difference, which as text is in the summary.
func (p *shadowPrinter) difference(d *shadow.Difference) error {
	if d == nil || !p.asJSON {
		return nil
	}
	return newLineEncoder(p.w).Encode(d)
}

func (p *shadowPrinter) summary(t *shadow.Tally, complete bool) error {
	if p.asJSON {
		return newLineEncoder(p.w).Encode(map[string]any{"summary": newShadowSummary(t, complete)})
	}
	_, err := io.WriteString(p.w, shadowText(t, complete))
	return err
}

// shadowSummary is a tally, as other programs read it.
type shadowSummary struct {
	Complete    bool           `json:"complete"`
	Sample      int            `json:"sample"`
	Reads       int            `json:"reads"`
	Same        int            `json:"same"`
	Gone        int            `json:"gone"`
	TooSlow     int            `json:"too_slow"`
	Failed      int            `json:"failed"`
	Harmful     int            `json:"harmful"`
	Unexplained int            `json:"unexplained"`
	Below       float64        `json:"unexplained_below,omitzero"` // the share of members, with 95 % confidence, where none is unexplained
	Differences []shadowKind   `json:"differences"`
	Walks       map[string]int `json:"walks"`
	Ours        shadowCosts    `json:"ours"`
	Theirs      shadowCosts    `json:"theirs"`
	RowsLeft    float64        `json:"rows_left,omitzero"` // of each row that theirs reads
	Seconds     float64        `json:"seconds"`
}

type shadowKind struct {
	Class    shadow.Class       `json:"class"`
	Cause    shadow.Cause       `json:"cause,omitzero"`
	Count    int                `json:"count"`
	Harmless bool               `json:"harmless"`
	Example  *shadow.Difference `json:"example"`
}

type shadowCosts struct {
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	Rows50  int     `json:"rows_p50"`
	Rows99  int     `json:"rows_p99"`
	RowsAll int     `json:"rows"`
}

func newShadowSummary(t *shadow.Tally, complete bool) shadowSummary {
	s := shadowSummary{
		Complete: complete, Sample: t.Sample, Reads: t.Reads, Same: t.Same, Gone: t.Gone, TooSlow: t.TooSlow, Failed: t.Failed,
		Harmful: t.Harmful(), Unexplained: t.Of(shadow.Unexplained), Differences: []shadowKind{}, Walks: t.Walks,
		Ours: newShadowCosts(&t.Ours), Theirs: newShadowCosts(&t.Theirs), Seconds: t.Took.Seconds(),
	}
	if s.Unexplained == 0 && t.Reads > 0 {
		s.Below = shadow.Bound(t.Reads)
	}
	if t.Theirs.Rows > 0 {
		s.RowsLeft = float64(t.Ours.Rows) / float64(t.Theirs.Rows)
	}
	for kind, f := range t.Kinds {
		s.Differences = append(s.Differences, shadowKind{kind.Class, kind.Cause, f.Count, kind.Class.IsHarmless(), f.Example})
	}
	slices.SortFunc(s.Differences, func(a, b shadowKind) int {
		classes := shadow.Classes()
		return cmp.Or(slices.Index(classes, a.Class)-slices.Index(classes, b.Class), cmp.Compare(a.Cause, b.Cause))
	})
	return s
}

func newShadowCosts(c *shadow.Costs) shadowCosts {
	half, most := c.Quantile(0.5), c.Quantile(0.99)
	return shadowCosts{milliseconds(half.Took), milliseconds(most.Took), half.Rows, most.Rows, c.Rows}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// shadowText is a summary for people.
func shadowText(t *shadow.Tally, complete bool) string {
	s := newShadowSummary(t, complete)
	var text strings.Builder
	table := newTable(&text)
	if len(s.Differences) > 0 {
		_, _ = fmt.Fprintln(table, "FOUND\tCLASS\tCAUSE\tSMALLEST EXAMPLE") // into memory, as all below
		for _, d := range s.Differences {
			_, _ = fmt.Fprintf(table, "%d\t%s\t%s\tactivityd explain %s: %s\n", d.Count, words(string(d.Class)), cmp.Or(words(string(d.Cause)), "-"), d.Example.Viewer, exampleText(d.Example))
		}
		_ = table.Flush()
		text.WriteByte('\n')
	}
	_, _ = fmt.Fprintln(table, "ANSWERS\tP50\tP99\tROWS P50\tROWS P99\tROWS")
	for _, side := range []struct {
		name string
		c    shadowCosts
	}{{"theirs", s.Theirs}, {"ours", s.Ours}} {
		_, _ = fmt.Fprintf(table, "%s\t%.2f ms\t%.2f ms\t%d\t%d\t%d\n", side.name, side.c.P50, side.c.P99, side.c.Rows50, side.c.Rows99, side.c.RowsAll)
	}
	_ = table.Flush()
	if s.RowsLeft > 0 {
		fmt.Fprintf(&text, "of each 100 rows that MySQL reads for theirs, it would read %.3g for ours\n", 100*s.RowsLeft)
	}
	for _, reason := range slices.Sorted(maps.Keys(t.Walks)) {
		fmt.Fprintf(&text, "ours walked %d times: %s\n", t.Walks[reason], words(reason))
	}
	fmt.Fprintf(&text, "%d reads", t.Reads)
	if !complete {
		text.WriteString(" so far")
	}
	fmt.Fprintf(&text, " of a sample of %d: %d the same, %d differ, of which %d are harmless", t.Sample, t.Same, t.Reads-t.Same, t.Reads-t.Same-s.Harmful)
	for _, also := range []struct {
		n    int
		what string
	}{{t.Gone, "members are gone"}, {t.TooSlow, "statements took too long"}, {t.Failed, "failed"}} {
		if also.n > 0 {
			fmt.Fprintf(&text, "; %d %s", also.n, also.what)
		}
	}
	fmt.Fprintf(&text, "; %s\n%d reads, %d unexplained", t.Took.Round(100*time.Millisecond), t.Reads, s.Unexplained)
	if s.Below > 0 {
		fmt.Fprintf(&text, ": below %.3g %% of the members with 95 %% confidence (3/N)", 100*s.Below)
	}
	text.WriteByte('\n')
	return text.String()
}

// exampleText describes a difference beyond its class.
func exampleText(d *shadow.Difference) string {
	text := "theirs shows nothing"
	if d.Photo > 0 {
		text = fmt.Sprintf("photo %d", d.Photo)
		if d.Owner > 0 {
			text += fmt.Sprintf(" of member %s", d.Owner)
		}
	}
	return text + ": " + inspect.OneLine(d.Detail)
}

func words(name string) string { return strings.ReplaceAll(name, "_", " ") }
