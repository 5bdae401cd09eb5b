package history_test

import (
	"errors"
	"slices"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/site"
)

// script is a few events, to be tried in all orders on a site of two viewers, 1
// and 2, and three contacts, 11 to 13. Each makes sense in any order.
type script struct {
	name     string
	settings [3]int // of index.NewSettings; small, so that sets are cut off
	active   bool   // sets of active members only
	tooHigh  bool   // a score is too high at first, and no task tells of it
	before   func(s *stage) error
	events   []event
}

// event is something that happens, and its delivery: that of its tasks. A read
// happens by its delivery.
type event struct {
	do     func(s *stage) error
	silent bool      // it has no task
	reads  member.ID // the viewer who reads; 0: none
}

// has reports whether the event is to be delivered, or whether it is to happen.
func (e event) has(delivery bool) bool {
	if delivery {
		return !e.silent
	}
	return e.do != nil
}

// The events.

func add(user, contact member.ID) event {
	return event{do: func(s *stage) error { return s.call(user, contact, noGrant) }}
}

func remove(user, contact member.ID) event {
	return event{do: func(s *stage) error { return s.drop(user, contact) }}
}

func uploads(owner member.ID, date uint64, v contacts.Visibility) event {
	return event{do: func(s *stage) error { return s.upload(owner, date, v) }}
}

func grants(user, contact member.ID) event {
	return event{do: func(s *stage) error { return s.call(user, contact, site.Grant{Friend: true}) }}
}

func blocks(owner, blocked member.ID) event {
	return event{silent: true, do: func(s *stage) error { return s.block(owner, blocked) }}
}

func hides(owner member.ID) event {
	return event{silent: true, do: func(s *stage) error {
		return s.withNewest(owner, func(i int) error { return s.see(i, contacts.Private) })
	}}
}

// shows makes the newest private photo of its owner public.
func shows(owner member.ID) event {
	return event{do: func(s *stage) error {
		for i, p := range slices.Backward(s.world.photos) {
			if p.owner == owner && p.visibility == contacts.Private {
				return s.see(i, contacts.Public)
			}
		}
		return nil
	}}
}

// privately is an upload that only its owner may see.
func privately(owner member.ID, date uint64) event {
	return event{silent: true, do: uploads(owner, date, contacts.Private).do}
}

func lowers(owner member.ID) event {
	return event{silent: true, do: func(s *stage) error { return s.lower(owner) }}
}

func deletes(owner member.ID) event {
	return event{silent: true, do: func(s *stage) error { return s.withNewest(owner, s.deletePhoto) }}
}

// withNewest does something with the newest photo, if there is any.
func (s *stage) withNewest(owner member.ID, do func(i int) error) error {
	for i, p := range slices.Backward(s.world.photos) {
		if p.owner == owner {
			return do(i)
		}
	}
	return nil
}

func leaves(id member.ID) event {
	return event{do: func(s *stage) error {
		if !s.world.members[id] {
			return nil
		}
		return s.leave(id)
	}}
}

// returns deletes a member, and inserts it again in the same transaction with an earlier
// last upload.
func returns(id member.ID) event {
	return event{do: func(s *stage) error {
		if !s.world.members[id] {
			return nil
		}
		return s.replace(id)
	}}
}

func joins(id member.ID) event {
	return event{silent: true, do: func(s *stage) error { return s.join(id) }}
}

// mend is a refill that is asked for.
func mend(user member.ID) event {
	return event{do: func(s *stage) error { return s.enqueue(tasks.NewRefill(user)) }}
}

// expires lets a set expire.
func expires(user member.ID) event {
	return event{silent: true, do: func(s *stage) error {
		s.watched.lost(user)
		return s.backend.forgetSet(s.ctx, user)
	}}
}

func reads(viewer member.ID) event { return event{reads: viewer} }

// begun returns a beginning: uploads of 11, 12 and 13 at some dates, 0 for never; all are contacts of both
// viewers, and the first viewer has a set.
func begun(dates ...uint64) func(s *stage) error {
	return func(s *stage) error {
		var errs []error
		for i, contact := range s.members {
			if dates[i] > 0 {
				errs = append(errs, s.upload(contact, dates[i], contacts.Public))
			}
			for _, viewer := range s.viewers {
				errs = append(errs, s.call(viewer, contact, noGrant))
			}
		}
		return errors.Join(append(errs, s.fill(s.viewers[0]))...)
	}
}

// returned begins like begun, and then 13 is deleted and comes back, a contact as
// before, without a task that tells of it: its score is too high.
func returned(dates ...uint64) func(s *stage) error {
	return func(s *stage) error {
		return errors.Join(begun(dates...)(s), s.leave(13), s.join(13), s.call(1, 13, noGrant), s.call(2, 13, noGrant))
	}
}

// counted begins like begun. Then 13 makes a private upload at a date, and the upload counts.
func counted(date uint64, dates ...uint64) func(s *stage) error {
	return func(s *stage) error {
		s.private, s.counts = sometimesCount, true
		err := errors.Join(begun(dates...)(s), s.upload(13, date, contacts.Private), s.fill(s.viewers[0]))
		s.counts = false
		return err
	}
}

var scripts = []script{
	{
		name: "contacts come and go", settings: [3]int{2, 0, 0}, before: begun(101, 102, 103),
		events: []event{
			remove(1, 13), uploads(11, 104, contacts.Public), add(1, 13), remove(1, 12),
			uploads(12, 105, contacts.Public), remove(2, 13), add(1, 12),
		},
	},
	{
		name: "uploads of the past", settings: [3]int{1, 20, 0}, before: begun(110, 120, 0),
		events: []event{
			remove(1, 12), uploads(13, 105, contacts.Public), remove(1, 11), uploads(13, 112, contacts.Public),
			expires(1), uploads(11, 115, contacts.Public), add(1, 12),
		},
	},
	{
		name: "members come and go", settings: [3]int{1, 20, 0}, before: begun(101, 102, 200),
		events: []event{
			leaves(13), joins(13), add(1, 13), uploads(13, 103, contacts.Public),
			mend(1), uploads(13, 201, contacts.Public), reads(1),
		},
	},
	{
		name: "members come back with less", settings: [3]int{2, 0, 0}, before: begun(101, 102, 200),
		events: []event{
			returns(13), uploads(13, 103, contacts.Public), remove(1, 12), uploads(11, 150, contacts.Public),
			add(1, 12), returns(11), mend(1),
		},
	},
	{
		name: "viewers come and go", settings: [3]int{1, 20, 0}, before: begun(101, 102, 103),
		events: []event{
			leaves(1), uploads(13, 110, contacts.Public), joins(1), add(1, 13),
			add(1, 11), uploads(12, 105, contacts.Public), reads(1),
		},
	},
	{
		name: "scores that are too high", settings: [3]int{2, 0, 0}, before: returned(101, 102, 200), tooHigh: true,
		events: []event{
			mend(1), uploads(13, 103, contacts.Public), uploads(13, 200, contacts.Public), uploads(13, 201, contacts.Public),
			remove(1, 12), uploads(11, 150, contacts.Public), add(1, 12),
		},
	},
	{
		name: "uploads that push others out", settings: [3]int{2, 0, 0}, before: begun(100, 120, 0),
		events: []event{
			remove(1, 12), uploads(11, 110, contacts.Public), uploads(13, 130, contacts.Public), mend(1),
			add(1, 12), uploads(12, 125, contacts.Public), remove(1, 11),
		},
	},
	{
		name: "what is private", settings: [3]int{2, 0, 0}, before: begun(101, 102, 103),
		events: []event{
			hides(13), reads(1), uploads(11, 104, contacts.Friends), grants(11, 1), deletes(12), blocks(11, 1), reads(2),
		},
	},
	{
		name: "photos that are shown later", settings: [3]int{2, 0, 0}, before: begun(101, 102, 103),
		events: []event{
			privately(11, 110), shows(11), hides(13), shows(13), uploads(12, 108, contacts.Public), remove(1, 13), mend(1),
		},
	},
	{
		name: "private uploads that counted", settings: [3]int{2, 0, 0}, before: counted(200, 101, 102, 103), tooHigh: true,
		events: []event{
			lowers(13), uploads(13, 150, contacts.Public), shows(13), remove(1, 12), mend(1), uploads(11, 160, contacts.Public), add(1, 12),
		},
	},
	{
		name: "sets of active members", settings: [3]int{2, 20, 0}, active: true, before: begun(101, 0, 103),
		events: []event{
			expires(1), mend(1), uploads(12, 102, contacts.Public), remove(1, 13), mend(2), add(1, 13), uploads(11, 104, contacts.Public),
		},
	},
}
