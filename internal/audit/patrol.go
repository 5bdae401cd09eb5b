package audit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
)

// Members lists who there is to sweep over.
type Members interface {
	Members(ctx context.Context, after member.ID, limit int) ([]member.ID, error)
	CountMembers(ctx context.Context, first, last member.ID) (int64, error)
	Existing(ctx context.Context, ids []member.ID) (map[member.ID]bool, error)
}

// Ledger is what the sweep asks of the index, beside looking at sets.
type Ledger interface {
	EachStored(ctx context.Context, do func(ctx context.Context, users []member.ID) error) error
	// HoldSweep makes owner the one who sweeps, for life, unless somebody else is,
	// and returns where the sweep was left.
	HoldSweep(ctx context.Context, owner string, life time.Duration) (state string, held bool, err error)
	// SaveSweep keeps where the sweep is, if owner still is the one who sweeps,
	// which it stays for life from now.
	SaveSweep(ctx context.Context, owner, state string, life time.Duration) (held bool, err error)
	// LeaveSweep lets others sweep.
	LeaveSweep(ctx context.Context, owner string) error
	// Tick makes the marks of Redis rise, and returns them.
	Tick(ctx context.Context) (index.Marks, error)
	// NoteLoss tells the other processes when Redis was found to have lost data, in
	// unix milliseconds: it comes back as Lost of their Ticks.
	NoteLoss(ctx context.Context, at int64) error
}

// Pace lets one batch after the other in, and waits while the servers are slow.
type Pace interface {
	Enter(ctx context.Context) (leave func(), err error)
}

// The defaults of [PatrolOptions].
const (
	DefaultHurry            = 1000
	DefaultRepairsPerMinute = 10_000
)

// PatrolOptions say what a [Patrol] does. Auditor is required; Members and Ledger
// are for the sweep and the watch over Redis.
type PatrolOptions struct {
	Auditor *Auditor
	Members Members
	Ledger  Ledger
	Pace    Pace // nil: none is kept
	// Share of the reads that are checked, 0 to 1.
	Share float64
	// Rate is how many sets the sweep looks at in a second; 0: there is no sweep.
	Rate int
	// Hurry is that rate after Redis lost data.
	Hurry int
	// Repair says that refills are enqueued for what is found, RepairsPerMinute
	// at most; the rest is left to later rounds, and to reads.
	Repair           bool
	RepairsPerMinute int
	// Watch says that Redis is watched for lost data.
	Watch bool
	Log   *slog.Logger // default: slog.Default()
	Now   func() time.Time

	// Lease is how long a process that sweeps may be silent before another one goes
	// on; Tick is the time between two raises of the marks; Round is how long a
	// round of the sweep takes at least.
	Lease, Tick, Round time.Duration
}

// Patrol audits a service while it runs: some of the reads, and, slowly, all
// sets. It works off the path of requests, asks for one batch at a time, rests
// longer than it works, and stands still while a server is away. It is safe for
// concurrent use.
type Patrol struct {
	options PatrolOptions
	auditor *Auditor // waits for its turn before each look, and rests out of turn
	sampler *sampler
	budget  *budget
	teller  *teller
	turn    chan struct{} // holds a token while a batch is looked at
	hurry   chan struct{} // holds a token when the sweep is to start anew at once
	// lost names the last time that Redis lost data: unix milliseconds, 0: never.
	// It only rises.
	lost atomic.Int64
}

// NewPatrol returns a patrol that begins with [Patrol.Run].
func NewPatrol(o PatrolOptions) *Patrol {
	o.Hurry = max(cmp.Or(o.Hurry, DefaultHurry), o.Rate)
	o.RepairsPerMinute = cmp.Or(o.RepairsPerMinute, DefaultRepairsPerMinute)
	o.Lease = cmp.Or(o.Lease, leaseLife)
	o.Tick = cmp.Or(o.Tick, tickEvery)
	o.Round = cmp.Or(o.Round, shortestRound)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Pace == nil {
		o.Pace = unpaced{}
	}
	p := &Patrol{
		options: o,
		sampler: newSampler(o.Share),
		budget:  &budget{perMinute: o.RepairsPerMinute, now: o.Now},
		teller:  &teller{log: o.Log, now: o.Now, repair: o.Repair},
		turn:    make(chan struct{}, 1),
		hurry:   make(chan struct{}, 1),
	}
	if o.Auditor != nil {
		p.auditor = o.Auditor.behind(p.inTurn)
	}
	return p
}

type unpaced struct{}

func (unpaced) Enter(context.Context) (func(), error) { return func() {}, nil }

// Note tells the patrol of a read. It returns at once: a read that cannot be
// checked now is not checked.
func (p *Patrol) Note(viewer member.ID) { p.sampler.note(viewer) }

// Run patrols until ctx ends, whose end is no error. Call it once.
func (p *Patrol) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.checkReads(ctx) })
	if p.options.Rate > 0 {
		group.Go(func() error { return p.sweep(ctx) })
	}
	group.Go(func() error { return p.watch(ctx) })
	err := group.Wait()
	p.teller.tell(context.WithoutCancel(ctx), true)
	return err
}

// checkReads checks the sets and the answers of sampled viewers.
func (p *Patrol) checkReads(ctx context.Context) error {
	outage := outage{log: p.options.Log, doing: "check what is read"}
	for ctx.Err() == nil {
		viewers := p.sampler.gather(ctx)
		if len(viewers) == 0 {
			continue
		}
		r, _, err := p.check(ctx, OfRead, viewers)
		if err == nil {
			var answers Report
			answers, err = p.checkAnswers(ctx, viewers)
			r.Looking += answers.Looking
		}
		if err != nil {
			outage.wait(ctx, err)
			continue
		}
		outage.over()
		pause(ctx, restShare*r.Looking)
	}
	return nil
}

// restShare bounds what the audit takes: after a batch that took t, there is a
// rest of restShare times t.
const restShare = 4

// inTurn works on one batch at a time, when the servers can bear it.
func (p *Patrol) inTurn(ctx context.Context, work func() error) error {
	leave, err := p.options.Pace.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
		return work()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// repairs counts refills: those that were enqueued, and those that are left for
// later.
type repairs struct{ enqueued, deferred int }

// follow does what follows from a report.
func (p *Patrol) follow(ctx context.Context, r Report) (done repairs, err error) {
	p.teller.note(r.Findings)
	p.teller.tell(ctx, false)
	if !p.options.Repair {
		return repairs{}, nil
	}
	// In this order: there may not be room for all. A lag that lasts is mended as
	// well: its task may never come, and a refill does no harm.
	users := r.Users(Error)
	users = append(users, difference(r.Users(Waste), users)...)
	users = append(users, difference(r.waiting(), users)...)
	if len(users) == 0 {
		return repairs{}, nil
	}
	granted := p.budget.take(len(users))
	done.deferred = len(users) - granted
	done.enqueued, err = p.options.Auditor.Repair(ctx, users[:granted])
	refills.WithLabelValues("enqueued").Add(float64(done.enqueued))
	refills.WithLabelValues("deferred").Add(float64(done.deferred))
	return done, err
}

// difference returns those of users who are not among others.
func difference(users, others []member.ID) (left []member.ID) {
	known := make(map[member.ID]bool, len(others))
	for _, id := range others {
		known[id] = true
	}
	for _, id := range users {
		if !known[id] {
			left = append(left, id)
		}
	}
	return left
}

// outage keeps quiet after its first line, and waits longer and longer.
type outage struct {
	log   *slog.Logger
	doing string
	waits time.Duration // 0: there is none
}

const mostOutageWait = 30 * time.Second

func (o *outage) wait(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if o.waits == 0 {
		level := slog.LevelError
		if isAway(err) {
			level = slog.LevelWarn
		}
		o.log.Log(ctx, level, "the audit stands still until it can "+o.doing, "error", err)
	}
	o.waits = min(max(2*o.waits, time.Second), mostOutageWait)
	pause(ctx, o.waits)
}

// isAway tells whether a server is away, and nothing else is wrong.
func isAway(err error) bool {
	return errors.Is(err, mysql.ErrUnavailable) || errors.Is(err, index.ErrUnavailable)
}

func (o *outage) over() { o.waits = 0 }

// pause waits for d or until ctx ends, which the caller looks at.
func pause(ctx context.Context, d time.Duration) { _ = retry.Sleep(ctx, d) }
