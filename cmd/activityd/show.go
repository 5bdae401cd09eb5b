package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

func newShow() *cobra.Command {
	c := &config{}
	cmd := &cobra.Command{
		Use:   "show USER",
		Short: "Show a user's set beside what MySQL says, differences marked",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			user, err := member.Parse(args[0])
			if err != nil {
				return fmt.Errorf("USER: %w", err)
			}
			if err := c.check(cmd.Flags()); err != nil {
				return err
			}
			return show(cmd, c, user)
		},
	}
	c.mysqlFlags(cmd.Flags())
	c.redisFlags(cmd.Flags())
	c.indexFlags(cmd.Flags())
	return cmd
}

func show(cmd *cobra.Command, c *config, user member.ID) error {
	server, err := openServer(c, newLogger(c, io.Discard))
	if err != nil {
		return err
	}
	defer func() { _ = closeAll(server.closers) }() // it only read
	v, err := compareSet(cmd.Context(), server.index, server.store, user)
	if err != nil {
		return err
	}
	return v.print(cmd.OutOrStdout())
}

// setView is a set beside the truth.
type setView struct {
	user     member.ID
	settings index.Settings
	known    bool // there is a set
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
func compareSet(ctx context.Context, ix *index.Index, db store, user member.ID) (setView, error) {
	view := setView{user: user, settings: ix.Settings()}
	entries, err := ix.Candidates(ctx, user)
	if err != nil && !errors.Is(err, index.ErrMissing) {
		return view, err
	}
	view.known = err == nil
	top, err := db.TopContacts(ctx, []member.ID{user}, view.settings.Max)
	if err != nil {
		return view, err
	}
	pairs := make([]contacts.Pair, len(entries))
	for i, e := range entries {
		pairs[i] = contacts.Pair{User: user, Contact: e.Contact}
	}
	relations, err := db.Relations(ctx, pairs)
	if err != nil {
		return view, err
	}
	view.compare(entries, relations, top[user])
	return view, nil
}

// compare fills in the lines: the set in its order, then those who are missing.
// Missing is who uploaded after the lowest score, or anybody when the set is
// smaller than min: see the invariants in package index.
func (v *setView) compare(entries []index.Entry, relations map[contacts.Pair]uint64, top []contacts.Contact) {
	present := make(map[member.ID]bool)
	for _, e := range entries {
		present[e.Contact] = true
		lastUpload, isContact := relations[contacts.Pair{User: v.user, Contact: e.Contact}]
		line := setLine{contact: e.Contact, score: e.Score, inSet: true, lastUpload: lastUpload, isContact: isContact}
		switch {
		case !isContact:
			line.difference = "ghost: not a contact"
		case lastUpload > e.Score:
			line.difference = "stale: uploaded since"
		case lastUpload < e.Score:
			line.difference = "high: harmless, costs a look"
		}
		v.lines = append(v.lines, line)
	}
	complete := len(entries) < v.settings.Min
	for _, c := range top {
		if !present[c.ID] && (complete || c.LastUpload > entries[len(entries)-1].Score) {
			v.lines = append(v.lines, setLine{contact: c.ID, lastUpload: c.LastUpload, isContact: true, difference: "missing in the set"})
		}
	}
}

func (v *setView) print(w io.Writer) error {
	size, different := 0, 0
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "CONTACT\tIN THE SET\tIN MYSQL\tDIFFERENCE") // Flush returns its error
	for _, l := range v.lines {
		inSet, inMySQL := "-", "-"
		if l.inSet {
			inSet = date(l.score)
			size++
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
	summary := fmt.Sprintf("%s: %d members (%s), %d differences", index.UserKey(v.user), size, v.settings, different)
	if !v.known {
		summary = index.UserKey(v.user) + ": there is no set; the next read or task of this user makes one"
		if len(v.lines) == 0 {
			summary = index.UserKey(v.user) + ": there is no set, and MySQL knows no contact of this user who ever uploaded"
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
