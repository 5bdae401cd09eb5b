package check

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// PatrolOptions configure a [Patrol]. Checker and Log are required; Members and Tasks are for the sweep.
type PatrolOptions struct {
	Checker *Checker
	Members tasks.Members
	Tasks   Tasks
	// Share of the reads that are checked, 0 to 1.
	Share float64
	// Rate is how many sets the sweep looks at in a second; 0: this process does not sweep, and is not to handle its tasks.
	Rate int
	// LostAt returns when this process last found that a node of Redis was new or lost data, in unix milliseconds; 0:
	// never. Nil: it never does.
	LostAt func() int64
	// Build says that a backfill is enqueued after a loss; else reads and tasks build sets.
	Build bool
	Log   *slog.Logger
	// Tick is the interval between two looks at LostAt and the queue; Round is the minimum time of a round of the
	// sweep. 0: 2 s, 10 s.
	Tick, Round time.Duration
}

// Patrol checks a service while it runs: some of the reads, off their path, and by tasks all sets. It counts,
// logs and repairs the findings. It is safe for concurrent use.
type Patrol struct {
	options PatrolOptions
	samples chan member.ID // viewers of sampled reads
	log     *outage.Lines
}

// NewPatrol returns a patrol. [Patrol.Run] checks reads and keeps the sweep going; [Patrol.Handle] is a handler of
// check_range.
func NewPatrol(o PatrolOptions) *Patrol {
	o.Tick, o.Round = cmp.Or(o.Tick, 2*time.Second), cmp.Or(o.Round, 10*time.Second)
	return &Patrol{options: o, samples: make(chan member.ID, maxSamples), log: outage.NewLines(o.Log)}
}

// At most maxSamples reads wait in memory. After work that took t, there is a pause of restShare times t.
const (
	maxSamples = 64
	restShare  = 4
)

// Note notes a read that may become a sample. It returns at once: a sample that finds no room is dropped.
func (p *Patrol) Note(viewer member.ID) {
	if p.options.Share <= 0 || p.options.Share < 1 && rand.Float64() >= p.options.Share {
		return
	}
	select {
	case p.samples <- viewer:
	default:
	}
}

// Run checks sampled reads and keeps the sweep going until ctx ends. That is no error.
func (p *Patrol) Run(ctx context.Context) error {
	swept := make(chan struct{})
	go func() {
		defer close(swept)
		p.watch(ctx)
	}()
	for {
		select {
		case <-ctx.Done():
			<-swept
			return nil
		case viewer := <-p.samples:
			start := time.Now()
			err := p.audit(ctx, ofRead, p.options.Checker.Check, []member.ID{viewer})
			if err == nil {
				err = p.audit(ctx, ofAnswer, p.options.Checker.CheckAnswers, []member.ID{viewer})
			}
			p.failed(ctx, "reads", err)
			_ = retry.Sleep(ctx, restShare*time.Since(start)) // the loop looks at ctx
		}
	}
}

// audit compares the sets or the answers of members. It counts the findings, logs an example of each cause a minute,
// and repairs them.
func (p *Patrol) audit(
	ctx context.Context, origin string, check func(context.Context, []member.ID) (Report, error), members []member.ID,
) error {
	r, err := check(ctx, members)
	if err != nil {
		return err
	}
	count(origin, r)
	for id, err := range r.Failed {
		p.log.Log(ctx, slog.LevelWarn, "failed", "members not compared", "count", len(r.Failed), "such as", id.String(), "error", err)
		break
	}
	for _, f := range r.Findings {
		then := "refills are enqueued"
		if !f.mendable() {
			then = "the site has to raise users.last_upload"
		}
		if f.Weight == Error {
			p.log.Log(ctx, slog.LevelWarn, string(f.Cause), "audit finding", "cause", f.Cause, "example", f.String(), "then", then)
		}
	}
	n, err := p.options.Checker.Repair(ctx, r.Wrong())
	refills.WithLabelValues().Add(float64(n))
	return err
}

// failed logs the error of work. Package health has the lines about servers that are away.
func (p *Patrol) failed(ctx context.Context, work string, err error) {
	if err != nil && ctx.Err() == nil && !tasks.IsOfAll(err) {
		p.log.Log(ctx, slog.LevelError, work, "audit failed", "work", work, "error", err)
	}
}

// sweepBatch is how many sets a task of the sweep looks at, at most.
const sweepBatch = 100

// Handle implements [queue.Handler] for check_range: the sweep. A task looks at the sets of some members, and its
// follow-up comes when the rate allows it. The last task begins the next round. The tasks share a dedupe key, so that
// the sweeps of two processes become a single sweep.
func (p *Patrol) Handle(ctx context.Context, batch []queue.Task) []queue.Outcome {
	all := make([]queue.Outcome, len(batch))
	for i, t := range batch {
		all[i] = p.sweep(ctx, t)
	}
	return all
}

func (p *Patrol) sweep(ctx context.Context, t queue.Task) queue.Outcome {
	start := time.Now()
	args, err := tasks.ArgsOf[tasks.RangeArgs](t)
	if err != nil {
		return queue.Outcome{Err: err}
	}
	if args.Began.IsZero() {
		args.Began = start.UTC()
	}
	page, next, more, err := tasks.PageOf(ctx, p.options.Members, args, min(2*p.options.Rate, sweepBatch))
	if err != nil {
		return queue.Outcome{Err: err}
	}
	pause := time.Duration(len(page)) * time.Second / time.Duration(p.options.Rate)
	if !more {
		pause, next = max(pause, p.options.Round-time.Since(args.Began)), tasks.RangeArgs{}
	}
	if len(page) > 0 {
		err = p.audit(ctx, ofSweep, p.options.Checker.Check, page)
	}
	n := tasks.NewCheckRange(next)
	n.Delay = max(pause-time.Since(start), restShare*time.Since(start), time.Millisecond)
	return queue.Outcome{Err: err, Next: []queue.New{n}}
}

// watch begins the sweep where none is under way, and a backfill after a loss, until ctx ends.
func (p *Patrol) watch(ctx context.Context) {
	var built int64 // the last loss that led to a backfill
	for lost := int64(0); ctx.Err() == nil; _ = retry.Sleep(ctx, p.options.Tick) {
		if p.options.Rate > 0 {
			p.failed(ctx, "sweep", p.keepSweep(ctx))
		}
		if p.options.LostAt == nil {
			continue
		}
		if at := p.options.LostAt(); at > lost {
			lost = at
			redisLosses.WithLabelValues().Inc()
			p.options.Log.WarnContext(ctx, "redis is new or lost data", "backfill", p.options.Build)
		}
		if p.options.Build && lost > built {
			begun, err := p.backfill(ctx, time.UnixMilli(lost))
			if p.failed(ctx, "backfill", err); begun {
				built = lost
			}
		}
	}
}

// keepSweep begins the sweep unless it is under way, and shows when its round began.
func (p *Patrol) keepSweep(ctx context.Context) error {
	sweeps, err := tasks.UnfinishedRanges(ctx, p.options.Tasks, tasks.CheckRange)
	if err != nil {
		return err
	}
	if len(sweeps) == 0 {
		_, err = p.options.Tasks.Enqueue(ctx, []queue.New{tasks.NewCheckRange(tasks.RangeArgs{})})
	} else if began := sweeps[0].Began; !began.IsZero() {
		sweepBegan.WithLabelValues().Set(float64(began.Unix()))
	}
	return err
}

// noticed is how long it takes until all processes notice a loss.
const noticed = 5 * time.Second

// backfill enqueues ranges over all members, unless another process did so for the same loss. While older ranges are
// under way it waits: they may be past the sets that were lost since.
func (p *Patrol) backfill(ctx context.Context, lost time.Time) (begun bool, err error) {
	under, err := tasks.UnfinishedRanges(ctx, p.options.Tasks, tasks.RefillRange)
	if err != nil {
		return false, err
	}
	for _, a := range under {
		if a.Began.After(lost.Add(-noticed)) {
			return true, nil
		}
	}
	if len(under) > 0 {
		return false, nil
	}
	list, err := tasks.NewRefillRanges(ctx, p.options.Members, 1, math.MaxUint64, false, 0)
	if err == nil && len(list) > 0 {
		_, err = p.options.Tasks.Enqueue(ctx, list)
	}
	if err != nil {
		return false, fmt.Errorf("enqueue a backfill: %w", err)
	}
	return true, nil
}

var _ queue.Handler = (*Patrol)(nil)
