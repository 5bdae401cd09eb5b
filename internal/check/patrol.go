package check

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// PatrolOptions configure a [Patrol]. Checker, LostAt and Log are required.
type PatrolOptions struct {
	Checker *Checker
	// Share of the reads that are checked, 0 to 1.
	Share float64
	// Rate is how many sets the sweep looks at in a second; 0: this process does not sweep, and is not to handle its tasks.
	Rate int
	// LostAt returns when this process last found that a node of Redis was new or lost data, in unix milliseconds; 0: never.
	LostAt func() int64
	// Build says that a backfill is enqueued after a loss; else reads and tasks build sets.
	Build bool
	Log   *slog.Logger
}

// Patrol checks a service while it runs: some of the reads, off their path, and by tasks all sets. It counts,
// logs and repairs the findings. It is safe for concurrent use.
type Patrol struct {
	PatrolOptions

	samples     chan member.ID // viewers of sampled reads
	log         *outage.Lines
	tick, round time.Duration // between two looks at LostAt and the queue; of a round of the sweep at least
}

// NewPatrol returns a patrol. [Patrol.Run] checks reads and keeps the sweep going; [Patrol.Handle] is a handler of
// check_range.
func NewPatrol(o PatrolOptions) *Patrol {
	return &Patrol{o, make(chan member.ID, maxSamples), outage.NewLines(o.Log), 2 * time.Second, 10 * time.Second}
}

const (
	maxSamples  = 64              // reads that wait in memory
	restShare   = 4               // after work that took t, there is a pause of so many times t
	answerLimit = 10              // photos of an answer that are compared
	sweepBatch  = 100             // sets that a task of the sweep looks at, at most
	noticed     = 5 * time.Second // until all processes notice a loss
)

// Note notes a read that may become a sample. It returns at once: a sample that finds no room is dropped.
func (p *Patrol) Note(viewer member.ID) {
	if rand.Float64() < p.Share {
		select {
		case p.samples <- viewer:
		default:
		}
	}
}

// Run checks sampled reads and keeps the sweep going until ctx ends. That is no error.
func (p *Patrol) Run(ctx context.Context) error {
	var sweep sync.WaitGroup
	sweep.Go(func() { p.watch(ctx) })
	defer sweep.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case viewer := <-p.samples:
			start := time.Now()
			err := p.audit(ctx, ofRead, p.Checker.Check, viewer)
			if err == nil {
				err = p.audit(ctx, ofAnswer, p.Checker.CheckAnswers, viewer)
			}
			p.failed(ctx, "reads", err)
			_ = retry.Sleep(ctx, restShare*time.Since(start)) // the loop looks at ctx
		}
	}
}

type checking func(context.Context, []member.ID) (Report, error)

// audit compares the sets or the answers of members. It counts the findings, logs an example of each cause a minute,
// and repairs them.
func (p *Patrol) audit(ctx context.Context, origin string, check checking, members ...member.ID) error {
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
	n, err := p.Checker.Repair(ctx, r.Wrong)
	refills.WithLabelValues().Add(float64(n))
	return err
}

// failed logs the error of work. Package health has the lines about servers that are away.
func (p *Patrol) failed(ctx context.Context, work string, err error) {
	if err != nil && ctx.Err() == nil && !tasks.IsOfAll(err) {
		p.log.Log(ctx, slog.LevelError, work, "audit failed", "work", work, "error", err)
	}
}

// CheckAnswers reads for each of the viewers by way of the index, each viewer once, and compares the photos with
// the answer by its definition, from MySQL alone. Answers without a part of the index, and answers for ids of no
// member, are skipped. It needs Read, and costs a walk for each viewer. It fails as [Checker.Check] does.
func (c *Checker) CheckAnswers(ctx context.Context, viewers []member.ID) (Report, error) {
	return c.check(ctx, viewers, func(ctx context.Context, viewers []member.ID) (map[member.ID]looked, error) {
		all := make(map[member.ID]looked, len(viewers))
		for _, viewer := range viewers {
			l, err := c.lookAtAnswer(ctx, contacts.Viewer{ID: viewer})
			if err != nil && !errors.Is(err, errNoPart) {
				return nil, fmt.Errorf("check the answer for %s: %w", viewer, err)
			}
			l.failed = err
			all[viewer] = l
		}
		return all, nil
	})
}

// lookAtAnswer compares once. Answers that are equal at once are right. Else the order is: the answer, the truth, the
// pending tasks, the answer and the truth again; see the package comment.
func (c *Checker) lookAtAnswer(ctx context.Context, v contacts.Viewer) (looked, error) {
	shown, due, err := c.answers(ctx, v)
	if err != nil || shown.IsSame(due) {
		return looked{}, err
	}
	stored, shownOwner, shownText := inWords(shown)
	actual, dueOwner, dueText := inWords(due)
	f := Finding{User: v.ID, Contact: dueOwner, Weight: Error, Cause: WrongAnswer, Stored: stored, Actual: actual}
	f.Detail = fmt.Sprintf("shown are %s, due are %s", shownText, dueText)
	found, err := c.weigh(ctx, suspects{{f, []member.ID{shownOwner, dueOwner}}})
	if err != nil {
		return looked{}, err
	}
	shownAgain, dueAgain, err := c.answers(ctx, v)
	return looked{moved: !shownAgain.IsSame(shown) || !dueAgain.IsSame(due), found: found[v.ID]}, err
}

// errNoPart says that the index had no part in an answer, or that the viewer is no member.
var errNoPart = errors.New("the index had no part in the answer")

// answers returns the answer by the index, and then the answer by its definition.
func (c *Checker) answers(ctx context.Context, v contacts.Viewer) (shown, due contacts.Album, err error) {
	answer, err := c.Read(ctx, v, answerLimit)
	if err == nil && answer.Source != recent.FromIndex {
		err = errNoPart
	}
	var walked contacts.Walked
	if err == nil {
		walked, err = c.Truth.Walk(ctx, v, answerLimit)
	}
	if errors.Is(err, recent.ErrBusy) || errors.Is(err, contacts.ErrNoMember) {
		err = errNoPart
	}
	return answer.Album, walked.Album, err
}

// inWords returns the date of the newest photo of an answer and the owner, 0 where there is none, and a text.
func inWords(a contacts.Album) (newest uint64, owner member.ID, text string) {
	if len(a.Photos) == 0 {
		return 0, 0, "no photos"
	}
	p := a.Photos[0]
	return p.DateUpload, a.Contact.ID, fmt.Sprintf("%d photos of %s, the newest %d", len(a.Photos), a.Contact.ID, p.ID)
}

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
	page, next, more, err := tasks.PageOf(ctx, p.Checker.Truth, args, min(2*p.Rate, sweepBatch))
	if err != nil {
		return queue.Outcome{Err: err}
	}
	pause := time.Duration(len(page)) * time.Second / time.Duration(p.Rate)
	if !more {
		pause, next = max(pause, p.round-time.Since(args.Began)), tasks.RangeArgs{}
	}
	if len(page) > 0 {
		err = p.audit(ctx, ofSweep, p.Checker.Check, page...)
	}
	n := tasks.NewCheckRange(next)
	n.Delay = max(pause-time.Since(start), restShare*time.Since(start), time.Millisecond)
	return queue.Outcome{Err: err, Next: []queue.New{n}}
}

// watch begins the sweep where none is under way, and a backfill after a loss, until ctx ends.
func (p *Patrol) watch(ctx context.Context) {
	var lost, built int64 // the last loss, and the last loss that led to a backfill
	for ; ctx.Err() == nil; _ = retry.Sleep(ctx, p.tick) {
		if p.Rate > 0 {
			p.failed(ctx, "sweep", p.keepSweep(ctx))
		}
		if at := p.LostAt(); at > lost {
			lost = at
			redisLosses.WithLabelValues().Inc()
			p.Log.WarnContext(ctx, "redis is new or lost data", "backfill", p.Build)
		}
		if p.Build && lost > built {
			begun, err := p.backfill(ctx, time.UnixMilli(lost))
			if p.failed(ctx, "backfill", err); begun {
				built = lost
			}
		}
	}
}

// keepSweep begins the sweep unless it is under way, and shows when its round began.
func (p *Patrol) keepSweep(ctx context.Context) error {
	sweeps, err := tasks.UnfinishedRanges(ctx, p.Checker.Tasks, tasks.CheckRange)
	if err != nil {
		return err
	}
	if len(sweeps) == 0 {
		_, err = p.Checker.Tasks.Enqueue(ctx, []queue.New{tasks.NewCheckRange(tasks.RangeArgs{})})
	} else if began := sweeps[0].Began; !began.IsZero() {
		sweepBegan.WithLabelValues().Set(float64(began.Unix()))
	}
	return err
}

// backfill enqueues ranges over all members, unless another process did so for the same loss. While older ranges are
// under way it waits: they may be past the sets that were lost since.
func (p *Patrol) backfill(ctx context.Context, lost time.Time) (begun bool, err error) {
	under, err := tasks.UnfinishedRanges(ctx, p.Checker.Tasks, tasks.RefillRange)
	for _, a := range under {
		begun = begun || a.Began.After(lost.Add(-noticed))
	}
	if err != nil || len(under) > 0 {
		return begun, err
	}
	list, err := tasks.NewRefillRanges(ctx, p.Checker.Truth, 1, math.MaxUint64, false, 0)
	if err == nil && len(list) > 0 {
		_, err = p.Checker.Tasks.Enqueue(ctx, list)
	}
	if err != nil {
		return false, fmt.Errorf("enqueue a backfill: %w", err)
	}
	return true, nil
}

// The origins: why a set or an answer was compared.
const (
	ofRead   = "read"   // the set of a sampled read
	ofAnswer = "answer" // the answer of a sampled read
	ofSweep  = "sweep"  // the sweep reached the set
)

var (
	checked   = newCounter("checked", "Sets, or answers, compared with MySQL; sweep: sets one after the other, read: sets of sampled reads, answer: their answers.", "origin")
	erroneous = newCounter("erroneous", "Sets, or answers, compared with MySQL that had an error.", "origin")
	unsettled = newCounter("unsettled", "Sets, or answers, that changed too often to be compared.", "origin")
	failed    = newCounter("failed", "Members left out because their node of Redis was away, or MySQL gave up; the log names one.", "origin")

	findings    = newCounter("findings", "Differences from MySQL; lag: a task is pending, error: none is, waste: none is, and it does no harm.", "cause", "class")
	refills     = newCounter("repairs", "Refills enqueued for what was found.")
	redisLosses = newCounter("redis_losses", "Times that Redis, or a node of it, was found to be new or to have lost data; each process counts.")

	// All processes with workers read it from the queue.
	sweepBegan = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "activityd_audit_sweep_began_timestamp_seconds", Help: "Unix time at which this round of the sweep began; the end of a round begins the next.",
	}, nil)
)

func newCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.NewCounterVec(prometheus.CounterOpts{Name: "activityd_audit_" + name + "_total", Help: help}, labels)
}

func init() { // the known series begin with 0
	for _, origin := range []string{ofRead, ofAnswer, ofSweep} {
		count(origin, Report{})
	}
	for cause := range rulings {
		for _, w := range []Weight{Lag, Error, Waste} {
			counterOf(cause, w)
		}
	}
	refills.WithLabelValues()
	redisLosses.WithLabelValues()
}

func counterOf(c Cause, w Weight) prometheus.Counter {
	return findings.WithLabelValues(strings.ReplaceAll(string(c), " ", "_"), string(w))
}

func count(origin string, r Report) {
	checked.WithLabelValues(origin).Add(float64(r.Checked))
	erroneous.WithLabelValues(origin).Add(float64(r.Erroneous))
	unsettled.WithLabelValues(origin).Add(float64(r.Unsettled))
	failed.WithLabelValues(origin).Add(float64(len(r.Failed)))
	for _, f := range r.Findings {
		counterOf(f.Cause, f.Weight).Inc()
	}
}
