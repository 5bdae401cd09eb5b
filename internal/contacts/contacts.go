package contacts

import (
	"cmp"
	"errors"
	"slices"

	"github.com/activityd/activityd/internal/member"
)

// ErrNoMember is returned when the viewer does not exist.
var ErrNoMember = errors.New("no such member")

// Viewer is the member that looks. It has a type of its own, and is always an explicit
// argument, so that no query about photos can be written without a viewer.
type Viewer struct {
	ID member.ID
}

// Contact is a contact of some member, and when it last uploaded.
type Contact struct {
	ID         member.ID
	LastUpload uint64 // unix seconds, at least the date of each photo that is not private; 0: there was none
}

// Pair names a row of the contacts table, present or not.
type Pair struct {
	User    member.ID // the member that has the contact
	Contact member.ID // the member that is the contact
}

// Profile is the part of a contact that a viewer is shown. Its last upload is left out: that may
// have been a photo that the viewer must not know of.
type Profile struct {
	ID       member.ID
	Username string
}

// Photo is a photo as a viewer is shown it.
type Photo struct {
	ID         uint64 `json:"id,string"`
	Title      string `json:"title,omitempty"`
	DateUpload uint64 `json:"date_upload"` // unix seconds
}

// Newer reports whether p comes before q in the order of display: by date, and
// within a second by id, newest first.
func (p Photo) Newer(q Photo) bool {
	return byDateDesc(p, q) < 0
}

// byDateDesc orders photos as they are displayed.
func byDateDesc(a, b Photo) int {
	return cmp.Or(cmp.Compare(b.DateUpload, a.DateUpload), cmp.Compare(b.ID, a.ID))
}

// Standing is how an owner stands to a viewer, now.
type Standing struct {
	Owner member.ID `json:"-"`
	// IsContact is false when the owner is no contact of the viewer, or no
	// member any more. Nothing else is known then.
	IsContact bool `json:"is_contact"`
	// Newest is the owner's newest photo that the viewer may see, its title
	// left out; nil when there is none, or when a block stands between the two.
	Newest *Photo `json:"newest_visible"`
}

// Album is the answer to the widget's question: a contact and its newest
// photos, all visible to the viewer, newest first. A nil Contact with no photos
// says that there is nothing to show.
type Album struct {
	Contact *Profile
	Photos  []Photo
}

// IsSame reports whether both show the same photos of the same contact, whatever their names.
func (a Album) IsSame(b Album) bool {
	if (a.Contact == nil) != (b.Contact == nil) || a.Contact != nil && a.Contact.ID != b.Contact.ID {
		return false
	}
	return slices.EqualFunc(a.Photos, b.Photos, func(p, q Photo) bool { return p.ID == q.ID })
}

// Walked is the answer by its definition, found without the index.
type Walked struct {
	Album
	// Indexable: the viewer has at least one contact that ever uploaded, so
	// that there is something to refill its set with.
	Indexable bool
	Trace     WalkTrace
}

// WalkTrace is how far a walk went.
type WalkTrace struct {
	LookedAt   int `json:"looked_at"`  // contacts whose photos were looked at
	Statements int `json:"statements"` // sent to the server in all
	// Bound proves the answer: no contact that was not looked at uploaded after it, in
	// unix seconds, and the answer's newest photo is newer. 0: all contacts that ever
	// uploaded were looked at.
	Bound uint64 `json:"-"`
}
