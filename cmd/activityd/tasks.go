package main

import (
	"context"
	"database/sql"
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
		"Look at tasks; try dead tasks again; discard tasks that are dead or wait; hold queues back.\n"+
			"A task is waiting for a worker, scheduled for later, running, or dead: it failed for good and is\n"+
			"kept with its reason. docs/operate.md says more.",
		"  activityd tasks stats\n  activityd tasks list --state dead --type upload\n  activityd tasks list 4711\n"+
			"  activityd tasks retry --type upload --error refused\n  activityd tasks discard 4711\n  activityd tasks pause fan_out",
		newTasksList(), newTasksStats(),
		newTasksChange(&taskChange{past: "retried", do: (*queue.Queue).Retry, taskFlags: taskFlags{possible: []queue.State{queue.Dead, queue.Scheduled}}},
			"retry", "Try dead tasks again, with all their attempts; or start tasks that wait for their time"),
		newTasksChange(&taskChange{past: "discarded", deletes: true, do: (*queue.Queue).Discard, taskFlags: taskFlags{possible: []queue.State{queue.Dead, queue.Waiting, queue.Scheduled}}},
			"discard", "Delete tasks that are dead, or do not run: what they would have changed stays unchanged"),
		newPause("pause", "Let no task of a queue start until it is resumed", (*queue.Queue).Pause, "is paused: activityd tasks resume ends it", "was paused already"),
		newPause("resume", "End the pause of a queue", (*queue.Queue).Resume, "is resumed", "was not paused"))
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

func (t *taskFlags) register(f *pflag.FlagSet, defaults string) {
	f.StringSliceVar(&t.types, "type", nil, "only tasks of this `type`; may be repeated, as may state and queue")
	f.StringSliceVar(&t.states, "state", nil, "only tasks in this `state`"+defaults)
	f.StringSliceVar(&t.queues, "queue", nil, "only tasks of this `queue`")
	f.StringVar(&t.member, "member", "", "only tasks about this `member`")
	f.StringVar(&t.dedupe, "dedupe-key", "", "only tasks with this dedupe `key`")
	f.StringVar(&t.lastErr, "error", "", "only tasks whose last error contains this `text`; % and _ are as in LIKE, and a backslash before them takes that away")
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

// taskList is the command list.
type taskList struct {
	match  queue.Filter
	asJSON bool
	limit  int // 0: none
}

func newTasksList() *cobra.Command {
	c, chosen, l := &config{}, &taskFlags{possible: queue.States()}, taskList{}
	cmd := &cobra.Command{
		Use:   "list [ID...]",
		Short: "List tasks, the oldest first; show all that is known about those that are named",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if l.match, err = chosen.filter(cmd.Flags(), args); err != nil {
				return err
			}
			if err := within("limit", l.limit, 0, 1_000_000_000); err != nil {
				return err
			}
			if len(args) > 0 {
				l.limit = 0
			}
			return withTables(cmd, c, func(ctx context.Context, _ *sql.DB, q *queue.Queue) error {
				return l.print(ctx, q, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	f := cmd.Flags()
	chosen.register(f, "")
	f.IntVar(&l.limit, "limit", 50, "how many to list; 0: all")
	jsonFlag(f, &l.asJSON)
	c.mysqlFlags(f)
	return cmd
}

// print prints the tasks that match. It says on errs that there are none, or more, as a program may read out; that a
// named task is missing is an error.
func (l taskList) print(ctx context.Context, q *queue.Queue, out, errs io.Writer) error {
	missing, listed := slices.Clone(l.match.IDs), 0
	for page, err := range inspect.Pages(ctx, q, l.match, inspect.Batch) {
		if err != nil {
			return err
		}
		more := l.limit > 0 && listed+len(page) > l.limit
		if more {
			page = page[:l.limit-listed]
		}
		if err := l.printPage(out, page, listed == 0); err != nil {
			return err
		}
		if listed += len(page); more {
			sayf(errs, "there are more: --limit 0 lists all")
			return nil
		}
		for _, r := range page {
			missing = slices.DeleteFunc(missing, func(id uint64) bool { return id == r.ID })
		}
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
func (l taskList) printPage(out io.Writer, page []queue.Record, first bool) (err error) {
	switch {
	case l.asJSON:
		for _, r := range page {
			err = errors.Join(err, printJSON(out, r))
		}
	case len(l.match.IDs) > 0:
		for _, r := range page {
			err = errors.Join(err, printTask(out, r))
		}
	default:
		table := inspect.Tasks(page, time.Now())
		if !first {
			table.Head = nil
		}
		err = printTable(out, table)
	}
	return err
}

// printTask prints all that is known about a task.
func printTask(out io.Writer, r queue.Record) error {
	err := printSheet(out, fmt.Sprintf("task %d", r.ID), inspect.Task(r, time.Now()))
	if r.LastError != "" {
		sayf(out, "  last error\n    %s", strings.ReplaceAll(strings.TrimRight(r.LastError, "\n"), "\n", "\n    "))
	}
	return err
}

func newTasksStats() *cobra.Command {
	c, asJSON := &config{}, false
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Say how full the queues are: tasks by queue, type and state, and the age of the oldest",
		Long: "Say how full the queues are: tasks by queue, type and state, and the age of the oldest waiting\n" +
			"task. Of each queue and state only the first 100000 tasks are counted, so that it costs little\n" +
			"whatever waits; larger numbers have a \"≥\".",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withTables(cmd, c, func(ctx context.Context, _ *sql.DB, q *queue.Queue) error {
				is, err := q.Stats(ctx)
				if err != nil {
					return err
				}
				out, stats := cmd.OutOrStdout(), inspect.NewQueues(is, time.Now())
				switch {
				case asJSON:
					return printJSON(out, stats)
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
	jsonFlag(cmd.Flags(), &asJSON)
	c.mysqlFlags(cmd.Flags())
	return cmd
}

// taskChange is a change of tasks, with its flags.
type taskChange struct {
	past    string // as in "retried", before a number of tasks
	deletes bool   // a filter needs --yes
	do      func(q *queue.Queue, ctx context.Context, match queue.Filter, limit int) (int, error)

	taskFlags

	all, yes bool
}

// newTasksChange returns the command of a change.
func newTasksChange(ch *taskChange, name, short string) *cobra.Command {
	c := &config{}
	cmd := &cobra.Command{
		Use: name + " [ID...]", Short: short,
		Long: short + ".\nThe tasks are those with the ids, or those that the filter chooses: dead tasks, without --state.\n" +
			"It takes them in batches; an interrupt stops it between two.",
		RunE: func(cmd *cobra.Command, args []string) error {
			match, err := ch.choose(cmd, args)
			if err != nil {
				return err
			}
			return withTables(cmd, c, func(ctx context.Context, _ *sql.DB, q *queue.Queue) error {
				return ch.run(ctx, q, match, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	f := cmd.Flags()
	ch.register(f, " (default dead)")
	f.BoolVar(&ch.all, "all", false, "all of them, without ids and without a filter")
	if ch.deletes {
		f.BoolVar(&ch.yes, "yes", false, "do it")
	}
	c.mysqlFlags(f)
	c.notifyFlag(f)
	return cmd
}

// choose reads the arguments and flags. All tasks are to be asked for explicitly.
func (ch *taskChange) choose(cmd *cobra.Command, args []string) (m queue.Filter, err error) {
	m, err = ch.filter(cmd.Flags(), args)
	switch {
	case err != nil:
		return m, err
	case !ch.all && len(m.IDs)+len(m.Kinds)+len(m.Queues)+len(m.Error)+len(m.DedupeKey) == 0 && m.Key == 0:
		return m, fmt.Errorf("%s which tasks? Name them by id, --type, --queue, --member, --dedupe-key or --error, or say --all", cmd.Name())
	case len(m.IDs) > 0:
		m.States = ch.possible
	case ch.deletes && !ch.yes:
		return m, errors.New("this deletes tasks for good: look at them with activityd tasks list and this filter, then repeat with --yes")
	case len(m.States) == 0:
		m.States = []queue.State{queue.Dead}
	}
	return m, nil
}

// run changes all chosen tasks, a transaction for each page of them. It fails at the end if a task named by id cannot
// be changed.
func (ch *taskChange) run(ctx context.Context, q *queue.Queue, chosen queue.Filter, out, errs io.Writer) error {
	do := func(ctx context.Context, match queue.Filter, limit int) (int, error) {
		return ch.do(q, ctx, match, limit)
	}
	changed, missed, err := inspect.Change(ctx, inspect.Pages(ctx, q, chosen, inspect.Batch), chosen, do)
	if err != nil {
		return fmt.Errorf("%s %d tasks, and left the rest as it was; repeat it to go on: %w", ch.past, changed, err)
	}
	if _, err := fmt.Fprintf(out, "%s %d tasks\n", ch.past, changed); err != nil {
		return err
	}
	if left := len(chosen.IDs) - changed; left > 0 {
		return fmt.Errorf("%d of the named tasks are gone, or in none of the states %v, and were left alone: activityd tasks list shows them", left, ch.possible)
	}
	if missed > 0 {
		sayf(errs, "%d more changed in the meantime, or are about to, and were left alone", missed)
	}
	return nil
}

// newPause returns a command that changes the pause of a queue. A name that may be misspelt is not refused: a site's own
// queue may be paused before its first task comes.
func newPause(name, short string, change func(*queue.Queue, context.Context, string) (bool, error), changed, unchanged string) *cobra.Command {
	c := &config{}
	cmd := &cobra.Command{
		Use: name + " QUEUE", Short: short, Args: cobra.ExactArgs(1), ValidArgs: knownQueues(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withTables(cmd, c, func(ctx context.Context, _ *sql.DB, q *queue.Queue) error {
				done, err := change(q, ctx, args[0])
				if err != nil {
					return err
				}
				if !slices.Contains(knownQueues(), args[0]) {
					sayf(cmd.ErrOrStderr(), "activityd: %q is no queue of activityd's own: those are %v", args[0], knownQueues())
				}
				outcome := map[bool]string{true: changed, false: unchanged}[done]
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "queue %s %s\n", args[0], outcome)
				return err
			})
		},
	}
	c.mysqlFlags(cmd.Flags())
	return cmd
}
