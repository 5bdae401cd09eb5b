package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/queue"
)

func newTasksShow() *cobra.Command {
	c, output := &config{}, ""
	cmd := &cobra.Command{
		Use:     "show ID...",
		Short:   "Show all that is known about tasks",
		Long:    "Show all that is known about tasks, with the whole last error. An ID may be a range, as in 5-9." + outputHelp,
		Example: "  activityd tasks show 4711\n  activityd tasks show 4711-4720 -o json",
		Args:    atMost(math.MaxInt, "ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args)
			if err != nil {
				err = fmt.Errorf("ID: %w", err)
			}
			return onTasks(cmd, c, err, func(ctx context.Context, q taskAdmin) error {
				return showTasks(ctx, q, ids, newTaskPrinter(cmd.OutOrStdout(), output, true))
			})
		},
	}
	outputFlag(cmd.Flags(), &output)
	c.mysqlFlags(cmd.Flags())
	return cmd
}

// showTasks prints tasks. It fails when for one of the ids there is none, after
// the others were printed.
func showTasks(ctx context.Context, q taskLister, ids []idRange, printer taskPrinter) error {
	empty := slices.Clone(ids)
	for r, err := range (selection{named: ids}).records(ctx, q, 0, taskBatch) {
		if err != nil {
			return err
		}
		empty = slices.DeleteFunc(empty, func(ids idRange) bool { return ids.first <= r.ID && r.ID <= ids.last })
		if err := printer.print(r); err != nil {
			return err
		}
	}
	if err := printer.end(); err != nil || len(empty) == 0 {
		return err
	}
	return errNoTask(empty)
}

func errNoTask(ids []idRange) error {
	words := make([]string, len(ids))
	for i, r := range ids {
		words[i] = r.String()
	}
	return fmt.Errorf("there is no task %s: finished and discarded ones are deleted", strings.Join(words, ", "))
}

// taskSheets writes all that is known about each task.
type taskSheets struct {
	w       io.Writer
	now     time.Time
	printed bool
}

func (s *taskSheets) end() error { return nil }

func (s *taskSheets) print(r queue.Record) error {
	var text strings.Builder
	if s.printed {
		text.WriteString("\n")
	}
	s.printed = true
	fmt.Fprintf(&text, "task %d\n", r.ID)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&text, "  %-13s %s\n", name, value)
		}
	}
	line("type", oneLine(r.Kind))
	line("subject", strconv.FormatUint(r.Key, 10))
	line("arguments", oneLine(string(r.Payload)))
	line("queue", oneLine(r.Queue))
	line("priority", strconv.Itoa(r.Priority))
	line("state", string(r.State))
	line("attempts", fmt.Sprintf("%d of %d", r.Attempts, r.MaxAttempts))
	line("created", s.moment(r.Created))
	line("updated", s.moment(r.Updated))
	line("may start", s.moment(r.RunAt))
	line("expires", s.moment(r.ExpiresAt))
	line("leased by", oneLine(r.LeaseOwner))
	line("lease ends", s.moment(r.LeaseUntil))
	line("deleted", s.moment(r.ForgetAt))
	line("dedupe key", oneLine(r.DedupeKey))
	if r.LastError != "" {
		indented := strings.ReplaceAll(strings.TrimRight(r.LastError, "\n"), "\n", "\n    ")
		fmt.Fprintf(&text, "  last error\n    %s\n", indented)
	}
	_, err := io.WriteString(s.w, text.String())
	return err
}

// moment returns a time and how far away it is; nothing for none.
func (s *taskSheets) moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	away := shortDuration(s.now.Sub(t)) + " ago"
	if t.After(s.now) {
		away = "in " + shortDuration(t.Sub(s.now))
	}
	return t.UTC().Format("2006-01-02 15:04:05.000 UTC") + " (" + away + ")"
}
