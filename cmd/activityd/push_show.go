package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/tasks"
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
			p := &pushPrinter{out: cmd.OutOrStdout(), now: time.Now()}
			if output == outputJSON {
				p.lines = newLineEncoder(p.out)
			}
			if only != "" {
				if p.only, err = member.Parse(only); err != nil {
					return fmt.Errorf("--member: %w", err)
				}
			}
			if err := c.check(cmd.Flags()); err != nil {
				return err
			}
			db, err := openMySQL(c, c.mysqlConnections)
			if err != nil {
				return err
			}
			defer func() { _ = db.Close() }() // it only read
			if err := schema.Compatible(cmd.Context(), db); err != nil {
				return err
			}
			p.events = &inspect.Events{Queue: queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()}), Store: push.NewMySQL(db)}
			return p.show(cmd.Context(), args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&only, "member", "", "only what concerns this `member`")
	outputFlag(f, &output)
	c.mysqlFlags(f)
	return cmd
}

// pushPrinter writes as a table for people, or as lines of JSON: {"event":…} and {"delivery":…}.
type pushPrinter struct {
	events *inspect.Events
	only   member.ID // 0: all members
	out    io.Writer
	lines  *json.Encoder // nil: a table
	now    time.Time
}

func (p *pushPrinter) show(ctx context.Context, name string) error {
	e, waiting, err := p.events.Find(ctx, name)
	switch {
	case err != nil:
		return err
	case e == nil && p.lines != nil:
		return p.lines.Encode(newTaskJSON(*waiting))
	case e == nil:
		_, err := fmt.Fprintf(p.out, "the event has not been targeted yet\n%s", taskSheet(*waiting, p.now))
		return err
	}
	if err := p.event(ctx, e); err != nil {
		return err
	}
	isFirst := true
	for page, err := range p.events.Fates(ctx, e, p.only) {
		if err == nil {
			err = p.fates(page, isFirst)
			isFirst = false
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eventJSON is an event as other programs read it.
type eventJSON struct {
	ID        string      `json:"id"`
	Number    uint64      `json:"number,string"`
	Task      uint64      `json:"task_id,string"`
	Actor     member.ID   `json:"actor_id"`
	Event     *push.Event `json:"event"`
	CreatedAt string      `json:"created_at"`
	ExpiresAt string      `json:"expires_at"`
}

func (p *pushPrinter) event(ctx context.Context, e *push.StoredEvent) error {
	if p.lines != nil {
		return p.lines.Encode(map[string]any{"event": eventJSON{
			ID: e.ID, Number: e.Number, Task: e.Task, Actor: e.Actor, Event: &e.Event, CreatedAt: inspect.Stamp(e.Created), ExpiresAt: inspect.Stamp(e.Expires),
		}})
	}
	facts, err := p.events.Facts(ctx, e, p.now)
	if err == nil {
		_, err = io.WriteString(p.out, sheet("event "+inspect.OneLine(e.ID), facts...))
	}
	return err
}

// fateJSON is the end of a delivery, or how it waits.
type fateJSON struct {
	Member     member.ID     `json:"member"`
	Device     uint64        `json:"device,string,omitempty"` // absent: the member as a whole
	Platform   push.Platform `json:"platform,omitempty"`
	State      push.State    `json:"state"`
	Reason     string        `json:"reason,omitempty"`
	ProviderID string        `json:"provider_id,omitempty"`
	At         string        `json:"at"`
	Gone       string        `json:"device_gone,omitempty"`
}

// fates writes a page of rows, below a head if it is the first.
func (p *pushPrinter) fates(page []push.Fate, isFirst bool) error {
	if p.lines != nil {
		for _, f := range page {
			row := fateJSON{f.Member, f.Device, f.Platform, f.State, f.Reason, f.ProviderID, inspect.Stamp(f.At), f.Gone}
			if err := p.lines.Encode(map[string]any{"delivery": row}); err != nil {
				return err
			}
		}
		return nil
	}
	table, fates := newTable(p.out), inspect.Fates(page, p.now)
	if isFirst {
		fmt.Fprintln(table, strings.Join(fates.Head, "\t")) // Flush returns its error
	}
	for _, row := range fates.Rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}
