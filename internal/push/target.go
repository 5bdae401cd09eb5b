package push

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"regexp"
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

// What becomes of an event: it is targeted, it was before, or it cannot be understood.
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

// TargetStore is what targeting needs of the database; it is a [*MySQL].
type TargetStore interface {
	Looker
	StoreEvents(ctx context.Context, batch []NewEvent) ([]Stored, error)
	CurrentEvents(ctx context.Context, numbers []uint64) (map[uint64]*StoredEvent, error)
	LastSent(ctx context.Context, bursts []BurstDevice) ([]LastSent, error)
	PendingWithin(ctx context.Context, ranges []MemberRange) ([]Receipt, error)
	WriteReceipts(ctx context.Context, held []queue.Task, receipts []Receipt) error
}

// Followers reads who follows members; it is a [*contacts.MySQL].
type Followers interface {
	FollowerPages(ctx context.Context, pages []contacts.FollowerPage, limit int) ([][]member.ID, error)
}

// Targeting finds the devices that an event is for, a page of its recipients at a time. As a handler of notify and
// target tasks it leaves all deliveries to tasks; [Handler] sends what is few at once.
//
// A page is the first PageSize recipients above an id, in the order of ids, or fewer, if
// these have more than PageSize devices. Its deliveries, and the task for the next page,
// are its follow-ups. Many small events of one claim are looked at together.
//
// # A crash loses nothing and repeats nothing
//
// A page takes these steps:
//
//	store     the event is inserted, unless there is one with its id
//	look      what decides about each device is read, by one statement
//	receipts  members that are not notified, and the devices to which an event of a burst is
//	          about to be sent, are written, as long as the lease of the task holds
//	bursts    what others of their bursts were, or are about to be, sent to these is read; the
//	          pending receipts of those that have to wait are written, as long as it holds
//	finish    the queue deletes the task, and inserts its follow-ups
//
// The last one is a transaction on the lease of the task: of all that ever work on a page,
// exactly one commits it. After it, the page is through and its deliveries and its
// successor are there. Before it, neither is, and the page is done again when the lease has
// run out. What the first attempt left is then found as follows:
//
//   - The event is stored with the number of this task. The page is made from the stored event,
//     because its deliveries read that one, too.
//   - A task with another number is a repetition of the event, and is done.
//   - The receipts are written again, by what the new look says. A receipt that says "accepted"
//     stays.
//   - A pending receipt of the first attempt gets a delivery, even if its device was deleted
//     since: the last look finds that out. The first attempt writes no more of them once another
//     one has the task, see [MySQL.WriteReceipts].
//   - A pending receipt of a burst may have been sent by the delivery of another event of the
//     burst. Then [Facts].Accepted keeps this page from making a delivery, or its delivery
//     finds nothing pending.
//   - The pending run is replaced. Until then it keeps others of the burst waiting at most.
//
// # Bursts
//
// An event of a burst goes to most devices as any other does, by tasks for many of them: at once, and alone. Only the
// devices for which it has to wait, or for which others of the burst wait, have a pending receipt each, and a task
// for all that is pending of the burst; what a page of few devices sends itself has one, too, see [Handler]. There may be several of these
// tasks: see [Deliveries].
//
// Two deliveries of one burst should not be sent to a device at the same time, in two
// processes: it would count both by itself, and show which came last. So a page first writes
// one row that says to which devices it is about to send (a pending run, see run), and reads those
// of others afterwards: of two pages, one at least sees the other. Then the delivery of the later event
// waits until that of the earlier one is over. That of the earlier one waits briefly, from when it sees the other, since the other's
// page may not have seen it. Deliveries of urgent events wait for less; those of a
// burst that has lasted for longer than burstPause do not. Whatever comes late nevertheless finds, by its last look, what
// was accepted meanwhile, and counts it (see [Deliveries]).
//
// So before its finish a page that leaves its deliveries to tasks causes one thing to be sent: what is pending of a burst, once. And
// nothing is missing: if the page is dead in the end, its successor goes on behind it.
//
// Recipients that come or go between two pages are as the page finds them. As pages go by
// ids, no member that follows all the time is left out or comes twice.
//
// # What is held at once
//
// Of a claim, followersAtOnce pages of followers are read, and PageSize candidates looked at
// together, each with MaxDevices devices at most. Of these, a page takes no further member
// after PageSize deliveries, and a look no further page; a claim no further look after
// MaxDeliveries. The other tasks are handed back. So the transaction of the finish inserts
// MaxDeliveries and two pages more at the very most, and one page usually.
type Targeting struct {
	TargetingOptions
}

// TargetingOptions say what targeting works with.
type TargetingOptions struct {
	Store     TargetStore
	Followers Followers
	// MustShow are the platforms whose devices have to show all that they are sent: see [Kind].
	MustShow map[Platform]bool
	// PageSize is how many recipients, and how many deliveries, a page has; 0:
	// [DefaultPageSize].
	PageSize int
	// MaxDeliveries is after how many deliveries the other tasks of a claim are handed back;
	// 0: two pages.
	MaxDeliveries int
}

// DefaultPageSize is the default of [TargetingOptions].
const DefaultPageSize = 1000

// followersAtOnce is how many pages of followers are read at once.
const followersAtOnce = 16

const (
	// burstPause is how long a burst is left alone for a device after one of its events was
	// accepted, or is about to be sent.
	burstPause = time.Minute
	// rivalPause is how long a delivery waits for one of a later event of its burst, which
	// may be under way.
	rivalPause = 5 * time.Second
	// urgentPause is how long an urgent delivery waits for one of its burst that is sent at once.
	urgentPause = time.Second
)

var _ queue.Handler = (*Targeting)(nil)

// NewTargeting returns the handler of notify and target tasks.
func NewTargeting(o TargetingOptions) *Targeting {
	o.PageSize = cmp.Or(o.PageSize, DefaultPageSize)
	o.MaxDeliveries = cmp.Or(o.MaxDeliveries, 2*o.PageSize)
	return &Targeting{o}
}

// page is the work of one task.
type page struct {
	task    queue.Task
	event   *StoredEvent
	after   member.ID
	members []member.ID // of the recipients above after, the first
	more    bool        // there may be others
	sends   []send
	marks   bool // of a burst and few: what may be sent now is marked before, as by a task for the burst
	skips   []Receipt
	doubled []Recipient // that have accepted it, or refused it
	// deviceless counts followers without a device: there are no receipts of them.
	deviceless int
	outcome    queue.Outcome
	isNew      bool // no attempt before this one can have sent some of it
	sent       *job // what it sends itself; nil: nothing
}

// send is a delivery to be made.
type send struct {
	Facts
	notBefore time.Time // zero: now
	burst     LastSent  // what others of its burst keep it waiting
	byBurst   bool      // together with others of its burst: it has a pending receipt, and a task for the burst
	isKept    bool      // its pending receipt was there before, and may be marked: it is not written again
}

var errLimit = errors.New("the events before it in the claim have as many recipients as are handled at once")

// Handle implements [queue.Handler].
func (g *Targeting) Handle(ctx context.Context, tasks []queue.Task) []queue.Outcome {
	all := make([]*page, len(tasks))
	for i, t := range tasks {
		all[i] = &page{task: t}
	}
	g.handle(ctx, all, nil)
	outcomes := make([]queue.Outcome, len(all))
	for i, p := range all {
		outcomes[i] = p.outcome
	}
	return outcomes
}

// handle targets pages. What b sends at once of them, if it is not nil, has no deliver tasks.
func (g *Targeting) handle(ctx context.Context, all []*page, b *batch) {
	if len(all) == 0 {
		return
	}
	pages := g.begin(ctx, all)
	if b != nil {
		pages = b.free(pages)
	}
	g.target(ctx, pages, b)
}

// begin finds out which events the tasks are about, and returns the pages that there are to do.
func (g *Targeting) begin(ctx context.Context, all []*page) []*page {
	var events []NewEvent
	var notify, target []*page
	var named []Page // by the target tasks
	var numbers []uint64
	for _, p := range all {
		switch e, next, err := p.parse(); {
		case err != nil:
			eventsTargeted.WithLabelValues(eventInvalid).Inc()
			p.outcome.Err = queue.Permanent(fmt.Errorf("%w: %s: %w", queue.ErrInvalid, p.task.Kind, err))
		case next.Event != 0:
			target, named, numbers = append(target, p), append(named, next), append(numbers, next.Event)
		case p.task.Queue != QueuePush && p.task.Queue != QueueUrgent:
			p.outcome.Err = p.handOver(e)
		default:
			notify, events = append(notify, p), append(events, e)
		}
	}
	fail(notify, g.store(ctx, notify, events))
	stored, err := g.Store.CurrentEvents(ctx, numbers)
	fail(target, err)
	for i, p := range target {
		p.event = stored[numbers[i]] // nil: it was forgotten, long after it expired
		if p.event != nil && !p.event.isOf(named[i].Task) {
			p.event = nil
			skipped.WithLabelValues(atTargeting, string(Lost)).Inc()
		}
		if p.event != nil && uint64(p.event.Actor) != p.task.Key {
			p.outcome.Err = queue.Permanent(fmt.Errorf("%w: %s: event %d is not of the actor %d", queue.ErrInvalid, p.task.Kind, numbers[i], p.task.Key))
		}
	}
	var pages []*page
	for _, p := range all {
		if p.event != nil && p.outcome.Err == nil {
			pages = append(pages, p)
		}
	}
	return pages
}

// fail gives an error, if it is one, to all pages.
func fail(pages []*page, err error) bool {
	for _, p := range pages {
		if err != nil {
			p.outcome.Err = err
		}
	}
	return err != nil
}

// parse reads what the task says: an event, or a page of one.
func (p *page) parse() (e NewEvent, next Page, err error) {
	actor := member.ID(p.task.Key)
	if actor == 0 {
		return e, next, errors.New("the key of the task, which is the actor, is 0")
	}
	if p.task.Kind == Target {
		err := json.Unmarshal(p.task.Payload, &next)
		if err == nil && next.Event == 0 {
			err = errors.New("the payload names no event")
		}
		p.after = next.After
		return e, next, err
	}
	event, err := ParseEvent(actor, p.task.Payload)
	event.ID = cmp.Or(event.ID, madeID(p.task))
	created := p.task.Created.Add(-event.Age)
	event.Age = 0
	return NewEvent{Event: event, Task: p.task.ID, Created: created}, next, err
}

// madeID is the id of an event without one.
func madeID(t queue.Task) string { return fmt.Sprintf("task-%d", t.ID) }

// madeSyntax matches those ids.
var madeSyntax = regexp.MustCompile(`^task-\d+$`)

// handOver returns the task that targets the event in a queue of push, which have workers and a
// lease of their own: that of a row which names no queue lies in the default one. The event keeps
// its id, and since when it is known.
func (p *page) handOver(e NewEvent) error {
	e.Age = min(max(0, p.task.Claimed.Sub(e.Created)).Truncate(time.Millisecond), maxAge)
	next, err := NewNotify(e.Event)
	if err != nil {
		return queue.Permanent(err)
	}
	next.Priority = p.task.Priority
	if e.Urgent {
		next.Priority = min(next.Priority, queue.Urgent)
	}
	p.outcome.Next = []queue.New{next}
	return nil
}

// storedBytes bounds the payloads of the events that are stored at once.
const storedBytes = 1 << 20

// store stores the events of notify tasks that are new.
func (g *Targeting) store(ctx context.Context, pages []*page, events []NewEvent) error {
	for first := 0; first < len(pages); {
		end, bytes := first, 0
		for end < len(pages) && (end == first || bytes+len(pages[end].task.Payload) <= storedBytes) {
			bytes += len(pages[end].task.Payload)
			end++
		}
		stored, err := g.Store.StoreEvents(ctx, events[first:end])
		if err != nil {
			return err
		}
		if err := g.renumber(ctx, events[first:end], stored); err != nil {
			return err
		}
		for i, s := range stored {
			p := pages[first+i]
			switch {
			case s.Repeated:
				eventsTargeted.WithLabelValues(eventRepeated).Inc()
			default:
				p.event, p.isNew = s.StoredEvent, s.New
				eventsTargeted.WithLabelValues(eventNew).Inc()
			}
		}
		first = end
	}
	return nil
}

// renumber stores events under another id whose made id stands for another event: that of a
// task with the same number, before the table of tasks was emptied. The two were not created
// in the same millisecond.
func (g *Targeting) renumber(ctx context.Context, events []NewEvent, stored []Stored) error {
	var again []NewEvent
	var places []int
	for i, s := range stored {
		e := events[i]
		if created := e.Created.UnixMilli(); madeSyntax.MatchString(e.ID) && s.Created.UnixMilli() != created {
			e.ID = fmt.Sprintf("%s-%d", e.ID, created)
			again, places = append(again, e), append(places, i)
		}
	}
	if len(again) == 0 {
		return nil
	}
	under, err := g.Store.StoreEvents(ctx, again)
	for i, s := range under {
		stored[places[i]] = s
	}
	return err
}

// target does the pages, until they have made MaxDeliveries. Those that are left are handed back.
func (g *Targeting) target(ctx context.Context, pages []*page, b *batch) {
	for _, p := range pages {
		p.outcome.Err = queue.Later(0, errLimit) // until it is looked at
	}
	made := 0
	for some := range g.together(ctx, pages) {
		if made += g.look(ctx, some, b); made >= g.MaxDeliveries {
			return
		}
	}
}

// together yields the pages with their recipients, as many small ones at once as there may be candidates.
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

// recipients reads the recipients of the pages, and returns those of which nothing is
// finished or failed by then.
func (g *Targeting) recipients(ctx context.Context, pages []*page) (some []*page) {
	var of []*page
	var asked []contacts.FollowerPage
	for _, p := range pages {
		switch {
		case !p.task.Claimed.Before(p.event.Expires): // no look is needed
			p.expire()
			some = append(some, p)
		case p.event.Followers:
			of, asked = append(of, p), append(asked, contacts.FollowerPage{Of: p.event.Actor, After: p.after})
		default:
			p.members = p.listed()
			p.more = len(p.members) > g.PageSize
			p.members = p.members[:min(len(p.members), g.PageSize)]
			some = append(some, p)
		}
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
		some = append(some, p)
	}
	return some
}

// listed returns the recipients that the event names, those above after.
func (p *page) listed() []member.ID {
	list := slices.Sorted(slices.Values(p.event.Recipients))
	at, found := slices.BinarySearch(list, p.after)
	if found {
		at++
	}
	return list[at:]
}

// expire ends the page of an event that is too old. It skips the recipients that are left, one
// by one if the event names them. Followers that are left are skipped as one, member 0.
func (p *page) expire() {
	rest := []member.ID{0}
	if !p.event.Followers {
		rest = p.listed()
	}
	for _, id := range rest {
		p.skip(id, 0, Expired)
	}
}

func (p *page) skip(id member.ID, device uint64, reason Skip) {
	p.skips = append(p.skips, Receipt{Event: p.event.Number, Member: id, Device: device, State: StateSkipped, Reason: string(reason)})
}

// candidate asks about a recipient.
func (p *page) candidate(id member.ID) Candidate {
	c := Candidate{Event: p.event.Number, Member: id}
	if !p.isNew {
		c.Task = p.task.ID
	}
	return c
}

// look does the pages of a group, and returns how many deliveries it made.
func (g *Targeting) look(ctx context.Context, group []*page, b *batch) (made int) {
	if b != nil {
		b.drain() // what was accepted is recorded after the end of ctx, too
	}
	var candidates []Candidate
	for _, p := range group {
		p.outcome.Err = nil
		for _, id := range p.members {
			if id != p.event.Actor || !p.event.Followers { // the actor is not notified of its own event as a follower
				candidates = append(candidates, p.candidate(id))
			}
		}
	}
	at := time.Now()
	facts, err := g.Store.Look(ctx, candidates)
	if err != nil {
		g.failed(group, err)
		return 0
	}
	of := make(map[Candidate][]Facts, len(candidates))
	for _, f := range facts {
		c := candidates[f.Candidate]
		of[c] = append(of[c], f)
	}
	done := group[:0:0]
	for _, p := range group {
		if made >= g.PageSize {
			p.outcome.Err = queue.Later(0, errLimit)
			continue
		}
		p.decide(of, g.PageSize, g.MustShow)
		made += len(p.sends)
		done = append(done, p)
	}
	if err := g.write(ctx, done, b); err != nil {
		g.failed(done, err)
		return made
	}
	for _, p := range done {
		if b != nil {
			b.sendNow(p, at) // what has left is answered after the end of ctx, too
		}
		p.deliveries()
		p.succeed()
		p.count()
	}
	return made
}

// write writes the receipts of pages, and finds out what keeps the deliveries of bursts waiting: not before, see Targeting.
func (g *Targeting) write(ctx context.Context, pages []*page, b *batch) error {
	for _, p := range pages {
		p.marks = b != nil && p.event.Collapse != "" && !p.more && len(p.sends) <= g.few()
	}
	err := g.resume(ctx, pages)
	if err == nil {
		err = g.Store.WriteReceipts(ctx, tasksOf(pages), receipts(pages))
	}
	if err == nil {
		err = g.waits(ctx, pages)
	}
	if err == nil {
		err = g.Store.WriteReceipts(ctx, tasksOf(pages), waiting(pages))
	}
	return err
}

// tasksOf returns the tasks of pages.
func tasksOf(pages []*page) []queue.Task {
	list := make([]queue.Task, len(pages))
	for i, p := range pages {
		list[i] = p.task
	}
	return list
}

// failed is the end of pages for now. Should their tasks be dead, their successors go on behind
// them.
func (g *Targeting) failed(pages []*page, err error) {
	for _, p := range pages {
		p.outcome.Err = err
		p.succeed()
	}
}

// succeed adds the task for what is left of the event after the page.
func (p *page) succeed() {
	if p.more && len(p.members) > 0 {
		next := Page{Event: p.event.Number, Task: p.event.Task, After: p.members[len(p.members)-1]}.task(p.event)
		next.Priority = p.priority()
		p.outcome.Next = append(p.outcome.Next, next)
	}
}

// priority is that of the page's follow-ups: its own, unless the event is urgent.
func (p *page) priority() int {
	if p.event.Urgent {
		return min(p.task.Priority, queue.Urgent)
	}
	return p.task.Priority
}

// decide finds who is notified and who is not. After so many deliveries it leaves the other members
// to the next page.
func (p *page) decide(of map[Candidate][]Facts, limit int, mustShow map[Platform]bool) {
	for i, id := range p.members {
		if len(p.sends) >= limit {
			p.members, p.more = p.members[:i], true
			return
		}
		facts := of[p.candidate(id)]
		switch {
		case p.event.Followers && id == p.event.Actor:
		case len(facts) == 0 && p.event.Followers:
			p.deviceless++
		case len(facts) == 0:
			p.skip(id, 0, NoDevice)
		}
		for _, f := range facts {
			switch d := Decide(p.event, f, mustShow); d.Skip {
			case "":
				p.sends = append(p.sends, send{Facts: f, notBefore: d.NotBefore})
			case Doubled:
				p.doubled = append(p.doubled, Recipient{f.Device.Member, f.Device.ID})
			default:
				p.skip(id, f.Device.ID, d.Skip)
			}
		}
	}
}

// receipts returns those of the pages: of what is skipped, and of bursts what is to be sent, as a run, or each marked as
// unanswered by the task.
func receipts(pages []*page) (all []Receipt) {
	for _, p := range pages {
		all = append(all, p.skips...)
		if p.event.Collapse == "" {
			continue
		}
		for _, s := range p.sends {
			if s.isKept {
				continue
			}
			r := p.pending(s)
			if p.marks {
				r.Reason = markOf(p.task)
			} else {
				r.Task = p.task.ID
			}
			all = append(all, r)
		}
	}
	return all
}

// waiting returns the receipts of what is sent together with others of its burst.
func waiting(pages []*page) (all []Receipt) {
	for _, p := range pages {
		for _, s := range p.sends {
			if s.byBurst && !s.isKept {
				all = append(all, p.pending(s))
			}
		}
	}
	return all
}

func (p *page) pending(s send) Receipt {
	return Receipt{Event: p.event.Number, Member: s.Device.Member, Device: s.Device.ID, State: StatePending, Burst: p.event.Burst()}
}

// resume finds what has a pending receipt by an earlier attempt, and adds a delivery for what of it this attempt did not
// find.
func (g *Targeting) resume(ctx context.Context, pages []*page) error {
	of := make(map[uint64]*page)
	var ranges []MemberRange
	for _, p := range pages {
		if p.isNew {
			continue
		}
		last := member.ID(math.MaxUint64)
		if p.more { // what is above is the next page's
			last = p.members[len(p.members)-1]
		}
		of[p.event.Number] = p
		ranges = append(ranges, MemberRange{p.event.Number, p.after, last})
	}
	for some := range slices.Chunk(ranges, lookedUp) {
		pending, err := g.Store.PendingWithin(ctx, some)
		if err != nil {
			return err
		}
		for _, r := range pending {
			p := of[r.Event]
			isBurst := p.event.Collapse != ""
			to := Recipient{r.Member, r.Device} // a device may have gone over to another member
			i := slices.IndexFunc(p.sends, func(s send) bool { return to == Recipient{s.Device.Member, s.Device.ID} })
			switch {
			case i >= 0:
				p.sends[i].byBurst, p.sends[i].isKept = isBurst, isBurst
			case slices.Contains(p.doubled, to): // a run says so, for which its delivery would not look
				p.skips = append(p.skips, Receipt{Event: r.Event, Member: r.Member, Device: r.Device, State: StateAccepted, Reason: string(Doubled)})
			case slices.ContainsFunc(p.skips, func(s Receipt) bool { return to == Recipient{s.Member, s.Device} }):
			default:
				p.sends = append(p.sends, send{Facts: Facts{Device: Device{ID: r.Device, Member: r.Member}, Now: p.task.Claimed}, byBurst: isBurst, isKept: true})
			}
		}
	}
	return nil
}

// few is how many devices a page of PageSize of a burst has at most, 15 of 1,000, when it marks each of them by a pending
// receipt, if no page follows. Others have a run together. Who reads the runs of a burst reads those for other members, too: with one
// for each event to one member, and one collapse key for many members, these would be all
// notifications of a minute.
func (g *Targeting) few() int { return g.PageSize / 64 }

// lookedUp bounds the devices whose bursts are looked up by one statement.
const lookedUp = 1000

// waits finds out what keeps the deliveries of bursts waiting, and which are sent together. Those that the pages make of one
// burst for a device are, and wait for none of each other: they are enqueued at once, and one absorbs the others.
func (g *Targeting) waits(ctx context.Context, pages []*page) error {
	type key struct {
		burst  [16]byte
		device uint64
	}
	own := make(map[key][]uint64)
	var asked []BurstDevice
	var sends []*send
	var of []*page
	for _, p := range pages {
		if p.event.Collapse == "" {
			continue
		}
		burst := p.event.Burst()
		for i := range p.sends {
			s := &p.sends[i]
			own[key{burst, s.Device.ID}] = append(own[key{burst, s.Device.ID}], p.event.Number)
			since := s.Now
			if p.marks && p.event.Created.Before(since) { // what was accepted since is counted: see runningBurst
				since = p.event.Created
			}
			asked = append(asked, BurstDevice{
				Burst: burst, Member: s.Device.Member, Device: s.Device.ID, Event: p.event.Number, Since: since.Add(-burstPause),
			})
			sends = append(sends, s)
			of = append(of, p)
		}
	}
	for i := range asked {
		asked[i].Except = own[key{asked[i].Burst, asked[i].Device}]
	}
	for first := 0; first < len(asked); first += lookedUp {
		last, err := g.Store.LastSent(ctx, asked[first:min(first+lookedUp, len(asked))])
		if err != nil {
			return err
		}
		for i := range last {
			s, p, others := sends[first+i], of[first+i], asked[first+i]
			s.burst = last[i]
			s.byBurst = s.byBurst || s.burst.Waits || len(others.Except) > 1 || p.start(*s).After(s.Now) ||
				p.marks && (!s.burst.Accepted.Before(others.Since) || !s.burst.Sending.IsZero())
		}
	}
	return nil
}

// until is when others of the burst are over, for an event that is urgent, or is not, at a time; zero: there are none. A pending run does not say
// when what its page sends is over. So, unless something was accepted since, the event waits for a pause from now on.
func (l LastSent) until(urgent bool, now time.Time) (until time.Time) {
	later := func(from time.Time, pause time.Duration) {
		if end := from.Add(pause); !from.IsZero() && end.After(until) {
			until = end
		}
	}
	pause := rivalPause
	if urgent {
		pause = urgentPause
	} else {
		later(l.Accepted, burstPause)
		later(l.Earlier, burstPause)
		later(l.Pending, rivalPause)
	}
	if !l.Sending.Before(l.Accepted) && !l.Sending.IsZero() {
		later(now, pause)
	}
	return until
}

// deliveries adds the tasks that deliver: one for each device for which a burst is sent together, else one for up to
// maxTo devices that wait for as long. They have no end of their own: who works on one leaves a receipt
// that says that the event has expired.
func (p *page) deliveries() {
	together := make(map[time.Duration][]Recipient)
	var order []time.Duration
	for _, s := range p.sends {
		to, delay := Recipient{s.Device.Member, s.Device.ID}, max(0, p.start(s).Sub(s.Now))
		if s.byBurst {
			p.deliver(delay, true, to)
			continue
		}
		if together[delay] == nil {
			order = append(order, delay)
		}
		together[delay] = append(together[delay], to)
	}
	for _, delay := range order {
		for to := range slices.Chunk(together[delay], maxTo) {
			p.deliver(delay, false, to...)
		}
	}
}

// start is when a delivery may start: after the quiet hours and, of a burst, after others of it, unless the event
// expires by then.
func (p *page) start(s send) time.Time {
	start := s.notBefore
	if until := s.burst.until(p.event.Urgent, s.Now); until.After(start) && until.Before(p.event.Expires) {
		start = until
	}
	return start
}

func (p *page) deliver(delay time.Duration, byBurst bool, to ...Recipient) {
	d := Delivery{Event: p.event.Number, Task: p.event.Task, To: to}
	if byBurst {
		burst := p.event.Burst()
		d.Burst = hex.EncodeToString(burst[:])
	}
	n := d.task()
	n.Queue, n.Priority, n.Delay = p.event.queueOf(), p.priority(), delay
	p.outcome.Next = append(p.outcome.Next, n)
}

// count counts what was skipped.
func (p *page) count() {
	for _, r := range p.skips {
		if r.State == StateSkipped {
			skipped.WithLabelValues(atTargeting, r.Reason).Inc()
		}
	}
	skipped.WithLabelValues(atTargeting, string(Doubled)).Add(float64(len(p.doubled)))
	skipped.WithLabelValues(atTargeting, string(NoDevice)).Add(float64(p.deviceless))
}
