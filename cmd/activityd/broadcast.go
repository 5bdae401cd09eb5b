package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

func newBroadcast() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "broadcast",
		Short: "Say whose uploads are not written to the set of each follower, as there are too many",
		Long: fmt.Sprintf("An upload of a broadcast member is one write, however many followers there are. Each read asks\n"+
			"MySQL for these members, too, so that the answers stay the same. It pays for members with some\n"+
			"hundred thousand followers and more; there may be %d of them.", contacts.MaxBroadcasts),
		Example: "  activityd broadcast add 12345 --yes\n  activityd broadcast list\n  activityd broadcast remove 12345",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBroadcastAdd(), newBroadcastRemove(), newBroadcastList())
	return cmd
}

func newBroadcastAdd() *cobra.Command {
	yes := false
	cmd := broadcastChange("add MEMBER...", "Make members broadcast members",
		"Make members broadcast members from now on. They stay so, also with few followers. It needs --yes.",
		"is a broadcast member", func(ctx context.Context, store *contacts.MySQL, _ *queue.Queue, id member.ID) error {
			return store.AddBroadcast(ctx, id, true)
		})
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cmd.PreRunE = func(_ *cobra.Command, args []string) error {
		if _, err := parseMembers(args); err != nil || yes {
			return err
		}
		return errors.New("from now on each read looks at these members beside its set: look at them with activityd show, then repeat with --yes")
	}
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
			ids, err := parseMembers(args)
			if err != nil {
				return err
			}
			return withBroadcasts(cmd, c, func(ctx context.Context, store *contacts.MySQL, q *queue.Queue) error {
				for _, id := range ids {
					if err := do(ctx, store, q, id); err != nil {
						return adviseBroadcast(id, err)
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

// parseMembers reads the ids that are the arguments of a command.
func parseMembers(words []string) ([]member.ID, error) {
	ids := make([]member.ID, len(words))
	for i, word := range words {
		id, err := member.Parse(word)
		if err != nil {
			return nil, fmt.Errorf("MEMBER: %w", err)
		}
		ids[i] = id
	}
	return ids, nil
}

// adviseBroadcast adds the remedy to an error.
func adviseBroadcast(id member.ID, err error) error {
	if errors.Is(err, contacts.ErrNoMember) {
		return noMember(id)
	}
	return err
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
			return withBroadcasts(cmd, c, func(ctx context.Context, store *contacts.MySQL, _ *queue.Queue) error {
				list, err := store.ListBroadcasts(ctx)
				if err != nil {
					return err
				}
				return printBroadcasts(cmd.OutOrStdout(), list, output)
			})
		},
	}
	outputFlag(cmd.Flags(), &output)
	c.mysqlFlags(cmd.Flags())
	return cmd
}

// withBroadcasts calls do with the stores that change broadcast members.
func withBroadcasts(cmd *cobra.Command, c *config, do func(context.Context, *contacts.MySQL, *queue.Queue) error) error {
	return withTables(cmd, c, func(ctx context.Context, db *sql.DB, q *queue.Queue) error {
		err := do(ctx, contacts.NewMySQL(db), q)
		q.Notify(tasks.QueueFanOut)
		if errors.Is(err, mysql.ErrUnavailable) {
			return advised(0, err)
		}
		return err
	})
}

// broadcastView is a broadcast member as other programs read it.
type broadcastView struct {
	Member     member.ID `json:"member"`
	Username   string    `json:"username,omitempty"`
	Exists     bool      `json:"exists"`
	Named      bool      `json:"named"`
	LastUpload uint64    `json:"last_upload,omitempty"` // unix seconds
	Leaving    string    `json:"leaving_at,omitempty"`
}

func printBroadcasts(w io.Writer, list []contacts.NamedBroadcast, output string) error {
	leaving := func(b contacts.NamedBroadcast, layout string) string {
		if b.Leaving == 0 {
			return ""
		}
		return time.UnixMilli(b.Leaving).UTC().Format(layout)
	}
	if output == outputJSON {
		lines := newLineEncoder(w)
		for _, b := range list {
			v := broadcastView{b.ID, b.Username, b.Exists, b.Named, b.LastUpload, leaving(b, "2006-01-02T15:04:05.000Z")}
			if err := lines.Encode(v); err != nil {
				return err
			}
		}
		return nil
	}
	table := newTable(w)
	fmt.Fprintln(table, "MEMBER\tNAME\tBY\tLAST UPLOAD\tLEAVING SINCE") // Flush returns its error
	for _, b := range list {
		name := cmp.Or(inspect.OneLine(b.Username), "-")
		if !b.Exists {
			name = "(no member)"
		}
		by := map[bool]string{true: "name", false: "followers"}[b.Named]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", b.ID, name, by, inspect.Date(b.LastUpload), cmp.Or(leaving(b, time.DateTime), "-"))
	}
	return table.Flush()
}
