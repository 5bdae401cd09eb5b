package history_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// move is a step of an order: an event happens, or is delivered.
type move struct {
	event   int
	deliver bool
}

// fault is the fault of a run, if any.
type fault struct {
	kind faultKind
	job  int // the number of the job that it strikes
	stop int // the number of the stop in the job
}

type faultKind int

const (
	noFault      faultKind = iota
	crashOnce              // the process crashes; the task comes again at once
	crashAndLast           // the process crashes; the task comes again after all others
	standStill             // the job stands still until all other jobs have ended, and goes on
	loseLease              // likewise, and its task is given to another handler meanwhile
)

func (k faultKind) String() string {
	return []string{"none", "crash", "crash, again last", "standstill", "standstill beyond its lease"}[k]
}

// run is an order of the events of a script, played with at most one fault.
type run struct {
	*stage
	script script
	fault  fault

	arrived map[int][]queue.Task // the tasks of an event, for its delivery
	late    []queue.Task         // tasks that come again last
	still   *actor               // who stands still
	ends    func() error         // called when it has ended
	jobs    int
	hit     bool // the fault struck
}

// play plays an order. It returns the number of jobs, and whether the fault struck.
func (sc script) play(ctx context.Context, open opener, order []move, f fault, log func(string, ...any)) (jobs int, hit bool, err error) {
	settings, err := index.NewSettings(sc.settings[0], sc.settings[1], sc.settings[2])
	if err != nil {
		return 0, false, err
	}
	s, err := newStage(ctx, setting{settings: settings, activeOnly: sc.active, viewers: 2, members: 3, open: open})
	if err != nil {
		return 0, false, err
	}
	s.log = log
	r := &run{stage: s, script: sc, fault: f, arrived: map[int][]queue.Task{}}
	if err := sc.before(s); err != nil {
		return 0, false, err
	}
	s.site.Emit = s.emit
	err = r.playAll(order)
	if r.still != nil && !r.still.ended {
		for !r.still.ended {
			r.still.step(settleAlone, errCrashed)
		}
	}
	return r.jobs, r.hit, err
}

func (r *run) playAll(order []move) error {
	for _, m := range order {
		if err := r.move(m); err != nil {
			return err
		}
	}
	if err := r.end(); err != nil {
		return err
	}
	var checks []func(index.Set) error
	if r.fault.kind < standStill && !r.script.tooHigh {
		checks = append(checks, r.world.checkScores)
	}
	if err := r.judge(checks...); err != nil {
		return err
	}
	r.calm = true
	for _, viewer := range r.viewers {
		q := r.newRequest(viewer, 2, nil)
		q.read(r.ctx, r.newReader())
		if err := r.done(q); err != nil {
			return err
		}
	}
	return r.violated
}

func (r *run) move(m move) error {
	e := r.script.events[m.event]
	switch {
	case !m.deliver:
		if err := e.do(r.stage); err != nil {
			return err
		}
		var err error
		r.arrived[m.event], err = r.claimAll()
		return err
	case e.reads > 0:
		return r.read(e)
	}
	return r.handleAll(r.arrived[m.event])
}

// claimAll takes all tasks that wait.
func (r *run) claimAll() (all []queue.Task, err error) {
	lease := queue.MaxLease
	if r.fault.kind == loseLease {
		lease = time.Minute // only a task that stands still takes as long: see rest
	}
	for _, name := range []string{tasks.QueueDefault, tasks.QueueFanOut, tasks.QueueFanOutAgain, tasks.QueueRefill} {
		list, err := r.queue.Claim(r.ctx, name, 100, lease)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// handleAll handles each task in turn, with all tasks that follow from it.
func (r *run) handleAll(list []queue.Task) error {
	for _, t := range list {
		if err := r.handle(t); err != nil {
			return err
		}
		next, err := r.claimAll()
		if err != nil {
			return err
		}
		if err := r.handleAll(next); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) handle(t queue.Task) error {
	a := &actor{batch: []queue.Task{t}}
	work := func(ctx context.Context) { a.outcomes = r.handlers[t.Kind].Handle(ctx, a.batch) }
	return r.job(a, work, func() error {
		switch {
		case a.crashed && r.fault.kind == crashAndLast:
			r.late = append(r.late, t)
			return nil
		case a.crashed:
			a.outcomes[0] = queue.Outcome{Err: queue.Later(0, errCrashed)}
		}
		_, err := r.queue.Finish(r.ctx, []queue.Result{{Task: t, Err: a.outcomes[0].Err, Next: a.outcomes[0].Next}})
		return err
	})
}

func (r *run) read(e event) error {
	q := r.newRequest(e.reads, 2, nil)
	a := &actor{request: q}
	reader := r.newReader()
	return r.job(a, func(ctx context.Context) { q.read(ctx, reader) }, func() error {
		if isCrash(q.err) {
			r.requests = nil
			return nil
		}
		return r.done(q)
	})
}

// job runs a piece of work. It runs the job of the fault step by step.
func (r *run) job(a *actor, work func(ctx context.Context), ends func() error) error {
	r.jobs++
	if r.log != nil {
		r.logf("%s", a.name())
	}
	if r.fault.kind == noFault || r.jobs != r.fault.job {
		work(r.ctx)
		return ends()
	}
	a.moved = make(chan struct{}, 1)
	a.start(r.ctx, settleAlone, work)
	for stop := 0; stop < r.fault.stop && !a.ended; stop++ {
		a.step(settleAlone, nil)
	}
	if a.ended {
		return ends()
	}
	r.hit = true
	r.logf("%s: %s %s", a.name(), r.fault.kind, a.at)
	if r.fault.kind >= standStill {
		r.still, r.ends = a, ends
		return nil
	}
	a.crashed = true
	for !a.ended {
		a.step(settleAlone, errCrashed)
	}
	return ends()
}

// end brings everything to rest: first the tasks that come again, then the actor that stood still.
func (r *run) end() error {
	if err := r.handleAll(r.late); err != nil {
		return err
	}
	if err := r.rest(); err != nil {
		return err
	}
	if r.still != nil {
		r.logf("%s: goes on", r.still.name())
		for !r.still.ended {
			r.still.step(settleAlone, nil)
		}
		if err := r.ends(); err != nil {
			return err
		}
	}
	if err := r.rest(); err != nil {
		return err
	}
	counts, err := queuetest.Count(r.ctx, r.queue)
	if err == nil && counts.Open()+counts.Dead > 0 {
		err = violation("the tasks never came to an end: %+v", counts)
	}
	return err
}

// mostRounds bounds how often a task may be postponed: an upload is, while a
// fan-out of its uploader stands still.
const mostRounds = 3

func (r *run) rest() error {
	for range mostRounds {
		r.now = r.now.Add(time.Hour)
		if _, err := r.queue.Sweep(r.ctx); err != nil {
			return err
		}
		list, err := r.claimAll()
		if err != nil || len(list) == 0 {
			return err
		}
		if err := r.handleAll(list); err != nil {
			return err
		}
	}
	return nil
}

// tryAll plays an order without a fault, and then with each fault at each stop of
// each job.
func (sc script) tryAll(ctx context.Context, open opener, order []move) (runs int, err error) {
	jobs, _, err := sc.play(ctx, open, order, fault{}, nil)
	runs++
	if err != nil {
		return runs, sc.tell(ctx, open, order, fault{}, err)
	}
	for job := 1; job <= jobs; job++ {
		for stop, more := 0, true; more; stop = nextStop(stop) {
			for kind := crashOnce; kind <= loseLease && more; kind++ {
				f := fault{kind, job, stop}
				_, more, err = sc.play(ctx, open, order, f, nil)
				runs++
				if err != nil {
					return runs, sc.tell(ctx, open, order, f, err)
				}
			}
		}
	}
	return runs, nil
}

// nextStop skips every second stop. The stops are before the first call (0), after it, before the second
// call, and so on. Nothing happens between the end of a call and the beginning of the next, so that a single
// stop stands for both.
func nextStop(stop int) int {
	if stop == 0 {
		return 1
	}
	return stop + 2
}

// tell adds the story of the run to an error.
func (sc script) tell(ctx context.Context, open opener, order []move, f fault, err error) error {
	var story strings.Builder
	_, _, again := sc.play(ctx, open, order, f, func(format string, args ...any) { fmt.Fprintf(&story, "  "+format+"\n", args...) })
	if !errors.Is(again, errViolated) {
		err = errors.Join(err, again, errors.New("and not so the second time"))
	}
	return fmt.Errorf("%w: script %q, order %v, %s at stop %d of job %d:\n%s", err, sc.name, order, f.kind, f.stop, f.job, &story)
}
