package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
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
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// enqueueOptions are the flags of enqueue.
type enqueueOptions struct {
	queue    string
	priority int
	delay    time.Duration
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
			"them, and commit them in batches of up to 1000 lines. Blank lines are skipped. A line that is no\n" +
			"task stops it before anything of its batch is written, and so does a MySQL that is away; the error\n" +
			"names the line to go on with (tail -n +LINE). Doing a line twice does no harm, but for notify\n" +
			"without an id in its event, which may be another event.",
		Example: "  activityd enqueue add_contact 12345 98765\n  activityd enqueue --priority -10 upload 98765\n" +
			"  activityd enqueue notify 98765 '{\"id\":\"upload-901\",\"type\":\"upload\",\"object\":\"photo:901\"}'\n" +
			"  activityd enqueue --queue mails receipt order/7 '{\"total\":12}'\n" +
			"  activityd enqueue - < changes.ndjson    # {\"type\":\"upload\",\"user_id\":\"98765\"}, …",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 1 && args[0] == "-":
				return nil
			case len(args) == 1:
				return errors.New("want a KEY after TYPE: the member, or what a task of your own is about")
			}
			return cobra.RangeArgs(2, 3)(cmd, args)
		},
		ValidArgs: append(tasks.Produced(), "-"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			if len(args) == 1 {
				return enqueueLines(cmd, c, o)
			}
			return enqueueOne(cmd, c, o, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.queue, "queue", "", "the `queue` instead of that of the type")
	f.IntVar(&o.priority, "priority", queue.Normal, "the lower, the sooner: -32768 to 32767; 0: -10 for urgent events")
	f.DurationVar(&o.delay, "delay", 0, "how long the tasks wait, unless the same is enqueued without a delay")
	progressFlag(f, &o.progress)
	c.mysqlFlags(f)
	c.notifyFlag(f)
	completeFlag(cmd, "queue", knownQueues())
	return cmd
}

// validate returns an error for a value that cannot be, named by its flag.
func (o *enqueueOptions) validate() error {
	if len(o.queue) > queue.MaxQueueName {
		return fmt.Errorf("--queue: is %q: want at most %d bytes", o.queue, queue.MaxQueueName)
	}
	return errors.Join(within("delay", o.delay, 0, maxDelay), within("priority", o.priority, math.MinInt16, math.MaxInt16))
}

// apply returns a task with the flags that apply to all tasks.
func (o *enqueueOptions) apply(n queue.New) queue.New {
	n.Queue, n.Priority, n.Delay = cmp.Or(o.queue, n.Queue), cmp.Or(o.priority, n.Priority), o.delay
	return n
}

// parseTask reads TYPE MEMBER [CONTACT | EVENT], or TYPE KEY [JSON]. Errors name the argument.
func parseTask(args []string) (n queue.New, err error) {
	kind, arg := args[0], append(args, "")[2]
	if !slices.Contains(tasks.Kinds().Names(), kind) {
		return parseOwn(kind, args[1], []byte(arg))
	}
	id, err := member.Parse(args[1])
	switch {
	case err != nil:
		return n, fmt.Errorf("MEMBER: %w", err)
	case kind == push.Notify && arg == "":
		return n, errors.New("EVENT: is missing: want an event as JSON, as in the task of POST /v1/tasks")
	case kind == push.Notify:
		if n, err = tasks.ParseNotify(id, []byte(arg)); err != nil {
			err = fmt.Errorf("EVENT: %w", err)
		}
		return n, err
	}
	var contact member.ID
	if arg != "" {
		if contact, err = member.Parse(arg); err != nil {
			return n, fmt.Errorf("CONTACT: %w", err)
		}
	}
	return tasks.Parse(kind, id, contact)
}

// parseOwn reads a task of a type that activityd does not know: its key is a number, or the number of a name.
func parseOwn(kind, key string, payload []byte) (queue.New, error) {
	n := queue.New{Kind: kind, Payload: payload}
	number, err := strconv.ParseUint(key, 10, 64)
	if n.Key = number; err != nil {
		n.Key = queue.KeyOf(key)
	}
	switch {
	case kind == "" || kind == "-" || len(kind) > queue.MaxQueueName || !utf8.ValidString(kind):
		return n, fmt.Errorf("TYPE: is %q: want a name of 1 to %d bytes; - stands alone", kind, queue.MaxQueueName)
	case key == "":
		return n, errors.New("KEY: is empty: want a number, or a name")
	case errors.Is(err, strconv.ErrRange):
		return n, fmt.Errorf("KEY: %s is more than %d", key, uint64(math.MaxUint64))
	case len(payload) == 0:
		n.Payload = nil
	case !json.Valid(payload):
		return n, errors.New("JSON: is none")
	case len(payload) > queue.MaxPayload:
		return n, fmt.Errorf("JSON: has %d bytes: want at most %d", len(payload), queue.MaxPayload)
	}
	return n, nil
}

// checkOwn refuses a task of a type that activityd does not know in a queue that activityd works on: it would bury the task.
func checkOwn(n queue.New) error {
	name := cmp.Or(n.Queue, queue.DefaultQueue)
	isWorked := slices.ContainsFunc(knownQueues(), func(known string) bool { return strings.EqualFold(known, name) })
	if slices.Contains(tasks.Kinds().Names(), n.Kind) || !isWorked {
		return nil
	}
	return fmt.Errorf("TYPE: %s is none of activityd's (%s): a task of your own needs a queue of your own, by --queue: workers of activityd serve take from queue %s, and would bury it",
		n.Kind, strings.Join(tasks.Produced(), ", "), name)
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
	return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
		ids, err := q.Enqueue(ctx, []queue.New{task})
		if err == nil {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), ids[0])
		}
		return err
	})
}

const (
	maxDelay       = 3650 * 24 * time.Hour
	maxLine        = 64 << 10         // bytes: an event for 1,000 members has about 30,000
	enqueueBatch   = 1000             // lines in a transaction
	enqueueTimeout = 30 * time.Second // of a transaction
)

// errSignalled is returned for the signal that ended the context.
var errSignalled = errors.New("stopped by a signal")

// batch holds the tasks of consecutive lines.
type batch struct {
	tasks []queue.New
	next  int   // the line behind them
	err   error // why the next line is no task, or cannot be read
}

// readBatches sends the tasks of the lines in batches. A batch is full, or ends where the input pauses. It ends with
// the input, with a bad line, or with ctx.
func readBatches(ctx context.Context, in io.Reader, to chan<- batch) {
	defer close(to)
	r := bufio.NewReaderSize(in, maxLine)
	b := batch{next: 1}
	for more := true; more; {
		text, err := r.ReadSlice('\n')
		text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff")))
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			b.err = fmt.Errorf("the line has more than %d bytes, and no task has", maxLine)
		case err != nil && !errors.Is(err, io.EOF):
			b.err = fmt.Errorf("read the input: %w", err)
		case len(text) > 0:
			var task queue.New
			if task, b.err = tasks.ParseLine(text); b.err == nil {
				b.tasks = append(b.tasks, task)
			}
		}
		if b.err == nil {
			b.next++
		}
		if more = err == nil && b.err == nil; more && len(b.tasks) < enqueueBatch && r.Buffered() > 0 {
			continue
		}
		select {
		case to <- b:
		case <-ctx.Done():
			return
		}
		b.tasks = nil
	}
}

// enqueueLines enqueues the tasks of standard input. Reading cannot be interrupted, as a terminal or a pipe may say nothing for
// hours; so a goroutine reads.
func enqueueLines(cmd *cobra.Command, c *config, o *enqueueOptions) error {
	return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		batches := make(chan batch)
		go readBatches(ctx, cmd.InOrStdin(), batches)
		p := newProgress(cmd.ErrOrStderr(), o.progress, "tasks")
		enqueued, next := 0, 1
		for {
			p.moved(int64(enqueued), -1, "")
			var b batch
			var err error
			select {
			case b = <-batches:
			case <-ctx.Done():
			}
			switch {
			case ctx.Err() != nil:
				err = errSignalled
			case b.err != nil:
				err = fmt.Errorf("line %d: %w", b.next, b.err)
			case b.next == 0: // the end of the input
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "enqueued %d tasks\n", enqueued)
				return err
			default:
				err = enqueueBatchOf(ctx, q, o, b.tasks)
			}
			if err != nil {
				return fmt.Errorf("%w\n%d tasks were enqueued; go on with line %d: tail -n +%d", err, enqueued, next, next)
			}
			enqueued, next = enqueued+len(b.tasks), b.next
		}
	})
}

// enqueueBatchOf enqueues tasks in a transaction. A signal does not cut it off, so that the printed number of tasks is
// true.
func enqueueBatchOf(ctx context.Context, q *queue.Queue, o *enqueueOptions, list []queue.New) error {
	if len(list) == 0 {
		return nil
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), enqueueTimeout)
	defer cancel()
	for i, task := range list {
		list[i] = o.apply(task)
	}
	_, err := q.Enqueue(bounded, list)
	return err
}
