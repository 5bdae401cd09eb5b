package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// enqueueOptions are the flags of enqueue.
type enqueueOptions struct {
	queue    string
	priority int
	delay    time.Duration
	check    bool
	fromLine int
	progress time.Duration
}

func newEnqueue() *cobra.Command {
	c, o := &config{}, &enqueueOptions{}
	cmd := &cobra.Command{
		Use:   "enqueue {TYPE MEMBER [CONTACT | EVENT] | TYPE KEY [JSON] | -}",
		Short: "Enqueue one task, or many from standard input",
		Long: "Enqueue one task and print its id, once it is committed.\n\n" +
			"TYPE is " + tasks.Usage() + ".\n" +
			"Any other is a type of your own, whose workers are yours, too: KEY is what it is about, a number or\n" +
			"a name, and JSON its arguments. It goes to the queue that --queue names; in one of activityd's own\n" +
			"it would be buried by activityd serve.\n\n" +
			"With -, read tasks from standard input, one JSON object a line as POST /v1/tasks takes\n" +
			"them, and commit them in batches of up to 1000 lines. Blank lines are skipped. A line that\n" +
			"is no task stops it before anything of its batch is written; the error says how many tasks\n" +
			"were enqueued, and which --from-line goes on. While MySQL is away, a batch is tried again\n" +
			"for a minute. Doing a line twice does no harm, but for notify without an id in its event,\n" +
			"which then is another event.\n\n" +
			"The exit code is 0 when all was enqueued, or, with --check, could be; else 1.",
		Example: "  activityd enqueue add_contact 12345 98765\n  activityd enqueue --priority -10 upload 98765\n" +
			"  activityd enqueue notify 98765 '{\"id\":\"upload-901\",\"type\":\"upload\",\"object\":\"photo:901\"}'\n" +
			"  activityd enqueue --queue mails receipt order/7 '{\"total\":12}'\n" +
			"  activityd enqueue - < changes.ndjson    # {\"type\":\"upload\",\"user_id\":\"98765\"}, …",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "-" {
				return nil
			}
			if len(args) == 1 {
				return errors.New("want a KEY after TYPE: the member, or what a task of your own is about")
			}
			return cobra.RangeArgs(2, 3)(cmd, args)
		},
		ValidArgs: append(tasks.Produced(), "-"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			if len(args) > 1 {
				return enqueueOne(cmd, c, o, args)
			}
			if o.check {
				return checkLines(cmd, o)
			}
			return enqueueLines(cmd, c, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.queue, "queue", "", "the `queue` instead of that of the type")
	f.IntVar(&o.priority, "priority", queue.Normal, "the lower, the sooner: -32768 to 32767; 0: -10 for urgent events")
	f.DurationVar(&o.delay, "delay", 0, "how long the tasks wait, unless the same is enqueued without a delay")
	f.BoolVar(&o.check, "check", false, "only say whether the input is valid, and write nothing")
	f.IntVar(&o.fromLine, "from-line", 1, "with -: skip the lines before this one")
	progressFlag(f, &o.progress)
	c.mysqlFlags(f)
	c.notifyFlag(f)
	completeFlag(cmd, "queue", knownQueues())
	return cmd
}

// validate returns an error for a value that cannot be, named by its flag.
func (o *enqueueOptions) validate() error {
	switch {
	case len(o.queue) > queue.MaxQueueName:
		return fmt.Errorf("--queue: is %q: want at most %d bytes", o.queue, queue.MaxQueueName)
	case o.delay < 0:
		return fmt.Errorf("--delay: is %v: want 0 or more", o.delay)
	case o.fromLine < 1:
		return fmt.Errorf("--from-line: is %d: want 1 or more", o.fromLine)
	}
	return checkPriority("priority", o.priority)
}

// checkPriority returns an error for a priority that the column cannot hold.
func checkPriority(flag string, priority int) error {
	if priority < math.MinInt16 || priority > math.MaxInt16 {
		return fmt.Errorf("--%s: is %d: want %d to %d", flag, priority, math.MinInt16, math.MaxInt16)
	}
	return nil
}

// apply returns the task with what the flags say of all.
func (o *enqueueOptions) apply(n queue.New) queue.New {
	if o.queue != "" {
		n.Queue = o.queue
	}
	if o.priority != queue.Normal {
		n.Priority = o.priority
	}
	n.Delay = o.delay
	return n
}

// parseTask reads TYPE MEMBER [CONTACT | EVENT], or TYPE KEY [JSON]; its errors name the argument.
func parseTask(args []string) (queue.New, error) {
	if !slices.Contains(tasks.Kinds().Names(), args[0]) {
		return parseOwn(args)
	}
	id, err := member.Parse(args[1])
	if err != nil {
		return queue.New{}, fmt.Errorf("MEMBER: %w", err)
	}
	if args[0] == push.Notify {
		if len(args) < 3 {
			return queue.New{}, errors.New("EVENT: is missing: want an event as JSON, as in the task of POST /v1/tasks")
		}
		task, err := tasks.ParseNotify(id, []byte(args[2]))
		if err != nil {
			return queue.New{}, fmt.Errorf("EVENT: %w", err)
		}
		return withEventID(task)
	}
	var contact member.ID
	if len(args) == 3 {
		if contact, err = member.Parse(args[2]); err != nil {
			return queue.New{}, fmt.Errorf("CONTACT: %w", err)
		}
	}
	return tasks.Parse(args[0], id, contact)
}

// parseOwn reads TYPE KEY [JSON] of a type that activityd does not know.
func parseOwn(args []string) (n queue.New, err error) {
	n.Kind = args[0]
	if n.Kind == "" || n.Kind == "-" || len(n.Kind) > queue.MaxQueueName || !utf8.ValidString(n.Kind) {
		return n, fmt.Errorf("TYPE: is %q: want a name of 1 to %d bytes; - stands alone", n.Kind, queue.MaxQueueName)
	}
	switch key, err := strconv.ParseUint(args[1], 10, 64); {
	case err == nil:
		n.Key = key
	case args[1] == "":
		return n, errors.New("KEY: is empty: want a number, or a name")
	case errors.Is(err, strconv.ErrRange):
		return n, fmt.Errorf("KEY: %s is more than %d", args[1], uint64(math.MaxUint64))
	default:
		n.Key = queue.KeyOf(args[1])
	}
	if len(args) < 3 {
		return n, nil
	}
	n.Payload = []byte(args[2])
	var value any
	if err := json.Unmarshal(n.Payload, &value); err != nil {
		return n, fmt.Errorf("JSON: %w", err)
	}
	if len(n.Payload) > queue.MaxPayload {
		return n, fmt.Errorf("JSON: has %d bytes: want at most %d", len(n.Payload), queue.MaxPayload)
	}
	return n, nil
}

// checkOwn refuses a task of a type that activityd does not know in a queue from which its workers take: they would bury it.
func checkOwn(n queue.New) error {
	name := cmp.Or(n.Queue, queue.DefaultQueue)
	isWorked := slices.ContainsFunc(knownQueues(), func(known string) bool { return strings.EqualFold(known, name) })
	if slices.Contains(tasks.Kinds().Names(), n.Kind) || !isWorked {
		return nil
	}
	guess := ""
	if near, edits := settings.Nearest(n.Kind, tasks.Produced()); edits <= 2 {
		guess = "did you mean " + near + "? "
	}
	return fmt.Errorf("TYPE: %s is no type of activityd's: %sa task of your own needs a queue of your own, by --queue: workers of activityd serve take from queue %s, and would bury it", n.Kind, guess, name)
}

// withEventID returns the task with an id for its event, if it is about an event without
// one: a batch that is tried again, because the answer was lost, does not notify twice.
func withEventID(n queue.New) (queue.New, error) {
	if n.Kind != push.Notify {
		return n, nil
	}
	e, err := push.ParseEvent(member.ID(n.Key), n.Payload)
	if err != nil || e.ID != "" {
		return n, err
	}
	e.ID = rand.Text()
	return push.NewNotify(e)
}

func enqueueOne(cmd *cobra.Command, c *config, o *enqueueOptions, args []string) error {
	task, err := parseTask(args)
	if err != nil {
		return err
	}
	task = o.apply(task)
	if err := checkOwn(task); err != nil {
		return err
	}
	if o.check {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "good; nothing was enqueued")
		return err
	}
	return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
		ids, err := q.Enqueue(ctx, []queue.New{task})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), ids[0])
		return err
	})
}

// maxLine is how many bytes a line may have: an event for 1,000 members has about 30,000.
const maxLine = 64 << 10

// line is one line of the input that is not blank.
type line struct {
	number int // from 1 on
	task   queue.New
	err    error // why it is no task, or the input cannot be read any further
}

// readLines returns the lines from the given one on. They are read in a goroutine of
// their own, because reading cannot be interrupted: a terminal or a pipe may say
// nothing for hours. The channel is closed at the end of the input, after a line that
// is too long, when the input cannot be read, or at the end of ctx.
func readLines(ctx context.Context, in io.Reader, from int) <-chan line {
	lines := make(chan line, 100)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, maxLine)
		number := 1
		send := func(l line) bool {
			select {
			case lines <- l:
				return true
			case <-ctx.Done():
				return false
			}
		}
		for ; scanner.Scan(); number++ {
			text := bytes.TrimPrefix(scanner.Bytes(), []byte("\ufeff"))
			if number < from || len(bytes.TrimSpace(text)) == 0 {
				continue
			}
			task, err := tasks.ParseLine(text)
			if err == nil {
				task, err = withEventID(task)
			}
			if !send(line{number, task, err}) {
				return
			}
		}
		switch err := scanner.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			send(line{number: number, err: fmt.Errorf("the line has more than %d bytes, and no task has", maxLine)})
		case err != nil:
			send(line{number: number, err: fmt.Errorf("read the input: %w", err)})
		}
	}()
	return lines
}

const (
	enqueueBatch   = 1000                   // lines in one transaction
	enqueueFlush   = 500 * time.Millisecond // a batch waits no longer for more lines
	enqueueTimeout = 30 * time.Second       // of one try at a batch
	enqueueRetries = time.Minute            // how long a batch is tried again while MySQL is away
)

// errSignalled is returned for the signal that ended the context.
var errSignalled = errors.New("stopped by a signal")

// intake moves tasks from lines into the queue. Its memory is that of a batch.
type intake struct {
	*progress

	options  *enqueueOptions
	queue    *queue.Queue
	lines    <-chan line
	log      io.Writer
	enqueued int
	next     int // the line from which on nothing is enqueued yet
}

func enqueueLines(cmd *cobra.Command, c *config, o *enqueueOptions) error {
	return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends the reading, unless it hangs
		log := cmd.ErrOrStderr()
		i := &intake{
			progress: newProgress(log, o.progress, -1, "tasks"), options: o, queue: q, log: log,
			lines: readLines(ctx, cmd.InOrStdin(), o.fromLine), next: o.fromLine,
		}
		err := i.run(ctx)
		if err != nil {
			return fmt.Errorf("%w\n%d tasks were enqueued; go on with --from-line %d", err, i.enqueued, i.next)
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "enqueued %d tasks\n", i.enqueued)
		return err
	})
}

// run enqueues all lines, batch by batch. A line that is no task stops it before its
// batch; the end of the input inside of a batch does not.
func (i *intake) run(ctx context.Context) error {
	for {
		batch, err := i.gather(ctx)
		if err != nil || len(batch) == 0 {
			return err
		}
		if err := i.write(ctx, batch); err != nil {
			return err
		}
		i.enqueued += len(batch)
		i.next = batch[len(batch)-1].number + 1
		i.add(len(batch))
	}
}

// gather returns the lines of one batch: those that come in time, none at the end
// of the input.
func (i *intake) gather(ctx context.Context) (batch []line, err error) {
	var late <-chan time.Time // for a batch that has begun
	for len(batch) < enqueueBatch {
		if ctx.Err() != nil { // select would choose at random
			return nil, errSignalled
		}
		select {
		case read, more := <-i.lines:
			switch {
			case !more && ctx.Err() != nil: // not the end of the input
				return nil, errSignalled
			case !more:
				return batch, nil
			case read.err != nil:
				return nil, fmt.Errorf("line %d: %w", read.number, read.err)
			}
			if late == nil {
				late = time.After(enqueueFlush)
			}
			batch = append(batch, read)
		case <-late:
			return batch, nil
		case <-ctx.Done():
		}
	}
	return batch, nil
}

// write enqueues a batch in one transaction. While MySQL is away it tries again:
// should the last try have been committed without an answer, waiting tasks absorb the
// same ones, or they are done twice, which does no harm: events have ids.
func (i *intake) write(ctx context.Context, batch []line) error {
	list := make([]queue.New, len(batch))
	for at, read := range batch {
		list[at] = i.options.apply(read.task)
	}
	return untilThere(ctx, i.log, func(ctx context.Context) error {
		_, err := i.queue.Enqueue(ctx, list)
		return err
	})
}

// untilThere writes, and tries again for a minute while MySQL is away. A try is not cut off by a signal, so that
// the number of what was written, which is printed, is true.
func untilThere(ctx context.Context, log io.Writer, write func(ctx context.Context) error) error {
	try := func() error {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), enqueueTimeout)
		defer cancel()
		return write(bounded)
	}
	begun := time.Now()
	for failures := 1; ; failures++ {
		err := try()
		pause := retry.Backoff(failures, 250*time.Millisecond, 5*time.Second)
		if !errors.Is(err, mysql.ErrUnavailable) || time.Since(begun)+pause > enqueueRetries {
			return err
		}
		if failures == 1 {
			fmt.Fprintf(log, "activityd: MySQL is away, trying again for up to %v: %v\n", enqueueRetries, err)
		}
		if retry.Sleep(ctx, pause) != nil {
			return errSignalled
		}
	}
}

// maxBadLines is how many of them --check prints one by one.
const maxBadLines = 20

// checkLines reads all lines and says which are no tasks.
func checkLines(cmd *cobra.Command, o *enqueueOptions) error {
	good, bad := 0, 0
	for read := range readLines(cmd.Context(), cmd.InOrStdin(), o.fromLine) {
		if read.err == nil {
			good++
			continue
		}
		bad++
		if bad <= maxBadLines {
			fmt.Fprintf(cmd.ErrOrStderr(), "line %d: %v\n", read.number, read.err)
		}
	}
	switch {
	case cmd.Context().Err() != nil:
		return fmt.Errorf("%w after %d good lines and %d bad ones", errSignalled, good, bad)
	case bad > 0:
		return fmt.Errorf("lines that are no tasks: %d; tasks: %d; nothing was enqueued", bad, good)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d tasks, all good; nothing was enqueued\n", good)
	return err
}
