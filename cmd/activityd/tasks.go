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
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/wake"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

func newTasks() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "Look at tasks; retry, cancel or discard them; hold queues back",
		Long: "Look at tasks; try dead tasks again or discard them; cancel tasks that wait; hold queues back.\n\n" +
			"A task is waiting for a worker, scheduled for later, running, or dead: it failed for good and is\n" +
			"kept with its reason.",
		Example: "  activityd tasks stats\n  activityd tasks list --state dead\n  activityd tasks list 4711\n" +
			"  activityd tasks retry --all --dry-run\n  activityd tasks pause fan_out",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTasksList(), newTasksStats(), newTasksRetry(), newTasksCancel(), newTasksDiscard(),
		newPause("pause", "Let no task of a queue start until it is resumed. Tasks that run go on, and tasks can be\n"+
			"enqueued as ever. All processes notice within a second. A pause outlives restarts.",
			(*queue.Queue).Pause, "is paused: activityd tasks resume ends it", "was paused already"),
		newPause("resume", "End the pause of a queue.", (*queue.Queue).Resume, "is resumed", "was not paused"))
	return cmd
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
}

// register registers the flags; states are the possible values of --state.
func (t *taskFlags) register(cmd *cobra.Command, states []queue.State, usage string) {
	f := cmd.Flags()
	f.StringSliceVar(&t.types, "type", nil, "only tasks of this `type`; may be repeated, as may state and queue")
	f.StringSliceVar(&t.states, "state", nil, usage)
	f.StringSliceVar(&t.queues, "queue", nil, "only tasks of this `queue`")
	f.StringVar(&t.member, "member", "", "only tasks about this `member`")
	f.StringVar(&t.dedupe, "dedupe-key", "", "only tasks with this dedupe `key`")
	f.StringVar(&t.lastErr, "error", "", "only tasks whose last error contains this `text`; % and _ are as in LIKE, and a backslash before them takes that away")
	completeFlag(cmd, "type", tasks.Kinds().Names())
	completeFlag(cmd, "state", states)
	completeFlag(cmd, "queue", knownQueues())
}

// filter returns the filter of the ids in args, or of the flags. A flag with an empty value, as of a variable that the
// shell does not know, is an error: it would choose all.
func (t *taskFlags) filter(f *pflag.FlagSet, args []string, possible []queue.State) (match queue.Filter, err error) {
	for _, name := range []string{"type", "state", "queue", "member", "dedupe-key", "error"} {
		switch flag := f.Lookup(name); {
		case flag.Changed && len(args) > 0:
			return match, fmt.Errorf("--%s: want either ids or a filter", name)
		case flag.Changed && strings.Trim(flag.Value.String(), "[]") == "":
			return match, fmt.Errorf("--%s: is empty", name)
		}
	}
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
		state := queue.State(word)
		if !slices.Contains(possible, state) {
			return match, fmt.Errorf("--state: is %q: want %s", word, joined(possible))
		}
		match.States = append(match.States, state)
	}
	match.Kinds, match.Queues, match.DedupeKey, match.Error = t.types, t.queues, t.dedupe, t.lastErr
	if t.member != "" {
		id, err := member.Parse(t.member)
		if err != nil {
			return match, fmt.Errorf("--member: %w", err)
		}
		match.Key = uint64(id)
	}
	return match, nil
}

// joined returns words with commas between them.
func joined[S ~string](words []S) string {
	list := make([]string, len(words))
	for i, word := range words {
		list[i] = string(word)
	}
	return strings.Join(list, ", ")
}

// taskList holds the flags of list.
type taskList struct {
	match  queue.Filter
	output string
	limit  int // 0: none
}

func newTasksList() *cobra.Command {
	c, chosen, l := &config{}, &taskFlags{}, taskList{}
	var after uint64
	cmd := &cobra.Command{
		Use:   "list [ID...]",
		Short: "List tasks, the oldest first; show all that is known about those that are named",
		Long: "List the tasks that a filter chooses, the oldest first; or show all that is known about the tasks\n" +
			"with these ids, with the whole last error. Ages are by this machine's clock." + outputHelp,
		Example: "  activityd tasks list --state dead --type upload\n  activityd tasks list 4711\n" +
			"  activityd tasks list --member 12345 -o json\n  activityd tasks list --state dead --limit 0 -o json > dead.ndjson",
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if l.match, err = chosen.filter(cmd.Flags(), args, queue.States()); err != nil {
				return err
			}
			if l.limit < 0 {
				return fmt.Errorf("--limit: is %d: want at least 0", l.limit)
			}
			l.match.After = after
			return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
				if len(args) > 0 {
					return l.show(ctx, q, cmd.OutOrStdout())
				}
				return l.list(ctx, q, cmd.OutOrStdout(), cmd.ErrOrStderr())
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

// list prints the tasks that match. That there are none, or more, it says on errs: a program may read out.
func (l taskList) list(ctx context.Context, q *queue.Queue, out, errs io.Writer) error {
	size := inspect.Batch
	if l.limit > 0 {
		size = min(size, l.limit+1)
	}
	listed, last, more := 0, uint64(0), false
	for page, err := range inspect.Pages(ctx, q, l.match, size) {
		if err != nil {
			return err
		}
		if more = l.limit > 0 && listed+len(page) > l.limit; more {
			page = page[:l.limit-listed]
		}
		if err := printTasks(out, l.output, page, listed == 0); err != nil {
			return err
		}
		if listed, last = listed+len(page), page[len(page)-1].ID; more {
			break
		}
	}
	switch {
	case more:
		sayf(errs, "there are more: go on with --after %d, or list all with --limit 0", last)
	case listed == 0:
		sayf(errs, "no such tasks")
	}
	return nil
}

// show prints all that is known about the named tasks, and fails at the end if a named task is missing.
func (l taskList) show(ctx context.Context, q *queue.Queue, out io.Writer) error {
	missing, now := slices.Clone(l.match.IDs), time.Now()
	for page, err := range inspect.Pages(ctx, q, l.match, inspect.Batch) {
		if err == nil && l.output == outputJSON {
			err = printTasks(out, l.output, page, false)
		}
		if err != nil {
			return err
		}
		for _, r := range page {
			missing = slices.DeleteFunc(missing, func(id uint64) bool { return id == r.ID })
			if l.output == outputJSON {
				continue
			}
			if _, err := io.WriteString(out, taskSheet(r, now)); err != nil {
				return err
			}
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("there is no task %s: finished and discarded tasks are deleted", strings.Trim(fmt.Sprint(missing), "[]"))
	}
	return nil
}

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

// maxOver and minOver bound the time between the two looks of stats.
const (
	minOver = 100 * time.Millisecond
	maxOver = 30 * time.Second
)

func newTasksStats() *cobra.Command {
	c, output, over := &config{}, "", time.Duration(0)
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Say how full the queues are, and how fast that changes",
		Long: "Say how full the queues are: tasks by queue, type and state, and the age of the oldest waiting\n" +
			"task; how fast the number of waiting tasks changes; and when none will wait if that goes on. Of\n" +
			"each queue and state only the first 100000 tasks are counted, so that it costs little whatever\n" +
			"waits; larger numbers have a \"≥\". Of queues that are neither standard nor paused it counts the\n" +
			"first 32. The changes are the difference of two looks." + outputHelp,
		Example: "  activityd tasks stats\n  activityd tasks stats --over 10s\n  watch activityd tasks stats",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if over != 0 && (over < minOver || over > maxOver) {
				return fmt.Errorf("--over: is %v: want %v to %v, or 0", over, minOver, maxOver)
			}
			return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
				return printStats(ctx, q, over, output, cmd.OutOrStdout())
			})
		},
	}
	f := cmd.Flags()
	f.DurationVar(&over, "over", 2*time.Second, "measure the changes over this time; 0: look once, without changes")
	outputFlag(f, &output)
	c.mysqlFlags(f)
	return cmd
}

// printStats prints how full the queues are, and how that changes over a time.
func printStats(ctx context.Context, q interface {
	Stats(ctx context.Context) (queue.Stats, error)
}, over time.Duration, output string, out io.Writer,
) error {
	var before *queue.Stats
	looked := time.Now()
	if over > 0 {
		first, err := q.Stats(ctx)
		if err != nil {
			return err
		}
		if before, looked = &first, time.Now(); retry.Sleep(ctx, over) != nil {
			return errSignalled
		}
	}
	is, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	stats := inspect.NewQueues(is, before, now.Sub(looked), now)
	switch {
	case output == outputJSON:
		return newLineEncoder(out).Encode(stats)
	case len(stats.Queues) == 0:
		_, err = fmt.Fprintln(out, "there are no tasks, and no queue is paused")
		return err
	}
	if err := printTable(out, stats.Table()); err != nil || !stats.More {
		return err
	}
	_, err = fmt.Fprintln(out, "there are tasks in more queues, which are not counted: activityd tasks list shows them")
	return err
}

// taskChange is a change of tasks, with its flags.
type taskChange struct {
	past     string        // as in "retried", before a number of tasks
	possible []queue.State // of the tasks that can be changed
	filtered []queue.State // the states that a filter chooses without --state
	confirm  bool          // a filter needs --yes
	do       func(q *queue.Queue, ctx context.Context, match queue.Filter, limit int) (int, error)

	chosen        taskFlags
	match         queue.Filter
	all, dry, yes bool
}

func newTasksRetry() *cobra.Command {
	ch := &taskChange{past: "retried", possible: []queue.State{queue.Dead, queue.Scheduled}, filtered: []queue.State{queue.Dead}, do: (*queue.Queue).Retry}
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

func newTasksCancel() *cobra.Command {
	ch := &taskChange{past: "cancelled", possible: []queue.State{queue.Waiting, queue.Scheduled}, confirm: true, do: (*queue.Queue).Discard}
	return ch.command(&cobra.Command{
		Use:   "cancel [ID...]",
		Short: "Delete tasks that have not begun, or wait for their next attempt",
		Long: "Delete tasks that have not begun, or wait for their next attempt. Tasks that run go on. What a\n" +
			"cancelled task would have changed stays unchanged: the sets that it concerns may stay as they are\n" +
			"until another task updates them (activityd show MEMBER compares one). A filter needs --yes.",
		Example: "  activityd tasks cancel 4711\n  activityd tasks cancel --dedupe-key report:7 --yes\n  activityd tasks cancel --queue mails --state scheduled --dry-run",
	})
}

func newTasksDiscard() *cobra.Command {
	ch := &taskChange{past: "discarded", possible: []queue.State{queue.Dead}, confirm: true, do: (*queue.Queue).Discard}
	return ch.command(&cobra.Command{
		Use:   "discard [ID...]",
		Short: "Delete dead tasks",
		Long: "Delete dead tasks, which nothing tries again. What they would have changed stays unchanged, as with\n" +
			"activityd tasks cancel, which is for tasks that wait. A filter needs --yes.",
		Example: "  activityd tasks discard 4711\n  activityd tasks discard --type upload --dry-run\n  activityd tasks discard --error 'refused' --yes",
	})
}

// command completes the command.
func (ch *taskChange) command(cmd *cobra.Command) *cobra.Command {
	c := &config{}
	if ch.filtered == nil {
		ch.filtered = ch.possible
	}
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
	ch.chosen.register(cmd, ch.possible, fmt.Sprintf("only tasks in this `state` (default %s)", joined(ch.filtered)))
	f.BoolVar(&ch.all, "all", false, "all of them, without ids and without a filter")
	f.BoolVar(&ch.dry, "dry-run", false, "only say which tasks it would be")
	if ch.confirm {
		f.BoolVar(&ch.yes, "yes", false, "do it")
	}
	c.mysqlFlags(f)
	c.notifyFlag(f)
	return cmd
}

// choose reads the arguments and flags. All tasks are to be asked for explicitly.
func (ch *taskChange) choose(cmd *cobra.Command, args []string) (err error) {
	if ch.match, err = ch.chosen.filter(cmd.Flags(), args, ch.possible); err != nil {
		return err
	}
	m := &ch.match
	switch {
	case !ch.all && len(m.IDs)+len(m.Kinds)+len(m.Queues)+len(m.Error)+len(m.DedupeKey) == 0 && m.Key == 0:
		return fmt.Errorf("%s which tasks? Name them by id, --type, --queue, --member, --dedupe-key or --error, or say --all", cmd.Name())
	case len(m.IDs) > 0:
		m.States = ch.possible
	case ch.confirm && !ch.yes && !ch.dry:
		return errors.New("this deletes tasks for good: look at them with --dry-run, then repeat with --yes")
	case len(m.States) == 0:
		m.States = ch.filtered
	}
	return nil
}

// run changes all chosen tasks, a transaction for each page of them. It fails at the end if a task named by id cannot
// be changed.
func (ch *taskChange) run(ctx context.Context, q *queue.Queue, out, errs io.Writer) error {
	refused, err := ch.refused(ctx, q, errs)
	if err != nil {
		return err
	}
	do := func(ctx context.Context, match queue.Filter, limit int) (int, error) {
		return ch.do(q, ctx, match, limit)
	}
	changed, missed, err := inspect.Change(ctx, inspect.Pages(ctx, q, ch.match, inspect.Batch), ch.match, do, func(int) {})
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("interrupted: %s %d tasks, and left the rest as it was; repeat it to go on: %w", ch.past, changed, err)
	case err != nil:
		return fmt.Errorf("%s %d tasks, then: %w", ch.past, changed, err)
	}
	if _, err := fmt.Fprintf(out, "%s %d tasks\n", ch.past, changed); err != nil {
		return err
	}
	if missed > 0 {
		sayf(errs, "%d more changed in the meantime, or are about to, and were left alone", missed)
	}
	if refused > 0 {
		return fmt.Errorf("%d of the named tasks were left alone", refused)
	}
	return nil
}

// refused prints the tasks named by id that cannot be changed, with the reason, and returns their number.
func (ch *taskChange) refused(ctx context.Context, q *queue.Queue, errs io.Writer) (refused int, err error) {
	if len(ch.match.IDs) == 0 {
		return 0, nil
	}
	states := make(map[uint64]queue.State)
	for page, err := range inspect.Pages(ctx, q, queue.Filter{IDs: ch.match.IDs}, inspect.Batch) {
		if err != nil {
			return 0, err
		}
		for _, r := range page {
			states[r.ID] = r.State
		}
	}
	for _, id := range ch.match.IDs {
		switch state, exists := states[id]; {
		case !exists:
			sayf(errs, "task %d: there is none: finished and discarded tasks are deleted", id)
		case !slices.Contains(ch.possible, state):
			sayf(errs, "task %d: it is %s, and cannot be %s", id, state, ch.past)
		default:
			continue
		}
		refused++
	}
	return refused, nil
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

// newPause returns a command that changes the pause of a queue.
func newPause(name, long string, change func(*queue.Queue, context.Context, string) (bool, error), changed, unchanged string) *cobra.Command {
	c := &config{}
	short, _, _ := strings.Cut(long, ".")
	cmd := &cobra.Command{
		Use: name + " QUEUE", Short: short, Long: long, Example: "  activityd tasks " + name + " fan_out",
		Args: cobra.ExactArgs(1), ValidArgs: knownQueues(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
				if err := warnOfQueue(ctx, q, args[0], cmd.ErrOrStderr()); err != nil {
					return err
				}
				done, err := change(q, ctx, args[0])
				if err != nil {
					return err
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

// warnOfQueue warns of a name that may be misspelt. It is not refused: a site's own queue may be paused before its first task comes.
func warnOfQueue(ctx context.Context, q *queue.Queue, name string, errs io.Writer) error {
	if slices.Contains(knownQueues(), name) {
		return nil
	}
	paused, err := q.Paused(ctx)
	if err != nil || slices.Contains(paused, name) {
		return err
	}
	list, err := q.List(ctx, queue.Filter{Queues: []string{name}}, 1)
	if err == nil && len(list) == 0 {
		sayf(errs, "activityd: no task is in a queue %q, and it is none of %s: is it misspelt?", name, strings.Join(knownQueues(), ", "))
	}
	return err
}
