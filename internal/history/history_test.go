package history_test

import (
	"context"
	"testing/synctest"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// history is a random history: changes, tasks run in any order, some twice, handlers stopped between any two
// of their calls, crashes, expiries, a lost Redis, and reads in between.
type history struct {
	*stage
	*chance
	mood
	outages

	settle  func(*actor)     // waits until it stands still, or for another
	readers []*recent.Reader // of the processes; none: each read has its own
	claims  int
	held    []queue.Task // claimed, and not yet given to a handler
	firm    []queue.Task // whose leases are kept, whatever time passes
	actors  []*actor
}

// mood makes some steps frequent for a while. A history breaks a rule when certain steps meet, and in an even
// mixture few steps meet.
type mood struct {
	pace      int           // changes in a hundred acts: when few, the tasks keep up
	drowsy    int           // a handler falls asleep with probability 1/drowsy
	fragile   int           // crashes for a hundred remaining acts
	toggles   int           // contacts added or removed in a hundred changes
	backdated int           // uploads in eight with a date from the past
	secretive int           // photos in eight that are made private, besides the share of someVisibility
	fickle    int           // members who come or go for a hundred remaining changes
	lossy     int           // losses for a hundred remaining acts
	turns     int           // failures and returns of a node for a hundred remaining acts
	hot       contacts.Pair // whom most of the changes are about
}

// player plays histories on a kind of backend.
type player struct {
	open       opener
	alter      func(*stage) // breaks a rule
	activeOnly *bool        // nil: by chance
	outages    bool         // single users fail, and nodes are out for a while
	broadcasts bool         // members become broadcast members, and cease to be
	bubble     bool         // the caller runs in a bubble of package synctest, where the scheduler can wait for actors that wait for each other
}

// play plays a history, and logs its steps if log is not nil.
func (p player) play(ctx context.Context, c *chance, log func(string, ...any)) (tally, error) {
	h := &history{chance: c, settle: settleAlone}
	err := p.prepare(ctx, h, log)
	if err == nil {
		err = h.run()
	}
	if h.stage == nil {
		return tally{}, err
	}
	return h.counted, err
}

func (p player) prepare(ctx context.Context, h *history, log func(string, ...any)) error {
	o := setting{open: p.open, alter: p.alter}
	if p.broadcasts {
		o.broadcasts = &broadcasts{asked: make(map[member.ID]bool)}
	}
	o.activeOnly = h.choose(2) == 1
	if p.activeOnly != nil {
		o.activeOnly = *p.activeOnly
	}
	shape := [][3]int{{3, 20, 0}, {2, 20, 0}, {1, 20, 0}, {3, 20, 2}, {2, 0, 0}}[h.choose(5)]
	var err error
	if o.settings, err = index.NewSettings(shape[0], shape[1], shape[2]); err != nil {
		return err
	}
	o.viewers, o.members = 1+h.choose(3), o.settings.Max+1+h.choose(6)
	if h.stage, err = newStage(ctx, o); err != nil {
		return err
	}
	h.log, h.running = log, h.hasBegun
	if p.outages {
		h.fails = h.fail
	}
	h.private = []privateUploads{neverCount, neverCount, sometimesCount, alwaysCount}[h.choose(4)]
	h.logf("a set holds %d at most, is refilled below %d; sets of active members only: %v", o.settings.Max, o.settings.Min, o.activeOnly)
	if p.bubble {
		h.settle = func(*actor) { synctest.Wait() }
		h.readers = []*recent.Reader{h.newReader(), h.newReader()}
	}
	return h.populate()
}

// populate gives most viewers most members as contacts, most of whom uploaded, and
// lets some of the sets exist from the start.
func (h *history) populate() error {
	for _, contact := range h.members {
		if h.choose(4) < 3 {
			if err := h.uploadOf(contact); err != nil {
				return err
			}
		}
		for _, viewer := range h.viewers {
			if h.choose(4) < 3 {
				if err := h.call(viewer, contact, noGrant); err != nil {
					return err
				}
			}
		}
	}
	h.site.Emit = h.emit
	for _, viewer := range h.viewers {
		if h.choose(4) < 3 {
			if err := h.fill(viewer); err != nil {
				return err
			}
		}
	}
	return nil
}

// The most acts of a phase.
const (
	mostActs = 120
	mostCalm = 30
)

// run runs the history. At the end of each phase it comes to rest and is judged;
// then there are reads and losses without changes, and it is judged again.
func (h *history) run() error {
	defer h.endActors()
	for h.nextPhase() {
		h.mood, h.counts = h.anyMood(), h.choose(2) == 0
		if h.fails != nil {
			h.turns, h.shaky = []int{0, 3, 12}[h.choose(3)], []int{0, 30, 6}[h.choose(3)]
		}
		err := h.each(mostActs, h.act)
		if err == nil {
			err = h.rest()
		}
		if err == nil {
			err = h.judge()
		}
		if err == nil {
			h.logf("everything is at rest")
			h.calm = true
			err = h.each(mostCalm, h.calmAct)
		}
		if err == nil {
			err = h.restPlainly()
		}
		if err == nil {
			err = h.judgeAtRest()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *history) anyMood() (m mood) {
	m.pace = []int{5, 15, 30}[h.choose(3)]
	m.drowsy = 1 + h.choose(4)
	m.fragile = []int{0, 0, 6}[h.choose(3)]
	m.toggles = []int{15, 40, 70}[h.choose(3)]
	m.backdated = []int{0, 1, 2, 5, 8}[h.choose(5)]
	m.secretive = []int{0, 1, 5}[h.choose(3)]
	m.fickle = []int{2, 2, 20}[h.choose(3)]
	m.lossy = []int{1, 4, 12}[h.choose(3)]
	m.hot.User = h.viewers[h.choose(len(h.viewers))]
	m.hot.Contact = h.members[h.choose(len(h.members))]
	return m
}

// mostSteps bounds how long tasks may take to come to an end.
const mostSteps = 20_000

// restPlainly is rest in a plain order.
func (h *history) restPlainly() error {
	defer func(c *chance) { h.chance = c }(h.chance)
	h.chance = freshly(func(int) int { return 0 })
	return h.rest()
}

// rest runs all tasks to their end, in random order.
func (h *history) rest() error {
	for step := range mostSteps {
		counts, err := queuetest.Count(h.ctx, h.queue)
		switch {
		case err != nil:
			return err
		case counts.Dead > 0:
			dead, err := h.queue.List(h.ctx, queue.Filter{States: []queue.State{queue.Dead}}, 1)
			return violation("%d tasks are dead, %+v, %v", counts.Dead, dead, err)
		case counts.Open() == 0 && len(h.held) == 0 && len(h.actors) == 0:
			return nil
		}
		if err := h.restStep(step); err != nil {
			return err
		}
	}
	return violation("the tasks never came to an end")
}

func (h *history) restStep(step int) error {
	h.restoreNode()
	if err := h.claim(); err != nil {
		return err
	}
	// An upload comes again and again while an earlier fan-out of its uploader
	// is asleep.
	if len(h.held)+len(h.awake()) == 0 || step%200 == 199 {
		h.wake()
	}
	if err := h.start(); err != nil {
		return err
	}
	return h.resume()
}

// judgeAtRest judges the sets, and the answers of all viewers: without the index, and in two rounds with it.
// The last round runs after the tasks that the first round's reads asked for.
func (h *history) judgeAtRest() error {
	if err := h.judge(); err != nil {
		return err
	}
	for i, viewer := range h.viewers {
		if _, err := h.readAtRest(viewer, faults[(h.claims+i)%len(faults)]); err != nil {
			return err
		}
	}
	const rounds = 2
	for round := range rounds {
		for _, viewer := range h.viewers {
			answer, err := h.readAtRest(viewer, nil)
			if err != nil {
				return err
			}
			if round == rounds-1 {
				if err := h.judgeMended(viewer, answer); err != nil {
					return err
				}
			}
		}
		if err := h.restPlainly(); err != nil {
			return err
		}
	}
	return h.judge()
}

// readAtRest reads without a stop.
func (h *history) readAtRest(viewer member.ID, fault error) (recent.Answer, error) {
	r := h.newRequest(viewer, 3, fault)
	r.read(h.ctx, h.newReader())
	return r.got, h.done(r)
}

// judgeMended: a read whose predecessor's hints have been followed looks at no
// ghost, and finds a set if there is anybody to be in it.
func (h *history) judgeMended(viewer member.ID, a recent.Answer) error {
	for _, c := range a.Candidates() {
		if c.Verdict == recent.NotContact && !c.Broadcast {
			return violation("%s is no contact of %s, but still in its set after a read that looked at it", c.Contact, viewer)
		}
	}
	if a.Trace.WalkReason == recent.SetMissing && h.world.members[viewer] && h.world.indexable(viewer) {
		return violation("the set of %s is still missing after a read that asked for it", viewer)
	}
	return nil
}

// endActors ends all running actors. An actor may wait for another, and then ends in a later round.
func (h *history) endActors() {
	for len(h.actors) > 0 {
		for _, a := range h.actors {
			if a.standing {
				a.step(h.settle, errCrashed)
			}
		}
		h.forgetEnded()
	}
}
