package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/wake"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// taskAdmin is what the operator's commands need of a queue.
type taskAdmin interface {
	List(ctx context.Context, match queue.Filter, limit int) ([]queue.Record, error)
	Retry(ctx context.Context, match queue.Filter, limit int) (int, error)
	Discard(ctx context.Context, match queue.Filter, limit int) (int, error)
	SetPriority(ctx context.Context, match queue.Filter, limit, priority int) (int, error)
	Pause(ctx context.Context, queue string) (changed bool, err error)
	Resume(ctx context.Context, queue string) (changed bool, err error)
	Paused(ctx context.Context) ([]string, error)
}

func newTasks() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "Look at tasks; retry or discard them, set their priority, hold queues back",
		Long: "Look at tasks, retry or discard those that failed for good, put some behind or before others, and\n" +
			"hold queues back.\n\n" +
			"A task is waiting for a worker, scheduled for later, running, dead (it failed for good and is\n" +
			"kept with its reason) or done (finished ones are kept only where so configured).",
		Example: "  activityd tasks stats\n" +
			"  activityd tasks list --state dead\n" +
			"  activityd tasks show 4711\n" +
			"  activityd tasks retry --all --dry-run\n" +
			"  activityd tasks pause fan_out",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTasksList(), newTasksShow(), newTasksRetry(), newTasksDiscard(), newTasksPriority(), newTasksPause(), newTasksResume(), newTasksStats())
	return cmd
}

// withTasks calls do with the queue in MySQL. If a Redis is named, idle workers are
// notified of the tasks that may start.
func withTasks(cmd *cobra.Command, c *config, do func(context.Context, *queue.Queue) error) error {
	return withTables(cmd, c, func(ctx context.Context, _ *sql.DB, q *queue.Queue) error { return do(ctx, q) })
}

// withTables is [withTasks], and calls do with the database of the queue, too.
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

// knownQueues returns the queues for which there are workers unless --workers says
// otherwise.
func knownQueues() (names []string) {
	for _, w := range tasks.DefaultWorkers() {
		names = append(names, w.Queue)
	}
	return names
}

// taskFlags choose tasks, by the ids that are the arguments of a command or by a
// filter.
type taskFlags struct {
	types, states, queues []string
	member, lastError     string
}

// register registers the filter; states are the possible ones.
func (t *taskFlags) register(cmd *cobra.Command, states []queue.State, usage string) {
	f := cmd.Flags()
	f.StringSliceVar(&t.types, "type", nil, "only tasks of this `type`; may be repeated, as may state and queue")
	f.StringSliceVar(&t.states, "state", nil, usage)
	f.StringSliceVar(&t.queues, "queue", nil, "only tasks of this `queue`")
	f.StringVar(&t.member, "member", "", "only tasks about this `member`")
	f.StringVar(&t.lastError, "error", "", "only tasks whose last error contains this `text`; % and _ are as in LIKE, and a backslash before them takes that away")
	completeFlag(cmd, "type", tasks.Kinds().Names())
	completeFlag(cmd, "state", states)
	completeFlag(cmd, "queue", knownQueues())
}

// filter returns what the arguments and the flags choose. The states are to be among
// the possible ones. A flag without a value, as of a shell's variable that is not set,
// is an error, because it would choose all.
func (t *taskFlags) filter(f *pflag.FlagSet, args []string, possible []queue.State) (match queue.Filter, err error) {
	for _, name := range []string{"type", "state", "queue", "member", "error"} {
		switch flag := f.Lookup(name); {
		case flag.Changed && len(args) > 0:
			return match, fmt.Errorf("--%s: want either ids or a filter", name)
		case flag.Changed && strings.Trim(flag.Value.String(), "[]") == "":
			return match, fmt.Errorf("--%s: is empty", name)
		}
	}
	if match.IDs, err = parseIDs(args); err != nil {
		return match, err
	}
	for _, word := range t.states {
		state := queue.State(word)
		if !slices.Contains(possible, state) {
			return match, fmt.Errorf("--state: is %q: want %s", word, joined(possible))
		}
		match.States = append(match.States, state)
	}
	match.Kinds, match.Queues, match.Error = t.types, t.queues, t.lastError
	if t.member != "" {
		id, err := member.Parse(t.member)
		if err != nil {
			return match, fmt.Errorf("--member: %w", err)
		}
		match.Key = uint64(id)
	}
	return match, nil
}

// parseIDs returns the ids of tasks in order, each once.
func parseIDs(words []string) ([]uint64, error) {
	var ids []uint64
	for _, word := range words {
		id, err := strconv.ParseUint(word, 10, 64)
		if err != nil || id == 0 {
			return nil, fmt.Errorf("%q is no task id: want a number, as in 4711", word)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// joined returns words with commas between them.
func joined[S ~string](words []S) string {
	list := make([]string, len(words))
	for i, word := range words {
		list[i] = string(word)
	}
	return strings.Join(list, ", ")
}
