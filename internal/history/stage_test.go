package history_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/contactstest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// store is the truth, as the handlers and the reads need it.
type store interface {
	tasks.Store
	recent.Store
	LeaveBroadcast(ctx context.Context, id member.ID) (contacts.Broadcast, error)
}

// stage is a small site with the parts that keep its index. A history plays on it.
type stage struct {
	ctx         context.Context
	settings    index.Settings
	viewers     []member.ID
	members     []member.ID
	clock       uint64
	world       *world
	site        *site.Memory
	store       store
	queue       *queuetest.Memory
	now         time.Time // of the queue
	backend     backend
	watched     *watched
	handlers    map[string]queue.Handler
	requests    []*request // under way
	calm        bool       // all changes are done with, and nothing is left of them
	violated    error      // by a call of a handler
	private     privateUploads
	counts      bool // of sometimesCount: private uploads are events now
	log         func(format string, args ...any)
	counted     tally
	*broadcasts // nil: there are none

	// fails decides whether a call of an actor fails for a user, and whether it has its effect
	// nevertheless; nil: none does.
	fails func(user member.ID) (written bool, err error)

	// For mutations.
	propose       func([]index.Entry) []index.Entry // changes the reads' view of a set
	oneWay        bool                              // reads do not look for blocks by viewers
	deaf          bool                              // no hint that a member is no contact is taken
	absorbStarted bool                              // a task that has begun absorbs a new task
	running       func(key string) bool             // whether a task with the key has begun
	careless      bool                              // a task that crashed is not done again
	forgetsPages  bool                              // a page with sets that could not be written to does not come again
	forgetsEvent  bool                              // a photo that is shown raises last_upload, and no task tells
	forgetsBoth   bool                              // a photo that is shown raises nothing either
}

// setting sets up a stage.
type setting struct {
	settings   index.Settings
	activeOnly bool
	viewers    int
	members    int
	open       opener
	alter      func(*stage) // breaks a rule
	broadcasts *broadcasts
}

// partSize makes two followers a full part of a fan-out.
const partSize = 2

func newStage(ctx context.Context, o setting) (*stage, error) {
	s := &stage{ctx: ctx, settings: o.settings, clock: 100, world: newWorld(), now: time.Unix(0, 0), broadcasts: o.broadcasts}
	s.queue = queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, func() time.Time { return s.now })
	truth := contactstest.NewMemory()
	s.site, s.store = &site.Memory{Store: truth}, truth
	var err error
	if s.backend, err = o.open(ctx, o.settings); err != nil {
		return nil, err
	}
	if o.alter != nil {
		o.alter(s)
	}
	s.watched = newWatched(s)
	s.world.exempt = s.isBroadcast
	s.handlers = tasks.Handlers(actingIndex{s.watched}, s.truth(), actingQueue{s.queue},
		tasks.HandlerOptions{PartSize: partSize, ActiveOnly: o.activeOnly, ConflictPause: -1})
	for i := range o.viewers {
		s.viewers = append(s.viewers, member.ID(1+i))
	}
	for i := range o.members {
		s.members = append(s.members, member.ID(11+i))
	}
	for _, id := range s.everybody() {
		if err := s.join(id); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *stage) everybody() []member.ID { return slices.Concat(s.viewers, s.members) }

func (s *stage) logf(format string, args ...any) {
	if s.log != nil {
		s.log(format, args...)
	}
}

// newReader returns the reader of a process.
func (s *stage) newReader() *recent.Reader {
	return recent.NewReader(proposing{actingIndex{s.watched}, s}, s.truth(), s, recent.Options{
		Min: s.settings.Min,
	})
}

// proposing lets a mutation change the reads' view of the sets.
type proposing struct {
	recent.Index
	*stage
}

func (p proposing) Candidates(ctx context.Context, user member.ID) ([]index.Entry, error) {
	entries, err := p.Index.Candidates(ctx, user)
	if err == nil && p.propose != nil {
		entries = p.propose(entries)
	}
	return entries, err
}

// emit enqueues the task of a change, as a site does in its transaction.
func (s *stage) emit(_ context.Context, e site.Event) error {
	n, err := tasks.Parse(e.Type, e.User, e.Contact)
	if err != nil {
		return err
	}
	if s.absorbStarted && s.running(n.DedupeKey) {
		return nil
	}
	return s.enqueue(n)
}

func (s *stage) enqueue(n queue.New) error {
	_, err := s.queue.Enqueue(s.ctx, []queue.New{n})
	return err
}

// Refill and LookAgain make the stage the reader's hints.
func (s *stage) Refill(user member.ID) { s.hint(tasks.NewRefill(user)) }

// LookAgain enqueues the reader's hint.
func (s *stage) LookAgain(user, contact member.ID) {
	s.counted.ghosts++
	if !s.deaf {
		s.hint(tasks.NewRemoveContact(user, contact))
	}
}

func (s *stage) hint(n queue.New) {
	if err := s.enqueue(n); err != nil {
		panic(err) // Memory fails only with ctx
	}
}

// fill makes the set of a user as the truth has it.
func (s *stage) fill(user member.ID) error {
	return s.handlers[tasks.Refill].Handle(s.ctx, []queue.Task{{Kind: tasks.Refill, Key: uint64(user)}})[0].Err
}

// judge checks every set that exists, against the invariants of each set and against checks.
func (s *stage) judge(checks ...func(index.Set) error) error {
	for _, set := range s.backend.Look(s.ctx, s.everybody()) {
		if set.Err != nil {
			return set.Err
		}
		if !set.Known {
			continue
		}
		err := s.world.checkSet(set, s.settings)
		for _, check := range checks {
			err = errors.Join(err, check(set))
		}
		if err != nil {
			return err
		}
	}
	return s.judgeBroadcasts()
}

// tally counts the steps of the histories, so that the tests can demand each kind of step.
type tally struct {
	changes, handled, doubled, crashes, conflicts, lost int
	indexed, walked, faulted, ghosts, failed, shown     int
	broadcasts, fromRow                                 int // changes of rows; answers that only a row led to
}

func (t tally) plus(u tally) tally {
	t.changes += u.changes
	t.handled += u.handled
	t.doubled += u.doubled
	t.crashes += u.crashes
	t.conflicts += u.conflicts
	t.lost += u.lost
	t.indexed += u.indexed
	t.walked += u.walked
	t.faulted += u.faulted
	t.ghosts += u.ghosts
	t.failed += u.failed
	t.shown += u.shown
	t.broadcasts += u.broadcasts
	t.fromRow += u.fromRow
	return t
}
