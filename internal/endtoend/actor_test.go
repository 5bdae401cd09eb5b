package endtoend_test

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/site"
)

// actor makes random changes in turn. Its choices depend on its seed alone, and never on the work of another
// actor meanwhile.
type actor struct {
	site    site.Changer
	rnd     *rand.Rand
	fans    int
	steps   int
	photos  []uint64        // uploaded by this actor
	removed []contacts.Pair // by this actor, to be added again
	leavers []member.ID     // who may still be deleted by this actor
}

func newActor(s site.Changer, seed, number uint64, fans int) *actor {
	// The last people leave, some with each actor.
	leavers := []member.ID{people + 1 - member.ID(number)}
	return &actor{site: s, rnd: rand.New(rand.NewPCG(seed, number)), fans: fans, leavers: leavers}
}

func (a *actor) act(ctx context.Context, changes int) error {
	for range changes {
		a.steps++
		if err := insist(ctx, a.change()); err != nil {
			return err
		}
	}
	return nil
}

// insist repeats a change as long as the database is away, as a member does who
// was shown an error. The change may have been made nevertheless.
func insist(ctx context.Context, change func(context.Context) error) error {
	isAway := func(err error) bool { return errors.Is(err, mysql.ErrUnavailable) }
	return retry(ctx, isAway, func() error { return change(ctx) })
}

// change chooses a change, which the returned function makes.
func (a *actor) change() func(context.Context) error {
	switch k := a.rnd.IntN(100); {
	case k < 35:
		return a.upload()
	case k < 55:
		return a.add()
	case k < 72:
		return a.remove()
	case k < 78:
		return a.relate()
	case k < 86:
		return a.blockOrUnblock()
	case k < 95:
		return a.hideOrShow()
	case k < 99:
		return a.deletePhoto()
	default:
		return a.deleteMember()
	}
}

// upload happens mostly in a second that holds uploads already. Some photos have a date of long ago.
func (a *actor) upload() func(context.Context) error {
	p := site.Photo{Owner: somePerson(a.rnd), Visibility: someVisibility(a.rnd), DateUpload: start + uint64(a.steps/3)}
	if a.rnd.IntN(12) == 0 {
		p.Owner, p.Visibility = celebrity, contacts.Public
	}
	if a.rnd.IntN(4) == 0 {
		p.DateUpload -= uint64(a.rnd.IntN(120))
	}
	return func(ctx context.Context) error {
		id, err := a.site.Upload(ctx, p)
		if err == nil {
			a.photos = append(a.photos, id)
		}
		return err
	}
}

// add makes somebody a contact, often soon after a removal.
func (a *actor) add() func(context.Context) error {
	pair, grant := a.somePair(), someGrant(a.rnd)
	if n := len(a.removed); n > 0 && a.rnd.IntN(2) == 0 {
		pair, a.removed = a.removed[n-1], a.removed[:n-1]
	}
	return func(ctx context.Context) error { return a.site.SetContact(ctx, pair.User, pair.Contact, grant) }
}

func (a *actor) remove() func(context.Context) error {
	pair := a.somePair()
	a.removed = append(a.removed, pair)
	return func(ctx context.Context) error { return a.site.RemoveContact(ctx, pair.User, pair.Contact) }
}

// relate changes the celebrity's grant to a random viewer.
func (a *actor) relate() func(context.Context) error {
	viewer, grant := somePerson(a.rnd), someGrant(a.rnd)
	return func(ctx context.Context) error { return a.site.SetContact(ctx, celebrity, viewer, grant) }
}

func (a *actor) blockOrUnblock() func(context.Context) error {
	owner, viewer := a.someUploader(), somePerson(a.rnd)
	if a.rnd.IntN(2) == 0 {
		return func(ctx context.Context) error { return a.site.Unblock(ctx, owner, viewer) }
	}
	return func(ctx context.Context) error { return a.site.Block(ctx, owner, viewer) }
}

func (a *actor) hideOrShow() func(context.Context) error {
	choice, visibility := a.rnd.Uint64(), someVisibility(a.rnd)
	if a.rnd.IntN(3) == 0 { // so that more are shown again later, and a showing is an event
		visibility = contacts.Private
	}
	return func(ctx context.Context) error {
		if len(a.photos) == 0 {
			return nil
		}
		return a.site.SetVisibility(ctx, a.photos[choice%uint64(len(a.photos))], visibility)
	}
}

func (a *actor) deletePhoto() func(context.Context) error {
	choice := a.rnd.Uint64()
	return func(ctx context.Context) error {
		if len(a.photos) == 0 {
			return nil
		}
		return a.site.DeletePhoto(ctx, a.photos[choice%uint64(len(a.photos))])
	}
}

func (a *actor) deleteMember() func(context.Context) error {
	if len(a.leavers) == 0 || a.steps < 20 {
		return a.upload()
	}
	leaver := a.leavers[0]
	a.leavers = a.leavers[1:]
	return func(ctx context.Context) error { return a.site.DeleteMember(ctx, leaver) }
}

// somePair often comes from a small set of pairs, whose contacts change all the time.
func (a *actor) somePair() contacts.Pair {
	if a.rnd.IntN(3) == 0 {
		return contacts.Pair{User: member.ID(1 + a.rnd.IntN(3)), Contact: member.ID(10 + a.rnd.IntN(8))}
	}
	return contacts.Pair{User: a.someViewer(), Contact: a.someUploader()}
}

func (a *actor) someViewer() member.ID {
	if a.fans > 0 && a.rnd.IntN(8) == 0 {
		return firstFan + member.ID(a.rnd.IntN(a.fans))
	}
	return somePerson(a.rnd)
}

func (a *actor) someUploader() member.ID {
	if a.rnd.IntN(15) == 0 {
		return celebrity
	}
	return somePerson(a.rnd)
}
