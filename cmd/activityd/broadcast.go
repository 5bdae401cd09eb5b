package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

func newBroadcast() *cobra.Command {
	yes := false
	add := broadcastChange("add MEMBER...", "Make members broadcast members, also with few followers",
		"is a broadcast member", func(ctx context.Context, store *contacts.MySQL, _ *queue.Queue, id member.ID) error {
			if !yes {
				return errors.New("from now on each read looks at these members beside its set: count their followers, then repeat with --yes")
			}
			return store.AddBroadcast(ctx, id, true)
		})
	add.Flags().BoolVar(&yes, "yes", false, "do it")
	remove := broadcastChange("remove MEMBER...", "Have the uploads of members written to all followers again",
		"ceases to be a broadcast member an hour after all followers have its last upload",
		func(ctx context.Context, store *contacts.MySQL, q *queue.Queue, id member.ID) error {
			b, err := store.LeaveBroadcast(ctx, id)
			if err == nil {
				_, err = q.Enqueue(ctx, []queue.New{tasks.NewLeaving(b)})
			}
			return err
		})
	return newGroup("broadcast", "Say whose uploads are not written to the set of each follower, as there are too many",
		fmt.Sprintf("An upload of a broadcast member is one write, however many followers there are. Each read asks\n"+
			"MySQL for these members, too, so that the answers stay the same. It pays for members with some\n"+
			"hundred thousand followers and more; there may be %d of them. docs/deploy.md says more.", contacts.MaxBroadcasts),
		"  activityd broadcast add 12345 --yes\n  activityd broadcast remove 12345", add, remove)
}

// broadcastChange is a command that changes the members in turn.
func broadcastChange(use, short, did string, do func(context.Context, *contacts.MySQL, *queue.Queue, member.ID) error) *cobra.Command {
	c := &config{}
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids := make([]member.ID, len(args))
			for i, word := range args {
				id, err := member.Parse(word)
				if err != nil {
					return fmt.Errorf("MEMBER: %w", err)
				}
				ids[i] = id
			}
			return withTables(cmd, c, func(ctx context.Context, db *sql.DB, q *queue.Queue) error {
				defer q.Notify(tasks.QueueFanOut)
				for _, id := range ids {
					if err := do(ctx, contacts.NewMySQL(db), q, id); err != nil {
						return advised(err)
					}
					if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", id, did); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	c.mysqlFlags(cmd.Flags())
	c.notifyFlag(cmd.Flags())
	return cmd
}
