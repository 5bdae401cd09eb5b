package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/queue"
)

func newPushShow() *cobra.Command {
	c, only, output := &config{}, "", ""
	cmd := &cobra.Command{
		Use:   "show EVENT",
		Short: "Show which devices an event was for, and what became of each delivery",
		Long: "Show an event, which devices it was for, which not and why, and what still waits. EVENT is the id\n" +
			"that its producer gave it, or was given (task-4711 for a row without one), or the number of one of\n" +
			"its tasks. Events are kept for a day after they expire. Followers without a device are not recorded;\n" +
			"devices are \"pending\" while the event waits with others of its burst." + outputHelp,
		Example: "  activityd push show task-4711\n  activityd push show upload-901 --member 12345\n  activityd push show 4712 -o json",
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
				return showEvent(ctx, events, cmd.OutOrStdout(), output, args[0], about)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&only, "member", "", "only what concerns this `member`")
	outputFlag(f, &output)
	c.mysqlFlags(f)
	return cmd
}

// showEvent writes an event and its deliveries, of all members or of one: for people, or as lines of JSON {"event":…} and
// {"delivery":…}.
func showEvent(ctx context.Context, events *inspect.Events, out io.Writer, output, name string, only member.ID) error {
	now := time.Now()
	e, waiting, err := events.Find(ctx, name)
	switch {
	case err != nil:
		return err
	case e == nil && output == outputJSON:
		return newLineEncoder(out).Encode(newTaskJSON(*waiting))
	case e == nil:
		_, err := fmt.Fprintf(out, "the event has not been targeted yet\n%s", taskSheet(*waiting, now))
		return err
	case output == outputJSON:
		err = newLineEncoder(out).Encode(newEventJSON(e))
	default:
		var facts [][2]string
		if facts, err = events.Facts(ctx, e, now); err == nil {
			_, err = io.WriteString(out, sheet("event "+inspect.OneLine(e.ID), facts...))
		}
	}
	if err != nil {
		return err
	}
	isFirst := true
	for page, err := range events.Fates(ctx, e, only) {
		if err == nil {
			err = printList(out, output, page, newFateJSON, func(page []push.Fate) inspect.Table {
				table := inspect.Fates(page, now)
				if !isFirst {
					table.Head = nil
				}
				return table
			})
		}
		if err != nil {
			return err
		}
		isFirst = false
	}
	return nil
}

// eventJSON is an event as other programs read it.
type eventJSON struct {
	Event struct {
		ID        string      `json:"id"`
		Number    uint64      `json:"number,string"`
		Actor     member.ID   `json:"actor_id"`
		Event     *push.Event `json:"event"`
		CreatedAt string      `json:"created_at"`
		ExpiresAt string      `json:"expires_at"`
	} `json:"event"`
}

func newEventJSON(e *push.StoredEvent) (j eventJSON) {
	j.Event.ID, j.Event.Number, j.Event.Actor, j.Event.Event = e.ID, e.Number, e.Actor, &e.Event
	j.Event.CreatedAt, j.Event.ExpiresAt = inspect.Stamp(e.Created), inspect.Stamp(e.Expires)
	return j
}

// fateJSON is the end of a delivery, or how it waits.
type fateJSON struct {
	Delivery struct {
		Member     member.ID     `json:"member"`
		Device     uint64        `json:"device,string,omitempty"` // absent: the member as a whole
		Platform   push.Platform `json:"platform,omitempty"`
		State      push.State    `json:"state"`
		Reason     string        `json:"reason,omitempty"`
		ProviderID string        `json:"provider_id,omitempty"`
		At         string        `json:"at"`
		Gone       string        `json:"device_gone,omitempty"`
	} `json:"delivery"`
}

func newFateJSON(f push.Fate) (j fateJSON) {
	d := &j.Delivery
	d.Member, d.Device, d.Platform, d.State, d.Reason = f.Member, f.Device, f.Platform, f.State, f.Reason
	d.ProviderID, d.At, d.Gone = f.ProviderID, inspect.Stamp(f.At), f.Gone
	return j
}
