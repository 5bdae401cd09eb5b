package endtoend_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/apns"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/contactstest"
	"github.com/activityd/activityd/internal/testing/indextest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// stage holds the site and the program of a story.
type stage struct {
	site   site.Site
	index  storyIndex
	queue  queuetest.Queue
	handle map[string]queue.Handler
	reader *recent.Reader
	empty  func()           // empties Redis
	hasten func(*testing.T) // see ground.endBursts
	push   *push.MySQL      // nil: there is none
	phones *phones
}

type storyIndex interface {
	tasks.Index
	recent.Index
}

type storyStore interface {
	tasks.Store
	recent.Store
}

func newStage(s site.Site, store storyStore, ix storyIndex, q queuetest.Queue, o tasks.HandlerOptions) *stage {
	return &stage{
		site: s, index: ix, queue: q, handle: tasks.Handlers(ix, store, q, o),
		reader: recent.NewReader(ix, store, storyHints{q}, recent.Options{Min: ix.Settings().Min}),
	}
}

func stageInMemory(_ *testing.T, settings index.Settings) *stage {
	store, ix := contactstest.NewMemory(), indextest.NewMemory(settings)
	q := queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, time.Now)
	emit := func(ctx context.Context, e site.Event) error {
		var n queue.New
		switch e.Type {
		case site.EventAddContact:
			n = tasks.NewAddContact(e.User, e.Contact)
		case site.EventRemoveContact:
			n = tasks.NewRemoveContact(e.User, e.Contact)
		case site.EventUpload:
			n = tasks.NewUpload(e.User)
		case site.EventRefill:
			n = tasks.NewRefill(e.User)
		default:
			return fmt.Errorf("there is no event %q", e.Type)
		}
		_, err := q.Enqueue(ctx, []queue.New{n})
		return err
	}
	s := newStage(&site.Memory{Store: store, Emit: emit}, store, ix, q, tasks.HandlerOptions{})
	s.empty, s.hasten = ix.ForgetAll, func(*testing.T) {}
	return s
}

func stageOnServers(t *testing.T, settings index.Settings) *stage {
	t.Helper()
	g := newGround(t, settings.Need)
	store, pushed, phones := contacts.NewMySQL(g.db), push.NewMySQL(g.db), &phones{}
	s := newStage(g.site, store, indexOf(t, g.client, g.db, index.Options{Settings: settings}), g.queue, tasks.HandlerOptions{
		Push: push.NewHandler(push.HandlerOptions{
			Store: pushed, Followers: store, Senders: map[push.Platform]push.Sender{apns.Platform: phones}, Log: slog.New(slog.DiscardHandler),
		}),
	})
	s.empty, s.hasten, s.push, s.phones = func() { g.flush(t) }, g.endBursts, pushed, phones
	return s
}

// work runs all tasks, and the tasks that follow from them.
func (s *stage) work(t *testing.T) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	ctx, cancel := context.WithCancel(t.Context())
	pool := queue.NewPool(s.queue, s.handle, queue.PoolOptions{
		Log:     log,
		Workers: tasks.DefaultWorkers(), Poll: 10 * time.Millisecond, Sweep: 50 * time.Millisecond,
	})
	var running sync.WaitGroup
	running.Go(func() {
		if err := pool.Run(ctx); err != nil {
			t.Errorf("workers: %v", err)
		}
	})
	eventually(t, "every task is done", func() bool {
		s.hasten(t)
		c, err := queuetest.Count(t.Context(), s.queue)
		must(t, err)
		return c.Open() == 0
	})
	cancel()
	running.Wait()
}

// storyHints enqueues the hints of reads at once.
type storyHints struct{ queue queuetest.Queue }

func (h storyHints) Refill(id member.ID) { h.enqueue(tasks.NewRefill(id)) }

func (h storyHints) LookAgain(viewer, contact member.ID) {
	h.enqueue(tasks.NewRemoveContact(viewer, contact))
}

func (h storyHints) enqueue(n queue.New) {
	if _, err := h.queue.Enqueue(context.Background(), []queue.New{n}); err != nil {
		panic(err)
	}
}

// phones are a push service that accepts all messages.
type phones struct {
	mu      sync.Mutex
	arrived map[member.ID][]string // messages since the last look
}

// Send implements [push.Sender].
func (p *phones) Send(_ context.Context, m push.Message) push.Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.arrived == nil {
		p.arrived = make(map[member.ID][]string)
	}
	p.arrived[m.Device.Member] = append(p.arrived[m.Device.Member], m.Title+" "+m.Body)
	return push.Result{Outcome: push.Accepted, Status: 200, ID: m.ID}
}

// Origin implements [push.Sender].
func (*phones) Origin(push.Device) string { return "https://push.example:443" }

// look returns the messages that arrived at the phones of a member since the last look.
func (p *phones) look(id member.ID) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer delete(p.arrived, id)
	return p.arrived[id]
}
