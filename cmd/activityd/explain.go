package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
)

func newExplain() *cobra.Command {
	c := &config{}
	cmd := &cobra.Command{
		Use:   "explain MEMBER",
		Short: "Say why a member is shown the photos of this contact and of no other",
		Long: "Read what MEMBER's homepage shows, as the API would, and say why: each candidate with its score,\n" +
			"what it shows MEMBER and what it hides, the verdict on it, and the proof that no other contact has\n" +
			"a newer photo. It shows what MEMBER must not know: who blocks MEMBER, and what is hidden.\n" +
			"Nothing is changed. The API gives programs the same, with explain=1: docs/http.md.",
		Example: "  activityd explain 12345",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := member.Parse(args[0])
			if err != nil {
				return fmt.Errorf("MEMBER: %w", err)
			}
			c.setLife = 0 // a look does not prolong the life of a set
			return withBackend(cmd, c, io.Discard, func(ctx context.Context, b *backend) error {
				x, err := b.explain(ctx, id)
				if err != nil {
					return err
				}
				return printExplanation(cmd.OutOrStdout(), x)
			})
		},
	}
	c.backendFlags(cmd.Flags())
	return cmd
}

// defaultExplained is how many photos an explanation is asked for.
const defaultExplained = 10

// explain reads a member's answer with its reasons. Operators wait for no place.
func (b *backend) explain(ctx context.Context, id member.ID) (x recent.Explanation, err error) {
	v := contacts.Viewer{ID: id}
	a, err := b.reader(recent.Options{}).Explain(ctx, v, defaultExplained)
	if err != nil {
		return x, err
	}
	answer := api.Explained(v, a)
	if due, err := b.queue.Due(ctx, tasks.ChangingSets()...); err == nil { // else it is not known
		answer.SetBehind(api.NewBehind(due).Longest)
	}
	return a.Explanation(id, answer.Behind), nil
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
