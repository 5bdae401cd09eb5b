package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"database/sql"
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
}

func newEnqueue() *cobra.Command {
	c, o := &config{}, &enqueueOptions{}
	cmd := &cobra.Command{
		Use:   "enqueue {TYPE MEMBER [CONTACT | EVENT] | TYPE KEY [JSON] | -}",
		Short: "Enqueue one task, or many from standard input",
		Long: "Enqueue one task and print its id, once it is committed. TYPE is " + tasks.Usage() + ".\n" +
			"Any other is a type of your own, for workers of your own: KEY is what it is about, a number or a name,\n" +
			"and JSON its arguments; --queue names the queue.\n" +
			"With -, read tasks from standard input, one JSON object a line as POST /v1/tasks takes them, and commit\n" +
			"them in batches. An error names the line to go on with; a line that is done twice does no harm.",
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
			const maxDelay = 3650 * 24 * time.Hour
			if len(o.queue) > queue.MaxQueueName {
				return fmt.Errorf("--queue: is %q: want at most %d bytes", o.queue, queue.MaxQueueName)
			}
			if err := errors.Join(within("delay", o.delay, 0, maxDelay), within("priority", o.priority, math.MinInt16, math.MaxInt16)); err != nil {
				return err
			}
			if len(args) == 1 {
				return withTables(cmd, c, func(ctx context.Context, _ *sql.DB, q *queue.Queue) error {
					return o.enqueueLines(ctx, q, cmd.InOrStdin(), cmd.OutOrStdout())
				})
			}
			task, err := parseTask(args)
			if err == nil {
				task = o.apply(task)
				err = checkOwn(task)
			}
			if err != nil {
				return err
			}
			return withTables(cmd, c, func(ctx context.Context, _ *sql.DB, q *queue.Queue) error {
				ids, err := q.Enqueue(ctx, []queue.New{task})
				if err == nil {
					_, err = fmt.Fprintln(cmd.OutOrStdout(), ids[0])
				}
				return err
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.queue, "queue", "", "the `queue` instead of that of the type")
	f.IntVar(&o.priority, "priority", queue.Normal, "the lower, the sooner: -32768 to 32767; 0: -10 for urgent events")
	f.DurationVar(&o.delay, "delay", 0, "how long the tasks wait, unless the same is enqueued without a delay")
	c.mysqlFlags(f)
	c.notifyFlag(f)
	return cmd
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

const (
	maxLine        = 64 << 10         // bytes: an event for 1,000 members has about 30,000
	enqueueBatch   = 1000             // lines in a transaction
	enqueueTimeout = 30 * time.Second // of a transaction
)

// errSignalled is returned for the signal that ended the context.
var errSignalled = errors.New("stopped by a signal")

// line is a line of the input.
type line struct {
	task  queue.New
	blank bool
	err   error // why it is no task, or cannot be read: the last line
}

// readLines sends the lines of the input until it ends, a line is wrong, or ctx ends.
func readLines(ctx context.Context, in io.Reader, to chan<- line) {
	defer close(to)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	send := func(l line) (more bool) {
		select {
		case to <- l:
			return l.err == nil
		case <-ctx.Done():
			return false
		}
	}
	for lines.Scan() && lines.Err() == nil { // a line that a failed read cut off comes with the error
		l := line{blank: true}
		if text := bytes.TrimSpace(bytes.TrimPrefix(lines.Bytes(), []byte("\ufeff"))); len(text) > 0 {
			l.blank = false
			l.task, l.err = tasks.ParseLine(text)
		}
		if !send(l) {
			return
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		send(line{err: fmt.Errorf("the line has more than %d bytes, and no task has", maxLine)})
	case err != nil:
		send(line{err: fmt.Errorf("read the input: %w", err)})
	}
}

// enqueueLines enqueues the tasks of an input, in batches that are full, or end where the input pauses. Reading cannot be
// interrupted, as a terminal or a pipe may say nothing for hours; so a goroutine reads.
func (o *enqueueOptions) enqueueLines(ctx context.Context, q *queue.Queue, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan line, enqueueBatch)
	go readLines(ctx, in, lines)
	enqueued, next := 0, 1
	for {
		batch, taken, more, err := o.takeBatch(ctx, lines)
		if err != nil && !errors.Is(err, errSignalled) {
			err = fmt.Errorf("line %d: %w", next+taken, err)
		} else if err == nil && len(batch) > 0 {
			err = enqueueWhole(ctx, q, batch)
		}
		if err != nil {
			return fmt.Errorf("%w\n%d tasks were enqueued; go on with line %d: tail -n +%d", err, enqueued, next, next)
		}
		enqueued, next = enqueued+len(batch), next+taken
		if !more {
			_, err := fmt.Fprintf(out, "enqueued %d tasks\n", enqueued)
			return err
		}
	}
}

// takeBatch returns the tasks of the next lines, and how many lines it took. It waits for the first. more is false at the end.
func (o *enqueueOptions) takeBatch(ctx context.Context, lines <-chan line) (batch []queue.New, taken int, more bool, err error) {
	for ; taken < enqueueBatch && (taken == 0 || len(lines) > 0); taken++ {
		select {
		case <-ctx.Done():
			return nil, 0, false, errSignalled
		case l, ok := <-lines:
			switch {
			case ctx.Err() != nil:
				return nil, 0, false, errSignalled
			case !ok:
				return batch, taken, false, nil
			case l.err != nil:
				return nil, taken, false, l.err
			case !l.blank:
				batch = append(batch, o.apply(l.task))
			}
		}
	}
	return batch, taken, true, nil
}

// enqueueWhole enqueues tasks in a transaction. A signal does not cut it off, so that the printed number of tasks is
// true.
func enqueueWhole(ctx context.Context, q *queue.Queue, batch []queue.New) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), enqueueTimeout)
	defer cancel()
	_, err := q.Enqueue(bounded, batch)
	return err
}
