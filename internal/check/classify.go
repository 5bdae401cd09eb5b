package check

import (
	"cmp"
	"slices"

	"github.com/activityd/activityd/internal/contacts"
)

// Class is how two answers differ. Why ours hides a photo is a fact. Why theirs hides it is in the site's statement: the
// class names a reason that the tables have.
type Class string

// Meanings are the classes in words.
var Meanings = map[Class]string{
	"hidden_by_theirs_visibility": "ours shows the photo; it is not public",
	"hidden_by_theirs_relation":   "ours shows the photo; the owner does not call the viewer a contact",
	"hidden_by_theirs_condition":  "ours shows the photo; nothing in the tables is against it: the site has a condition of its own, such as deletion, or --limit is not its limit",
	"hidden_by_ours_block":        "theirs shows the photo, and one of the two members blocks the other",
	"hidden_by_ours_relation":     "theirs shows the photo, and the owner is no contact of the viewer",
	"hidden_by_ours_visibility":   "theirs shows the photo, and the viewer is not in its visibility",
	"hidden_by_ours_deleted":      "theirs shows the photo, and there is no row of it, or of its owner",
	"hidden_by_ours_last_upload":  "theirs shows the photo, and users.last_upload of the owner is earlier",
	"another_contact":             "both may be shown, and theirs chooses another contact, or several",
	"another_order":               "the same photos, and theirs is not in the order of dates, or has one twice",
	"order_of_equals":             "the same but for photos of one second, of which ours has the higher id first",
	"unexplained":                 "ours should show the photo: please report it",
}

// sightings are the facts in the tables about each photo of both answers, at one instant.
type sightings map[uint64]contacts.Sighting

// classify says how theirs differs from ours, and names the first photo that shows it.
func (seen sightings) classify(ours, theirs []uint64) (_ Class, photo uint64) {
	for i, id := range theirs {
		switch {
		case seen[id].Hidden != "":
			return Class("hidden_by_ours_" + seen[id].Hidden), id
		case slices.Contains(theirs[:i], id):
			return "another_order", id
		}
	}
	if len(theirs) == 0 {
		return seen.hiddenByTheirs(ours[0]), ours[0]
	}
	newest := slices.MaxFunc(theirs, func(a, b uint64) int { return cmp.Compare(seen[a].DateUpload, seen[b].DateUpload) })
	switch {
	case len(ours) == 0 || seen[newest].DateUpload > seen[ours[0]].DateUpload:
		if s := seen[newest]; s.LastUpload < s.DateUpload {
			return "hidden_by_ours_last_upload", newest
		}
		return "unexplained", newest
	case slices.ContainsFunc(theirs, func(id uint64) bool { return seen[id].Owner != seen[newest].Owner }):
		return "another_contact", newest
	case seen[newest].Owner == seen[ours[0]].Owner:
		return seen.sameContact(ours, theirs)
	case seen[newest].DateUpload == seen[ours[0]].DateUpload:
		return "order_of_equals", newest
	case seen[ours[0]].Doubt != "condition":
		return seen.hiddenByTheirs(ours[0]), ours[0]
	}
	return "another_contact", ours[0]
}

func (seen sightings) hiddenByTheirs(photo uint64) Class {
	return Class("hidden_by_theirs_" + seen[photo].Doubt)
}

// sameContact judges two answers with photos of the same contact.
func (seen sightings) sameContact(ours, theirs []uint64) (Class, uint64) {
	if slices.EqualFunc(ours, theirs, func(a, b uint64) bool { return seen[a].DateUpload == seen[b].DateUpload }) {
		return "order_of_equals", theirs[0]
	}
	for _, id := range ours {
		switch {
		case slices.Contains(theirs, id):
		case seen[id].Doubt == "visibility":
			return seen.hiddenByTheirs(id), id
		default: // the relation hides no other photo of the contact
			return "hidden_by_theirs_condition", id
		}
	}
	if len(theirs) > len(ours) {
		return "unexplained", theirs[len(ours)]
	}
	return "another_order", theirs[0]
}
