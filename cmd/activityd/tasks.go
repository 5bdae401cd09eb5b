package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/wake"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

func newTasks() *cobra.Command {
	return newGroup("tasks", "Look at tasks; retry or discard them; hold queues back",
		"Look at tasks; try dead tasks again; discard tasks that are dead or wait; hold queues back.\n\n"+
			"A task is waiting for a worker, scheduled for later, running, or dead: it failed for good and is\n"+
			"kept with its reason.",
		"  activityd tasks stats\n  activityd tasks list --state dead\n  activityd tasks list 4711\n"+
			"  activityd tasks retry --all --dry-run\n  activityd tasks pause fan_out",
		newTasksList(), newTasksStats(), newTasksRetry(), newTasksDiscard(),
		newPause("pause", "Let no task of a queue start until it is resumed. Tasks that run go on, and tasks can be\n"+
			"enqueued as ever. All processes notice within a second. A pause outlives restarts.",
			(*queue.Queue).Pause, "is paused: activityd tasks resume ends it", "was paused already"),
		newPause("resume", "End the pause of a queue.", (*queue.Queue).Resume, "is resumed", "was not paused"))
}

// withTables calls do with the database and its queue. If a Redis is named, idle workers are notified of tasks that may start.
func withTables(cmd *cobra.Command, c *config, do func(context.Context, *sql.DB, *queue.Queue) error) error {
	if err := c.check(cmd.Flags()); err != nil {
		return err
	}
	db, err := openMySQL(c, c.mysqlConnections)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // each statement's own error was checked
	ctx, notifier := cmd.Context(), &notify.Notifier{}
	if err := schema.Compatible(ctx, db); err != nil {
		return err
	}
	if c.redisURL != "" {
		client, err := openRedis(c.redisURL)
		if err != nil {
			return err
		}
		defer func() { _ = client.Close() }() // nothing is kept there
		defer runWake(ctx, wake.New(client, notifier, newLogger(c, cmd.ErrOrStderr())), cmd.ErrOrStderr())()
	}
	return do(ctx, db, queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Notifier: notifier, Owner: processName()}))
}

// withTasks is [withTables] for the queue alone.
func withTasks(cmd *cobra.Command, c *config, do func(context.Context, *queue.Queue) error) error {
	return withTables(cmd, c, func(ctx context.Context, _ *sql.DB, q *queue.Queue) error { return do(ctx, q) })
}

// knownQueues returns the queues that have workers unless --workers says otherwise.
func knownQueues() (names []string) {
	for _, w := range tasks.DefaultWorkers() {
		names = append(names, w.Queue)
	}
	return names
}

// taskFlags choose tasks.
type taskFlags struct {
	types, states, queues   []string
	member, dedupe, lastErr string
	possible                []queue.State // of --state
}

func (t *taskFlags) register(cmd *cobra.Command, defaults string) {
	f := cmd.Flags()
	f.StringSliceVar(&t.types, "type", nil, "only tasks of this `type`; may be repeated, as may state and queue")
	f.StringSliceVar(&t.states, "state", nil, "only tasks in this `state`"+defaults)
	f.StringSliceVar(&t.queues, "queue", nil, "only tasks of this `queue`")
	f.StringVar(&t.member, "member", "", "only tasks about this `member`")
	f.StringVar(&t.dedupe, "dedupe-key", "", "only tasks with this dedupe `key`")
	f.StringVar(&t.lastErr, "error", "", "only tasks whose last error contains this `text`; % and _ are as in LIKE, and a backslash before them takes that away")
	completeFlag(cmd, "type", tasks.Kinds().Names())
	completeFlag(cmd, "state", t.possible)
	completeFlag(cmd, "queue", knownQueues())
}

// filter returns the filter of the ids in args, or of the flags. A flag with an empty value, as of a variable that the
// shell does not know, is an error: it would choose all.
func (t *taskFlags) filter(f *pflag.FlagSet, args []string) (match queue.Filter, err error) {
	for _, name := range []string{"type", "state", "queue", "member", "dedupe-key", "error"} {
		switch flag := f.Lookup(name); {
		case flag.Changed && len(args) > 0:
			return match, fmt.Errorf("--%s: want either ids or a filter", name)
		case flag.Changed && strings.Trim(flag.Value.String(), "[]") == "":
			return match, fmt.Errorf("--%s: is empty", name)
		}
	}
	match = queue.Filter{Kinds: t.types, Queues: t.queues, DedupeKey: t.dedupe, Error: t.lastErr}
	for _, word := range args {
		id, err := strconv.ParseUint(word, 10, 64)
		if err != nil || id == 0 {
			return match, fmt.Errorf("%q is no task id: want a number, as in 4711", word)
		}
		match.IDs = append(match.IDs, id)
	}
	slices.Sort(match.IDs)
	match.IDs = slices.Compact(match.IDs)
	for _, word := range t.states {
		if !slices.Contains(t.possible, queue.State(word)) {
			return match, fmt.Errorf("--state: is %q: want one of %v", word, t.possible)
		}
		match.States = append(match.States, queue.State(word))
	}
	if t.member != "" {
		id, err := member.Parse(t.member)
		if err != nil {
			return match, fmt.Errorf("--member: %w", err)
		}
		match.Key = uint64(id)
	}
	return match, nil
}

// taskList holds the flags of list.
type taskList struct {
	match  queue.Filter
	output string
	limit  int // 0: none
}

func newTasksList() *cobra.Command {
	c, chosen, l := &config{}, &taskFlags{possible: queue.States()}, taskList{}
	var after uint64
	cmd := &cobra.Command{
		Use:   "list [ID...]",
		Short: "List tasks, the oldest first; show all that is known about those that are named",
		Long: "List the tasks that a filter chooses, the oldest first; or show all that is known about the tasks\n" +
			"with these ids, with the whole last error. Ages are by this machine's clock." + outputHelp,
		Example: "  activityd tasks list --state dead --type upload\n  activityd tasks list 4711\n" +
			"  activityd tasks list --member 12345 -o json\n  activityd tasks list --state dead --limit 0 -o json > dead.ndjson",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if l.match, err = chosen.filter(cmd.Flags(), args); err != nil {
				return err
			}
			if err := within("limit", l.limit, 0, 1_000_000_000); err != nil {
				return err
			}
			if l.match.After = after; len(args) > 0 {
				l.limit = 0
			}
			return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
				return l.print(ctx, q, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	f := cmd.Flags()
	chosen.register(cmd, "")
	f.IntVar(&l.limit, "limit", 50, "how many to list; 0: all")
	f.Uint64Var(&after, "after", 0, "only those after the task with this `id`, as for the next page")
	outputFlag(f, &l.output)
	c.mysqlFlags(f)
	return cmd
}

// print prints the tasks that match. It says on errs that there are none, or more, as a program may read out; that a
// named task is missing is an error.
func (l taskList) print(ctx context.Context, q *queue.Queue, out, errs io.Writer) error {
	missing, listed, last := slices.Clone(l.match.IDs), 0, uint64(0)
	for page, err := range inspect.Pages(ctx, q, l.match, inspect.Batch) {
		if err != nil {
			return err
		}
		for i, r := range page {
			if l.limit > 0 && listed+i == l.limit {
				err := l.printPage(out, page[:i], listed == 0)
				sayf(errs, "there are more: go on with --after %d, or list all with --limit 0", last)
				return err
			}
			last = r.ID
			missing = slices.DeleteFunc(missing, func(id uint64) bool { return id == r.ID })
		}
		if err := l.printPage(out, page, listed == 0); err != nil {
			return err
		}
		listed += len(page)
	}
	switch {
	case len(missing) > 0:
		return fmt.Errorf("there is no task %s: finished and discarded tasks are deleted", strings.Trim(fmt.Sprint(missing), "[]"))
	case listed == 0:
		sayf(errs, "no such tasks")
	}
	return nil
}

// printPage prints tasks as JSON, as a table, or one below the other if they are named.
func (l taskList) printPage(out io.Writer, page []queue.Record, first bool) error {
	if len(l.match.IDs) == 0 || l.output == outputJSON {
		return printTasks(out, l.output, page, first)
	}
	for _, r := range page {
		if _, err := io.WriteString(out, taskSheet(r, time.Now())); err != nil {
			return err
		}
	}
	return nil
}

// sayf prints a line, and ignores a failed write.
func sayf(out io.Writer, format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }

// taskSheet returns all that is known about a task.
func taskSheet(r queue.Record, now time.Time) string {
	text := sheet(fmt.Sprintf("task %d", r.ID), inspect.Task(r, now)...)
	if r.LastError != "" {
		text += "  last error\n    " + strings.ReplaceAll(strings.TrimRight(r.LastError, "\n"), "\n", "\n    ") + "\n"
	}
	return text
}

// printTasks prints a page of tasks, below a head if it is the first.
func printTasks(w io.Writer, output string, page []queue.Record, first bool) error {
	return printList(w, output, page, newTaskJSON, func(page []queue.Record) inspect.Table {
		table := inspect.Tasks(page, time.Now())
		if !first {
			table.Head = nil
		}
		return table
	})
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

func newTasksStats() *cobra.Command {
	c, output := &config{}, ""
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Say how full the queues are",
		Long: "Say how full the queues are: tasks by queue, type and state, and the age of the oldest waiting\n" +
			"task. Of each queue and state only the first 100000 tasks are counted, so that it costs little\n" +
			"whatever waits; larger numbers have a \"≥\"." + outputHelp,
		Example: "  activityd tasks stats\n  watch activityd tasks stats",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
				is, err := q.Stats(ctx)
				if err != nil {
					return err
				}
				out, stats := cmd.OutOrStdout(), inspect.NewQueues(is, time.Now())
				switch {
				case output == outputJSON:
					return newLineEncoder(out).Encode(stats)
				case len(stats.Queues) == 0:
					_, err = fmt.Fprintln(out, "there are no tasks, and no queue is paused")
					return err
				case stats.More:
					sayf(cmd.ErrOrStderr(), "there are tasks in more queues, which are not counted: activityd tasks list shows them")
				}
				return printTable(out, stats.Table())
			})
		},
	}
	outputFlag(cmd.Flags(), &output)
	c.mysqlFlags(cmd.Flags())
	return cmd
}

// taskChange is a change of tasks, with its flags.
type taskChange struct {
	past    string // as in "retried", before a number of tasks
	deletes bool   // a filter needs --yes
	do      func(q *queue.Queue, ctx context.Context, match queue.Filter, limit int) (int, error)

	taskFlags

	match         queue.Filter
	all, dry, yes bool
}

func newTasksRetry() *cobra.Command {
	ch := &taskChange{past: "retried", do: (*queue.Queue).Retry, taskFlags: taskFlags{possible: []queue.State{queue.Dead, queue.Scheduled}}}
	return ch.command(&cobra.Command{
		Use:   "retry [ID...]",
		Short: "Try dead tasks again",
		Long: "Try dead tasks again, with all their attempts; or, by id or with --state scheduled, start tasks\n" +
			"that wait for their time. Each is touched once, however often it fails again. They are taken in\n" +
			"batches of 500; an interrupt stops between two batches. With --redis-url idle workers are\n" +
			"notified; else they find the tasks at their next poll, within a second.",
		Example: "  activityd tasks retry --all --dry-run\n  activityd tasks retry --type upload\n  activityd tasks retry 4711 4712",
	})
}

func newTasksDiscard() *cobra.Command {
	ch := &taskChange{past: "discarded", deletes: true, do: (*queue.Queue).Discard, taskFlags: taskFlags{possible: []queue.State{queue.Dead, queue.Waiting, queue.Scheduled}}}
	return ch.command(&cobra.Command{
		Use:   "discard [ID...]",
		Short: "Delete tasks that are dead, or have not begun",
		Long: "Delete dead tasks, which nothing tries again; or, by id or with --state, tasks that have not begun,\n" +
			"or wait for their next attempt. Tasks that run go on. What a discarded task would have changed\n" +
			"stays unchanged: the sets that it concerns may stay as they are until another task updates them\n" +
			"(activityd show MEMBER compares one). A filter needs --yes.",
		Example: "  activityd tasks discard 4711\n  activityd tasks discard --type upload --dry-run\n" +
			"  activityd tasks discard --queue mails --state waiting,scheduled --yes",
	})
}

// command completes the command.
func (ch *taskChange) command(cmd *cobra.Command) *cobra.Command {
	c := &config{}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := ch.choose(cmd, args); err != nil {
			return err
		}
		return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
			if ch.dry {
				return ch.preview(ctx, q, cmd.OutOrStdout())
			}
			return ch.run(ctx, q, cmd.OutOrStdout(), cmd.ErrOrStderr())
		})
	}
	f := cmd.Flags()
	ch.register(cmd, " (default dead)")
	f.BoolVar(&ch.all, "all", false, "all of them, without ids and without a filter")
	f.BoolVar(&ch.dry, "dry-run", false, "only say which tasks it would be")
	if ch.deletes {
		f.BoolVar(&ch.yes, "yes", false, "do it")
	}
	c.mysqlFlags(f)
	c.notifyFlag(f)
	return cmd
}

// choose reads the arguments and flags. All tasks are to be asked for explicitly.
func (ch *taskChange) choose(cmd *cobra.Command, args []string) (err error) {
	if ch.match, err = ch.filter(cmd.Flags(), args); err != nil {
		return err
	}
	m := &ch.match
	switch {
	case !ch.all && len(m.IDs)+len(m.Kinds)+len(m.Queues)+len(m.Error)+len(m.DedupeKey) == 0 && m.Key == 0:
		return fmt.Errorf("%s which tasks? Name them by id, --type, --queue, --member, --dedupe-key or --error, or say --all", cmd.Name())
	case len(m.IDs) > 0:
		m.States = ch.possible
	case ch.deletes && !ch.yes && !ch.dry:
		return errors.New("this deletes tasks for good: look at them with --dry-run, then repeat with --yes")
	case len(m.States) == 0:
		m.States = []queue.State{queue.Dead}
	}
	return nil
}

// run changes all chosen tasks, a transaction for each page of them. It fails at the end if a task named by id cannot
// be changed.
func (ch *taskChange) run(ctx context.Context, q *queue.Queue, out, errs io.Writer) error {
	do := func(ctx context.Context, match queue.Filter, limit int) (int, error) {
		return ch.do(q, ctx, match, limit)
	}
	changed, missed, err := inspect.Change(ctx, inspect.Pages(ctx, q, ch.match, inspect.Batch), ch.match, do)
	if err != nil {
		return fmt.Errorf("%s %d tasks, and left the rest as it was; repeat it to go on: %w", ch.past, changed, err)
	}
	if _, err := fmt.Fprintf(out, "%s %d tasks\n", ch.past, changed); err != nil {
		return err
	}
	if left := len(ch.match.IDs) - changed; left > 0 {
		return fmt.Errorf("%d of the named tasks are gone, or in none of the states %v, and were left alone: activityd tasks list shows them", left, ch.possible)
	}
	if missed > 0 {
		sayf(errs, "%d more changed in the meantime, or are about to, and were left alone", missed)
	}
	return nil
}

// previewed is how many tasks a preview shows.
const previewed = 10

// preview shows the first of the chosen tasks, and says how many there are.
func (ch *taskChange) preview(ctx context.Context, q *queue.Queue, out io.Writer) error {
	total := 0
	for page, err := range inspect.Pages(ctx, q, ch.match, inspect.Batch) {
		if err == nil && total == 0 {
			err = printTasks(out, outputTable, page[:min(len(page), previewed)], true)
		}
		if err != nil {
			return err
		}
		total += len(page)
	}
	_, err := fmt.Fprintf(out, "%d tasks would be %s\n", total, ch.past)
	return err
}

// newPause returns a command that changes the pause of a queue. A name that may be misspelt is not refused: a site's own
// queue may be paused before its first task comes.
func newPause(name, long string, change func(*queue.Queue, context.Context, string) (bool, error), changed, unchanged string) *cobra.Command {
	c := &config{}
	short, _, _ := strings.Cut(long, ".")
	cmd := &cobra.Command{
		Use: name + " QUEUE", Short: short, Long: long, Example: "  activityd tasks " + name + " fan_out",
		Args: cobra.ExactArgs(1), ValidArgs: knownQueues(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
				done, err := change(q, ctx, args[0])
				if err != nil {
					return err
				}
				if !slices.Contains(knownQueues(), args[0]) {
					sayf(cmd.ErrOrStderr(), "activityd: %q is no queue of activityd's own: those are %v", args[0], knownQueues())
				}
				outcome := unchanged
				if done {
					outcome = changed
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "queue %s %s\n", args[0], outcome)
				return err
			})
		},
	}
	c.mysqlFlags(cmd.Flags())
	return cmd
}
