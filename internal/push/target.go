package push

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/queue"
)

var eventsTargeted = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "activityd_push_events_total", Help: "Events whose targeting began; repeated: of an id that was targeted before, invalid: its task is dead.",
}, []string{"outcome"})

// The ends of a notify task: its event is targeted, it was before, or it cannot be understood.
const (
	eventNew      = "new"
	eventRepeated = "repeated"
	eventInvalid  = "invalid"
)

func init() {
	for _, outcome := range []string{eventNew, eventRepeated, eventInvalid} {
		eventsTargeted.WithLabelValues(outcome)
	}
}

// TargetStore is the database as targeting needs it: a [*MySQL].
type TargetStore interface {
	Looker
	StoreEvents(ctx context.Context, batch []NewEvent) ([]Stored, error)
	EventsOf(ctx context.Context, refs []EventRef) (map[EventRef]*StoredEvent, error)
	Record(ctx context.Context, receipts []Receipt) error
}

// Followers reads who follows members; it is a [*contacts.MySQL].
type Followers interface {
	FollowerPages(ctx context.Context, pages []contacts.FollowerPage, limit int) ([][]member.ID, error)
}

// Targeting is the handler of notify and target tasks: it finds the devices that an event is for, a page of its recipients
// at a time, and leaves the devices to deliver tasks.
//
//	store     the event is inserted, unless its id is there
//	page      the first PageSize recipients above an id are read, in the order of ids
//	look      the facts about each device are read, by one statement
//	receipts  members that are not notified get a receipt that says why
//	finish    the queue deletes the task, and inserts its follow-ups: deliveries, by platform and time, and the next page
//
// Each step is a statement for all tasks of a claim that it has room for. The finish is a transaction on the lease of the
// task: of all processes that ever work on a page, a single process commits it. Before it nothing of the page is sent,
// and the page is done again from the stored event when the lease has run out; after it all deliveries are there. A
// notify task that finds its id with an event of another task is a repetition, and is done.
//
// Recipients that come or go between two pages are as the page finds them. As pages go by ids, no member that follows all
// the time is left out or comes twice.
type Targeting struct {
	TargetingOptions
}

// TargetingOptions are for [NewTargeting].
type TargetingOptions struct {
	Store     TargetStore
	Followers Followers
	// MustShow are the platforms whose devices have to show all that they are sent: see [Kind].
	MustShow map[Platform]bool
	// PageSize is how many recipients a page has, and how many a look; 0: [DefaultPageSize].
	PageSize int
}

// DefaultPageSize is the default of [TargetingOptions].
const DefaultPageSize = 1000

const (
	followersAtOnce = 16 // pages of followers that are read together
	// maxWork is how long a handler takes further tasks of its batch: then tasks that wait come before the rest.
	maxWork = time.Second
)

var errRest = errors.New("the tasks before it in the claim took long")

var _ queue.Handler = (*Targeting)(nil)

// NewTargeting returns the handler of notify and target tasks.
func NewTargeting(o TargetingOptions) *Targeting {
	o.PageSize = cmp.Or(o.PageSize, DefaultPageSize)
	return &Targeting{o}
}

// page is the work of one task.
type page struct {
	task    queue.Task
	event   *StoredEvent // nil: there is nothing to do
	after   member.ID
	members []member.ID // of the recipients above after, the first
	more    bool        // there may be more
	outcome queue.Outcome
}

// Handle implements [queue.Handler].
func (g *Targeting) Handle(ctx context.Context, tasks []queue.Task) []queue.Outcome {
	began := time.Now()
	pages := make([]*page, len(tasks))
	for i, t := range tasks {
		pages[i] = &page{task: t}
	}
	for some := range g.together(ctx, g.begin(ctx, pages)) {
		if time.Since(began) > maxWork {
			fail(some, queue.Later(0, errRest))
			continue
		}
		g.target(ctx, some)
	}
	outcomes := make([]queue.Outcome, len(pages))
	for i, p := range pages {
		outcomes[i] = p.outcome
	}
	return outcomes
}

// target does pages that are looked at together.
func (g *Targeting) target(ctx context.Context, pages []*page) {
	var asked []Candidate
	for _, p := range pages {
		asked = append(asked, p.candidates()...)
	}
	facts, err := g.Store.Look(ctx, asked)
	if err != nil {
		skipPages(pages, err)
		return
	}
	of := make(map[Candidate][]Facts, len(asked))
	for _, f := range facts {
		of[asked[f.Candidate]] = append(of[asked[f.Candidate]], f)
	}
	plans := make([]targets, len(pages))
	var receipts []Receipt
	for i, p := range pages {
		plans[i] = p.decide(of, g.MustShow)
		receipts = append(receipts, plans[i].skipped...)
	}
	if err := g.Store.Record(ctx, receipts); err != nil {
		skipPages(pages, err)
		return
	}
	for i, p := range pages {
		p.outcome.Next = append(p.deliveries(plans[i].sends), p.next()...)
		plans[i].count()
	}
}

// skipPages is the end of pages for now. Should their tasks be dead, their successors go on behind them.
func skipPages(pages []*page, err error) {
	for _, p := range pages {
		p.outcome = queue.Outcome{Err: err, Next: p.next()}
	}
}

// begin finds the events of the tasks, and returns the pages that there are to do.
func (g *Targeting) begin(ctx context.Context, all []*page) []*page {
	var events []NewEvent
	var notify, target []*page
	var refs []EventRef // of the target tasks
	for _, p := range all {
		switch e, ref, err := p.parse(); {
		case err != nil:
			eventsTargeted.WithLabelValues(eventInvalid).Inc()
			p.outcome.Err = queue.Permanent(fmt.Errorf("%w: %s: %w", queue.ErrInvalid, p.task.Kind, err))
		case ref.Number != 0:
			target, refs = append(target, p), append(refs, ref)
		default:
			notify, events = append(notify, p), append(events, e)
		}
	}
	fail(notify, g.store(ctx, notify, events))
	stored, err := g.Store.EventsOf(ctx, refs)
	fail(target, err)
	for i, p := range target {
		switch p.event = stored[refs[i]]; {
		case p.event == nil && err == nil: // it was forgotten, long after it expired, or lost
			skipped.WithLabelValues(atTargeting, string(Lost)).Inc()
		case p.event != nil && uint64(p.event.Actor) != p.task.Key:
			p.outcome.Err = queue.Permanent(fmt.Errorf("%w: %s: event %d is not of the actor %d", queue.ErrInvalid, p.task.Kind, refs[i].Number, p.task.Key))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(p *page) bool { return p.event == nil || p.outcome.Err != nil })
}

// fail gives an error, unless it is nil, to all pages.
func fail(pages []*page, err error) bool {
	for _, p := range pages {
		if err != nil {
			p.outcome.Err = err
		}
	}
	return err != nil
}

// parse reads the task: an event, or a page of an event.
func (p *page) parse() (e NewEvent, ref EventRef, err error) {
	actor := member.ID(p.task.Key)
	if actor == 0 {
		return e, ref, errors.New("the key of the task, which is the actor, is 0")
	}
	if p.task.Kind == Target {
		var next Page
		err := json.Unmarshal(p.task.Payload, &next)
		if err == nil && next.Event == 0 {
			err = errors.New("the payload names no event")
		}
		p.after = next.After
		return e, EventRef{next.Event, next.Task}, err
	}
	event, err := ParseEvent(actor, p.task.Payload)
	event.ID = cmp.Or(event.ID, fmt.Sprintf("task-%d", p.task.ID))
	created := p.task.Created.Add(-event.Age)
	event.Age = 0
	return NewEvent{Event: event, Task: p.task.ID, Created: created}, ref, err
}

// priority is for the tasks that follow a task: its own, unless the event is urgent.
func (e *Event) priority(t queue.Task) int {
	if e.Urgent {
		return min(t.Priority, queue.Urgent)
	}
	return t.Priority
}

// store stores the events of notify tasks that are new.
func (g *Targeting) store(ctx context.Context, pages []*page, events []NewEvent) error {
	stored, err := g.Store.StoreEvents(ctx, events)
	for i, s := range stored {
		if s.Repeated {
			eventsTargeted.WithLabelValues(eventRepeated).Inc()
			continue
		}
		eventsTargeted.WithLabelValues(eventNew).Inc()
		pages[i].event = s.StoredEvent
	}
	return err
}

// together yields the pages with their recipients, as many small pages at once as there may be candidates.
func (g *Targeting) together(ctx context.Context, pages []*page) iter.Seq[[]*page] {
	return func(yield func([]*page) bool) {
		var some []*page
		candidates := 0
		for chunk := range slices.Chunk(pages, followersAtOnce) {
			for _, p := range g.recipients(ctx, chunk) {
				if candidates+len(p.members) > g.PageSize {
					if !yield(some) {
						return
					}
					some, candidates = nil, 0
				}
				some, candidates = append(some, p), candidates+len(p.members)
			}
		}
		if len(some) > 0 {
			yield(some)
		}
	}
}

// recipients reads the recipients of the pages, and returns the pages that did not fail.
func (g *Targeting) recipients(ctx context.Context, pages []*page) (some []*page) {
	var of []*page
	var asked []contacts.FollowerPage
	for _, p := range pages {
		if p.event.Followers && !p.isLate() {
			of, asked = append(of, p), append(asked, contacts.FollowerPage{Of: p.event.Actor, After: p.after})
			continue
		}
		if p.members = p.listed(); len(p.members) > g.PageSize && !p.isLate() {
			p.members, p.more = p.members[:g.PageSize], true
		}
		some = append(some, p)
	}
	if len(of) == 0 {
		return some
	}
	lists, err := g.Followers.FollowerPages(ctx, asked, g.PageSize)
	if fail(of, err) {
		return some
	}
	for i, p := range of {
		p.members, p.more = lists[i], len(lists[i]) == g.PageSize
	}
	return append(some, of...)
}

// isLate reports whether the event had expired when the task was claimed.
func (p *page) isLate() bool { return !p.task.Claimed.Before(p.event.Expires) }

// listed returns the recipients above after that the event names.
func (p *page) listed() []member.ID {
	list := slices.Sorted(slices.Values(p.event.Recipients))
	at, found := slices.BinarySearch(list, p.after)
	if found {
		at++
	}
	return list[at:]
}

// candidates asks about the recipients. An actor is not notified of its own event as a follower.
func (p *page) candidates() (list []Candidate) {
	if p.isLate() { // no look is needed
		return nil
	}
	for _, id := range p.members {
		if id != p.event.Actor || !p.event.Followers {
			list = append(list, Candidate{Event: p.event, Member: id})
		}
	}
	return list
}

// next returns the task for the rest of the event after the page.
func (p *page) next() []queue.New {
	if !p.more || len(p.members) == 0 {
		return nil
	}
	next := Page{Event: p.event.Number, Task: p.event.Task, After: p.members[len(p.members)-1]}.task(p.event)
	next.Priority = p.event.priority(p.task)
	return []queue.New{next}
}

// targets is the decision about the recipients of a page.
type targets struct {
	sends      map[group][]Recipient
	skipped    []Receipt
	deviceless int // followers without a device, who have no receipts
	doubled    int // devices that have accepted the event, or refused it
}

// group is the devices of a platform that wait for the same end of quiet hours.
type group struct {
	platform Platform
	delay    time.Duration
}

// decide finds who of the page is notified.
func (p *page) decide(of map[Candidate][]Facts, mustShow map[Platform]bool) (t targets) {
	t.sends = make(map[group][]Recipient)
	skip := func(id member.ID, device uint64, reason Skip) {
		t.skipped = append(t.skipped, Receipt{Event: p.event.Number, Member: id, Device: device, State: StateSkipped, Reason: string(reason), Burst: p.event.Burst()})
	}
	if p.isLate() {
		rest := p.members
		if p.event.Followers { // they are skipped together, as member 0
			rest = []member.ID{0}
		}
		for _, id := range rest {
			skip(id, 0, Expired)
		}
		return t
	}
	for _, c := range p.candidates() {
		switch {
		case len(of[c]) > 0:
		case p.event.Followers:
			t.deviceless++
		default:
			skip(c.Member, 0, NoDevice)
		}
		for _, f := range of[c] {
			to := Recipient{f.Device.Member, f.Device.ID}
			switch d := Decide(p.event, f, mustShow); {
			case d.Skip == Doubled:
				t.doubled++
			case d.Skip != "":
				skip(to.Member, to.Device, d.Skip)
			default:
				g := group{platform: f.Device.Platform}
				if !d.NotBefore.IsZero() {
					g.delay = max(0, d.NotBefore.Sub(f.Now))
				}
				t.sends[g] = append(t.sends[g], to)
			}
		}
	}
	return t
}

// deliveries returns the tasks that deliver: each for up to maxTo devices of a platform that wait for as long. They do not
// expire in the queue: a delivery of an event that has expired leaves a receipt that says so.
func (p *page) deliveries(sends map[group][]Recipient) (list []queue.New) {
	groups := slices.SortedFunc(maps.Keys(sends), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.delay, b.delay), cmp.Compare(a.platform, b.platform))
	})
	for _, g := range groups {
		for to := range slices.Chunk(sends[g], maxTo) {
			n := p.event.deliver(to)
			n.Priority, n.Delay = p.event.priority(p.task), g.delay
			list = append(list, n)
		}
	}
	return list
}

// count counts the devices and members that were skipped.
func (t targets) count() {
	for _, r := range t.skipped {
		skipped.WithLabelValues(atTargeting, r.Reason).Inc()
	}
	skipped.WithLabelValues(atTargeting, string(Doubled)).Add(float64(t.doubled))
	skipped.WithLabelValues(atTargeting, string(NoDevice)).Add(float64(t.deviceless))
}
