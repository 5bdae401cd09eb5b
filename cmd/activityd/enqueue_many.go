package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/plural"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/retry"
)

const (
	enqueueBatch    = 1000                   // lines in one transaction
	enqueueFlush    = 500 * time.Millisecond // a batch waits no longer for more lines
	enqueueTimeout  = 30 * time.Second       // of one try at a batch
	enqueuePatience = time.Minute            // with a MySQL that is away
)

// errSignalled stands for the signal that ended the context.
var errSignalled = errors.New("stopped by a signal")

// manyEnqueuer is what enqueueMany needs of the queue.
type manyEnqueuer interface {
	Enqueue(ctx context.Context, batch []queue.New) ([]uint64, error)
}

// intake moves tasks from lines into the queue. Its memory is that of a batch.
type intake struct {
	*progress

	options *enqueueOptions
	queue   manyEnqueuer
	lines   <-chan line
	log     io.Writer

	extent   extent
	enqueued int
	next     int // the line from which on nothing is enqueued yet
}

func enqueueMany(cmd *cobra.Command, c *config, o *enqueueOptions) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel() // ends the reading, unless it hangs
	in := cmd.InOrStdin()
	seen := extent{sizeOf(in), -1}
	lines, failed := newLineReader(in).lines(ctx, o.fromLine)
	if o.check {
		bar := newProgress(cmd.ErrOrStderr(), o.progress, -1, "lines")
		return checkMany(cmd, lines, failed, bar, seen)
	}
	db, err := openMySQL(c)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // what was enqueued is committed by then
	log := cmd.ErrOrStderr()
	notifier, done, err := openNotifier(cmd.Context(), c, log)
	if err != nil {
		return err
	}
	defer done()
	i := &intake{
		progress: newProgress(log, o.progress, -1, "tasks"), options: o, log: log, lines: lines,
		queue:  queue.NewMySQLQueue(db, queue.Options{Notifier: notifier, Owner: processName()}),
		extent: seen, next: o.fromLine,
	}
	err = i.run(ctx)
	if err == nil {
		err = failed()
	}
	i.Done()
	if err != nil {
		return i.stopped(err)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "enqueued %s\n", plural.Of(i.enqueued, "task", "tasks"))
	return err
}

// stopped says what stopped the intake, what is done, and how to go on.
func (i *intake) stopped(err error) error {
	return fmt.Errorf("%w\n%s enqueued; go on with --from-line %d", err, plural.Of(i.enqueued, "task was", "tasks were"), i.next)
}

// run enqueues all lines, batch by batch.
func (i *intake) run(ctx context.Context) error {
	for {
		batch, err := i.gather(ctx)
		if err != nil || len(batch) == 0 {
			return err
		}
		if err := i.write(ctx, batch); err != nil {
			return err
		}
	}
}

// gather returns the lines of one batch: those that come in time, none at the end
// of the input. A line that is no task spoils its batch.
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
// should the last try have been committed unheard, the same tasks absorb these, or
// are done twice, which does no harm.
func (i *intake) write(ctx context.Context, batch []line) error {
	list := make([]queue.New, len(batch))
	for at, read := range batch {
		list[at] = i.options.adorn(read.task)
	}
	begun := time.Now()
	for failures := 1; ; failures++ {
		err := i.tryWrite(ctx, list)
		if err == nil {
			i.wrote(batch)
			return nil
		}
		pause := retry.Backoff(failures, 250*time.Millisecond, 5*time.Second)
		if !errors.Is(err, mysql.ErrUnavailable) || time.Since(begun)+pause > enqueuePatience {
			return err
		}
		if failures == 1 {
			fmt.Fprintf(i.log, "activityd: MySQL is away, trying again for up to %v: %v\n", enqueuePatience, err)
		}
		if retry.Sleep(ctx, pause) != nil {
			return errSignalled
		}
	}
}

// tryWrite is not cut off by a signal, so that it is known what became of the
// batch.
func (i *intake) tryWrite(ctx context.Context, list []queue.New) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), enqueueTimeout)
	defer cancel()
	_, err := i.queue.Enqueue(bounded, list)
	return err
}

// wrote counts a batch.
func (i *intake) wrote(batch []line) {
	last := batch[len(batch)-1]
	i.enqueued += len(batch)
	i.next = last.number + 1
	i.SetTotal(i.extent.total(i.enqueued, batch[0], last))
	i.Add(len(batch))
}

// mostBadLines is how many of them --check tells one by one.
const mostBadLines = 20

// checkMany reads all lines and says which are no tasks.
func checkMany(cmd *cobra.Command, lines <-chan line, failed func() error, bar *progress, seen extent) error {
	good, bad := 0, 0
	var told []string // in the end, so that they do not run into the bar
	for read := range lines {
		switch {
		case read.err == nil:
			good++
		case bad < mostBadLines:
			told = append(told, fmt.Sprintf("line %d: %v\n", read.number, read.err))
			fallthrough
		default:
			bad++
		}
		n := good + bad
		if total := seen.total(n, read, read); n%enqueueBatch == 1 || total == int64(n) {
			bar.SetTotal(total)
		}
		bar.Add(1)
	}
	bar.Done()
	fmt.Fprint(cmd.ErrOrStderr(), strings.Join(told, ""))
	switch err := failed(); {
	case cmd.Context().Err() != nil:
		return fmt.Errorf("%w after %s and %s", errSignalled, plural.Of(good, "good line", "good lines"), plural.Of(bad, "bad one", "bad ones"))
	case err != nil:
		return err
	case bad > 0:
		return fmt.Errorf("%s, %s; nothing was enqueued", plural.Of(bad, "line is no task", "lines are no tasks"), plural.Of(good, "is", "are"))
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s, all good; nothing was enqueued\n", plural.Of(good, "task", "tasks"))
	return err
}
