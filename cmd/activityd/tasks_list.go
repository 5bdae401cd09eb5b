package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/queue"
)

// taskList is what the flags of list say.
type taskList struct {
	match  queue.Filter
	output string
	limit  int
}

func newTasksList() *cobra.Command {
	c, chosen, l := &config{}, &taskFlags{}, taskList{}
	var after uint64
	cmd := &cobra.Command{
		Use:   "list [ID...]",
		Short: "List tasks, the oldest first",
		Long:  "List tasks by id or by a filter, the oldest first. Ages are by this machine's clock." + outputHelp,
		Example: "  activityd tasks list --state dead --type upload\n" +
			"  activityd tasks list --member 12345 -o json\n" +
			"  activityd tasks list --state dead --limit 0 -o json > dead.ndjson",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if l.match, err = chosen.filter(cmd.Flags(), args, queue.States()); err != nil {
				return err
			}
			if l.limit < 0 {
				return fmt.Errorf("--limit: is %d: want at least 0", l.limit)
			}
			l.match.After = after
			return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
				return l.run(ctx, q, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	f := cmd.Flags()
	chosen.register(cmd, queue.States(), "only tasks in this `state`")
	f.IntVar(&l.limit, "limit", 50, "how many to list; 0: all")
	f.Uint64Var(&after, "after", 0, "only those after the task with this `id`, as for the next page")
	outputFlag(f, &l.output)
	c.mysqlFlags(f)
	return cmd
}

// run lists the tasks, and says on errs when there are none or more: out may be
// read by a program.
func (l taskList) run(ctx context.Context, q taskAdmin, out, errs io.Writer) error {
	size := inspect.Batch
	if l.limit > 0 {
		size = min(inspect.Batch, l.limit+1)
	}
	printer := newTaskPrinter(out, l.output)
	listed, last, more := 0, uint64(0), false
	for page, err := range inspect.Pages(ctx, q, l.match, size) {
		if err != nil {
			return err
		}
		if more = l.limit > 0 && listed+len(page) > l.limit; more {
			page = page[:l.limit-listed]
		}
		if err := printer.print(page); err != nil {
			return err
		}
		listed += len(page)
		if len(page) > 0 {
			last = page[len(page)-1].ID
		}
		if more {
			break
		}
	}
	switch {
	case more:
		fmt.Fprintf(errs, "there are more: go on with --after %d, or list all with --limit 0\n", last)
	case listed == 0:
		fmt.Fprintln(errs, "no such tasks")
	}
	return nil
}

// taskPrinter writes tasks, a page at a time, as a table or as lines of JSON.
type taskPrinter struct {
	lines *json.Encoder     // nil: a table
	table *tabwriter.Writer // its columns are aligned within a page
	now   time.Time
	begun bool
}

func newTaskPrinter(w io.Writer, output string) *taskPrinter {
	p := &taskPrinter{table: newTable(w), now: time.Now()}
	if output == outputJSON {
		p.lines = newLineEncoder(w)
	}
	return p
}

func (p *taskPrinter) print(page []queue.Record) error {
	if p.lines != nil {
		for _, r := range page {
			if err := p.lines.Encode(newTaskJSON(r)); err != nil {
				return err
			}
		}
		return nil
	}
	tasks := inspect.Tasks(page, p.now)
	if !p.begun {
		p.begun = true
		fmt.Fprintln(p.table, strings.Join(tasks.Head, "\t")) // Flush returns its error
	}
	for _, row := range tasks.Rows {
		fmt.Fprintln(p.table, strings.Join(row, "\t"))
	}
	return p.table.Flush()
}

// taskJSON is a task as other programs read it.
type taskJSON struct {
	ID          uint64          `json:"id,string"`
	Queue       string          `json:"queue"`
	Type        string          `json:"type"`
	Subject     uint64          `json:"subject,string"`
	Args        json.RawMessage `json:"args,omitempty"`
	Priority    int             `json:"priority"`
	State       queue.State     `json:"state"`
	Attempts    int             `json:"attempts"`
	MaxAttempts int             `json:"max_attempts,omitempty"`
	Behind      bool            `json:"behind,omitempty"`
	CreatedAt   string          `json:"created_at"`
	StartedAt   string          `json:"started_at,omitempty"`
	DiedAt      string          `json:"died_at,omitempty"`
	RunAt       string          `json:"run_at,omitempty"`
	ExpiresAt   string          `json:"expires_at,omitempty"`
	LeaseOwner  string          `json:"lease_owner,omitempty"`
	LeaseUntil  string          `json:"lease_until,omitempty"`
	DedupeKey   string          `json:"dedupe_key,omitempty"`
	LastError   string          `json:"last_error,omitempty"`
}

func newTaskJSON(r queue.Record) taskJSON {
	return taskJSON{
		ID: r.ID, Queue: r.Queue, Type: r.Kind, Subject: r.Key, Args: r.Payload, Priority: r.Priority, State: r.State,
		Attempts: r.Attempts, MaxAttempts: r.MaxAttempts, Behind: r.Behind,
		CreatedAt: inspect.Stamp(r.Created), StartedAt: inspect.Stamp(r.Started), DiedAt: inspect.Stamp(r.Died),
		RunAt: inspect.Stamp(r.RunAt), ExpiresAt: inspect.Stamp(r.ExpiresAt), LeaseOwner: r.LeaseOwner, LeaseUntil: inspect.Stamp(r.LeaseUntil),
		DedupeKey: r.DedupeKey, LastError: r.LastError,
	}
}

func newTasksShow() *cobra.Command {
	c, output := &config{}, ""
	cmd := &cobra.Command{
		Use:     "show ID...",
		Short:   "Show all that is known about tasks",
		Long:    "Show all that is known about tasks, with the whole last error." + outputHelp,
		Example: "  activityd tasks show 4711\n  activityd tasks show 4711 4712 -o json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args)
			if err != nil {
				return err
			}
			return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
				return showTasks(ctx, q, ids, output, cmd.OutOrStdout())
			})
		},
	}
	outputFlag(cmd.Flags(), &output)
	c.mysqlFlags(cmd.Flags())
	return cmd
}

// showTasks prints tasks. It fails when for one of the ids there is none, after
// the others were printed.
func showTasks(ctx context.Context, q taskAdmin, ids []uint64, output string, out io.Writer) error {
	missing := slices.Clone(ids)
	lines, now := newTaskPrinter(out, output), time.Now()
	for page, err := range inspect.Pages(ctx, q, queue.Filter{IDs: ids}, inspect.Batch) {
		if err == nil && output == outputJSON {
			err = lines.print(page)
		}
		if err != nil {
			return err
		}
		for _, r := range page {
			missing = slices.DeleteFunc(missing, func(id uint64) bool { return id == r.ID })
			if output == outputJSON {
				continue
			}
			if _, err := io.WriteString(out, taskSheet(r, now)); err != nil {
				return err
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("there is no task %s: finished and discarded ones are deleted", strings.Trim(fmt.Sprint(missing), "[]"))
	}
	return nil
}

// taskSheet returns all that is known about a task.
func taskSheet(r queue.Record, now time.Time) string {
	text := sheet(fmt.Sprintf("task %d", r.ID), inspect.Task(r, now)...)
	if r.LastError != "" {
		indented := strings.ReplaceAll(strings.TrimRight(r.LastError, "\n"), "\n", "\n    ")
		text += fmt.Sprintf("  last error\n    %s\n", indented)
	}
	return text
}
