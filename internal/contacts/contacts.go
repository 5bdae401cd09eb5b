package contacts

import (
	"cmp"
	"errors"

	"github.com/activityd/activityd/internal/member"
)

// ErrNoMember is returned when the member that was asked for, or asked as, does not
// exist.
var ErrNoMember = errors.New("no such member")

// Viewer is the member for whom something is shown. It is a type of its own,
// and always an explicit argument, so that no query about photos can be written
// without saying who looks.
type Viewer struct {
	ID member.ID
}

// Contact is a contact of some member, and when it last uploaded.
type Contact struct {
	ID         member.ID
	LastUpload uint64 // unix seconds; 0: never uploaded
}

// Pair names one row of the contacts table, present or not.
type Pair struct {
	User    member.ID // to whom the row belongs
	Contact member.ID // whom it is about
}

// Cursor is a position in the order of [Contact] by most recent upload: the
// last contact that was seen. The zero Cursor stands before the first.
type Cursor struct {
	LastUpload uint64
	ID         member.ID
}

// Visibility says to whom a photo is shown; see the package documentation.
type Visibility string

// The visibilities of a photo.
const (
	Private       Visibility = "private"        // to nobody but the owner
	Friends       Visibility = "friends"        // to whom the owner calls a friend
	Family        Visibility = "family"         // to whom the owner calls family
	FriendsFamily Visibility = "friends_family" // to whom the owner calls either
	Public        Visibility = "public"         // to everybody
)

// Profile is what a viewer is shown of a contact. When it last uploaded is not
// part of it: that may have been a photo which the viewer must not know of.
type Profile struct {
	ID       member.ID
	Username string
}

// Photo is a photo as a viewer is shown it.
type Photo struct {
	ID         uint64
	Title      string
	DateUpload uint64 // unix seconds
}

// Newer reports whether p comes before q in the order of display: by date, and
// within one second by id, newest first.
func (p Photo) Newer(q Photo) bool {
	if p.DateUpload != q.DateUpload {
		return p.DateUpload > q.DateUpload
	}
	return p.ID > q.ID
}

// byDateDesc orders photos as they are displayed.
func byDateDesc(a, b Photo) int {
	return cmp.Or(cmp.Compare(b.DateUpload, a.DateUpload), cmp.Compare(b.ID, a.ID))
}

// Standing is what one owner amounts to for one viewer, now.
type Standing struct {
	Owner member.ID
	// IsContact is false when the owner is no contact of the viewer, or no
	// member any more. Nothing else is known then.
	IsContact bool
	// Newest is the owner's newest photo that the viewer may see, its title
	// left out; nil when there is none. A block is not told from that.
	Newest *Photo
}

// Album is the answer to the widget's question: a contact and its newest
// photos, all visible to the viewer, newest first. A nil Contact with no photos
// says that there is nothing to show.
type Album struct {
	Contact *Profile
	Photos  []Photo
}

// Walked is the answer by its definition, found without the help of an index.
type Walked struct {
	Album
	// Indexable: the viewer has at least one contact that ever uploaded, so
	// that there is something to refill its set with.
	Indexable bool
	Trace     WalkTrace
}

// WalkTrace tells how far a walk went.
type WalkTrace struct {
	LookedAt   int // contacts whose photos were looked at
	Passes     int // times that the viewer's contacts were gone through in order
	Statements int // asked of the server in all
	// Bound proves the answer: nobody who was not looked at uploaded after it, in
	// unix seconds, and the answer's newest photo is newer. 0: all who ever
	// uploaded were looked at.
	Bound uint64
}
