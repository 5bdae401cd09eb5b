package stream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/redisreply"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/queue"
)

const (
	maxBatch       = 256 // entries in a read and a transaction
	maxBlock       = 500 * time.Millisecond
	leaseTime      = 2 * time.Second // the wait of entries that a process held as it died
	turnEvery      = 500 * time.Millisecond
	enqueueTimeout = 10 * time.Second // of a transaction
	stopTimeout    = 2 * time.Second  // to finish with entries that were read
	firstPause     = 50 * time.Millisecond
	maxPause       = 2 * time.Second
	deadAgain      = time.Second // until copies to the dead are tried again
	measureEvery   = 5 * time.Second
)

// Enqueuer enqueues tasks: see [queue.Queue.Enqueue].
type Enqueuer interface {
	Enqueue(ctx context.Context, batch []queue.New) (ids []uint64, err error)
}

// Mover moves entries from the stream into the queue. A queue that is full does not stop it: a task in MySQL is durable and
// has its priority, and the memory of Redis is scarcer.
type Mover struct {
	client redis.UniversalClient
	queue  Enqueuer
	owner  string // of the lease

	mysql, redis *outage.Log
	stream, dead *outage.Log // errors that are none of an outage: of the stream, or the queue's table; of the dead
	lines        *outage.Lines
	block        time.Duration // see maxBlock
	lease        time.Duration // see leaseTime; tests have less
	finish       time.Duration // see stopTimeout; tests have more

	// The rest is Run's alone.
	from    string    // the id after which it reads: first, but after entries that could not be copied to the dead
	again   time.Time // when it reads from the first again
	size    int       // of the next batch: less after a failure, so that a batch that is too large to read, or to commit in time, gets through
	done    []string  // ids of entries whose tasks are committed, or that lie with the dead
	measure time.Time // when the gauges are next set
}

// New returns a mover of the stream of client, which stays the caller's to close. Each process needs at most one mover. The results
// of calls are reported to the logs of MySQL and of Redis.
func New(client redis.UniversalClient, q Enqueuer, log *slog.Logger, ofMySQL, ofRedis *outage.Log) *Mover {
	return &Mover{
		client: client, queue: q, owner: rand.Text(), mysql: ofMySQL, redis: ofRedis,
		stream: outage.New(log, Key), dead: outage.New(log, DeadKey), lines: outage.NewLines(log),
		block: blockOf(client), lease: leaseTime, finish: stopTimeout, from: first, size: maxBatch,
	}
}

// Run moves entries until ctx ends, and returns nil. Entries that were read by then still move, if that is possible within two
// seconds.
func (m *Mover) Run(ctx context.Context) error {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(m.finish, stop) })()
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		isTurn, err := m.step(working)
		switch {
		case err != nil && working.Err() == nil:
			m.report(ctx, began, err)
			m.release(ctx) // another process may do better
			m.size = max(m.size/2, 1)
			failures++
			_ = retry.Sleep(ctx, retry.Backoff(failures, firstPause, maxPause))
		case err == nil && isTurn:
			m.report(ctx, began, nil)
			failures, m.size = 0, min(2*m.size, maxBatch)
		case err == nil:
			failures = 0
			_ = retry.Sleep(ctx, min(turnEvery, m.lease))
		}
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.finish)
	defer cancel()
	_ = m.settle(leaving) // an entry that stays is moved again
	m.release(leaving)
	return nil
}

// step moves the next batch, if there is one, and reports whether it is this process' turn.
func (m *Mover) step(ctx context.Context) (isTurn bool, err error) {
	began := time.Now()
	now, isTurn, batch, err := m.next(ctx)
	if passing, _ := redisreply.Passing(err); ctx.Err() == nil && (err == nil || passing) {
		m.redis.Report(ctx, began, err)
	}
	if err != nil || len(batch) == 0 {
		return isTurn, err
	}
	if err := m.move(ctx, now, batch); err != nil {
		return true, err
	}
	return true, m.settle(ctx)
}

// next takes out the entries that are done, and returns the next batch if it is this process' turn. now is by the clock of Redis.
func (m *Mover) next(ctx context.Context) (now time.Time, isTurn bool, batch []entry, err error) {
	if err = m.settle(ctx); err != nil {
		return now, false, nil, err
	}
	if now, isTurn, err = m.hold(ctx); err != nil {
		return now, false, nil, err
	}
	if time.Now().After(m.measure) {
		m.measure = time.Now().Add(measureEvery)
		if err = m.measured(ctx, now); err != nil {
			return now, isTurn, nil, err
		}
	}
	if !isTurn {
		return now, false, nil, nil
	}
	if time.Now().After(m.again) {
		m.from = first
	}
	batch, err = m.read(ctx, m.from, m.size)
	return now, true, batch, err
}

// item is an entry on its way.
type item struct {
	entry
	task   queue.New
	reason error // why it makes no sense; nil: it does
}

// move enqueues the tasks of a batch, sets aside entries that make no sense, and notes both as done. An entry that could not be set aside
// is read again later.
func (m *Mover) move(ctx context.Context, now time.Time, batch []entry) error {
	items := make([]*item, len(batch))
	for i, e := range batch {
		items[i] = &item{entry: e}
		items[i].task, items[i].reason = e.task(now)
	}
	if err := m.enqueue(ctx, items); err != nil {
		return err
	}
	var nonsense []*item
	for _, i := range items {
		if i.reason == nil {
			m.done = append(m.done, i.id)
		} else {
			nonsense = append(nonsense, i)
		}
	}
	entriesTotal.WithLabelValues(outcomeMoved).Add(float64(len(m.done)))
	if len(nonsense) == 0 {
		return nil
	}
	began := time.Now()
	dead, err := m.addDead(ctx, nonsense)
	if ctx.Err() == nil {
		m.dead.Report(ctx, began, err)
	}
	m.done = append(m.done, dead...)
	entriesTotal.WithLabelValues(outcomeDead).Add(float64(len(dead)))
	if len(dead) > 0 {
		m.lines.Log(ctx, slog.LevelWarn, "", "stream entry makes no sense", "stream", DeadKey, "entries", len(dead), "entry", nonsense[0].id,
			"reason", clip(nonsense[0].reason.Error(), maxReason))
	}
	if len(dead) < len(nonsense) {
		if m.from == first {
			m.again = time.Now().Add(deadAgain)
		}
		m.from = batch[len(batch)-1].id // the rest must not wait for them
	}
	return nil
}

// enqueue enqueues the tasks of items that make sense. An item whose row MySQL refuses makes no sense.
func (m *Mover) enqueue(ctx context.Context, items []*item) error {
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
	_, err := m.queue.Enqueue(bounded, batch)
	refused := isRefused(err)
	switch {
	case ctx.Err() != nil:
	case err == nil || refused: // it answers
		m.mysql.Report(ctx, began, nil)
	case isMySQLAway(err):
		m.mysql.Report(ctx, began, err)
	}
	switch {
	case refused && len(of) == 1:
		of[0].reason = fmt.Errorf("the queue refuses the task: %w", err)
		return nil
	case refused:
		return errors.Join(m.enqueue(ctx, of[:len(of)/2]), m.enqueue(ctx, of[len(of)/2:]))
	}
	return err
}

// isRefused reports whether a batch failed because of the values of a task. A duplicate key is another error: further
// processes that enqueue the same were quicker, again and again.
func isRefused(err error) bool {
	return errors.Is(err, queue.ErrInvalid) || mysql.IsRowRefused(err) && !mysql.IsDuplicate(err)
}

// isMySQLAway reports whether MySQL cannot be used, or does not answer in time.
func isMySQLAway(err error) bool {
	return errors.Is(err, mysql.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// report reports the result of a step, unless it is that of an outage.
func (m *Mover) report(ctx context.Context, began time.Time, err error) {
	if passing, _ := redisreply.Passing(err); !passing && !isMySQLAway(err) {
		m.stream.Report(ctx, began, err)
	}
}
