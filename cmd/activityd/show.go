package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/plural"
)

func newShow() *cobra.Command {
	c := &config{}
	cmd := &cobra.Command{
		Use:   "show USER",
		Short: "Show a user's set beside what MySQL says, differences marked",
		Long: "Show a user's set beside what MySQL says, differences marked. Nothing is changed.\n\n" +
			"The exit code is 0 when it was looked at, whatever it is like (verify judges), and 1 when it could\n" +
			"not be, or when USER is no member.",
		Example: "  activityd show 12345",
		Args:    exactly("USER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			user, err := member.Parse(args[0])
			if err != nil {
				return fmt.Errorf("USER: %w", err)
			}
			return lookAround(cmd, c, func(ctx context.Context, s *server) error {
				v, err := s.compareSet(ctx, user)
				if err != nil {
					return err
				}
				return v.tell(cmd.OutOrStdout())
			})
		},
	}
	c.lookFlags(cmd.Flags())
	return cmd
}

// lookFlags registers what [lookAround] needs.
func (c *config) lookFlags(f *pflag.FlagSet) {
	c.mysqlFlags(f)
	c.redisFlags(f)
	c.indexFlags(f)
}

// lookAround opens what serve stands on, for a command that only reads.
func lookAround(cmd *cobra.Command, c *config, look func(context.Context, *server) error) error {
	if err := c.check(cmd.Flags()); err != nil {
		return err
	}
	c.setLife = 0 // a look does not prolong the life of a set
	server, err := openServer(c, newLogger(c, io.Discard))
	if err != nil {
		return err
	}
	defer func() { _ = closeAll(server.closers) }() // it only read
	return look(cmd.Context(), server)
}

// setView is a set beside the truth.
type setView struct {
	audit.Comparison
	settings index.Settings
	lines    []setLine
}

// setLine is one contact of the set, or one that should be in it.
type setLine struct {
	contact    member.ID
	score      uint64 // unix seconds, in the set
	inSet      bool
	lastUpload uint64 // unix seconds, in MySQL
	isContact  bool
	difference string // empty: none
}

// compareSet reads a user's set and what it should hold. It fails when the set
// cannot be read; that there is none is a finding.
func (s *service) compareSet(ctx context.Context, user member.ID) (setView, error) {
	c, err := s.newAuditor(nil).Compare(ctx, user)
	view := setView{Comparison: c, settings: s.index.Settings()}
	view.fillIn()
	return view, err
}

// fillIn makes the lines: the set in its order, then those who are missing. Of a
// set that says by its size that it is complete, or that is not there, everybody
// is missing who is not in it.
func (v *setView) fillIn() {
	differences := make(map[member.ID]string)
	for _, f := range v.Findings {
		differences[f.Contact] = inWords(f)
	}
	present := make(map[member.ID]bool)
	for _, e := range slices.Backward(v.Set.Members) {
		present[e.Contact] = true
		lastUpload, isContact := v.Facts.LastUploads[e.Contact]
		v.lines = append(v.lines, setLine{e.Contact, e.Score, true, lastUpload, isContact, differences[e.Contact]})
	}
	complete := v.Set.Size < v.settings.Min
	for _, c := range v.Facts.Top {
		difference := differences[c.ID]
		if complete && difference == "" {
			difference = isMissing
		}
		if !present[c.ID] && difference != "" {
			v.lines = append(v.lines, setLine{contact: c.ID, lastUpload: c.LastUpload, isContact: true, difference: difference})
		}
	}
}

const isMissing = "missing in the set"

// inWords tells a finding about a contact.
func inWords(f audit.Finding) string {
	text := string(f.Cause)
	switch f.Cause {
	case audit.Ghost:
		text = "ghost: not a contact"
	case audit.StaleScore:
		text = "stale: uploaded since"
	case audit.HighScore:
		text = "high: harmless, costs a look"
	case audit.MissingContact:
		text = isMissing
	}
	if f.Class == audit.Lag {
		text += "; a task is pending"
	}
	if f.Detail != "" {
		text += "; " + f.Detail
	}
	return text
}

// printWhole tells what is wrong with the set as a whole.
func (v *setView) printWhole(w io.Writer) error {
	for _, f := range v.Findings {
		if f.Contact != 0 || f.Cause == audit.LostSet {
			continue
		}
		text := fmt.Sprintf("the set as a whole: %s: there are %d, and should be %d", inWords(f), f.Stored, f.Actual)
		if f.Cause == audit.LowLastUpload {
			text = fmt.Sprintf("the member itself: %s: a photo of %s is newer than the last upload, %s", inWords(f), date(f.Actual), date(f.Stored))
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
}

// tell prints the view. Of who is no member only that is told, and what is stored
// all the same.
func (v *setView) tell(w io.Writer) error {
	if v.Facts.Exists {
		return v.print(w)
	}
	nobody := noMember(v.Set.User)
	if !v.Set.Known {
		return nobody
	}
	if err := v.print(w); err != nil {
		return err
	}
	return fmt.Errorf("%w; the set costs memory and does no harm: activityd verify --repair finds such sets, and has them deleted", nobody)
}

func (v *setView) print(w io.Writer) error {
	different := 0
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "CONTACT\tIN THE SET\tIN MYSQL\tDIFFERENCE") // Flush returns its error
	for _, l := range v.lines {
		inSet, inMySQL := "-", "-"
		if l.inSet {
			inSet = date(l.score)
		}
		if l.isContact {
			inMySQL = date(l.lastUpload)
		}
		if l.difference != "" {
			different++
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", l.contact, inSet, inMySQL, l.difference)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if err := v.printWhole(w); err != nil {
		return err
	}
	key := index.UserKey(v.Set.User)
	summary := fmt.Sprintf("%s: %s (%s), %s", key, plural.Of(v.Set.Size, "member", "members"), v.settings, plural.Of(different, "difference", "differences"))
	if !v.Set.Known {
		summary = key + ": there is no set; the next read or task of this user makes one"
		if len(v.lines) == 0 {
			summary = key + ": there is no set, and MySQL knows no contact of this user who ever uploaded"
		}
	}
	_, err := fmt.Fprintln(w, summary)
	return err
}

func date(unix uint64) string {
	if unix == 0 {
		return "never"
	}
	return fmt.Sprintf("%d (%s)", unix, time.Unix(int64(unix), 0).UTC().Format(time.DateTime))
}
