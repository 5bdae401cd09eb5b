package bulk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/once"
)

// Store is what work on all members asks of MySQL.
type Store interface {
	Source
	Existing(ctx context.Context, members []member.ID) (map[member.ID]bool, error)
	CountMembers(ctx context.Context, first, last member.ID) (int64, error)
}

// Generations is where a [Job] reads the generation of Redis' data; [index.Index] is one.
type Generations interface {
	Generation(ctx context.Context, before index.Generation) (index.Generation, error)
}

// Reporter shows the progress of a [Job]. Its methods may be called concurrently.
type Reporter interface {
	// Begin is called when the walk begins. total is the number of members that are left; -1:
	// it is not known. after is the member behind which the walk begins, and written when the
	// file that says so was written; zero: there is none.
	Begin(total int64, after member.ID, written time.Time)
	// Moved is called with the number of members that were done.
	Moved(n int)
	// Trouble is called with each error that is waited out.
	Trouble(err error)
	// Paced is called as [PacerOptions].Changed is.
	Paced(p Pace)
	// Lost is called with [ErrPartlyLost] when sets of some nodes were lost; the job goes on.
	Lost(err error)
	// GaveUp is called with each member that is given up.
	GaveUp(id member.ID, err error)
}

// Job is a walk with all that a command needs: it waits for the servers, counts the
// members, keeps to the pace and to the rate, keeps its checkpoint in a file, and ends
// when Redis loses its data. Where only some nodes of a cluster do, it goes on: with many
// nodes, one that fails over would end each job of hours. The end is an error then.
type Job struct {
	Work  Work
	Range Range
	File  string    // for the checkpoint; empty: none
	After member.ID // go on after this member
	// Parallel is the maximum of batches at once, Rate that of members a second; 0: none.
	Parallel, Rate int
	Full           bool // as in [PacerOptions]

	Store       Store
	Generations Generations
	// Writes says that the job changes Redis. It then waits until all nodes were probed, so
	// that no loss of what it did is missed.
	Writes bool
	// Watch, if not nil, runs while the job does: [index.Index.Watch], which looks at the
	// data. It begins when the generation was compared with that of the file, whose marks
	// it may raise.
	Watch func(ctx context.Context)
	// Once refuses a job that writes while another process is at the same command and
	// range. Nothing but effort depends on it. Lease is how long the name of a process
	// that died is held; 0: [once.DefaultLease].
	Once  *once.Once
	Lease time.Duration
	// Schema and Settings check whether the tables and the sets can be worked on. Both
	// are repeated while a server is away.
	Schema, Settings func(ctx context.Context) error
	Visit            Visit
	// Orphans, if not nil, returns ids that are no members, in ascending order. It is
	// called after all members were visited, and VisitOrphans then visits the ids.
	Orphans      func(ctx context.Context, p *Pacer) ([]member.ID, error)
	VisitOrphans Visit
	Reporter     Reporter
}

// Result is how far a [Job] came, in all its runs, and how long it took.
type Result struct {
	Checkpoint
	Took time.Duration
}

// Errors that end a [Job].
var (
	// ErrLost: what was done is gone.
	ErrLost = errors.New("sets were lost while this ran, because Redis was emptied or came back with data that may be old: run it again")
	// ErrPartlyLost: all is done, but what was done for some members is gone.
	ErrPartlyLost = errors.New("sets of a node of Redis were lost while this ran, because it was emptied or came back with data that may be old: " +
		"the sweep of serve builds them again, or run it again")
	// errUnsettled: some nodes were not probed yet, so their losses would not show.
	errUnsettled = fmt.Errorf("%w: its data were not looked at yet", index.ErrUnavailable)
	// ErrNoMember: the range names one member, which does not exist.
	ErrNoMember = errors.New("no such member")
)

// batchSize amortizes round trips, and takes a second or so.
const batchSize = 128

// Batch is the maximum size of a batch, smaller for a small rate.
func (j Job) Batch() int {
	if j.Rate > 0 {
		return min(batchSize, max(1, j.Rate/4))
	}
	return batchSize
}

// Limits of a visit.
const (
	visitTimeout = 2 * time.Minute
	visitGrace   = 10 * time.Second
)

// job is a [Job] under way.
type job struct {
	Job

	file  *file
	pacer *Pacer
	end   context.CancelCauseFunc // ends the work, with its error

	running  context.Context // ends with the work
	watch    sync.Once
	watchers sync.WaitGroup

	begun      bool // members are visited, or were
	mu         sync.Mutex
	generation index.Generation // as it was read last
	watching   bool
}

// Run does the work. With an error, the result is what was done; it has no counts if
// nothing was begun. With [ErrStopped] or another error that leaves the checkpoint
// valid, the same job continues there.
func (j Job) Run(ctx context.Context) (_ Result, err error) {
	f, err := openFile(j.File, j.Work)
	if err != nil {
		return Result{}, fmt.Errorf("--resume: %w", err)
	}
	defer func() { err = errors.Join(err, f.unlock()) }()
	from := Checkpoint{max(f.found.Position, j.After), f.found.Counts}
	running, end := context.WithCancelCause(ctx)
	r := &job{Job: j, file: f, end: end, running: running, generation: f.found.Generation}
	defer r.watchers.Wait()
	defer end(nil)
	// The schema comes first: the errors of others would say less about it.
	if err := r.patiently(running, r.Schema); err != nil {
		return Result{}, err
	}
	at, err := r.watched(running, from)
	if errors.Is(err, ErrStopped) && ctx.Err() == nil {
		err = context.Cause(running)
	}
	switch {
	case at.Counts == nil: // nothing was begun
		return Result{}, err
	case err == nil, errors.Is(err, ErrLost), errors.Is(err, ErrPartlyLost): // to continue would leave a part out
		err = errors.Join(err, f.remove())
	default:
		err = errors.Join(err, f.write(at, r.generation))
	}
	return Result{at, f.elapsed()}, err
}

// watched walks while the pacer watches the servers.
func (j *job) watched(ctx context.Context, from Checkpoint) (at Checkpoint, err error) {
	j.pacer = NewPacer(PacerOptions{
		Parallel: j.Parallel, Rate: j.Rate, Full: j.Full, Changed: j.Reporter.Paced,
		Probes: []Probe{
			j.ending(Probe{Name: "MySQL", Ask: ProbeMySQL(j.Store)}),
			j.ending(Probe{Name: "Redis", Ask: j.look, Floor: RedisFloor}),
		},
	})
	watching, stop := context.WithCancel(ctx)
	var pacing sync.WaitGroup
	pacing.Go(func() { j.pacer.Run(watching) })
	defer pacing.Wait()
	defer stop()
	if j.Writes {
		return j.alone(ctx, from)
	}
	return j.walk(ctx, from)
}

// alone walks while no other process is at the same command and range. When the lease was
// lost, as in an outage of MySQL, it is acquired again, and the walk goes on where it was.
func (j *job) alone(ctx context.Context, from Checkpoint) (at Checkpoint, err error) {
	key := once.Key{Name: j.name(), Lease: cmp.Or(j.Lease, once.DefaultLease), NoWait: true}
	key.Margin = min(visitGrace, key.Lease/2)
	at = from
	var walked error
	own := ownLease{length: key.Lease}
	err = patiently(ctx, own.judge, j.Reporter.Trouble, func(ctx context.Context) error {
		walked = ErrStopped
		err := j.Once.Hold(ctx, key, func(ctx context.Context, _ once.Attempt) error {
			var reached Checkpoint
			if reached, walked = j.walk(ctx, at); j.begun {
				at = reached
			}
			return nil
		})
		if walked == nil { // whatever became of the lease at the end
			return nil
		}
		return err
	})
	if errors.Is(err, once.ErrBusy) {
		err = fmt.Errorf("%s is under way already, here or on another host: %w; wait for it, or stop it: if it has died, its name is free within %v",
			j.Work, err, key.Lease)
	}
	if err == nil {
		err = walked
	}
	if !j.begun {
		at = Checkpoint{}
	}
	return at, err
}

// ownLease distinguishes two reasons for which a name is busy: another process holds it, or
// this process holds it by a lease that it has lost. The second lasts until that lease has
// ended, because each acquisition has an owner of its own.
type ownLease struct {
	length time.Duration
	lost   bool      // there may be such a lease
	until  time.Time // it has ended then; zero: the name was not found busy yet
}

// judge returns what an error of [once.Once.Hold] means.
func (l *ownLease) judge(err error) Fault {
	switch {
	case errors.Is(err, once.ErrLost), errors.Is(err, once.ErrUnavailable):
		// Also an acquisition may have been granted without an answer.
		l.lost, l.until = true, time.Time{}
		return Away
	case !errors.Is(err, once.ErrBusy):
		return Judge(err)
	case !l.lost:
		return Fatal
	case l.until.IsZero(): // the store answers again, and the lease was not extended since
		l.until = time.Now().Add(l.length)
	}
	if time.Now().Before(l.until) {
		return Away
	}
	return Fatal
}

// name is the name that a process holds while it is at this command and range.
func (j *job) name() string {
	if j.Range == All {
		return "activityd/" + j.Work.Command + "/all"
	}
	return fmt.Sprintf("activityd/%s/%s-%s", j.Work.Command, j.Range.First, j.Range.Last)
}

// walk walks on from a checkpoint. What comes before the first member is done by the first
// call.
func (j *job) walk(ctx context.Context, from Checkpoint) (at Checkpoint, err error) {
	if !j.begun {
		looked := false // waiting for the first probe is not reported
		trouble := func(err error) {
			if looked || !errors.Is(err, errUnsettled) {
				j.Reporter.Trouble(err)
			}
			looked = true
		}
		if err := patiently(ctx, Judge, trouble, func(ctx context.Context) error { return j.begin(ctx, from) }); err != nil {
			return Checkpoint{}, err
		}
		total, err := j.count(ctx, from)
		if err != nil {
			return Checkpoint{}, err
		}
		j.Reporter.Begin(total, j.file.found.Position, j.file.found.Updated)
		j.begun = true
	}
	walk := Walk{
		Range: j.Range, Source: j.Store, Pacer: j.pacer, Visit: j.Visit, Judge: Judge,
		Batch: j.Batch(), Timeout: visitTimeout, Grace: visitGrace, Saved: j.saved, Trouble: j.Reporter.Trouble, GaveUp: j.Reporter.GaveUp,
	}
	at, err = walk.Run(ctx, from)
	if err == nil && j.Orphans != nil {
		var more Counts
		more, err = j.visitOrphans(ctx, walk)
		at.Counts.Add(more)
	}
	if err == nil {
		err = j.patiently(ctx, j.conclude)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil && j.file.partlyLost {
		err = ErrPartlyLost
	}
	return at, err
}

// visitOrphans returns no counts with an error: the next run of the job visits all
// orphans.
func (j *job) visitOrphans(ctx context.Context, walk Walk) (Counts, error) {
	var orphans List
	err := j.patiently(ctx, func(ctx context.Context) (err error) {
		orphans, err = j.Orphans(ctx, j.pacer)
		return err
	})
	if err != nil {
		return nil, err
	}
	walk.Source, walk.Visit = orphans, j.VisitOrphans
	walk.Saved = func(int, Checkpoint) error { return nil }
	at, err := walk.Run(ctx, Checkpoint{})
	if err != nil {
		return nil, err
	}
	return at.Counts, nil
}

// ProbeMySQL returns a probe that reads at most one row.
func ProbeMySQL(s Store) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.Existing(ctx, []member.ID{1})
		return err
	}
}

// ending makes a probe end the work at an error that no waiting helps: the pacer lets
// no batch in while a server does not answer, so that no visit would meet it.
func (j *job) ending(p Probe) Probe {
	ask := p.Ask
	p.Ask = func(ctx context.Context) error {
		err := ask(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) && Judge(err) == Fatal {
			j.end(Refused(p.Name, err))
		}
		return err
	}
	return p
}

// Refused says that a server refuses, of an error that no waiting helps.
func Refused(server string, err error) error {
	if err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrPartlyLost) || Judge(err) != Fatal {
		return err
	}
	return fmt.Errorf("%s refuses: %w", server, err)
}

// begin checks that the sets can be worked on, and begins to watch their generation.
// It refuses to continue with sets that were lost since the file was written, unless only
// some nodes of a cluster lost theirs.
func (j *job) begin(ctx context.Context, from Checkpoint) error {
	if err := j.Settings(ctx); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	now, err := j.Generations.Generation(ctx, j.generation)
	switch {
	case err != nil:
		return err
	case from.Position > 0 && !j.noteLoss(now):
		return fmt.Errorf("--resume: sets were lost since %s was written: delete it to start over", j.File)
	}
	if j.Watch != nil {
		j.watch.Do(func() { j.watchers.Go(func() { j.Watch(j.running) }) })
	}
	if j.Writes && !now.Settled() {
		return errUnsettled
	}
	j.generation, j.watching = now, true
	return nil
}

// look reads the generation. It returns [ErrLost] when data was lost since the last
// call, and another error when no node of Redis answered.
func (j *job) look(ctx context.Context) error {
	j.mu.Lock() // for the whole call, so that answers are compared in their order
	defer j.mu.Unlock()
	now, err := j.Generations.Generation(ctx, j.generation)
	switch {
	case err != nil || !j.watching:
		return err
	case !j.noteLoss(now):
		return ErrLost
	}
	j.generation = now
	return nil
}

// noteLoss notes whether sets of some nodes of a cluster were lost since the last call. It
// returns false if all were. The caller holds mu.
func (j *job) noteLoss(now index.Generation) (goOn bool) {
	before, lost := j.generation, 0
	for i := range now.Lost {
		one := func(g index.Generation) (of index.Generation) {
			if i < len(g.Lost) {
				of.Lost = g.Lost[i : i+1]
			}
			if i < len(g.Marks) {
				of.Marks = g.Marks[i : i+1]
			}
			return of
		}
		if one(now).Rewound(one(before)) {
			lost++
		}
	}
	if lost > 0 && lost < len(now.Lost) {
		j.file.partlyLost = true
		j.Reporter.Lost(ErrPartlyLost)
	}
	return lost == 0 || lost < len(now.Lost)
}

// conclude finds out whether data was lost, with the answers of all nodes.
func (j *job) conclude(ctx context.Context) error {
	if err := j.Settings(ctx); err != nil {
		return err
	}
	return j.look(ctx)
}

// count returns how many members are still to be visited; -1 when MySQL cannot count
// them in time.
func (j *job) count(ctx context.Context, from Checkpoint) (total int64, err error) {
	first := max(j.Range.First, from.Position+1)
	if first > from.Position { // else it ran over, and there are none
		err = j.patiently(ctx, func(ctx context.Context) error {
			total, err = j.Store.CountMembers(ctx, first, j.Range.Last)
			if mysql.IsTooSlow(err) {
				total, err = -1, nil
			}
			return err
		})
	}
	if err == nil && total == 0 && j.Range.First == j.Range.Last && from.Position < j.Range.First {
		err = fmt.Errorf("%s: %w", j.Range, ErrNoMember)
	}
	return total, err
}

// saved keeps a checkpoint in the file.
func (j *job) saved(n int, at Checkpoint) error {
	j.Reporter.Moved(n)
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file.save(at, j.generation)
}

// patiently repeats do until it succeeds or fails for good. It has no timeout: the pacer
// reports a server that hangs, and a signal ends it.
func (j *job) patiently(ctx context.Context, do func(context.Context) error) error {
	return patiently(ctx, Judge, j.Reporter.Trouble, do)
}
