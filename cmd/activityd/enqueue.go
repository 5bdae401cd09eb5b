package main

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
)

// enqueueOptions are the flags of enqueue.
type enqueueOptions struct {
	queue    string
	priority int
	delay    time.Duration
	check    bool
	fromLine int
	progress string
}

func newEnqueue() *cobra.Command {
	c, o := &config{}, &enqueueOptions{}
	cmd := &cobra.Command{
		Use:   "enqueue {TYPE USER [CONTACT] | -}",
		Short: "Enqueue one task, or many from standard input",
		Long: "Enqueue one task and print its id, once it is committed.\n\n" +
			"TYPE is " + tasks.Usage() + ".\n\n" +
			"With -, read tasks from standard input, one JSON object a line as POST /v1/tasks takes\n" +
			"them, and commit them in batches of up to 1000 lines. Blank lines are skipped. A line that\n" +
			"is no task stops it before anything of its batch is written; what stops it says how many\n" +
			"tasks were enqueued, and which --from-line goes on. While MySQL is away, a batch is tried\n" +
			"again for a minute. Doing a line twice does no harm.\n\n" +
			"The exit code is 0 when all was enqueued, or, with --check, could be; else 1.",
		Example: "  activityd enqueue add_contact 12345 98765\n  activityd enqueue --priority -10 upload 98765\n" +
			"  activityd enqueue - < changes.ndjson    # {\"type\":\"upload\",\"user_id\":\"98765\"}, …",
		Args:      atMost(3, "TYPE"),
		ValidArgs: append(tasks.Produced(), "-"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.checkFlags(cmd.Flags(), args); err != nil {
				return err
			}
			if !o.check { // checking needs no database
				if err := c.check(cmd.Flags()); err != nil {
					return err
				}
			}
			if args[0] == "-" {
				return enqueueMany(cmd, c, o)
			}
			return enqueueOne(cmd, c, o, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.queue, "queue", "", "the `queue`; by default that of the type")
	f.IntVar(&o.priority, "priority", queue.Normal, "the lower, the sooner: -32768 to 32767")
	f.DurationVar(&o.delay, "delay", 0, "how long the tasks wait, unless the same is enqueued without a delay")
	f.BoolVar(&o.check, "check", false, "only look whether the input is good: write nothing")
	f.IntVar(&o.fromLine, "from-line", 1, "with -: skip the lines before this one")
	asDeeds(f, "queue", "priority", "delay", "check", "from-line")
	progressFlag(f, &o.progress)
	c.mysqlFlags(f)
	c.wakeFlag(f)
	completeList(cmd, "queue", knownQueues())
	return cmd
}

// checkFlags returns an error for what cannot be, named by its flag.
func (o *enqueueOptions) checkFlags(f *pflag.FlagSet, args []string) error {
	const widest = 32 // of the column
	var errs []error
	want := func(ok bool, format string, values ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, values...))
		}
	}
	want(len(o.queue) <= widest, "--queue: is %q: want at most %d bytes", o.queue, widest)
	want(o.priority >= math.MinInt16 && o.priority <= math.MaxInt16, "--priority: is %d: want %d to %d", o.priority, math.MinInt16, math.MaxInt16)
	want(o.delay >= 0, "--delay: is %v: want none below 0", o.delay)
	want(o.fromLine >= 1, "--from-line: is %d: want 1 or more", o.fromLine)
	fromInput := args[0] == "-"
	want(!fromInput || len(args) == 1, "- takes no more arguments: the tasks come from standard input")
	want(fromInput || len(args) > 1, "USER is missing: want TYPE USER [CONTACT], or - for standard input")
	want(fromInput || o.fromLine == 1, "--from-line: is for standard input (-)")
	return errors.Join(append(errs, wrongChoices(f)...)...)
}

// adorn gives a task what the flags say of all.
func (o *enqueueOptions) adorn(n queue.New) queue.New {
	if o.queue != "" {
		n.Queue = o.queue
	}
	n.Priority, n.Delay = o.priority, o.delay
	return n
}

// parseTask reads TYPE USER [CONTACT]; its errors name the argument.
func parseTask(args []string) (queue.New, error) {
	user, err := member.Parse(args[1])
	if err != nil {
		return queue.New{}, fmt.Errorf("USER: %w", err)
	}
	var contact member.ID
	if len(args) == 3 {
		if contact, err = member.Parse(args[2]); err != nil {
			return queue.New{}, fmt.Errorf("CONTACT: %w", err)
		}
	}
	return tasks.Parse(args[0], user, contact)
}

func enqueueOne(cmd *cobra.Command, c *config, o *enqueueOptions, args []string) error {
	task, err := parseTask(args)
	if err != nil {
		return err
	}
	if o.check {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "good; nothing was enqueued")
		return err
	}
	db, err := openMySQL(c)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // the task is committed by then
	notifier, done, err := openNotifier(cmd.Context(), c, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer done()
	q := queue.NewMySQLQueue(db, queue.Options{Notifier: notifier, Owner: processName()})
	ids, err := q.Enqueue(cmd.Context(), []queue.New{o.adorn(task)})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), ids[0])
	return err
}
