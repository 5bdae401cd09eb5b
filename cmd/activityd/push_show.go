package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/queue"
)

func newPushShow() *cobra.Command {
	c, only := &config{}, ""
	cmd := &cobra.Command{
		Use:   "show EVENT",
		Short: "Show which devices an event was for, and what became of each delivery",
		Long: "Show an event, which devices it was for, which not and why, and what still waits. EVENT is the id\n" +
			"that its producer gave it, or was given (task-4711 for a row without one), or the number of one of\n" +
			"its tasks. Events are kept for a day after they expire. Followers without a device are not recorded;\n" +
			"devices are \"pending\" while the event waits with others of its burst.",
		Example: "  activityd push show task-4711\n  activityd push show upload-901 --member 12345",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			about := member.ID(0)
			if only != "" {
				if about, err = member.Parse(only); err != nil {
					return fmt.Errorf("--member: %w", err)
				}
			}
			return withTables(cmd, c, func(ctx context.Context, db *sql.DB, q *queue.Queue) error {
				events := &inspect.Events{Queue: q, Store: push.NewMySQL(db)}
				e, waiting, err := events.Find(ctx, args[0])
				if err != nil {
					return err
				}
				if e == nil {
					sayf(cmd.OutOrStdout(), "the event has not been targeted yet")
					return printTask(cmd.OutOrStdout(), *waiting)
				}
				return printEvent(ctx, cmd.OutOrStdout(), events, e, about)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&only, "member", "", "only what concerns this `member`")
	c.mysqlFlags(f)
	return cmd
}

// printEvent writes an event and its deliveries, of all members or of one.
func printEvent(ctx context.Context, out io.Writer, events *inspect.Events, e *push.StoredEvent, only member.ID) error {
	now := time.Now()
	facts, err := events.Facts(ctx, e, now)
	if err == nil {
		err = printSheet(out, "event "+inspect.OneLine(e.ID), append(facts, [2]string{"number", strconv.FormatUint(e.Number, 10)}))
	}
	head := true
	for page, failed := range events.Fates(ctx, e, only) {
		table := inspect.Fates(page, now)
		if !head {
			table.Head = nil
		}
		if err = errors.Join(err, failed); err == nil {
			err = printTable(out, table)
		}
		if err != nil {
			break
		}
		head = false
	}
	return err
}
