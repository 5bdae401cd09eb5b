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

	"github.com/activityd/activityd/internal/broadcast"
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
		Long: "An upload of a broadcast member is one write to each of 16 copies of one set, however many followers\n" +
			"there are. Each read looks at a copy, too, so that the answers stay the same. It pays for members\n" +
			"with some hundred thousand followers and more; each one may cost reads a look at a row.\n\n" +
			"Before the first one is added, all processes must be of a version that has this command.",
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
		"Make members broadcast members. It counts after two seconds, and while activityd serve works on tasks.\n"+
			"Members that are ones already stay so, also when they have few followers. It needs --yes.",
		"will be a broadcast member in two seconds", "is a broadcast member already", (*broadcast.Admin).Add)
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
			"One with as many followers as ACTIVITYD_BROADCAST_FOLLOWERS becomes one again with its next upload.",
		"will be no broadcast member when all followers have its last upload", "is about to be none already", (*broadcast.Admin).Remove)
}

// broadcastChange is a command that changes the state of members.
func broadcastChange(use, short, long, did, had string, do func(*broadcast.Admin, context.Context, member.ID) (bool, error)) *cobra.Command {
	c := &config{}
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long + "\n\nIt ends with the first member for which it fails; those before it are changed.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseMembers(args)
			if err != nil {
				return err
			}
			return withBroadcasts(cmd, c, func(ctx context.Context, a *broadcast.Admin) error {
				for _, id := range ids {
					changed, err := do(a, ctx, id)
					if err != nil {
						return adviseBroadcast(id, err)
					}
					what := map[bool]string{true: did, false: had}[changed]
					if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", id, what); err != nil {
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

// adviseBroadcast says of an error what can be done about it.
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
		Long: "List the broadcast members. One that is joining or leaving is fanned out to its followers, too; if it\n" +
			"stays so, see activityd tasks list --type broadcast." + outputHelp,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withBroadcasts(cmd, c, func(ctx context.Context, a *broadcast.Admin) error {
				list, err := a.List(ctx)
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

// withBroadcasts calls do with what changes broadcast members.
func withBroadcasts(cmd *cobra.Command, c *config, do func(context.Context, *broadcast.Admin) error) error {
	return withTables(cmd, c, func(ctx context.Context, db *sql.DB, q *queue.Queue) error {
		err := do(ctx, &broadcast.Admin{DB: db, Queue: q, Tasks: tasks.NewBroadcast})
		q.Notify(tasks.QueueFanOut, tasks.QueueRefill)
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
	State      string    `json:"state"`
	Named      bool      `json:"named"`
	Changed    string    `json:"changed_at"`
	LastUpload uint64    `json:"last_upload,omitempty"` // unix seconds
}

func printBroadcasts(w io.Writer, list []broadcast.Member, output string) error {
	if output == outputJSON {
		lines := newLineEncoder(w)
		for _, m := range list {
			v := broadcastView{m.ID, m.Username, m.Exists, string(m.State), m.Named, m.Changed.UTC().Format("2006-01-02T15:04:05.000Z"), m.LastUpload}
			if err := lines.Encode(v); err != nil {
				return err
			}
		}
		return nil
	}
	table := newTable(w)
	fmt.Fprintln(table, "MEMBER\tNAME\tSTATE\tBY\tSINCE\tLAST UPLOAD") // Flush returns its error
	for _, m := range list {
		name := cmp.Or(inspect.OneLine(m.Username), "-")
		if !m.Exists {
			name = "(no member)"
		}
		by := map[bool]string{true: "name", false: "followers"}[m.Named]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", m.ID, name, m.State, by, m.Changed.UTC().Format(time.DateTime), inspect.Date(m.LastUpload))
	}
	return table.Flush()
}
