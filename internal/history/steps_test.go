package history_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

var noGrant site.Grant

// act takes a random step.
func (h *history) act() error {
	if h.choose(100) >= 100-h.pace {
		return h.change()
	}
	switch k := h.choose(100 + h.fragile + h.turns + h.lossy); {
	case k < 58:
		return h.resume()
	case k < 74:
		return h.start()
	case k < 84:
		return h.claim()
	case k < 95:
		return h.ask()
	case k < 100:
		return h.hintAtRandom()
	case k < 100+h.fragile:
		return h.crash()
	case k < 100+h.fragile+h.turns:
		h.turnNode()
		return nil
	default:
		return h.loseSome()
	}
}

// calmAct takes a random step that is no change.
func (h *history) calmAct() error {
	if h.broadcasts != nil && h.choose(12) == 11 {
		return h.comesOrGoes()
	}
	switch k := h.choose(100); {
	case k < 50:
		return h.resume()
	case k < 60:
		return h.start()
	case k < 68:
		return h.claim()
	case k < 88:
		return h.ask()
	case k < 92:
		return h.hintAtRandom()
	case k < 94:
		return h.crash()
	default:
		return h.loseSome()
	}
}

// claim takes a few tasks of each queue; now and then, after whatever they waited
// for.
func (h *history) claim() error {
	h.claims++
	if h.claims%8 == 0 {
		h.now = h.now.Add(time.Hour)
		if _, err := h.queue.Extend(h.ctx, h.firm, queue.MaxLease); err != nil {
			return err
		}
	}
	if _, err := h.queue.Sweep(h.ctx); err != nil {
		return err
	}
	for _, name := range []string{tasks.QueueDefault, tasks.QueueFanOut, tasks.QueueFanOutAgain, tasks.QueueRefill} {
		lease := queue.MaxLease
		if h.choose(6) == 5 {
			lease = time.Minute // it runs out: the tasks are given to a second handler
		}
		most := 1 + h.choose(4)
		list, err := h.queue.Claim(h.ctx, name, most, lease)
		if err != nil {
			return err
		}
		if err := h.spare(list); err != nil {
			return err
		}
		if h.held = append(h.held, list...); lease == queue.MaxLease {
			h.firm = append(h.firm, list...)
		}
	}
	return nil
}

// mostLost is how often a task may lose its lease. A queue rightly buries a task after 25 losses.
const mostLost = 10

// spare prolongs the leases of tasks that lost theirs often enough.
func (h *history) spare(list []queue.Task) error {
	often := slices.DeleteFunc(slices.Clone(list), func(t queue.Task) bool { return t.Attempts < mostLost })
	h.firm = append(h.firm, often...)
	_, err := h.queue.Extend(h.ctx, often, queue.MaxLease)
	return err
}

// Limits of simultaneous actors.
const (
	mostHandlers = 6
	mostReads    = 4
)

// groupOf returns the group of a kind: the kinds whose tasks a pool gives to a handler together.
func groupOf(kind string) string {
	for _, k := range tasks.Kinds() {
		if k.Name == kind && k.Group != "" {
			return k.Group
		}
	}
	return kind
}

// start gives some of the held tasks to their handler. As in the pool, all tasks of a batch come from the
// same claim.
func (h *history) start() error {
	if len(h.held) == 0 || h.handlersAwake() >= mostHandlers {
		return nil
	}
	first := h.held[h.choose(len(h.held))]
	handler, group := h.handlers[first.Kind], groupOf(first.Kind)
	var batch, rest []queue.Task
	for _, t := range h.held {
		if groupOf(t.Kind) == group && t.Lease == first.Lease && h.choose(4) < 3 && (!deletesRow(t) || !h.reading()) {
			batch = append(batch, t)
		} else {
			rest = append(rest, t)
		}
	}
	if len(batch) == 0 {
		return nil
	}
	h.held = rest
	h.counted.handled++
	if h.log != nil {
		h.logf("%s: begins", describe(batch))
	}
	a := &actor{batch: batch, drowsy: h.choose(h.drowsy) == h.drowsy-1}
	h.begin(a, func(ctx context.Context) { a.outcomes = handler.Handle(ctx, batch) })
	return h.reap()
}

// ask begins a read.
func (h *history) ask() error {
	reads := 0
	for _, a := range h.actors {
		if a.request != nil {
			reads++
		}
	}
	if reads >= mostReads {
		return nil
	}
	var fault error
	if k := h.choose(30); k >= 30-len(faults) {
		fault = faults[k-(30-len(faults))]
	}
	r := h.newRequest(h.someViewer(), 1+h.choose(2), fault)
	reader := h.reader()
	h.logf("a read of %s begins, limit %d, fault of Redis: %v", r.viewer, r.limit, fault)
	a := &actor{request: r}
	h.begin(a, func(ctx context.Context) { r.read(ctx, reader) })
	return h.reap()
}

func (h *history) reader() *recent.Reader {
	if h.readers == nil {
		return h.newReader()
	}
	return h.readers[h.choose(len(h.readers))]
}

func (h *history) begin(a *actor, work func(ctx context.Context)) {
	if h.readers == nil {
		a.moved = make(chan struct{}, 1)
	}
	h.actors = append(h.actors, a)
	a.start(h.ctx, h.settle, work)
}

// resume lets an actor go on to its next call. A sleeping actor stands still until all actors sleep: its
// reads are then as old as they can be, and no actor is left to mend its writes.
func (h *history) resume() error {
	awake := h.awake()
	if len(awake) == 0 {
		return nil
	}
	a := awake[h.choose(len(awake))]
	if h.log != nil {
		h.logf("%s: goes on, %s", a.name(), a.at)
	}
	a.step(h.settle, nil)
	return h.reap()
}

// awake returns the actors that can go on.
func (h *history) awake() []*actor {
	var awake []*actor
	for _, a := range h.actors {
		if a.standing && !a.asleep() {
			awake = append(awake, a)
		}
	}
	return awake
}

func (h *history) handlersAwake() (n int) {
	for _, a := range h.actors {
		if a.request == nil && !a.asleep() {
			n++
		}
	}
	return n
}

// wake wakes a handler for good.
func (h *history) wake() {
	if len(h.actors) > 0 {
		a := h.actors[h.choose(len(h.actors))]
		h.logf("%s: wakes up", a.name())
		a.drowsy = false
	}
}

// crash ends an actor where it stands; all its tasks come back.
func (h *history) crash() error {
	standing := slices.DeleteFunc(slices.Clone(h.actors), func(a *actor) bool { return !a.standing })
	if len(standing) == 0 {
		return nil
	}
	h.counted.crashes++
	a := standing[h.choose(len(standing))]
	h.logf("%s: crashes %s", a.name(), a.at)
	a.crashed = true
	for a.standing {
		a.step(h.settle, errCrashed)
	}
	return h.reap()
}

// reap judges the results of the actors that have ended.
func (h *history) reap() error {
	for _, a := range h.forgetEnded() {
		err := a.panicked
		switch {
		case err != nil:
		case a.request != nil:
			err = h.responded(a)
		default:
			err = h.finish(a)
		}
		if err != nil {
			return err
		}
	}
	return h.violated
}

func (h *history) forgetEnded() (ended []*actor) {
	h.actors = slices.DeleteFunc(h.actors, func(a *actor) bool {
		if a.ended {
			ended = append(ended, a)
		}
		return a.ended
	})
	return ended
}

// responded judges the response of a read, unless the read crashed.
func (h *history) responded(a *actor) error {
	r := a.request
	h.logf("%s: is shown %v, error %v", a.name(), r.got.Photos, r.err)
	if isCrash(r.err) {
		h.requests = slices.DeleteFunc(h.requests, func(other *request) bool { return other == r })
		return nil
	}
	return h.done(r)
}

// finish records the results of a handler that has returned.
func (h *history) finish(a *actor) error {
	if a.crashed && h.careless {
		a.outcomes = make([]queue.Outcome, len(a.batch))
	}
	results := make([]queue.Result, len(a.batch))
	for i, t := range a.batch {
		if h.forgetsPages {
			a.outcomes[i].Next = slices.DeleteFunc(a.outcomes[i].Next, func(n queue.New) bool { return n.Kind == tasks.FanOutAgain })
		}
		results[i] = queue.Result{Task: t, Err: a.outcomes[i].Err, Next: a.outcomes[i].Next}
		if errors.Is(a.outcomes[i].Err, index.ErrUnavailable) { // as the pool does
			results[i].Err = queue.Later(time.Second, a.outcomes[i].Err)
		}
		if a.crashed && !h.careless {
			results[i] = queue.Result{Task: t, Err: queue.Later(0, errCrashed)}
		}
	}
	lost, err := h.queue.Finish(h.ctx, results)
	h.counted.doubled += lost
	if h.log != nil {
		h.logf("%s: ends, errors %v, leases lost: %d", a.name(), queuetest.Errors(a.outcomes), lost)
	}
	return err
}

// hasBegun reports whether a task with that key is in the hands of a handler.
func (h *history) hasBegun(key string) bool {
	is := func(t queue.Task) bool {
		args, err := tasks.ArgsOf[tasks.ContactArgs](t)
		return err == nil && (key == tasks.NewAddContact(member.ID(t.Key), args.Contact).DedupeKey || key == fmt.Sprintf("%s:%d", t.Kind, t.Key))
	}
	return slices.ContainsFunc(h.actors, func(a *actor) bool { return slices.ContainsFunc(a.batch, is) })
}

// loseSome expires the guard or the set of a viewer; rarely, Redis loses all.
func (h *history) loseSome() error {
	viewer := h.someViewer()
	h.counted.lost++
	switch k := h.choose(20); {
	case k < 8:
		h.logf("the guard of %s expires", viewer)
		h.watched.lost(viewer)
		return h.backend.forgetGuard(h.ctx, viewer)
	case k < 19:
		h.logf("the set of %s expires", viewer)
		h.watched.lost(viewer)
		return h.backend.forgetSet(h.ctx, viewer)
	default:
		h.logf("Redis loses everything")
		h.watched.lost(h.everybody()...)
		return h.backend.forgetAll(h.ctx)
	}
}

// name names an actor for the log.
func (a *actor) name() string {
	if a.request != nil {
		return "the read of " + a.request.viewer.String()
	}
	return describe(a.batch)
}

func describe(batch []queue.Task) string {
	var names []string
	for _, t := range batch {
		var contact member.ID
		if args, err := tasks.ArgsOf[tasks.ContactArgs](t); err == nil {
			contact = args.Contact
		}
		name := fmt.Sprintf("%d %s of %d", t.ID, t.Kind, t.Key)
		if contact > 0 {
			name += " and " + contact.String()
		}
		names = append(names, name)
	}
	return "task " + strings.Join(names, ", ")
}
