package stream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/redisreply"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/queue"
)

const (
	maxBatch       = 256 // entries in one read and one transaction
	maxBlock       = 500 * time.Millisecond
	enqueueTimeout = 10 * time.Second // of one transaction
	stopTimeout    = 2 * time.Second  // to finish with what was read
	firstPause     = 50 * time.Millisecond
	maxPause       = 2 * time.Second // less than claimAfter: who retries what it holds keeps it
	claimAfter     = 5 * time.Second // without a sign of the consumer that holds an entry
	claimEvery     = time.Second
	choreEvery     = 5 * time.Second
	goneAfter      = time.Minute // a consumer that holds nothing and did nothing for so long is deleted
)

// Enqueuer is what a Consumer needs of the queue: see [queue.Queue.Enqueue].
type Enqueuer interface {
	Enqueue(ctx context.Context, batch []queue.New) (ids []uint64, err error)
}

// Options say how a Consumer works.
type Options struct {
	// Name tells the consumers of the group apart. Two processes with one name move some
	// entries twice.
	Name string
	// MySQL and Redis get the results of calls. The zero values are their own.
	MySQL, Redis *outage.Log
}

// Consumer moves entries from the stream into the queue. A queue that is full does not
// stop it: what waits in MySQL is durable and has its priority, and the memory of Redis is
// scarcer.
type Consumer struct {
	client redis.UniversalClient
	queue  Enqueuer
	log    *slog.Logger
	name   string

	mysql, redis *outage.Log
	stream, dead *outage.Log // errors that are none of an outage: of the stream, or the queue's table; of the dead
	lines        *outage.Lines
	block        time.Duration // see maxBlock
	// See claimAfter, goneAfter and stopTimeout; tests have less time, or more.
	idle, gone, finish time.Duration

	// What follows is Run's alone.
	from    string    // what to read next; an id, held or fresh
	size    int       // of the next batch: less after a failure, so that one that is too large to read, or to commit in time, gets through
	cursor  string    // of the claim
	claimAt time.Time // the next one
}

// New returns a consumer of the stream of client, which stays the caller's to close. Each
// process needs one at most.
func New(client redis.UniversalClient, q Enqueuer, log *slog.Logger, o Options) *Consumer {
	if o.MySQL == nil {
		o.MySQL = outage.New(log, "MySQL")
	}
	if o.Redis == nil {
		o.Redis = outage.New(log, "Redis")
	}
	return &Consumer{
		client: client, queue: q, log: log, name: o.Name, mysql: o.MySQL, redis: o.Redis,
		stream: outage.New(log, Key), dead: outage.New(log, DeadKey), lines: outage.NewLines(log),
		block: blockOf(client), idle: claimAfter, gone: goneAfter, finish: stopTimeout, from: held, size: maxBatch, cursor: "0-0",
	}
}

// Run moves entries until ctx ends, and returns nil. What was read by then it still moves,
// if that is possible within two seconds; what is left others may claim at once.
func (c *Consumer) Run(ctx context.Context) error {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(c.finish, stop) })()
	_ = c.makeGroup(ctx) // or when a read finds that there is none
	var chores sync.WaitGroup
	chores.Go(func() { c.chores(ctx) })
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		err := c.step(working)
		if working.Err() != nil {
			break
		}
		c.report(ctx, began, err)
		if err == nil {
			failures, c.size = 0, min(2*c.size, maxBatch)
			continue
		}
		failures++
		c.from, c.size = held, max(c.size/2, 1)
		_ = retry.Sleep(ctx, retry.Backoff(failures, firstPause, maxPause))
	}
	chores.Wait()
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.finish)
	defer cancel()
	_ = c.leave(leaving, c.name) // or what it holds is claimed in claimAfter
	return nil
}

// step moves the next batch, if there is one.
func (c *Consumer) step(ctx context.Context) error {
	if !time.Now().Before(c.claimAt) {
		claimed, err := c.claim(ctx)
		if err != nil {
			return err
		}
		if len(claimed) > 0 {
			return c.move(ctx, claimed)
		}
	}
	batch, err := c.read(ctx)
	if err != nil {
		return err
	}
	return c.move(ctx, batch)
}

// read returns what this consumer holds and has not looked at since the start or the last
// failure; when there is no such entry, what is fresh.
func (c *Consumer) read(ctx context.Context) ([]entry, error) {
	began := time.Now()
	batch, err := c.readGroup(ctx, c.from, c.size)
	c.reportRedis(ctx, began, err)
	switch {
	case err != nil || c.from == fresh:
	case len(batch) == 0:
		c.from = fresh
	default:
		c.from = batch[len(batch)-1].id
	}
	return batch, err
}

// claim takes over what others hold and do nothing with; what this one itself holds, too,
// of which it knows nothing when a reply was lost.
func (c *Consumer) claim(ctx context.Context) ([]entry, error) {
	began := time.Now()
	claimed, next, trimmed, err := c.autoClaim(ctx, c.cursor, c.size)
	c.reportRedis(ctx, began, err)
	if err != nil {
		c.cursor = "0-0"
		return nil, err
	}
	c.cursor = next
	if next == "0-0" {
		c.claimAt = began.Add(min(claimEvery, c.idle))
	}
	c.countTrimmed(ctx, trimmed)
	var there []entry
	for _, e := range claimed {
		if e.id == "" {
			c.from = held // to learn its id
			continue
		}
		there = append(there, e)
	}
	entriesClaimed.Add(float64(len(there)))
	return there, nil
}

// item is an entry on its way.
type item struct {
	entry
	task   queue.New
	reason error // why it makes no sense; nil: it does
}

// move enqueues the tasks of a batch, sets aside what makes no sense, and then takes both
// out of the stream. What could not be set aside stays, and is claimed later.
func (c *Consumer) move(ctx context.Context, batch []entry) error {
	var items []*item
	var settled []string
	trimmed := 0
	if len(batch) == 0 {
		return nil
	}
	began := time.Now()
	now, err := c.now(ctx)
	c.reportRedis(ctx, began, err)
	if err != nil {
		return err
	}
	for _, e := range batch {
		if e.fields == nil {
			settled = append(settled, e.id)
			trimmed++
			continue
		}
		i := &item{entry: e}
		i.task, i.reason = e.task(now)
		items = append(items, i)
	}
	if err := c.enqueue(ctx, items); err != nil {
		return err
	}
	moved, nonsense := 0, []item(nil)
	for _, i := range items {
		if i.reason != nil {
			nonsense = append(nonsense, *i)
			continue
		}
		moved++
		settled = append(settled, i.id)
	}
	dead := c.setAside(ctx, nonsense)
	began = time.Now()
	there, err := c.settle(ctx, append(settled, dead...))
	c.reportRedis(ctx, began, err)
	if err != nil {
		return err
	}
	c.countTrimmed(ctx, trimmed)
	entriesTotal.WithLabelValues(outcomeMoved).Add(float64(moved))
	entriesTotal.WithLabelValues(outcomeDead).Add(float64(len(dead)))
	entriesRepeated.Add(float64(max(0, moved+len(dead)-there)))
	return nil
}

// enqueue enqueues the tasks of those items that make sense. Of those whose rows MySQL
// refuses, it says so in the item.
func (c *Consumer) enqueue(ctx context.Context, items []*item) error {
	var batch []queue.New
	var of []*item
	for _, i := range items {
		if i.reason == nil {
			batch, of = append(batch, i.task), append(of, i)
		}
	}
	if len(batch) == 0 {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, enqueueTimeout)
	defer cancel()
	began := time.Now()
	_, err := c.queue.Enqueue(bounded, batch)
	refused := isRefused(err)
	if ctx.Err() == nil && (err == nil || refused || isMySQLAway(err)) {
		away := err
		if refused {
			away = nil // it answers
		}
		c.mysql.Report(ctx, began, away)
	}
	switch {
	case refused && len(of) == 1:
		of[0].reason = fmt.Errorf("the queue refuses the task: %w", err)
		return nil
	case refused:
		return errors.Join(c.enqueue(ctx, of[:len(of)/2]), c.enqueue(ctx, of[len(of)/2:]))
	}
	return err
}

// isRefused reports whether a batch failed because of the values of a task. A duplicate
// key is none of them: others that enqueue the same were quicker, again and again.
func isRefused(err error) bool {
	return errors.Is(err, queue.ErrInvalid) || mysql.IsRowRefused(err) && !mysql.IsDuplicate(err)
}

// isMySQLAway reports whether MySQL cannot be used, or does not answer in time.
func isMySQLAway(err error) bool {
	return errors.Is(err, mysql.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// setAside copies entries to the dead, and returns the ids of those that it could copy.
func (c *Consumer) setAside(ctx context.Context, nonsense []item) (ids []string) {
	if len(nonsense) == 0 {
		return nil
	}
	began := time.Now()
	ids, err := c.addDead(ctx, nonsense)
	if ctx.Err() == nil {
		c.dead.Report(ctx, began, err)
	}
	if len(ids) > 0 {
		c.lines.Log(ctx, slog.LevelWarn, "", "stream entry makes no sense", "stream", DeadKey, "entries", len(ids), "entry", nonsense[0].id,
			"reason", clip(nonsense[0].reason.Error(), maxReason))
	}
	return ids
}

// countTrimmed counts entries that were held and are gone: their producers give a MAXLEN
// that is too small.
func (c *Consumer) countTrimmed(ctx context.Context, n int) {
	if n == 0 {
		return
	}
	entriesTotal.WithLabelValues(outcomeTrimmed).Add(float64(n))
	c.log.ErrorContext(ctx, "stream entries lost", "stream", Key, "entries", n, "cause", "trimmed or deleted before they were moved")
}

// reportRedis reports the result of a call.
func (c *Consumer) reportRedis(ctx context.Context, began time.Time, err error) {
	if passing, _ := redisreply.Passing(err); ctx.Err() == nil && (err == nil || passing) {
		c.redis.Report(ctx, began, err)
	}
}

// report reports the result of a step, unless it is that of an outage.
func (c *Consumer) report(ctx context.Context, began time.Time, err error) {
	if passing, _ := redisreply.Passing(err); passing || isMySQLAway(err) || errors.Is(err, errGroupLost) {
		return
	}
	c.stream.Report(ctx, began, err)
}

// chores measures the stream, has entries delivered that were passed over, and deletes
// consumers that are gone, until ctx ends. Where Redis is away, it does so later.
func (c *Consumer) chores(ctx context.Context) {
	tick := time.NewTicker(choreEvery)
	defer tick.Stop()
	for {
		bounded, cancel := context.WithTimeout(ctx, choreEvery)
		_ = c.chore(bounded)
		cancel()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (c *Consumer) chore(ctx context.Context) error {
	l, err := c.look(ctx)
	if err != nil {
		return err
	}
	streamLength.Set(float64(l.length))
	streamPending.Set(float64(l.held))
	streamLag.Set(l.lag.Seconds())
	if l.passed {
		c.log.WarnContext(ctx, "stream entries were passed over; all are delivered again", "stream", Key, "group", Group)
	}
	names, err := c.idleConsumers(ctx, c.gone)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := c.leave(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
