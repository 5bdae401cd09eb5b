package push

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/queue"
)

// Store is the database as a [Handler] needs it: a [*MySQL].
type Store interface {
	Looker
	StoreEvents(ctx context.Context, batch []*StoredEvent) ([]*StoredEvent, error)
	Events(ctx context.Context, numbers []uint64) (map[uint64]*StoredEvent, error)
	Waiting(ctx context.Context, bursts []BurstDevice) ([][]BurstReceipt, error)
	Pending(ctx context.Context, of []Candidate) ([]Receipt, error)
	Record(ctx context.Context, receipts []Receipt) error
	Prune(ctx context.Context, gone []Pruned) (int, error)
}

// Followers reads who follows members; it is a [*contacts.MySQL].
type Followers interface {
	FollowerPages(ctx context.Context, pages []contacts.FollowerPage, limit int) ([][]member.ID, error)
}

// HandlerOptions are for [NewHandler].
type HandlerOptions struct {
	Store     Store
	Followers Followers
	Senders   map[Platform]Sender // of the platforms that have keys here
	// MustShow are the platforms whose devices have to show all that they are sent: see [Kind].
	MustShow map[Platform]bool
	Log      *slog.Logger
	// Timeout is how long a message may take; 0: [DefaultTimeout]. It must be well below the limit of the pool.
	Timeout time.Duration
	// Patience is how long a handler waits for the slowest of its messages; 0: [DefaultPatience].
	Patience time.Duration
	// PageSize is how many recipients a task reads; 0: [DefaultPageSize].
	PageSize int
}

// The defaults of [HandlerOptions].
const (
	DefaultTimeout  = 10 * time.Second
	DefaultPatience = 400 * time.Millisecond
	DefaultPageSize = 1000
)

const (
	followersAtOnce = 16 // pages of followers that are read together
	// maxLook is how many candidates are looked at, and how many messages are sent, at once.
	maxLook = 500
	// maxInFlight is how many messages handlers wait for at once, but for urgent messages: the rest of a large event waits
	// before it leaves.
	maxInFlight = 1000
	// maxWork is how long a handler takes further tasks of its batch: then tasks that wait come before the rest.
	maxWork = time.Second
)

// Handler is the handler of all tasks of push: see the package's comment for its steps and promises.
//
// A handler waits for the slowest of its messages for Patience. A message without an answer by then goes on without it: its task
// comes again when the message has ended for sure, and finds the receipt, or sends it again. So a push service that hangs
// holds up no device of another; and [origins] keep its own share small.
type Handler struct {
	HandlerOptions
	origins *origins
	lines   *outage.Lines
	room    *semaphore.Weighted // for messages that handlers wait for

	background sync.WaitGroup  // messages and receipts without a handler
	ending     context.Context // ends when receipts that cannot be written are given up
	giveUp     context.CancelFunc
}

var _ queue.Handler = (*Handler)(nil)

// NewHandler returns the handler of the tasks of push.
func NewHandler(o HandlerOptions) *Handler {
	o.Timeout, o.Patience = cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.Patience, DefaultPatience)
	o.PageSize = cmp.Or(o.PageSize, DefaultPageSize)
	h := &Handler{HandlerOptions: o, origins: newOrigins(o.Log), lines: outage.NewLines(o.Log), room: semaphore.NewWeighted(maxInFlight)}
	h.ending, h.giveUp = context.WithCancel(context.Background()) //nolint:gosec // G118: Wait calls it
	return h
}

// Wait waits for messages that no handler waits for, and for receipts that could not be written: for the end of the
// process, after that of the pool. It takes a little more than Timeout at most.
func (h *Handler) Wait() {
	defer time.AfterFunc(h.Timeout+lateMargin, h.giveUp).Stop()
	h.background.Wait()
}

// KeysChanged is to be told that the sender of a platform has new keys: push services that
// refused the keys before are not left alone any longer.
func (h *Handler) KeysChanged(p Platform) { h.origins.forgetKeys(p) }

var errRest = errors.New("the tasks before it in the claim took long")

// Handle implements [queue.Handler].
func (h *Handler) Handle(ctx context.Context, tasks []queue.Task) []queue.Outcome {
	jitter, jobs := rand.Float64(), jobsOf(tasks)
	h.read(ctx, jobs)    // the events; the event of a notify task is stored
	h.address(ctx, jobs) // the recipients; those of a large event are for deliver tasks
	began := time.Now()  // of the looks: the first is always made, however slow the database is
	for some := range byLook(jobs) {
		if time.Since(began) > maxWork {
			fail(some, queue.Later(0, errRest))
			continue
		}
		at, asked := time.Now(), ask(some)
		facts, err := h.Store.Look(ctx, candidatesOf(asked)) // a single statement: devices, privacy, wishes, receipts
		var gone []fate
		if err == nil {
			gone, err = h.goneSince(ctx, asked, facts)
		}
		if fail(some, err) {
			continue
		}
		plan := decideAll(asked, facts, h.MustShow) // pure: send, skip, or later
		fates := slices.Concat(plan.fates, gone)
		for sends := range slices.Chunk(plan.sends, maxLook) {
			flight := h.sendAll(ctx, sends, at)
			for answers := range flight.steps(ctx, h.Patience) {
				put(h.record(ctx, append(fates, judgeAll(answers, jitter)...))) // pure: receipts, devices that are gone, or later
				fates = nil
			}
			fates = append(fates, h.leave(flight)...)
		}
		put(h.record(ctx, fates))
	}
	return outcomes(jobs)
}

// goneSince returns the fates of devices that an attempt before left waiting with their burst, as it died before its finish, and that a
// look at their members does not find any more.
func (h *Handler) goneSince(ctx context.Context, asked []delivery, facts []Facts) (fates []fate, err error) {
	type key struct {
		event uint64
		to    Recipient
	}
	of, found := make(map[key]delivery), make(map[key]bool)
	var members []Candidate
	for _, p := range asked {
		k := key{p.event.Number, p.to}
		if _, isKnown := of[k]; !isKnown && p.job.task.Attempts > 1 && p.to.Device == 0 {
			of[k] = p
			members = append(members, Candidate{Event: p.event, Member: p.to.Member})
		}
	}
	for _, f := range facts {
		found[key{asked[f.Candidate].event.Number, Recipient{f.Device.Member, f.Device.ID}}] = true
	}
	pending, err := h.Store.Pending(ctx, members)
	for _, r := range pending {
		p, isOurs := of[key{r.Event, Recipient{Member: r.Member}}]
		if p.to.Device = r.Device; isOurs && !found[key{r.Event, p.to}] {
			fates = append(fates, fate{delivery: p, state: StateSkipped, reason: string(NoDevice)})
		}
	}
	return fates, err
}

// job is the work of one task.
type job struct {
	task    queue.Task
	payload Payload
	event   *StoredEvent   // nil: there is nothing to do
	waiting []*StoredEvent // of a burst task: the events that wait, and that the device shows
	more    bool           // there may be more
	err     error          // of the task as a whole
	fates   []fate
	next    []queue.New // the tasks for recipients that are not its own
}

func jobsOf(tasks []queue.Task) []*job {
	jobs := make([]*job, len(tasks))
	for i, t := range tasks {
		jobs[i] = &job{task: t}
	}
	return jobs
}

// fail gives an error, unless it is nil, to jobs that have none.
func fail(jobs []*job, err error) bool {
	for _, j := range jobs {
		j.err = cmp.Or(j.err, err)
	}
	return err != nil
}

// read reads the tasks, their events, and the waiting events of bursts.
func (h *Handler) read(ctx context.Context, jobs []*job) {
	var fresh, known, bursts []*job
	for _, j := range jobs {
		switch j.err = j.parse(); {
		case j.err != nil && j.task.Kind == Notify:
			eventsTargeted.WithLabelValues(eventInvalid).Inc()
		case j.err != nil:
		case j.task.Kind == Notify:
			fresh = append(fresh, j)
		case j.task.Kind == Burst:
			bursts = append(bursts, j)
		default:
			known = append(known, j)
		}
	}
	fail(fresh, h.store(ctx, fresh))
	fail(known, h.readEvents(ctx, known))
	fail(bursts, h.readBursts(ctx, bursts))
}

var errNumberTaken = errors.New("an earlier event has the number of this task: the table of tasks was emptied, or is an older one; " +
	"if the event is still of use, insert its row again")

// store stores the events of notify tasks. The event of an id that another task stored is that task's.
func (h *Handler) store(ctx context.Context, fresh []*job) error {
	batch := make([]*StoredEvent, len(fresh))
	for i, j := range fresh {
		batch[i] = j.event
	}
	stored, err := h.Store.StoreEvents(ctx, batch)
	for i, e := range stored {
		j, outcome := fresh[i], eventNew
		switch j.event = e; {
		case e == nil:
			j.err, outcome = queue.Permanent(errNumberTaken), eventInvalid
		case e.Number != j.task.ID:
			j.event, outcome = nil, eventRepeated
		}
		eventsTargeted.WithLabelValues(outcome).Inc()
	}
	return err
}

// readEvents reads the events that tasks name.
func (h *Handler) readEvents(ctx context.Context, jobs []*job) error {
	var numbers []uint64
	for _, j := range jobs {
		numbers = append(numbers, j.payload.Event)
	}
	events, err := h.Store.Events(ctx, numbers)
	for _, j := range jobs {
		if j.event = events[j.payload.Event]; j.event == nil && err == nil { // it was forgotten, or lost
			skipped.WithLabelValues(string(Lost)).Add(float64(max(1, len(j.payload.To))))
		}
	}
	return err
}

// readBursts reads the waiting events of burst tasks. A task that comes for a burst a second time has nothing to do.
func (h *Handler) readBursts(ctx context.Context, jobs []*job) error {
	var bursts []BurstDevice
	var of []*job
	for _, j := range jobs {
		if b := (BurstDevice{j.payload.Burst, j.payload.To[0]}); !slices.Contains(bursts, b) {
			bursts, of = append(bursts, b), append(of, j)
		}
	}
	all, err := h.Store.Waiting(ctx, bursts)
	if err != nil {
		return err
	}
	var numbers []uint64
	for i, receipts := range all {
		of[i].more, all[i] = len(receipts) >= maxWaiting, running(receipts)
		for _, r := range all[i] {
			numbers = append(numbers, r.Event)
		}
	}
	events, err := h.Store.Events(ctx, numbers)
	for i := range all {
		for _, r := range all[i] {
			if e := events[r.Event]; e != nil { // else it was forgotten, long after it expired
				of[i].waiting = append(of[i].waiting, e)
			}
		}
	}
	return err
}

// address finds the recipients of notify and target tasks.
func (h *Handler) address(ctx context.Context, jobs []*job) {
	var late []fate
	var of []*job
	var pages []contacts.FollowerPage
	for _, j := range jobs {
		switch e := j.event; {
		case j.err != nil || e == nil || j.task.Kind != Notify && j.task.Kind != Target:
		case e.Followers && !j.task.Claimed.Before(e.Expires): // all of them together, as member 0
			late = append(late, fate{delivery: delivery{job: j, event: e}, state: StateSkipped, reason: string(Expired)})
		case e.Followers:
			of, pages = append(of, j), append(pages, contacts.FollowerPage{Of: e.Actor, After: j.payload.After})
		default:
			list := j.listed()
			j.page(list[:min(len(list), h.PageSize)], len(list) > h.PageSize)
		}
	}
	put(h.record(ctx, late))
	for from := 0; from < len(of); from += followersAtOnce {
		some := of[from:min(from+followersAtOnce, len(of))]
		lists, err := h.Followers.FollowerPages(ctx, pages[from:from+len(some)], h.PageSize)
		if fail(some, err) {
			continue
		}
		for i, j := range some {
			j.page(lists[i], len(lists[i]) == h.PageSize)
		}
	}
}

// listed returns the recipients above the page before that the event names.
func (j *job) listed() []member.ID {
	list := slices.Sorted(slices.Values(j.event.Recipients))
	at, found := slices.BinarySearch(list, j.payload.After)
	if found {
		at++
	}
	return list[at:]
}

// page gives a page of recipients to the task itself, if they are few and the last, and else to deliver tasks and a task for the next
// page. An actor is not notified of its own event as a follower. A row in a queue of other tasks sends nothing there: these would wait
// for push services.
func (j *job) page(members []member.ID, more bool) {
	var to []Recipient
	for _, id := range members {
		if id != j.event.Actor || !j.event.Followers {
			to = append(to, Recipient{Member: id})
		}
	}
	isOfPush := slices.Contains([]string{QueuePush, QueueDeliver, QueueUrgent}, j.task.Queue)
	if !more && len(to) <= maxTo && (isOfPush || len(to) == 0) {
		j.payload.To = to
		return
	}
	j.payload.To = nil
	for some := range slices.Chunk(to, maxTo) {
		j.next = append(j.next, j.follow(Deliver, j.event, Payload{To: some}, 0))
	}
	if more {
		j.next = append(j.next, j.follow(Target, j.event, Payload{After: members[len(members)-1]}, 0))
	}
}

// byLook divides jobs by how many candidates a look may have. A job is in one look.
func byLook(jobs []*job) func(yield func([]*job) bool) {
	return func(yield func([]*job) bool) {
		var some []*job
		candidates := 0
		for _, j := range jobs {
			n := j.candidates()
			if n == 0 {
				continue
			}
			if len(some) > 0 && candidates+n > maxLook {
				if !yield(some) {
					return
				}
				some, candidates = nil, 0
			}
			some, candidates = append(some, j), candidates+n
		}
		if len(some) > 0 {
			yield(some)
		}
	}
}

// candidates is how many candidates the task has for a look.
func (j *job) candidates() int {
	switch {
	case j.err != nil:
		return 0
	case j.task.Kind == Burst:
		return len(j.waiting)
	case j.event == nil:
		return 0
	}
	return len(j.payload.To)
}

// parse reads the task. An error says that it makes no sense.
func (j *job) parse() (err error) {
	if j.task.Kind == Notify {
		err = j.parseEvent()
	} else {
		err = j.payload.parse(j.task)
	}
	if err != nil {
		return queue.Permanent(fmt.Errorf("%w: %s: %w", queue.ErrInvalid, j.task.Kind, err))
	}
	return nil
}

func (j *job) parseEvent() error {
	actor := member.ID(j.task.Key)
	if actor == 0 {
		return errors.New("the key of the task, which is the actor, is 0")
	}
	e, err := ParseEvent(actor, j.task.Payload)
	e.ID = cmp.Or(e.ID, fmt.Sprintf("task-%d", j.task.ID))
	j.event = NewStored(e, j.task.ID, j.task.Created)
	return err
}
