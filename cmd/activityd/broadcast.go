package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

func newBroadcast() *cobra.Command {
	return newGroup("broadcast", "Say whose uploads are not written to the set of each follower, as there are too many",
		fmt.Sprintf("An upload of a broadcast member is one write, however many followers there are. Each read asks\n"+
			"MySQL for these members, too, so that the answers stay the same. It pays for members with some\n"+
			"hundred thousand followers and more; there may be %d of them.", contacts.MaxBroadcasts),
		"  activityd broadcast add 12345 --yes\n  activityd broadcast list\n  activityd broadcast remove 12345",
		newBroadcastAdd(), newBroadcastRemove(), newBroadcastList())
}

func newBroadcastAdd() *cobra.Command {
	yes := false
	cmd := broadcastChange("add MEMBER...", "Make members broadcast members",
		"Make members broadcast members from now on. They stay so, also with few followers. It needs --yes.",
		"is a broadcast member", func(ctx context.Context, store *contacts.MySQL, _ *queue.Queue, id member.ID) error {
			if !yes {
				return errors.New("from now on each read looks at these members beside its set: look at them with activityd show, then repeat with --yes")
			}
			return store.AddBroadcast(ctx, id, true)
		})
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

func newBroadcastRemove() *cobra.Command {
	return broadcastChange("remove MEMBER...", "Have the uploads of members written to all followers again",
		"Have the uploads of members written to the sets of all followers again. First the last upload of each is\n"+
			"written there, by tasks, which takes about as long as an upload of a member with so many followers.\n"+
			"A member with 100,000 followers and more becomes a broadcast member again with\n"+
			"the next upload. If the command fails, repeat it.",
		"ceases to be a broadcast member an hour after all followers have its last upload",
		func(ctx context.Context, store *contacts.MySQL, q *queue.Queue, id member.ID) error {
			b, err := store.LeaveBroadcast(ctx, id)
			if err == nil {
				_, err = q.Enqueue(ctx, []queue.New{tasks.NewLeaving(b)})
			}
			return err
		})
}

// broadcastChange is a command that changes the members in turn.
func broadcastChange(use, short, long, did string, do func(context.Context, *contacts.MySQL, *queue.Queue, member.ID) error) *cobra.Command {
	c := &config{}
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long + "\n\nIt ends with the first member for which it fails; those before it are changed.",
		Args: cobra.MinimumNArgs(1),
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
						return advised(id, err)
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

func newBroadcastList() *cobra.Command {
	c, output := &config{}, ""
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the broadcast members",
		Long: "List the broadcast members. A member that leaves is fanned out to its followers, too; if it stays so\n" +
			"for hours, see activityd tasks list --type broadcast." + outputHelp,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withTables(cmd, c, func(ctx context.Context, db *sql.DB, _ *queue.Queue) error {
				list, err := contacts.NewMySQL(db).ListBroadcasts(ctx)
				if err != nil {
					return err
				}
				return printList(cmd.OutOrStdout(), output, list, newBroadcastJSON, broadcastTable)
			})
		},
	}
	outputFlag(cmd.Flags(), &output)
	c.mysqlFlags(cmd.Flags())
	return cmd
}

// broadcastJSON is a broadcast member as other programs read it.
type broadcastJSON struct {
	Member     member.ID `json:"member"`
	Username   string    `json:"username,omitempty"`
	Exists     bool      `json:"exists"`
	Named      bool      `json:"named"`
	LastUpload uint64    `json:"last_upload,omitempty"` // unix seconds
	Leaving    string    `json:"leaving_at,omitempty"`
}

func newBroadcastJSON(b contacts.NamedBroadcast) broadcastJSON {
	v := broadcastJSON{Member: b.ID, Username: b.Username, Exists: b.Exists, Named: b.Named, LastUpload: b.LastUpload}
	if b.Leaving != 0 {
		v.Leaving = inspect.Stamp(time.UnixMilli(b.Leaving))
	}
	return v
}

func broadcastTable(list []contacts.NamedBroadcast) inspect.Table {
	t := inspect.Table{Head: []string{"MEMBER", "NAME", "BY", "LAST UPLOAD", "LEAVING SINCE"}}
	for _, b := range list {
		name := cmp.Or(inspect.OneLine(b.Username), "-")
		if !b.Exists {
			name = "(no member)"
		}
		by := map[bool]string{true: "name", false: "followers"}[b.Named]
		t.Rows = append(t.Rows, []string{b.ID.String(), name, by, inspect.Date(b.LastUpload), cmp.Or(newBroadcastJSON(b).Leaving, "-")})
	}
	return t
}
