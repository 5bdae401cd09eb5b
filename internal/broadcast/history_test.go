package broadcast_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/broadcast"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/indextest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

const (
	viewers  = 4 // members 1 to 4
	uploader = 11
	many     = 9 // members 11 to 19, who upload and may be broadcast members
)

// stage is a site in memory, whose workers take one step at a time: a step is a call of the store, the index or
// the queue.
type stage struct {
	t      *testing.T
	random *rand.Rand
	now    time.Time
	date   uint64
	store  *contacts.Memory
	sets   *indextest.Memory
	queue  *queuetest.Memory
	seen   map[member.ID]uint64 // the dates of answers when all uploads were done
	log    []string
	work   []*worker
	// broadcastAt is with how many followers members join by themselves; 0: none does.
	broadcastAt int
}

// mutation is a rule that is left out.
type mutation int

const (
	whole mutation = iota
	forgetCopy
	stopWithoutCopies
	leaveAtOnce
	mutations
)

// worker does one task at a time.
type worker struct {
	resume, parked chan struct{}
	quit           chan struct{} // closed at the end of the test
	doing          string        // the kind of its task; "": it has none
	began          map[contacts.BroadcastState]int
}

// step waits until the worker may go on.
func (w *worker) step() {
	select {
	case w.parked <- struct{}{}:
	case <-w.quit:
		runtime.Goexit()
	}
	select {
	case <-w.resume:
	case <-w.quit:
		runtime.Goexit()
	}
}

// steppedStore is the truth that a worker asks, with a mutation.
type steppedStore struct {
	broadcast.Truth
	w       *worker
	without mutation
}

func (s steppedStore) LastUploads(ctx context.Context, ids []member.ID) (map[member.ID]uint64, error) {
	s.w.step()
	return s.Truth.LastUploads(ctx, ids)
}

func (s steppedStore) Relations(ctx context.Context, pairs []contacts.Pair) (map[contacts.Pair]uint64, error) {
	s.w.step()
	return s.Truth.Relations(ctx, pairs)
}

func (s steppedStore) TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]contacts.Contact, error) {
	s.w.step()
	return s.Truth.TopContacts(ctx, users, limit)
}

func (s steppedStore) FollowerPages(ctx context.Context, pages []contacts.FollowerPage, limit int) ([][]member.ID, error) {
	s.w.step()
	found, err := s.Truth.FollowerPages(ctx, pages, limit)
	for i, page := range found {
		if s.without == stopWithoutCopies && pages[i].After > 0 {
			found[i] = slices.DeleteFunc(page, member.ID.IsCopy)
		}
	}
	return found, err
}

func (s steppedStore) Broadcasts(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Broadcast, error) {
	s.w.step()
	return s.Truth.Broadcasts(ctx, ids)
}

func (s steppedStore) ChangeBroadcast(ctx context.Context, id member.ID, was, to contacts.Broadcast) error {
	s.w.step()
	s.w.began[to.State]++
	return s.Truth.ChangeBroadcast(ctx, id, was, to)
}

type steppedIndex struct {
	*indextest.Memory
	w *worker
}

func (x steppedIndex) SlotsOf(context.Context, map[member.ID]error) index.Slots { return index.Slots{} }

func (x steppedIndex) Begin(ctx context.Context, users []member.ID) []index.Update {
	x.w.step()
	return x.Memory.Begin(ctx, users)
}

func (x steppedIndex) Apply(ctx context.Context, changes []index.Change) []index.Result {
	x.w.step()
	return x.Memory.Apply(ctx, changes)
}

func (x steppedIndex) Add(ctx context.Context, additions []index.Addition) ([]member.ID, map[member.ID]error) {
	x.w.step()
	return x.Memory.Add(ctx, additions)
}

var queues = []string{tasks.QueueDefault, tasks.QueueFanOut, tasks.QueueRefill}

func newStage(t *testing.T, seed uint64, without mutation) *stage {
	t.Helper()
	settings, err := index.NewSettings(2, 50, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{
		t: t, random: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1_700_000_000, 0), date: 100,
		store: contacts.NewMemory(), sets: indextest.NewMemory(settings), seen: make(map[member.ID]uint64),
	}
	s.broadcastAt = []int{0, 3, viewers}[s.random.IntN(3)]
	s.queue = queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, func() time.Time { return s.now })
	for id := member.ID(1); id < uploader+many; id++ {
		s.store.AddMember(id, id.String())
	}
	for v := member.ID(1); v <= viewers; v++ {
		for c := member.ID(uploader); c < uploader+many; c++ {
			if s.random.IntN(3) > 0 {
				s.store.SetContact(v, c, false, false)
			}
		}
		s.enqueue(tasks.NewRefill(v))
	}
	for range 2 {
		w := &worker{resume: make(chan struct{}), parked: make(chan struct{}), quit: make(chan struct{}), began: make(map[contacts.BroadcastState]int)}
		s.work = append(s.work, w)
		go s.run(w, without)
		<-w.parked
	}
	t.Cleanup(func() {
		for _, w := range s.work {
			close(w.quit)
			for range w.parked { // until it has ended
			}
		}
	})
	return s
}

func (s *stage) enqueue(n ...queue.New) {
	if _, err := s.queue.Enqueue(context.Background(), n); err != nil {
		s.t.Error(err)
	}
}

// run is a worker: it claims a task, handles it, and ends it, unless it dies.
func (s *stage) run(w *worker, without mutation) {
	defer close(w.parked)
	ctx := context.Background()
	store := steppedStore{broadcast.Truth{Store: s.store}, w, without}
	handlers := tasks.Handlers(steppedIndex{s.sets, w}, store, s.queue, tasks.HandlerOptions{PartSize: 2, ConflictPause: -1, BroadcastAt: s.broadcastAt})
	for {
		w.doing = ""
		w.step()
		claimed, err := s.queue.Claim(ctx, queues[s.random.IntN(len(queues))], 1, 1000*time.Hour)
		if err != nil || len(claimed) == 0 {
			continue
		}
		task := claimed[0]
		w.doing = task.Kind
		s.notef("begins %s %d %s", task.Kind, task.Key, task.Payload)
		if task.Kind == tasks.Broadcast {
			task = s.mutate(task, without)
		}
		o := handlers[task.Kind].Handle(ctx, []queue.Task{task})[0]
		w.step()
		r := queue.Result{Task: claimed[0], Err: o.Err, Next: o.Next}
		if s.random.IntN(20) == 0 { // it died, and the task is done again
			r = queue.Result{Task: claimed[0], Err: queue.Later(0, errors.New("died"))}
		}
		s.notef("ends %s %d: %v", task.Kind, task.Key, r.Err)
		if _, err := s.queue.Finish(ctx, []queue.Result{r}); err != nil {
			s.t.Error(err)
		}
	}
}

// mutate changes a task of a change of state.
func (s *stage) mutate(task queue.Task, without mutation) queue.Task {
	args, err := tasks.ArgsOf[tasks.BroadcastArgs](task)
	if err != nil {
		s.t.Error(err)
	}
	args.Settled = args.Settled || without == leaveAtOnce && args.Change > 0
	if task.Payload, err = json.Marshal(args); err != nil {
		s.t.Error(err)
	}
	return task
}

func (s *stage) notef(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

// advance lets a worker take a step.
func (s *stage) advance(w *worker) {
	w.resume <- struct{}{}
	<-w.parked
}

// happen does something to the site, or to Redis.
func (s *stage) happen() {
	c := member.ID(uploader + s.random.IntN(many))
	v := member.ID(1 + s.random.IntN(viewers))
	rows, _ := s.store.Broadcasts(context.Background(), []member.ID{c})
	is := rows[c].State
	switch s.random.IntN(12) {
	case 0, 1, 2, 3:
		s.date++
		s.store.AddPhoto(0, c, "photo", []contacts.Visibility{contacts.Public, contacts.Public, contacts.Friends}[s.random.IntN(3)], s.date)
		s.store.SetLastUpload(c, s.date)
		s.enqueue(tasks.NewUpload(c))
		s.notef("%d uploads at %d", c, s.date)
	case 4:
		s.store.SetContact(v, c, false, false)
		s.enqueue(tasks.NewAddContact(v, c))
		s.notef("%d adds %d", v, c)
	case 5:
		for ; v <= viewers; v++ {
			s.store.RemoveContact(v, c)
			s.enqueue(tasks.NewRemoveContact(v, c))
			s.notef("%d removes %d", v, c)
		}
	case 6, 7, 8:
		if is == contacts.NoMember || is == contacts.Leaving {
			s.change(c, contacts.Joining)
		}
	case 9, 10:
		if is == contacts.Joining || is == contacts.Joined {
			s.change(c, contacts.Leaving)
		}
	case 11:
		lost := index.CopyFor(v)
		if s.random.IntN(2) == 0 {
			lost = v
		}
		s.sets.Forget(lost)
		s.notef("the set of %d is lost", lost)
	}
}

// pass lets time pass, and scheduled tasks come due.
func (s *stage) pass(d time.Duration) {
	s.now = s.now.Add(d)
	if _, err := s.queue.Sweep(context.Background()); err != nil {
		s.t.Error(err)
	}
}

func (s *stage) change(c member.ID, to contacts.BroadcastState) {
	change := s.random.Uint64N(1 << 50)
	s.store.SetBroadcast(c, contacts.Broadcast{State: to, Change: change, Named: s.random.IntN(2) == 0})
	s.enqueue(tasks.NewBroadcast(c, change, to == contacts.Joining)...)
	s.notef("%d is %s, change %d", c, to, change)
}

// pending returns the kinds of tasks that are not done, but for looks, of which there is always a next one.
func (s *stage) pending() map[string]bool {
	kinds := make(map[string]bool)
	list, err := s.queue.List(context.Background(), queue.Filter{}, 1000)
	if err != nil {
		s.t.Error(err)
	}
	for _, r := range list {
		if r.Kind != tasks.BroadcastLook {
			kinds[r.Kind] = true
		}
	}
	return kinds
}

// compare compares all answers with the definition. Nothing but changes of state and refills may be pending.
func (s *stage) compare(without mutation) error {
	ctx := context.Background()
	for v := member.ID(1); v <= viewers; v++ {
		var proposing recent.Index = smallPages{s.sets, s.random.IntN(many)}
		if without == forgetCopy {
			proposing = withoutCopies{s.sets}
		}
		reader := recent.NewReader(proposing, s.store, hints{s}, recent.Options{Min: s.sets.Settings().Min, IndexWait: time.Hour})
		got, err := reader.Read(ctx, contacts.Viewer{ID: v}, 3)
		if err != nil {
			return err
		}
		want, err := s.store.Walk(ctx, contacts.Viewer{ID: v}, 3)
		if err != nil {
			return err
		}
		if !got.IsSame(want.Album) {
			return fmt.Errorf("viewer %d is shown %+v by the %s, want %+v; candidates %+v", v, got.Album, got.Source, want.Album, got.Trace.Candidates)
		}
		if got.Source == recent.FromIndex {
			s.seen[v]++
		}
	}
	return nil
}

type hints struct{ s *stage }

func (h hints) Refill(of member.ID)             { h.s.enqueue(tasks.NewRefill(of)) }
func (h hints) LookAgain(of, contact member.ID) { h.s.enqueue(tasks.NewRemoveContact(of, contact)) }

// smallPages has a first page of a few broadcast members, and some more when a read needs them.
type smallPages struct {
	*indextest.Memory
	page int
}

func (x smallPages) Candidates(ctx context.Context, user member.ID) ([]index.Entry, index.Copy, error) {
	set, b, err := x.Memory.Candidates(ctx, user)
	cut(&b, x.page)
	if more := b.More; more != nil {
		b.More = func(ctx context.Context, above uint64) index.Copy {
			b := more(ctx, above)
			cut(&b, x.page+3)
			return b
		}
	}
	return set, b, err
}

// cut leaves the first n.
func cut(b *index.Copy, n int) {
	if len(b.Entries) > n {
		b.Entries, b.Bound = b.Entries[:n], b.Entries[n].Score
	}
}

// withoutCopies forgets what the copies say.
type withoutCopies struct{ *indextest.Memory }

func (x withoutCopies) Candidates(ctx context.Context, user member.ID) ([]index.Entry, index.Copy, error) {
	set, b, err := x.Memory.Candidates(ctx, user)
	return set, index.Copy{Of: b.Of}, err
}

// play plays a history, and returns the first answer that is wrong.
func (s *stage) play(without mutation) error {
	for range 250 {
		switch s.random.IntN(10) {
		case 0:
			s.happen()
		case 1:
			s.pass([]time.Duration{time.Second, time.Second, 24 * time.Hour}[s.random.IntN(3)])
		default:
			s.advance(s.work[s.random.IntN(len(s.work))])
		}
		kinds := s.pending()
		delete(kinds, tasks.Broadcast)
		delete(kinds, tasks.Refill)
		if len(kinds) == 0 {
			if err := s.compare(without); err != nil {
				return err
			}
		}
	}
	for tries := 0; len(s.pending()) > 0 || s.work[0].doing != "" || s.work[1].doing != ""; tries++ {
		if tries > 100_000 {
			list, err := s.queue.List(context.Background(), queue.Filter{}, 10)
			return fmt.Errorf("tasks are not done: %+v, %w", list, err)
		}
		s.pass(100 * time.Millisecond)
		s.advance(s.work[s.random.IntN(len(s.work))])
	}
	if err := s.compare(without); err != nil {
		return err
	}
	return s.audit()
}

// audit compares all sets, copies among them, with the store.
func (s *stage) audit() error {
	truth := broadcast.Truth{Store: s.store}
	ids, err := truth.Members(context.Background(), 0, 1000)
	if err != nil {
		return err
	}
	a := audit.New(audit.Options{Sets: s.sets, Truth: truth, Tasks: s.queue, ActiveOnly: true, Pause: time.Nanosecond})
	r, err := a.Check(context.Background(), ids)
	if err != nil {
		return err
	}
	for _, f := range r.Findings {
		if f.Class != audit.Waste {
			return fmt.Errorf("the audit finds: %s", f)
		}
	}
	return nil
}

func seeds() (first, n uint64) {
	if text := os.Getenv("ACTIVITYD_SEED"); text != "" {
		seed, _ := strconv.ParseUint(text, 10, 64)
		return seed, 1
	}
	return rand.Uint64() >> 1, 150
}

// Answers are right whenever all uploads and changes of contacts are done, while members become broadcast members and
// cease to be, workers die, and sets are lost.
func TestHistories(t *testing.T) {
	t.Parallel()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	first, n := seeds()
	byIndex, joined, left := uint64(0), 0, 0
	for seed := first; seed < first+n; seed++ {
		s := newStage(t, seed, whole)
		if err := s.play(whole); err != nil {
			t.Fatalf("ACTIVITYD_SEED=%d: %v\n%s", seed, err, lines(s.log))
		}
		for _, times := range s.seen {
			byIndex += times
		}
		for _, w := range s.work {
			joined += w.began[contacts.Joining]
			left += w.began[contacts.Leaving]
		}
	}
	if n > 1 && (byIndex < 2*n || joined < 10 || left < 2) {
		t.Errorf("%d answers came from the index, %d members joined by themselves and %d left: too few", byIndex, joined, left)
	}
}

// Each rule that is left out is noticed.
func TestMutations(t *testing.T) {
	t.Parallel()
	for without := whole + 1; without < mutations; without++ {
		t.Run(strconv.Itoa(int(without)), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(500) {
				if err := newStage(t, seed, without).play(without); err != nil {
					t.Logf("history %d: %v", seed, err)
					return
				}
			}
			t.Error("no history notices it")
		})
	}
}

func lines(log []string) (text string) {
	for _, l := range log {
		text += l + "\n"
	}
	return text
}
