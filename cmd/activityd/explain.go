package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/tasks"
)

func newExplain() *cobra.Command {
	c, limit, output := &config{}, 0, ""
	cmd := &cobra.Command{
		Use:   "explain MEMBER",
		Short: "Say why a member is shown the photos of this contact and of no other",
		Long: "Read what MEMBER's homepage shows, as the API would, and say why: each candidate with its score,\n" +
			"what it shows MEMBER and what it hides, the verdict on it, and the proof that no other contact has\n" +
			"a newer photo. It shows what MEMBER must not know: who blocks MEMBER, and what is hidden.\n" +
			"Nothing is changed; the set is not repaired.\n\n" +
			"With --output=json it prints the facts, as the API does with explain=1.",
		Example: "  activityd explain 12345\n  activityd explain 12345 -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := member.Parse(args[0])
			if err != nil {
				return fmt.Errorf("MEMBER: %w", err)
			}
			if limit < 1 || limit > api.MaxPhotos {
				return fmt.Errorf("--limit: is %d: want 1 to %d", limit, api.MaxPhotos)
			}
			return withService(cmd, c, func(ctx context.Context, s *service) error {
				v, out := contacts.Viewer{ID: id}, cmd.OutOrStdout()
				e, err := s.reader.Explain(ctx, v, limit)
				if err != nil {
					return advised(id, err)
				}
				answer := api.Explained(v, e)
				if due, err := s.queue.Due(ctx); err == nil { // else it is not known
					answer.SetBehind(tasks.Behind(due))
				}
				if output == outputJSON {
					return newLineEncoder(out).Encode(answer)
				}
				return printExplanation(out, id, e, answer.Behind)
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&limit, "limit", 10, "photos at most")
	outputFlag(f, &output)
	c.lookFlags(f)
	return cmd
}

// noMember is the error for an id that is not in the table users.
func noMember(id member.ID) error {
	return fmt.Errorf("%w: %s: want an id of the table users", contacts.ErrNoMember, id)
}

// advised adds to an error of a read what can be done about it.
func advised(id member.ID, err error) error {
	switch {
	case errors.Is(err, contacts.ErrNoMember):
		return noMember(id)
	case errors.Is(err, mysql.ErrUnavailable):
		return fmt.Errorf("%w: start MySQL, or correct --mysql-dsn (%s)", err, settings.Variable("mysql-dsn"))
	}
	return err
}

func printExplanation(w io.Writer, viewer member.ID, e recent.Explanation, behind *float64) error {
	headline := fmt.Sprintf("%s sees nothing, from the %s", viewer, e.Source)
	if e.Contact != nil && len(e.Photos) > 0 {
		headline = fmt.Sprintf("%s sees %s, from the %s; photos: %d, newest: %s",
			viewer, named(e.Contact.ID, e.Contact.Username), e.Source, len(e.Photos), date(e.Photos[0].DateUpload))
	}
	fmt.Fprintf(w, "%s\n\n", headline)
	if len(e.Candidates) > 0 {
		if err := printCandidates(w, e); err != nil {
			return err
		}
		fmt.Fprintf(w, "\nDates are UTC. Score and verdict are those of the read; the rest was looked up a moment after it.\n\n")
	}
	walk := "not needed"
	if e.Trace.WalkReason != "" {
		t := e.Trace.Walk
		walk = fmt.Sprintf("because %s; contacts looked at: %d, passes: %d, statements: %d",
			cmp.Or(walkReasons[e.Trace.WalkReason], e.Trace.WalkReason), t.LookedAt, t.Passes, t.Statements)
	}
	var steps []string
	for _, s := range e.Trace.Steps {
		steps = append(steps, fmt.Sprintf("%s %.2f ms", s.Name, float64(s.Took.Microseconds())/1000))
	}
	_, err := fmt.Fprintf(w, "proof    %s\nwalk     %s\n%stimings  %s\n", proof(e), walk, behindLine(behind), strings.Join(steps, ", "))
	return err
}

// behindLine says of an answer by the index how far behind the sets may be.
func behindLine(seconds *float64) string {
	switch {
	case seconds == nil:
		return ""
	case *seconds == 0:
		return "behind   no, no task is due\n"
	}
	return fmt.Sprintf("behind   by up to %.1f s: the oldest task that may change a set waits for so long\n", *seconds)
}

// named adds the name to an id, if there is one.
func named(id member.ID, name string) string {
	if name == "" {
		return id.String()
	}
	return fmt.Sprintf("%s (%s)", id, inspect.OneLine(name))
}

// day returns unix seconds as a date in UTC, "-" for 0.
func day(unix uint64) string {
	if unix == 0 {
		return "-"
	}
	return time.Unix(int64(unix), 0).UTC().Format(time.DateTime)
}

func printCandidates(w io.Writer, e recent.Explanation) error {
	rows := [][]string{{"CONTACT", "SCORE", "LAST UPLOAD", "NEWEST VISIBLE", "NEWEST HIDDEN", "GRANTS", "VERDICT"}}
	for _, c := range e.Candidates {
		row := candidateCells(c)
		if why := because(c, e.Album); why != "" {
			row = append(row, why)
		}
		rows = append(rows, row)
	}
	if slices.ContainsFunc(rows, func(row []string) bool { return len(row) > len(rows[0]) }) {
		rows[0] = append(rows[0], "BECAUSE")
	}
	table := newTable(w)
	for _, row := range rows {
		_, _ = fmt.Fprintln(table, strings.Join(row, "\t")) // Flush returns its error
	}
	return table.Flush()
}

func candidateCells(c recent.Candidate) []string {
	visible := c.Newest
	if visible == 0 && c.Verdict == recent.NotLooked && c.Now.Newest != nil {
		visible = c.Now.Newest.DateUpload
	}
	hidden := "-"
	if h := c.Now.Hidden; h != nil {
		hidden = fmt.Sprintf("%s %s", day(h.DateUpload), h.Visibility)
	}
	var grants []string
	if c.Now.Friend {
		grants = append(grants, "friend")
	}
	if c.Now.Family {
		grants = append(grants, "family")
	}
	return []string{
		named(c.Contact, c.Now.Username), day(c.Score), day(c.Now.LastUpload), day(visible), hidden,
		cmp.Or(strings.Join(grants, ","), "-"), string(c.Verdict),
	}
}

// because returns the reason for a verdict; "" where the verdict and the dates beside it
// are enough.
func because(c recent.Candidate, shown contacts.Album) string {
	switch {
	case c.Verdict == recent.Chosen && !c.InSet:
		return "the walk found it; it is not in the set"
	case c.Verdict == recent.Older && (len(shown.Photos) == 0 || shown.Photos[0].DateUpload < c.Newest):
		return "it changed during the read"
	case c.Verdict == recent.Older && shown.Photos[0].DateUpload == c.Newest && shown.Photos[0].ID < c.NewestID:
		return "it changed during the read"
	case c.Verdict == recent.Older && shown.Photos[0].DateUpload == c.Newest:
		return "its newest photo is of the same second and has the lower id"
	case c.Verdict == recent.NotContact && !c.Now.IsMember:
		return "it is no member any more: the set is behind"
	case c.Verdict == recent.NotContact && c.Now.IsContact:
		return "it became a contact after the read"
	case c.Verdict == recent.NotContact:
		return "it is no contact any more: the set is behind"
	}
	return ""
}

// proof says why no other contact has a newer visible photo.
func proof(e recent.Explanation) string {
	var newest string
	if len(e.Photos) > 0 {
		newest = day(e.Photos[0].DateUpload)
	}
	switch bound, walk := day(e.Trace.Bound()), e.Trace.Walk; {
	case e.Trace.Proof == recent.ByNext:
		return fmt.Sprintf("the newest visible photo of the first candidate (%s) is newer than the score of the next (%s), "+
			"and no contact after that uploaded later", newest, bound)
	case e.Trace.Proof == recent.ByLowest:
		return fmt.Sprintf("the newest visible photo of all candidates (%s) is newer than the lowest score of the set (%s), "+
			"and no contact outside of the set uploaded later", newest, bound)
	case e.Trace.Proof == recent.ByAll && newest == "":
		return fmt.Sprintf("the set holds all contacts that ever uploaded (%d), and none has a visible photo", len(e.Trace.Candidates))
	case e.Trace.Proof == recent.ByAll:
		return fmt.Sprintf("the set holds all contacts that ever uploaded (%d), and no other has a newer visible photo", len(e.Trace.Candidates))
	case walk.Bound > 0:
		return fmt.Sprintf("the newest visible photo that the walk found (%s) is newer than the last upload (%s at most) of each contact "+
			"that it did not look at", newest, bound)
	case walk.LookedAt == 0:
		return "the viewer has no contact that ever uploaded"
	}
	return fmt.Sprintf("the walk looked at all contacts that ever uploaded (%d)", e.Trace.Walk.LookedAt)
}

// walkReasons says in words why a walk was needed.
var walkReasons = map[string]string{
	recent.SetMissing:       "the set is missing",
	recent.SetMalformed:     "the set is malformed",
	recent.OtherSettings:    "the sets were built with other settings",
	recent.RedisUnavailable: "redis is unavailable",
	recent.SetUnknown:       "redis came back with data that may be old, which are being deleted",
	recent.WritesRefused:    "redis refuses writes, so that the set may be behind",
	recent.NothingVisible:   "no candidate has a visible photo",
	recent.BestTooOld:       "the best candidate's photo is not newer than the lowest score",
	recent.PhotosChanged:    "the photos changed during the read",
}
