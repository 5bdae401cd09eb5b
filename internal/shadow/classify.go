package shadow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// Class is how the site's answer and ours differ.
type Class string

// The classes of differences, the worst first.
const (
	HiddenByTheirs Class = "hidden_by_theirs" // ours shows a photo that theirs hides
	HiddenByOurs   Class = "hidden_by_ours"   // theirs shows a photo that ours hides
	Unexplained    Class = "unexplained"
	AnotherContact Class = "another_contact" // both may be shown, and theirs chooses another contact
	OrderOfEquals  Class = "order_of_equals" // the same but for the order of photos of one second
	Lag            Class = "lag"             // the set lacks a change whose task is not done
)

// Classes returns all classes, the worst first.
func Classes() []Class {
	return []Class{HiddenByTheirs, HiddenByOurs, Unexplained, AnotherContact, OrderOfEquals, Lag}
}

// IsHarmless reports whether a difference shows no member what another answer would hide, and will
// pass or does not matter.
func (c Class) IsHarmless() bool { return c == Lag || c == OrderOfEquals }

// Cause is why a photo is hidden. Of what ours hides it is a fact; of what theirs hides it is what our
// tables have against the photo, as the site's reason is in its statement.
type Cause string

// The causes.
const (
	Block      Cause = "block"       // ours: the owner blocks the viewer; theirs: the viewer blocks the owner
	Relation   Cause = "relation"    // ours: the owner is no contact of the viewer; theirs: the viewer is none of the owner's
	Visibility Cause = "visibility"  // ours: the viewer is not in the photo's class; theirs: the photo is not public
	Deleted    Cause = "deleted"     // ours: the photo or its owner is not there; theirs: nothing of ours is against it, so it may be deleted
	LastUpload Cause = "last_upload" // ours: users.last_upload of the owner is earlier than the photo
	Index      Cause = "index"       // of what is unexplained: the set is wrong, and no task is pending
)

// Difference is one answer that differs.
type Difference struct {
	Class  Class     `json:"class"`
	Cause  Cause     `json:"cause,omitempty"`
	Viewer member.ID `json:"viewer"`
	Photo  uint64    `json:"photo,omitzero,string"` // the first photo that shows it; 0: none
	Owner  member.ID `json:"owner,omitzero"`        // its
	Ours   Photos    `json:"ours"`
	Theirs Photos    `json:"theirs"`
	Detail string    `json:"detail"` // for people
}

// Photos are ids of photos, which JSON has as strings.
type Photos []uint64

// MarshalJSON implements [json.Marshaler].
func (p Photos) MarshalJSON() ([]byte, error) {
	texts := make([]string, len(p))
	for i, id := range p {
		texts[i] = strconv.FormatUint(id, 10)
	}
	return json.Marshal(texts)
}

// size is how much there is to look at.
func (d *Difference) size() int { return len(d.Ours) + len(d.Theirs) }

// judged is a [Difference] in the making.
type judged struct {
	class  Class
	cause  Cause
	photo  uint64
	detail string
}

// classify says how theirs differs from what is due by the definition and our tables, which it does. Of each photo
// of both there is a sighting, of the same instant.
func classify(due contacts.Album, theirs []uint64, sightings map[uint64]contacts.Sighting) judged {
	for _, id := range theirs {
		if s := sightings[id]; !s.Shown {
			return hiddenByOurs(id, s)
		}
	}
	if len(due.Photos) == 0 { // and theirs shows something
		return missed(sightings[theirs[0]])
	}
	first := due.Photos[0]
	if len(theirs) == 0 {
		cause, why := hiding(due.Photos, sightings)
		if cause == "" {
			cause, why = Deleted, "nothing in our tables is against it: the site has a condition of its own, such as deletion"
		}
		return judged{HiddenByTheirs, cause, first.ID, why}
	}
	if slices.EqualFunc(due.Photos, theirs, func(p contacts.Photo, id uint64) bool { return p.DateUpload == sightings[id].DateUpload }) && !hasTwice(theirs) && isOfOne(theirs, sightings) {
		return judged{OrderOfEquals, "", theirs[differsAt(due.Photos, theirs)], "the dates are the same, and ours has the higher id first"}
	}
	for _, id := range theirs {
		if sightings[id].Owner != due.Contact.ID {
			return anotherContact(due, theirs, sightings)
		}
	}
	return sameContact(due, theirs, sightings)
}

// hiddenByOurs judges a photo that theirs shows.
func hiddenByOurs(id uint64, s contacts.Sighting) judged {
	j := judged{HiddenByOurs, Visibility, id, fmt.Sprintf("the photo is for %s, and its owner has not said that of the viewer", s.Visibility)}
	switch {
	case !s.IsPhoto:
		j.cause, j.detail = Deleted, "there is no such row of photos"
	case !s.IsMember:
		j.cause, j.detail = Deleted, "the owner has no row of users"
	case s.Blocks:
		j.cause, j.detail = Block, "the owner blocks the viewer"
	case !s.IsContact:
		j.cause, j.detail = Relation, "the owner is no contact of the viewer"
	case s.Visibility == contacts.Private:
		j.detail = "the photo is private"
	}
	return j
}

// behind judges the answer of the site where that is what is due, and ours is not.
func behind(due contacts.Album, sightings map[uint64]contacts.Sighting) judged {
	j := judged{Lag, "", 0, "a change is in MySQL whose task is not done; theirs has it"}
	if len(due.Photos) == 0 {
		return j
	}
	if s := sightings[due.Photos[0].ID]; s.LastUpload < s.DateUpload {
		return missed(s)
	}
	j.photo = due.Photos[0].ID
	return j
}

// missed judges a photo that theirs shows first and that is newer than what is due, though ours may
// show it.
func missed(s contacts.Sighting) judged {
	if s.LastUpload < s.DateUpload {
		return judged{HiddenByOurs, LastUpload, s.Photo, "users.last_upload of the owner is earlier than this photo, and ours relies on its not being so"}
	}
	return judged{Unexplained, "", s.Photo, "ours may show this photo, and it is newer than what ours shows"}
}

// hiding returns what our tables have against all photos of an owner, newest first; "": nothing.
func hiding(photos []contacts.Photo, sightings map[uint64]contacts.Sighting) (Cause, string) {
	s := sightings[photos[0].ID]
	switch {
	case s.Blocked:
		return Block, "the viewer blocks the owner"
	case !slices.ContainsFunc(photos, func(p contacts.Photo) bool { return sightings[p.ID].Visibility == contacts.Public }):
		return Visibility, fmt.Sprintf("the photo is for %s, and not public", s.Visibility)
	case !s.Calls:
		return Relation, "the owner does not call the viewer a contact"
	}
	return "", ""
}

// anotherContact judges an answer with photos of others than the contact that is due.
func anotherContact(due contacts.Album, theirs []uint64, sightings map[uint64]contacts.Sighting) judged {
	newest := slices.MaxFunc(theirs, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(sightings[a].DateUpload, sightings[b].DateUpload), cmp.Compare(a, b))
	})
	s, first := sightings[newest], due.Photos[0]
	is := contacts.Photo{ID: newest, DateUpload: s.DateUpload}
	switch {
	case is.DateUpload > first.DateUpload:
		return missed(s)
	case is.DateUpload == first.DateUpload && s.Owner != due.Contact.ID && isOfOne(theirs, sightings):
		return judged{OrderOfEquals, "", newest, "two contacts have a newest photo of this second, and ours takes the one with the higher id"}
	case !isOfOne(theirs, sightings):
		return judged{AnotherContact, "", newest, "theirs has photos of several contacts"}
	}
	var newer []contacts.Photo
	for _, p := range due.Photos {
		if p.Newer(is) {
			newer = append(newer, p)
		}
	}
	if cause, why := hiding(newer, sightings); cause != "" {
		return judged{HiddenByTheirs, cause, first.ID, why}
	}
	return judged{AnotherContact, "", first.ID, fmt.Sprintf("ours shows this one, which is newer than any that theirs shows, of member %s; nothing in our tables is against it", s.Owner)}
}

// sameContact judges an answer with photos of the contact that is due, and of no other.
func sameContact(due contacts.Album, theirs []uint64, sightings map[uint64]contacts.Sighting) judged {
	if hasTwice(theirs) {
		return judged{Unexplained, "", theirs[0], "theirs has a photo twice"}
	}
	for _, p := range due.Photos {
		switch {
		case slices.Contains(theirs, p.ID):
		case sightings[p.ID].Visibility != contacts.Public:
			return judged{HiddenByTheirs, Visibility, p.ID, fmt.Sprintf("the photo is for %s, and not public", sightings[p.ID].Visibility)}
		case len(theirs) < len(due.Photos) && slices.Equal(theirs, idsOf(due.Photos[:len(theirs)])):
			return judged{HiddenByTheirs, Deleted, p.ID, "nothing in our tables is against it, and theirs ends before it: if the site shows fewer photos, the limit is to be that number"}
		default:
			return judged{HiddenByTheirs, Deleted, p.ID, "nothing in our tables is against it, and theirs shows others of this owner: the site has a condition of its own on photos, such as deletion"}
		}
	}
	if len(theirs) > len(due.Photos) {
		return judged{Unexplained, "", theirs[len(due.Photos)], "theirs shows more photos of this contact than ours, which may be shown"}
	}
	return judged{Unexplained, "", theirs[differsAt(due.Photos, theirs)], "the photos are the same, and theirs is not in the order of their dates"}
}

// differsAt is the first place at which two lists differ; that of the last if there is none.
func differsAt(due []contacts.Photo, theirs []uint64) int {
	for i, id := range theirs {
		if i >= len(due) || due[i].ID != id {
			return i
		}
	}
	return len(theirs) - 1
}

func hasTwice(ids []uint64) bool {
	sorted := slices.Sorted(slices.Values(ids))
	return len(slices.Compact(sorted)) < len(ids)
}

func isOfOne(ids []uint64, sightings map[uint64]contacts.Sighting) bool {
	return !slices.ContainsFunc(ids, func(id uint64) bool { return sightings[id].Owner != sightings[ids[0]].Owner })
}

func idsOf(photos []contacts.Photo) Photos {
	ids := make(Photos, len(photos))
	for i, p := range photos {
		ids[i] = p.ID
	}
	return ids
}
