package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/check"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
)

func newShow() *cobra.Command {
	c, output := &config{}, ""
	cmd := &cobra.Command{
		Use:   "show MEMBER",
		Short: "Show a member's set beside what MySQL says, differences marked",
		Long: "Show a member's set beside what MySQL says, differences marked. Nothing is changed.\n\n" +
			"The exit code is 0 whatever the set is like (verify judges), and 1 when it could not be looked at,\n" +
			"or when there is no such member." + outputHelp,
		Example: "  activityd show 12345\n  activityd show 12345 -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := member.Parse(args[0])
			if err != nil {
				return fmt.Errorf("MEMBER: %w", err)
			}
			return withService(cmd, c, func(ctx context.Context, s *service) error {
				view, err := s.newSetView(ctx, id)
				switch {
				case err != nil:
					return err
				case !view.Exists && !view.Known:
					return noMember(id)
				case output == outputJSON:
					err = newLineEncoder(cmd.OutOrStdout()).Encode(view)
				default:
					err = view.print(cmd.OutOrStdout())
				}
				if err == nil && !view.Exists {
					return fmt.Errorf("%w; the set costs memory and does no harm: activityd verify --repair finds such sets, and has them deleted", noMember(id))
				}
				return err
			})
		},
	}
	outputFlag(cmd.Flags(), &output)
	c.lookFlags(cmd.Flags())
	return cmd
}

// lookFlags registers the flags for [withService].
func (c *config) lookFlags(f *pflag.FlagSet) {
	c.mysqlFlags(f)
	c.redisFlags(f)
	c.indexFlags(f)
}

// withService calls look with a service that does not run, for a command that only
// reads.
func withService(cmd *cobra.Command, c *config, look func(context.Context, *service) error) error {
	if err := c.check(cmd.Flags()); err != nil {
		return err
	}
	c.setLife = 0 // a look does not prolong the life of a set
	s, err := openService(c, newLogger(c, io.Discard))
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }() // it only read
	if err := s.id.read(cmd.Context()); err != nil {
		return advised(0, err)
	}
	if err := s.index.Check(cmd.Context()); isRefusal(err) {
		return namedRedis(err)
	}
	return look(cmd.Context(), s)
}

// setView is a set beside MySQL's rows, as other programs read it.
type setView struct {
	Member   member.ID `json:"member"`
	Exists   bool      `json:"exists"` // in MySQL
	Known    bool      `json:"has_set"`
	Size     int       `json:"size"` // of the set
	Settings string    `json:"settings"`
	// Broadcast is "broadcast" or "leaving" for a broadcast member.
	Broadcast string      `json:"broadcast,omitempty"`
	Contacts  []setMember `json:"contacts"`
	Findings  []string    `json:"findings,omitempty"` // about the set as a whole
}

// setMember is a contact of the set, or a contact that should be in it. Times are unix seconds.
type setMember struct {
	Contact    member.ID `json:"contact"`
	Score      *uint64   `json:"score,omitempty"`       // nil: not in the set
	LastUpload *uint64   `json:"last_upload,omitempty"` // nil: no contact
	Difference string    `json:"difference,omitempty"`
	// Broadcast is as for the member. The score of a broadcast member may stay behind.
	Broadcast string `json:"broadcast,omitempty"`
}

// newSetView returns the set in its order, and then the missing contacts. Of a set that by its size is complete, or that
// does not exist, each contact that is not in it is missing.
func (s *service) newSetView(ctx context.Context, id member.ID) (*setView, error) {
	c, err := s.newChecker().Compare(ctx, id)
	if err != nil {
		return nil, err
	}
	settings := s.index.Settings()
	v := &setView{Member: id, Exists: c.Facts.Exists, Known: c.Set.Known, Size: c.Set.Size, Settings: settings.String(), Contacts: []setMember{}}
	differences := make(map[member.ID]string)
	for _, f := range c.Findings {
		switch {
		case f.Contact != 0:
			differences[f.Contact] = findingText(f)
		case f.Cause == check.LowLastUpload:
			v.Findings = append(v.Findings, fmt.Sprintf("the member itself: %s: a photo of %s is newer than the last upload, %s", findingText(f), inspect.Date(f.Actual), inspect.Date(f.Stored)))
		case f.Cause != check.LostSet:
			v.Findings = append(v.Findings, fmt.Sprintf("the set as a whole: %s: there are %d, and should be %d", findingText(f), f.Stored, f.Actual))
		}
	}
	ids := []member.ID{id}
	for _, e := range slices.Backward(c.Set.Members) {
		row := setMember{Contact: e.Contact, Score: &e.Score, Difference: differences[e.Contact]}
		if lastUpload, isContact := c.Facts.LastUploads[e.Contact]; isContact {
			row.LastUpload = &lastUpload
		}
		v.Contacts, ids = append(v.Contacts, row), append(ids, e.Contact)
	}
	for _, top := range c.Facts.Top {
		difference := differences[top.ID]
		if difference == "" && c.Set.Size < settings.Min {
			difference = missingText
		}
		if difference != "" && !slices.Contains(ids[1:], top.ID) {
			v.Contacts, ids = append(v.Contacts, setMember{Contact: top.ID, LastUpload: &top.LastUpload, Difference: difference}), append(ids, top.ID)
		}
	}
	found, err := s.store.Broadcasts(ctx, ids)
	v.Broadcast = broadcastState(found, id)
	for i, c := range v.Contacts {
		v.Contacts[i].Broadcast = broadcastState(found, c.Contact)
	}
	return v, err
}

func broadcastState(found map[member.ID]contacts.Broadcast, id member.ID) string {
	switch b, isBroadcast := found[id]; {
	case !isBroadcast:
		return ""
	case b.Leaving != 0:
		return "leaving"
	}
	return "broadcast"
}

const missingText = "missing in the set"

// findingText describes a finding.
func findingText(f check.Finding) string {
	text := string(f.Cause)
	switch f.Cause {
	case check.Ghost:
		text = "ghost: not a contact"
	case check.StaleScore:
		text = "stale: uploaded since"
	case check.HighScore:
		text = "high: harmless, costs a look"
	case check.MissingContact:
		text = missingText
	}
	if f.Weight == check.Lag {
		text += "; a task is pending"
	}
	if f.Detail != "" {
		text += "; " + f.Detail
	}
	return text
}

func (v *setView) print(w io.Writer) error {
	different, table := 0, inspect.Table{Head: []string{"CONTACT", "IN THE SET", "IN MYSQL", "BROADCAST MEMBER", "DIFFERENCE"}}
	date := func(unix *uint64) string {
		if unix == nil {
			return "-"
		}
		return inspect.Date(*unix)
	}
	for _, c := range v.Contacts {
		if c.Difference != "" {
			different++
		}
		table.Rows = append(table.Rows, []string{c.Contact.String(), date(c.Score), date(c.LastUpload), cmp.Or(c.Broadcast, "-"), c.Difference})
	}
	if err := printTable(w, table); err != nil {
		return err
	}
	for _, finding := range v.Findings {
		fmt.Fprintln(w, finding) // the last line has the error
	}
	if v.Broadcast != "" {
		fmt.Fprintf(w, "%s is a broadcast member (%s): its uploads are written to its row, and need not be in the sets of its followers\n", v.Member, v.Broadcast)
	}
	summary := fmt.Sprintf("%d members (%s), %d differences", v.Size, v.Settings, different)
	switch {
	case !v.Known && len(v.Contacts) == 0:
		summary = "there is no set, and MySQL knows no contact of this member that ever uploaded"
	case !v.Known:
		summary = "there is no set; the next read or task of this member makes one"
	}
	_, err := fmt.Fprintf(w, "%s: %s\n", index.UserKey(v.Member), summary)
	return err
}
