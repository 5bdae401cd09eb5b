package endtoend_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// TestNoStampede empties Redis under the reads of hundreds of members. The readers walk for a few members at
// a time. Walks keep to their number, and refills to about one a member. Soon all reads come from the index
// again, though nobody did anything about it.
func TestNoStampede(t *testing.T) {
	t.Parallel()
	const places = 8
	seed := seedFor(t)
	tn := newTown(t, newGround(t, needFor(seed)), seed, 700)
	tn.warm(t, tn.viewers())
	store := &walkedStore{MySQL: contacts.NewMySQL(openMySQL(t, tn.dsn))}
	refills := &refillCounter{of: map[member.ID]int{}}
	p := tn.process(t, "a", faults{handlers: refills.count})
	p.start(t)
	reader := recent.NewReader(indexOf(t, openRedis(t, tn.redis), tn.db, index.Options{Settings: tn.settings}), store, p.hints,
		recent.Options{Min: tn.settings.Min})
	viewers := fromIndex(t, reader, tn.viewers())
	if len(viewers) < 550 {
		t.Fatalf("%d members are answered from the index", len(viewers))
	}
	store.walks.Store(0)
	store.most.Store(0)
	c := newCrowd(t, reader, admit.New(places), viewers, seed)
	eventually(t, "members read", func() bool { return c.reads.Load() > 500 })
	if n := c.walked.Load(); n > 0 {
		t.Errorf("%d reads walked before the loss", n)
	}
	tn.flush(t)
	c.forget()
	eventually(t, "every member was answered from the index", c.allFromIndex)
	c.stop()
	tn.awaitIdle(t)

	t.Logf("%d reads, of them %d walked and %d were refused; %d walks, at most %d at once; %d refills of %d members, at most %d of one",
		c.reads.Load(), c.walked.Load(), c.busy.Load(), store.walks.Load(), store.most.Load(), refills.total, len(viewers), refills.most())
	if most := store.most.Load(); most > places/2 || most == 0 {
		t.Errorf("%d walks at once, allowed are %d", most, places/2)
	}
	// A read that came while its set was being refilled may ask once more.
	if refills.total < len(viewers)/2 || refills.total > len(viewers)*3/2 {
		t.Errorf("%d refills for %d members", refills.total, len(viewers))
	}
	tn.check(t, reader)
}

// fromIndex returns the viewers whose answers come from the index. A few viewers' sets say nothing about the
// photos that they may see.
func fromIndex(t *testing.T, reader *recent.Reader, viewers []member.ID) (found []member.ID) {
	t.Helper()
	for _, viewer := range viewers {
		a, err := reader.Read(t.Context(), contacts.Viewer{ID: viewer}, 5)
		must(t, err)
		if a.Source == recent.FromIndex {
			found = append(found, viewer)
		}
	}
	return found
}

// walkedStore counts the walks.
type walkedStore struct {
	*contacts.MySQL

	walks, now, most atomic.Int64
}

func (s *walkedStore) Walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Walked, error) {
	s.walks.Add(1)
	now := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
		continue
	}
	return s.MySQL.Walk(ctx, v, limit)
}

// refillCounter counts the refills that are begun.
type refillCounter struct {
	mu    sync.Mutex
	of    map[member.ID]int
	total int
}

func (r *refillCounter) count(handlers map[string]queue.Handler) map[string]queue.Handler {
	handlers[tasks.Refill] = countedRefills{handlers[tasks.Refill], r}
	return handlers
}

func (r *refillCounter) most() (n int) {
	for _, count := range r.of {
		n = max(n, count)
	}
	return n
}

type countedRefills struct {
	queue.Handler

	counter *refillCounter
}

func (h countedRefills) Handle(ctx context.Context, batch []queue.Task) []queue.Outcome {
	h.counter.mu.Lock()
	for _, task := range batch {
		h.counter.of[member.ID(task.Key)]++
	}
	h.counter.total += len(batch)
	h.counter.mu.Unlock()
	return h.Handler.Handle(ctx, batch)
}

// crowd is members who read all the time.
type crowd struct {
	reader              *recent.Reader
	limiter             *admit.Limiter
	stop                func()
	reads, walked, busy atomic.Int64

	mu      sync.Mutex
	waiting map[member.ID]bool // who was not answered from the index yet
	all     []member.ID
}

func newCrowd(t *testing.T, reader *recent.Reader, limiter *admit.Limiter, viewers []member.ID, seed uint64) *crowd {
	t.Helper()
	c := &crowd{reader: reader, limiter: limiter, all: viewers}
	c.forget()
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	for i := range uint64(12) {
		reading.Go(func() { c.read(ctx, t, rand.New(rand.NewPCG(seed, i))) })
	}
	c.stop = func() {
		cancel()
		reading.Wait()
	}
	t.Cleanup(c.stop)
	return c
}

// forget makes everybody wait for an answer from the index.
func (c *crowd) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = make(map[member.ID]bool, len(c.all))
	for _, viewer := range c.all {
		c.waiting[viewer] = true
	}
}

func (c *crowd) allFromIndex() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) == 0
}

// read reads for everybody, again and again. A refusal because of too many reads
// is the only error that there may be.
func (c *crowd) read(ctx context.Context, t *testing.T, rnd *rand.Rand) {
	viewers := slices.Clone(c.all)
	for ctx.Err() == nil {
		rnd.Shuffle(len(viewers), func(i, j int) { viewers[i], viewers[j] = viewers[j], viewers[i] })
		for _, viewer := range viewers {
			a, err := c.readOnce(ctx, viewer)
			switch {
			case ctx.Err() != nil:
				return
			case errors.Is(err, recent.ErrBusy):
				c.busy.Add(1)
				<-time.After(10 * time.Millisecond) // as a client does that was refused
			case err != nil:
				t.Errorf("viewer %s: %v", viewer, err)
			default:
				c.answered(viewer, a)
			}
			c.reads.Add(1)
		}
	}
}

func (c *crowd) readOnce(ctx context.Context, viewer member.ID) (recent.Answer, error) {
	place, err := c.limiter.Enter(ctx)
	if err != nil {
		return recent.Answer{}, err
	}
	defer place.Leave(false)
	return c.reader.Read(admit.WithPlace(ctx, place), contacts.Viewer{ID: viewer}, 5)
}

func (c *crowd) answered(viewer member.ID, a recent.Answer) {
	if a.Source == recent.FromDatabase {
		c.walked.Add(1)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, viewer)
}
