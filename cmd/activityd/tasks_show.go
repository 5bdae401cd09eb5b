package main

import (
	"context"
	"fmt"
	"io"
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
		Long:    "Show all that is known about tasks, with the whole last error." + outputHelp,
		Example: "  activityd tasks show 4711\n  activityd tasks show 4711 4712 -o json",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := parseIDs(args)
			if err != nil {
				return err
			}
			return withTasks(cmd, c, func(ctx context.Context, q *queue.MySQLQueue) error {
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
func showTasks(ctx context.Context, q taskLister, ids []uint64, output string, out io.Writer) error {
	missing := slices.Clone(ids)
	lines, now := newTaskPrinter(out, output), time.Now()
	for page, err := range taskPages(ctx, q, queue.Filter{IDs: ids}, taskBatch) {
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
	var text strings.Builder
	fmt.Fprintf(&text, "task %d\n", r.ID)
	for _, line := range [][2]string{
		{"type", oneLine(r.Kind)},
		{"member", strconv.FormatUint(r.Key, 10)},
		{"arguments", oneLine(string(r.Payload))},
		{"queue", oneLine(r.Queue)},
		{"priority", strconv.Itoa(r.Priority)},
		{"state", string(r.State)},
		{"attempts", fmt.Sprintf("%d of %d", r.Attempts, r.MaxAttempts)},
		{"created", moment(r.Created, now)},
		{"updated", moment(r.Updated, now)},
		{"may start", moment(r.RunAt, now)},
		{"expires", moment(r.ExpiresAt, now)},
		{"leased by", oneLine(r.LeaseOwner)},
		{"lease ends", moment(r.LeaseUntil, now)},
		{"deleted", moment(r.ForgetAt, now)},
		{"dedupe key", oneLine(r.DedupeKey)},
	} {
		if line[1] != "" {
			fmt.Fprintf(&text, "  %-13s %s\n", line[0], line[1])
		}
	}
	if r.LastError != "" {
		indented := strings.ReplaceAll(strings.TrimRight(r.LastError, "\n"), "\n", "\n    ")
		fmt.Fprintf(&text, "  last error\n    %s\n", indented)
	}
	return text.String()
}

// moment returns a time and how far away it is; empty for the zero time.
func moment(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	away := shortDuration(now.Sub(t)) + " ago"
	if t.After(now) {
		away = "in " + shortDuration(t.Sub(now))
	}
	return t.UTC().Format("2006-01-02 15:04:05.000 UTC") + " (" + away + ")"
}
