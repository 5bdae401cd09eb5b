package main

import (
	"context"
	"errors"
	"fmt"
	"io"

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
			if err := within("limit", limit, 1, api.MaxPhotos); err != nil {
				return err
			}
			return withService(cmd, c, func(ctx context.Context, s *service) error {
				a, answer, err := s.explain(ctx, id, limit)
				out := cmd.OutOrStdout()
				if err != nil {
					return advised(id, err)
				}
				if output == outputJSON {
					return newLineEncoder(out).Encode(answer)
				}
				return printExplanation(out, a.Explanation(id, answer.Behind))
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&limit, "limit", defaultExplained, "photos at most")
	outputFlag(f, &output)
	c.lookFlags(f)
	return cmd
}

// defaultExplained is how many photos an explanation is asked for.
const defaultExplained = 10

// explain reads a member's answer with its reasons, also as the API gives it.
func (s *service) explain(ctx context.Context, id member.ID, limit int) (a recent.Answer, answer api.Answer, err error) {
	v := contacts.Viewer{ID: id}
	r := recent.NewReader(s.index, s.store, noHints{}, s.config.readerOptions(s.index.Settings())) // operators wait for no place
	if a, err = r.Explain(ctx, v, limit); err != nil {
		return a, answer, err
	}
	answer = api.Explained(v, a)
	if due, err := s.queue.Due(ctx, tasks.ChangingSets()...); err == nil { // else it is not known
		answer.SetBehind(api.NewBehind(due).Longest)
	}
	return a, answer, nil
}

// noMember is the error for an id that is not in the table users.
func noMember(id member.ID) error {
	return fmt.Errorf("%w: %s: want an id of the table users", contacts.ErrNoMember, id)
}

// advised adds the remedy to an error of a read.
func advised(id member.ID, err error) error {
	switch {
	case errors.Is(err, contacts.ErrNoMember):
		return noMember(id)
	case errors.Is(err, mysql.ErrUnavailable):
		return fmt.Errorf("%w: start MySQL, or correct --mysql-dsn (%s)", err, settings.Variable("mysql-dsn"))
	}
	return err
}

func printExplanation(w io.Writer, x recent.Explanation) error {
	fmt.Fprintf(w, "%s\n\n", x.Headline)
	if len(x.Candidates) > 0 {
		if err := printTable(w, inspect.Table{Head: x.Head, Rows: x.Candidates}); err != nil {
			return err
		}
		fmt.Fprintf(w, "\nDates are UTC. Score and verdict are those of the read; the rest was looked up a moment after it.\n\n")
	}
	for _, fact := range x.Facts {
		fmt.Fprintf(w, "%-8s %s\n", fact[0], fact[1])
	}
	return nil
}
