package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	cron "github.com/netresearch/go-cron"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
)

// Periodic is a job by the clock: a task at each tick of a cron expression.
type Periodic struct {
	// Name names the job in the database, for as long as the job exists: 1 to 64 bytes of printable ASCII without blanks.
	Name string
	// Cron is an expression of five fields (minute, hour, day, month, weekday), or six with seconds first, or @hourly, @daily,
	// @weekly, @monthly, @yearly. Its times are UTC; "CRON_TZ=Europe/Berlin 30 6 * * MON-FRI" names another zone.
	Cron string
	// Task returns the task of a tick, without Delay and DedupeKey; Life counts from the tick.
	Task func(tick time.Time) New
}

const (
	maxPeriodicName = 64
	maxTickWait     = time.Minute     // between looks at the clock of the database, which may be set
	tickRetry       = 5 * time.Second // after an error
)

// RunPeriodic enqueues the tasks of jobs until ctx ends, whose end is no error: a task a tick, however many processes run the same
// jobs. An error that wraps [ErrInvalid] names a job that makes no sense. Without the database RunPeriodic logs, and tries again.
//
// The task of the next tick is in the table before its time, scheduled. It needs no process at the tick but a worker, and
// operators see it. The dedupe key cron/NAME/UNIX-SECONDS keeps the second task of a tick out until the first has started; then
// the tick is over by the database's clock, by which alone RunPeriodic goes.
//
// A tick is missed if no process reached the database since the tick before: then the task that was scheduled last is done once,
// late, and the ticks up to now are left out. A new job begins with the next tick. The task of a job that was taken out of the
// program, or has another expression now, comes once more unless it is cancelled.
//
// When clocks are set back in autumn, an expression with fixed hours ticks in the first of the two hours alone; when they are set
// forward, a time that the day does not have is up to an hour later.
func (q *Queue) RunPeriodic(ctx context.Context, log *slog.Logger, jobs ...Periodic) error {
	specs, scheduled := make([]*cron.SpecSchedule, len(jobs)), make([]time.Time, len(jobs)) // the last ticks, as far as this process knows
	for i, job := range jobs {
		var err error
		if specs[i], err = parseCron(job); err != nil {
			return err
		}
	}
	for ctx.Err() == nil && len(jobs) > 0 {
		at, err := readClock(ctx, q.db)
		wait := maxTickWait
		for i, job := range jobs {
			if at.IsZero() { // it could not be read
				break
			}
			tick := nextTick(specs[i], at)
			if tick.After(scheduled[i]) {
				tickErr := q.scheduleTick(ctx, job, tick)
				if err = errors.Join(err, tickErr); tickErr != nil { // it holds up no other
					continue
				}
				scheduled[i] = tick
			}
			wait = min(wait, max(tick.Sub(at), time.Millisecond))
		}
		switch {
		case errors.Is(err, ErrInvalid):
			return err
		case err != nil && ctx.Err() == nil:
			wait = min(wait, tickRetry)
			log.WarnContext(ctx, "scheduling ticks failed", "error", err, "again_after", wait)
		}
		_ = retry.Sleep(ctx, wait)
	}
	return nil
}

var cronFields = cron.MustNewParser(cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom | cron.Descriptor)

// parseCron returns the times of a job. @every is refused: its ticks would count from the start of each process.
func parseCron(job Periodic) (spec *cron.SpecSchedule, err error) {
	if job.Name == "" || len(job.Name) > maxPeriodicName || strings.ContainsFunc(job.Name, func(r rune) bool { return r == ' ' || unprintable(r) }) {
		return nil, fmt.Errorf("%w: periodic job %q: want a name of 1 to %d bytes of printable ASCII without blanks", ErrInvalid, job.Name, maxPeriodicName)
	}
	schedule, err := cronFields.Parse(job.Cron)
	spec, ok := schedule.(*cron.SpecSchedule)
	if ok && spec.Location == time.Local { // the expression names no zone
		spec.Location = time.UTC
	}
	switch {
	case err != nil:
	case !ok:
		err = errors.New("it has no ticks that all processes share")
	case job.Task == nil || spec.Next(time.Now()).IsZero():
		err = errors.New("it never ticks, or Task is nil")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: periodic job %s: cron expression %q: %w", ErrInvalid, job.Name, job.Cron, err)
	}
	return spec, nil
}

// nextTick returns the first tick after t, or the zero time. Fixed hours tick in the first of two equal hours alone.
func nextTick(spec *cron.SpecSchedule, t time.Time) time.Time {
	const anyHour = 1 << 63 // in the field of an expression with *
	for {
		t = spec.Next(t.UTC())
		local := t.In(spec.Location)
		earlier := local.Add(-time.Hour)
		if t.IsZero() || spec.Hour&anyHour != 0 || earlier.Hour() != local.Hour() || earlier.Minute() != local.Minute() {
			return t
		}
	}
}

var errTickOver = errors.New("the tick is over")

// scheduleTick inserts the task of a tick that is to come, unless it is there.
func (q *Queue) scheduleTick(ctx context.Context, job Periodic, tick time.Time) error {
	n := job.Task(tick)
	if n.Delay != 0 || n.DedupeKey != "" {
		return fmt.Errorf("%w: periodic job %s: its task has a delay or a dedupe key", ErrInvalid, job.Name)
	}
	n.DedupeKey = fmt.Sprintf("cron/%s/%d", job.Name, tick.Unix())
	batch, err := q.options.Kinds.Validate([]New{n})
	if err != nil {
		return err
	}
	n = batch[0]
	expires := sql.NullInt64{Int64: tick.Add(n.Life).UnixMilli(), Valid: n.Life != 0}
	err = mysql.Transact(ctx, q.db, "schedule periodic job "+job.Name, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO tasks (state, queue, type, subject, args, priority, max_attempts, backoff, run_at, expires_at, dedupe_key)"+
			" VALUES ('scheduled',"+mysql.Marks(10)+")", n.Queue, n.Kind, n.Key, string(n.Payload), n.Priority, n.MaxAttempts, n.Backoff.Milliseconds(), tick.UnixMilli(), expires, n.DedupeKey)
		if err != nil {
			return err
		}
		// Only now, with the dedupe key locked: a task of this tick starts no sooner than the tick.
		at, err := readClock(ctx, tx)
		if err == nil && !at.Before(tick) {
			err = errTickOver
		}
		return err
	})
	if mysql.IsDuplicate(err) || errors.Is(err, errTickOver) {
		return nil
	}
	return err
}

// readClock returns the time of the database.
func readClock(ctx context.Context, db mysql.Querier) (time.Time, error) {
	clock, err := mysql.Select(ctx, db, mysql.Column[int64], "SELECT "+now)
	if err != nil {
		return time.Time{}, mysql.Translate(ctx, "read the database's clock", err)
	}
	return time.UnixMilli(clock[0]), nil
}
