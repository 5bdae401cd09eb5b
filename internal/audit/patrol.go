package audit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/once"
)

// Ledger is the state that the processes share; [index.Ledger] is one.
type Ledger interface {
	// BeginSweep returns where the sweep was left, and lets the process with this fence
	// save. begun is false if one with a higher fence has begun.
	BeginSweep(ctx context.Context, fence uint64) (state string, begun bool, err error)
	// SaveSweep keeps where the sweep is. saved is false if another process has begun
	// since, or the data of Redis was lost.
	SaveSweep(ctx context.Context, fence uint64, state string) (saved bool, err error)
}

// PatrolOptions configure a [Patrol]. Auditor is required, and needs a pacer, so that one
// look is under way at a time; Members, EachStored, Ledger, Once, LostAt, LostSince, Build
// and Probes are for the sweep.
type PatrolOptions struct {
	Auditor *Auditor
	Members bulk.Store
	// EachStored calls do with the owners of all sets that are stored, some at a time.
	EachStored func(ctx context.Context, do func(ctx context.Context, owners []member.ID) error) error
	Ledger     Ledger
	// LostAt returns when Redis was last found to have lost data, in unix milliseconds; 0:
	// never. Nil: it never does.
	LostAt func() int64
	// LostSince reports whether the set of a member may have been lost after a time that
	// LostAt returned; 0: ever. It is called for every member, and must not block. Nil: all may.
	LostSince func(user member.ID, at int64) bool
	// Build builds those sets of some members that are missing, after such a loss. Nil: only
	// reads build sets.
	Build bulk.Visit
	// Probes ask the servers something small, for the pace of Build, and to find out
	// whether they can be used; may be empty.
	Probes []bulk.Probe
	// Once has one process at a time sweep, under the name "activityd/audit-sweep".
	Once *once.Once
	// Share of the reads that are checked, 0 to 1.
	Share float64
	// Rate is how many sets the sweep looks at in a second; 0: there is no sweep.
	Rate int
	// Repair says that refills are enqueued for what is found, RepairsPerMinute at most
	// (0: 10,000); the rest is left to later rounds, and to reads.
	Repair           bool
	RepairsPerMinute int
	Log              *slog.Logger // nil: slog.Default()

	// Lease is how long the sweep stands still when the process that sweeps dies; Tick is
	// the interval at which LostAt is looked at; Round is the minimum time of a round of the
	// sweep; Patience is how long Build waits for a node of Redis that is away. 0: a
	// minute, 1 s, 10 s, 30 s.
	Lease, Tick, Round, Patience time.Duration
}

// Patrol audits a service while it runs: some of the reads, and, slowly, all sets. It
// works off the path of requests, pauses longer than it works, and waits while a server
// is away. It is safe for concurrent use.
type Patrol struct {
	options PatrolOptions
	auditor *Auditor
	samples chan member.ID // viewers of sampled reads
	repairs *rate.Limiter
	summary *summary
}

// NewPatrol returns a patrol that begins with [Patrol.Run].
func NewPatrol(o PatrolOptions) *Patrol {
	o.RepairsPerMinute = cmp.Or(o.RepairsPerMinute, 10_000)
	o.Lease = cmp.Or(o.Lease, time.Minute)
	o.Tick = cmp.Or(o.Tick, time.Second)
	o.Round = cmp.Or(o.Round, 10*time.Second)
	o.Patience = cmp.Or(o.Patience, 30*time.Second)
	if o.LostAt == nil {
		o.LostAt = func() int64 { return 0 }
	}
	if o.LostSince == nil {
		o.LostSince = func(member.ID, int64) bool { return true }
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Patrol{
		options: o, auditor: o.Auditor,
		samples: make(chan member.ID, maxSamples),
		repairs: rate.NewLimiter(rate.Limit(o.RepairsPerMinute)/60, o.RepairsPerMinute),
		summary: &summary{log: o.Log, repair: o.Repair, causes: map[Cause]*causeSummary{}},
	}
}

// At most maxSamples reads wait in memory. A batch has up to samplesAtOnce of them, and
// waits for more for up to samplesPause.
const (
	maxSamples    = 256
	samplesAtOnce = 50
	samplesPause  = time.Second
)

// Note notes a read, which may become a sample. It returns at once: a sample for which
// there is no room is dropped.
func (p *Patrol) Note(viewer member.ID) {
	if p.options.Share <= 0 || p.options.Share < 1 && rand.Float64() >= p.options.Share {
		return
	}
	select {
	case p.samples <- viewer:
	default:
		samplesDropped.Inc()
	}
}

// gather waits for a sample and then a little for more. It returns none when ctx ends.
func (p *Patrol) gather(ctx context.Context) []member.ID {
	var batch []member.ID
	var enough <-chan time.Time // begins with the first sample
	for len(batch) < samplesAtOnce {
		select {
		case <-ctx.Done():
			return nil
		case <-enough:
			return batch
		case next := <-p.samples:
			if batch = append(batch, next); enough == nil {
				enough = time.After(samplesPause)
			}
		}
	}
	return batch
}

// Run patrols until ctx ends, which is no error. Call it once.
func (p *Patrol) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.checkReads(ctx) })
	if p.options.Rate > 0 {
		group.Go(func() error { return p.sweep(ctx) })
	}
	group.Go(func() error { return p.watch(ctx) })
	err := group.Wait()
	p.summary.write(context.WithoutCancel(ctx), true)
	return err
}

// restShare bounds what the audit takes: after work that took t, there is a pause of
// restShare times t.
const restShare = 4

// checkReads checks the sets and the answers of sampled viewers.
func (p *Patrol) checkReads(ctx context.Context) error {
	trouble := p.newTrouble("reads")
	for ctx.Err() == nil {
		viewers := p.gather(ctx)
		if len(viewers) == 0 {
			continue
		}
		slices.Sort(viewers)
		_, err := p.walk(ctx, OfRead, bulk.Walk{
			Source: bulk.List(slices.Compact(viewers)), Visit: p.visitRead, Pacer: bulk.NewPacer(bulk.PacerOptions{}),
		}, bulk.Checkpoint{})
		if err != nil {
			trouble.wait(ctx, err)
		} else {
			trouble.over(ctx)
		}
	}
	return nil
}

// visitRead checks the sets and the answers of some viewers.
func (p *Patrol) visitRead(ctx context.Context, viewers []member.ID) (bulk.Counts, []member.ID, error) {
	r, err := p.auditor.Check(ctx, viewers)
	if err != nil {
		return nil, nil, err
	}
	answers, err := p.auditor.CheckAnswers(ctx, viewers)
	if err != nil {
		return nil, nil, err
	}
	countSets(OfRead, r)
	countAnswers(answers)
	r.Add(answers)
	if _, err := p.follow(ctx, r); err != nil {
		return nil, nil, err
	}
	pause(ctx, restShare*r.Looking)
	return nil, nil, nil
}

// noMember is the id of no member: an error for it is one for all ids.
const noMember member.ID = math.MaxUint64

// walk visits members. A member at which a server fails is left out, such as one with so
// many contacts that MySQL gives up counting them. An error that is not due to members
// ends the walk.
func (p *Patrol) walk(ctx context.Context, origin string, w bulk.Walk, from bulk.Checkpoint) (bulk.Checkpoint, error) {
	w.Range, w.Tries = bulk.All, cmp.Or(w.Tries, 1)
	w.Judge = func(err error) bulk.Fault {
		if w.Patience > 0 && bulk.IsNodeAway(err) {
			return bulk.Away
		}
		if ctx.Err() != nil || bulk.Judge(err) == bulk.Away || errors.Is(err, index.ErrSettings) {
			return bulk.Fatal
		}
		_, general := p.auditor.Check(ctx, []member.ID{noMember})
		if general == nil && origin == OfRead {
			_, general = p.auditor.CheckAnswers(ctx, []member.ID{noMember})
		}
		if general != nil {
			return bulk.Fatal
		}
		return bulk.Own
	}
	w.GaveUp = func(id member.ID, err error) {
		p.summary.failed(id, err)
		membersFailed.WithLabelValues(origin).Inc()
	}
	return w.Run(ctx, from)
}

// follow logs what was found, repairs it, and counts the refills.
func (p *Patrol) follow(ctx context.Context, r Report) (bulk.Counts, error) {
	p.summary.note(r)
	p.summary.write(ctx, false)
	if !p.options.Repair {
		return bulk.Counts{}, nil
	}
	// In this order: there may not be tokens for all. A lasting lag is repaired as well:
	// its task may never run, and a refill does no harm.
	members := r.Users(Error, Waste)
	for _, f := range r.Findings {
		if f.Lasting && !slices.Contains(members, f.User) {
			members = append(members, f.User)
		}
	}
	if len(members) == 0 {
		return bulk.Counts{}, nil
	}
	granted := max(0, min(len(members), int(p.repairs.Tokens())))
	if !p.repairs.AllowN(time.Now(), granted) {
		granted = 0
	}
	n, err := p.auditor.Repair(ctx, members[:granted])
	deferred := len(members) - granted
	refills.WithLabelValues("enqueued").Add(float64(n))
	refills.WithLabelValues("deferred").Add(float64(deferred))
	return bulk.Counts{countRepaired: int64(n), countDeferred: int64(deferred)}, err
}

// trouble is work that stands still while it fails.
type trouble struct {
	log      *outage.Log
	failures int // in a row
}

func (p *Patrol) newTrouble(work string) trouble {
	log := outage.Of(p.options.Log.With("work", work), "audit stands still", "audit goes on")
	log.Level = func(err error) slog.Level {
		if bulk.Judge(err) == bulk.Away {
			return slog.LevelWarn
		}
		return slog.LevelError
	}
	return trouble{log: log}
}

// wait logs a failure and waits, longer after each in a row.
func (t *trouble) wait(ctx context.Context, err error) {
	if ctx.Err() == nil {
		t.failures++
		t.log.Report(ctx, time.Now(), err)
		pause(ctx, retry.Backoff(t.failures, time.Second, 40*time.Second))
	}
}

func (t *trouble) over(ctx context.Context) {
	t.failures = 0
	t.log.Report(ctx, time.Now(), nil)
}

// pause waits for d or until ctx ends, which the caller looks at.
func pause(ctx context.Context, d time.Duration) { _ = retry.Sleep(ctx, d) }
