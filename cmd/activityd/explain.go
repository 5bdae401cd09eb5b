package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/plural"
	"github.com/activityd/activityd/internal/recent"
)

// question is what the command line of explain asks.
type question struct {
	viewer contacts.Viewer
	limit  int
	output string
}

// mostPhotos is the API's limit, too.
const mostPhotos = 50

func newExplain() *cobra.Command {
	c, q := &config{}, question{}
	cmd := &cobra.Command{
		Use:   "explain USER",
		Short: "Say why a user is shown the photos of this contact and of nobody else",
		Long: "Ask what USER's homepage shows, as the API would, and say why: each candidate with its score,\n" +
			"what it shows USER and what it hides, the verdict on it, and the proof that nobody else can have\n" +
			"won. It tells what USER must not know: who blocks USER, what is hidden and how USER is called.\n" +
			"Nothing is changed; the set is not repaired.\n\n" +
			"With --output=json, it is what an operator's token gets from the API with explain=1.",
		Example: "  activityd explain 12345\n  activityd explain 12345 -o json",
		Args:    exactly("USER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if q.viewer.ID, err = member.Parse(args[0]); err != nil {
				return fmt.Errorf("USER: %w", err)
			}
			if err := q.check(); err != nil {
				return err
			}
			return lookAround(cmd, c, func(ctx context.Context, s *server) error {
				return advised(q.viewer.ID, q.ask(ctx, s.reader, cmd.OutOrStdout()))
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&q.limit, "limit", 10, "how many photos at most")
	outputFlag(f, &q.output)
	c.lookFlags(f)
	return cmd
}

func (q question) check() error {
	if q.limit < 1 || q.limit > mostPhotos {
		return fmt.Errorf("--limit: is %d: want 1 to %d", q.limit, mostPhotos)
	}
	return nil
}

func (q question) ask(ctx context.Context, reader *recent.Reader, out io.Writer) error {
	answer, err := reader.Read(ctx, q.viewer, q.limit)
	if err != nil {
		return err
	}
	why, err := answer.ToOperator(ctx)
	if err != nil {
		return err
	}
	if q.output == outputJSON {
		return newLineEncoder(out).Encode(api.OperatorAnswer(q.viewer, answer, why))
	}
	return printExplanation(out, q.viewer.ID, answer, why)
}

// noMember is the error for a USER who is none.
func noMember(user member.ID) error {
	return fmt.Errorf("%w: %s: USER is an id of the table users", contacts.ErrNoMember, user)
}

// advised adds to an error about a user what can be done about it.
func advised(user member.ID, err error) error {
	switch {
	case errors.Is(err, contacts.ErrNoMember):
		return noMember(user)
	case errors.Is(err, mysql.ErrUnavailable):
		return fmt.Errorf("%w: start MySQL, or correct --mysql-dsn (%s)", err, environmentName("mysql-dsn"))
	}
	return err
}

func printExplanation(w io.Writer, viewer member.ID, a recent.Answer, why recent.OperatorExplanation) error {
	fmt.Fprintf(w, "%s\n\n", headline(viewer, a))
	if len(why.Candidates) > 0 {
		if err := printCandidates(w, why.Candidates); err != nil {
			return err
		}
		fmt.Fprintf(w, "\nDates are UTC. Score and verdict are those of the read; the rest was looked up a moment after it.\n\n")
	}
	walk := "not needed"
	if why.Walk != nil {
		walk = walkText(*why.Walk)
	}
	_, err := fmt.Fprintf(w, "proof    %s\nwalk     %s\ntimings  %s\n", why.Proof, walk, timings(why.Steps))
	return err
}

// headline is the answer in a line.
func headline(viewer member.ID, a recent.Answer) string {
	if a.Contact == nil || len(a.Photos) == 0 {
		return fmt.Sprintf("%s sees nothing, says the %s", viewer, a.Source)
	}
	return fmt.Sprintf("%s sees %s of %s, newest %s, from the %s",
		viewer, plural.Of(len(a.Photos), "photo", "photos"), named(a.Contact.ID, a.Contact.Username), date(a.Photos[0].DateUpload), a.Source)
}

// named adds the name to an id, if there is one.
func named(id member.ID, name string) string {
	if name == "" {
		return id.String()
	}
	return fmt.Sprintf("%s (%s)", id, oneLine(name))
}

func printCandidates(w io.Writer, candidates []recent.Candidate) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows := [][]string{{"CONTACT", "SCORE", "LAST UPLOAD", "NEWEST VISIBLE", "NEWEST HIDDEN", "GRANTS", "VERDICT"}}
	chosen := dateOfChosen(candidates)
	for _, c := range candidates {
		row := candidateCells(c)
		if saysMore(c, chosen) {
			row = append(row, c.Why)
		}
		rows = append(rows, row)
	}
	if slices.ContainsFunc(rows, func(row []string) bool { return len(row) > len(rows[0]) }) {
		rows[0] = append(rows[0], "BECAUSE")
	}
	for _, row := range rows {
		_, _ = fmt.Fprintln(table, strings.Join(row, "\t")) // Flush returns its error
	}
	return table.Flush()
}

// dateOfChosen is the date of the newest photo of who was chosen; 0: nobody was.
func dateOfChosen(candidates []recent.Candidate) uint64 {
	for _, c := range candidates {
		if c.Verdict == recent.Chosen {
			return c.Newest
		}
	}
	return 0
}

// saysMore tells whether the reason for a verdict says more than the verdict, the
// dates beside it and the proof below the table do.
func saysMore(c recent.Candidate, chosen uint64) bool {
	switch c.Verdict {
	case recent.Chosen:
		return !c.InSet
	case recent.Blocked, recent.NotLooked:
		return false
	case recent.Nothing:
		return c.Now == nil
	case recent.Older:
		return c.Newest >= chosen // so it was not by the date
	case recent.Newer, recent.NotContact:
	}
	return true
}

func candidateCells(c recent.Candidate) []string {
	now := contacts.Detail{}
	if c.Now != nil {
		now = *c.Now
	}
	visible := c.Newest
	if visible == 0 && c.Verdict == recent.NotLooked && now.Newest != nil {
		visible = now.Newest.DateUpload
	}
	hidden := "-"
	if now.Hidden != nil {
		hidden = fmt.Sprintf("%s %s", day(now.Hidden.DateUpload), now.Hidden.Visibility)
	}
	var grants []string
	if now.Friend {
		grants = append(grants, "friend")
	}
	if now.Family {
		grants = append(grants, "family")
	}
	return []string{
		named(c.Contact, now.Username), day(c.Score), day(now.LastUpload), day(visible), hidden,
		cmp.Or(strings.Join(grants, ","), "-"), string(c.Verdict),
	}
}

// day writes unix seconds as a date in UTC, and none as "-".
func day(unix uint64) string {
	if unix == 0 {
		return "-"
	}
	return time.Unix(int64(unix), 0).UTC().Format(time.DateTime)
}

func walkText(w recent.WalkExplanation) string {
	return fmt.Sprintf("because %s: looked at %s (%s, %s), and stopped because %s",
		w.Reason, plural.Of(w.LookedAt, "contact", "contacts"), plural.Of(w.Passes, "pass", "passes"),
		plural.Of(w.Statements, "statement", "statements"), w.Stopped)
}

// timings are those of the read, and apart from them that of the explanation.
func timings(steps []recent.Step) string {
	var read, after []string
	for _, s := range steps {
		text := fmt.Sprintf("%s %.2f ms", s.Name, float64(s.Took.Microseconds())/1000)
		if s.Name == "details" {
			after = append(after, "; afterwards "+text)
		} else {
			read = append(read, text)
		}
	}
	return strings.Join(read, ", ") + strings.Join(after, "")
}
