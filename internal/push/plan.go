package push

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// Plan is what would become of an event if it were targeted now. Nothing of it is stored.
type Plan struct {
	Event      *StoredEvent // as it would be stored; its number and its task are 0
	Known      bool         // an event with its id was targeted before: a repetition is for no one
	Recipients int          // that were looked at
	More       bool         // there are others: the ids of these are the lowest
	Deviceless int          // followers without a device, of whom nothing else is said
	Devices    []Planned    // by member and device; one without a device stands for a member that has none
}

// Planned is what would become of an event for a device.
type Planned struct {
	Decision

	Device   Device
	Actor    string // the username of the actor
	Language string // of the event's texts, that of the device; "": the event's own title and body
}

// Planner plans events. It is safe for concurrent use.
type Planner struct {
	Store interface {
		LookAhead(ctx context.Context, e *StoredEvent, members []member.ID) ([]Facts, error)
		EventByID(ctx context.Context, id string) (*StoredEvent, error)
	}
	Followers Followers
	MustShow  map[Platform]bool // the platforms whose devices have to show all that they are sent
	PageSize  int               // how many recipients are looked at; 0: [DefaultPageSize]
}

// Plan looks at the first recipients of an event as [Targeting] does, by the same statement, and decides
// by the same rule. What waits for others of its burst, or for a push service, is not foreseen.
func (p *Planner) Plan(ctx context.Context, e Event) (Plan, error) {
	size := cmp.Or(p.PageSize, DefaultPageSize)
	known, err := p.Store.EventByID(ctx, e.ID)
	if err != nil {
		return Plan{}, err
	}
	now := time.Now()
	one := &page{event: &StoredEvent{Event: e, Created: now, Expires: now.Add(cmp.Or(e.ExpiresIn, DefaultLife))}}
	if e.Followers {
		lists, err := p.Followers.FollowerPages(ctx, []contacts.FollowerPage{{Of: e.Actor}}, size)
		if err != nil {
			return Plan{}, err
		}
		one.members, one.more = lists[0], len(lists[0]) == size
	} else {
		one.members = one.listed()
		one.more = len(one.members) > size
		one.members = one.members[:min(len(one.members), size)]
	}
	plan := Plan{Event: one.event, Known: known != nil, Recipients: len(one.members), More: one.more}
	if e.Followers {
		one.members = slices.DeleteFunc(one.members, func(id member.ID) bool { return id == e.Actor })
	}
	facts, err := p.Store.LookAhead(ctx, one.event, one.members)
	if err != nil {
		return Plan{}, err
	}
	for i, id := range one.members {
		found := false
		for len(facts) > 0 && facts[0].Candidate == i {
			f := facts[0]
			found, facts = true, facts[1:]
			one.event.Expires = f.Now.Add(cmp.Or(e.ExpiresIn, DefaultLife)) // by the clock of the rules
			plan.Devices = append(plan.Devices, Planned{
				Decision: Decide(one.event, f, p.MustShow), Device: f.Device, Actor: f.Actor, Language: e.lookup(f.Device.Language),
			})
		}
		switch {
		case found:
		case e.Followers:
			plan.Deviceless++
		default:
			plan.Devices = append(plan.Devices, Planned{Decision: Decision{Skip: NoDevice}, Device: Device{Member: id}})
		}
	}
	return plan, nil
}
