package tasks_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/site"
	"github.com/activityd/activityd/internal/tasks"
)

// schedule is one random history of a small site: changes, tasks run in any
// order, some twice, handlers stopped between any two of their calls, crashes,
// expiries, a lost Redis, and reads in between. All chance comes from choose.
type schedule struct {
	ctx      context.Context
	choose   func(n int) int // 0 ≤ choose(n) < n
	logf     func(format string, args ...any)
	client   *redis.Client
	settings index.Settings
	viewers  []member.ID
	members  []member.ID
	clock    uint64
	mood
	world    *world
	site     *site.Memory
	queue    *tasks.MemoryQueue
	now      time.Time
	index    *watchedIndex
	reader   *recent.Reader
	handlers map[tasks.Type]tasks.Handler
	claims   int
	held     []tasks.Task // claimed, and not yet given to a handler
	actors   []*actor
	counted  tally
}

// mood is what much happens of for a while. Rules are broken by things that meet,
// and in an even mixture of everything few things do.
type mood struct {
	pace      int           // changes in a hundred steps: when few, the tasks keep up
	drowsy    int           // one handler in so many falls asleep
	fragile   int           // crashes in a hundred steps
	toggles   int           // contacts added or removed in a hundred changes
	backdated int           // uploads in eight with a date from the past
	hot       contacts.Pair // whom most of the changes are about
}

// tally tells whether the schedules had in them what they are about.
type tally struct{ runs, doubled, crashes, conflicts, fromIndex, walks int }

// mutation breaks one rule of the index, as seen by the handlers.
type mutation func(ix tasks.Index, client *redis.Client, s index.Settings) tasks.Index

// partSize makes two followers a full part of a fan-out.
const partSize = 2

func newSchedule(ctx context.Context, choose func(int) int, client *redis.Client, activeOnly bool, mutate mutation) (*schedule, error) {
	settings, err := index.NewSettings(3, 20, 0)
	if err != nil {
		return nil, err
	}
	if err := client.FlushAll(ctx).Err(); err != nil {
		return nil, err
	}
	s := &schedule{ctx: ctx, choose: choose, logf: nowhere, client: client, settings: settings, clock: 100, world: newWorld(), now: time.Unix(0, 0)}
	s.queue = tasks.NewMemoryQueue(tasks.QueueOptions{}, func() time.Time { return s.now })
	store := contacts.NewMemory()
	s.site = &site.Memory{Store: store}
	ix := index.New(client, index.Options{Settings: settings, GuardLife: time.Hour})
	s.reader = recent.NewReader(ix, store, s, recent.Options{Min: settings.Min, IndexWait: time.Minute})
	s.index = &watchedIndex{Index: ix, writes: map[member.ID]int{}}
	if mutate != nil {
		s.index.Index = mutate(ix, client, settings)
	}
	s.handlers = tasks.Handlers(actingIndex{s.index}, actingStore{store}, actingQueue{s.queue},
		tasks.HandlerOptions{PartSize: partSize, ActiveOnly: activeOnly})
	err = s.populate()
	return s, err
}

// populate makes the members, and lets some of the sets exist from the start.
func (s *schedule) populate() error {
	for i := range 1 + s.choose(3) {
		s.viewers = append(s.viewers, member.ID(1+i))
	}
	for i := range 5 + s.choose(9) {
		s.members = append(s.members, member.ID(11+i))
	}
	for _, id := range slices.Concat(s.viewers, s.members) {
		if err := s.site.AddMember(s.ctx, id, "member "+id.String()); err != nil {
			return err
		}
	}
	if err := s.befriend(); err != nil {
		return err
	}
	s.site.Emit = s.emit
	for _, viewer := range s.viewers {
		if s.choose(4) > 0 {
			errs := s.handlers[tasks.Refill].Handle(s.ctx, []tasks.Task{{Type: tasks.Refill, Subject: viewer}})
			if err := errors.Join(errs...); err != nil {
				return err
			}
		}
	}
	return nil
}

// befriend gives most viewers most members as contacts, most of whom uploaded.
func (s *schedule) befriend() error {
	for _, contact := range s.members {
		if s.choose(4) > 0 {
			if err := s.uploadOf(contact); err != nil {
				return err
			}
		}
		for _, viewer := range s.viewers {
			if s.choose(4) == 0 {
				continue
			}
			if err := s.setContact(viewer, contact, site.Grant{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// emit enqueues the task of a change, as a site does in its transaction.
func (s *schedule) emit(ctx context.Context, e site.Event) error {
	n, err := tasks.Parse(tasks.Type(e.Type), e.User, e.Contact)
	if err != nil {
		return err
	}
	_, err = s.queue.Enqueue(ctx, []tasks.New{n})
	return err
}

// Refill and LookAgain make the schedule the reader's hints.
func (s *schedule) Refill(user member.ID) { s.hint(tasks.NewRefill(user)) }

// LookAgain enqueues what the reader asks for.
func (s *schedule) LookAgain(user, contact member.ID) { s.hint(tasks.NewRemoveContact(user, contact)) }

func (s *schedule) hint(n tasks.New) {
	if _, err := s.queue.Enqueue(s.ctx, []tasks.New{n}); err != nil {
		panic(err) // MemoryQueue fails only with ctx
	}
}

// run runs the history, lets it come to rest, and judges.
func (s *schedule) run() error {
	defer func() {
		for _, a := range s.actors {
			a.crash()
		}
	}()
	for range 4 {
		s.mood = s.anyMood()
		for range 10 + s.choose(110) {
			if err := s.act(); err != nil {
				return err
			}
		}
		if err := s.rest(); err != nil {
			return err
		}
		if err := s.judge(); err != nil {
			return err
		}
	}
	s.counted.conflicts = s.index.conflicts
	return nil
}

func (s *schedule) anyMood() (m mood) {
	m.pace = []int{5, 15, 30}[s.choose(3)]
	m.drowsy = 2 + s.choose(3)
	m.fragile = []int{0, 0, 6}[s.choose(3)]
	m.toggles = []int{15, 45, 75}[s.choose(3)]
	m.backdated = s.choose(5)
	m.hot.User = s.viewers[s.choose(len(s.viewers))]
	m.hot.Contact = s.members[s.choose(len(s.members))]
	return m
}

// rest runs all tasks to their end, still in random order.
func (s *schedule) rest() error {
	for step := range 20_000 {
		counts, err := s.queue.Count(s.ctx)
		switch {
		case err != nil:
			return err
		case counts.Dead > 0:
			return violation("%d tasks are dead", counts.Dead)
		case counts.Open() == 0 && len(s.held) == 0 && len(s.actors) == 0:
			return nil
		}
		if err := s.claim(); err != nil {
			return err
		}
		// An upload comes again and again while an earlier fan-out of its
		// uploader is asleep.
		if len(s.held)+len(s.awake()) == 0 || step%200 == 199 {
			s.wake()
		}
		s.start()
		if err := s.resume(); err != nil {
			return err
		}
	}
	return violation("the tasks never came to an end")
}

// judge checks every set that exists, and every viewer's answer.
func (s *schedule) judge() error {
	for _, user := range slices.Concat(s.viewers, s.members) {
		set, err := s.client.ZRangeWithScores(s.ctx, index.UserKey(user), 0, -1).Result()
		if err != nil {
			return err
		}
		if len(set) == 0 {
			continue
		}
		if err := s.world.checkSet(user, set, s.settings); err != nil {
			return err
		}
	}
	for _, viewer := range s.viewers {
		if err := s.read(viewer, true); err != nil {
			return err
		}
	}
	return nil
}

const readLimit = 3

// read reads as a viewer. At any moment it may be shown only what it may see; at
// rest, exactly what the definition says.
func (s *schedule) read(viewer member.ID, atRest bool) error {
	got, err := s.reader.Read(s.ctx, contacts.Viewer{ID: viewer}, readLimit)
	if err != nil {
		return err
	}
	if got.Source == recent.FromIndex {
		s.counted.fromIndex++
	} else {
		s.counted.walks++
	}
	if err := s.world.checkShown(viewer, got.Photos); err != nil || !atRest {
		return err
	}
	var ids []uint64
	for _, p := range got.Photos {
		ids = append(ids, p.ID)
	}
	if want := s.world.answer(viewer, readLimit); !slices.Equal(ids, want) {
		return violation("%s is shown photos %v, by definition %v (%+v)", viewer, ids, want, got.Trace)
	}
	return nil
}
