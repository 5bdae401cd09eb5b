// Package site is a made-up photo site, in the place of a user's back-end: it makes the changes that
// activityd has to follow. The demo and the tests use it.
//
// [MySQL] is also an example of how a back-end emits tasks: each change that concerns the index is committed
// together with its task, in one transaction. [Memory] does the same in memory, for a machine without a
// database.
//
// Four kinds of change emit: a contact added, a contact removed, a photo that becomes visible to other
// members (uploaded and not private, or private until then), a member deleted. Changes of visibility alone
// emit nothing (blocks, grants, photos made private or deleted), because each read checks visibility. Nor
// does a private upload, which concerns nobody else.
package site

import (
	"context"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// Grant says whether a contact may see the photos for friends, and for family.
type Grant struct {
	Friend bool // friends' photos
	Family bool // family's photos
}

// Photo is a photo to be uploaded.
type Photo struct {
	ID         uint64 // 0: the site chooses
	Owner      member.ID
	Title      string
	Visibility contacts.Visibility
	DateUpload uint64 // unix seconds, above 0
	// Notify is an event for push: the args of a notify task, which the transaction of the photo commits. "":
	// none. [Memory] has no push and ignores it.
	Notify string
}

// Member is a member to be loaded.
type Member struct {
	ID       member.ID // above 0
	Username string
}

// Relation is a contact to be loaded: User calls Contact a contact.
type Relation struct {
	User    member.ID
	Contact member.ID
	Grant   Grant
}

// Event is the subject of a task: a contact of a user, the upload of a user, or all contacts of a user.
type Event struct {
	Type    string // EventAddContact, EventRemoveContact, EventUpload or EventRefill
	User    member.ID
	Contact member.ID // 0 for EventUpload and EventRefill
}

// The types of events are the types of tasks.
const (
	EventAddContact    = "add_contact"
	EventRemoveContact = "remove_contact"
	EventUpload        = "upload"
	EventRefill        = "refill"
)

// Site is the interface of [MySQL] and [Memory]. Implementations are safe for concurrent use.
type Site interface {
	Changer
	Loader
}

// Changer makes the changes of members. Each change is atomic, and the removal of a missing row is no error.
type Changer interface {
	// AddMember adds a member that never uploaded, or gives a member a new name.
	AddMember(ctx context.Context, id member.ID, username string) error
	// DeleteMember removes a member and all rows of it and about it. It emits
	// EventRemoveContact for each of its followers, and EventRefill for itself.
	DeleteMember(ctx context.Context, id member.ID) error
	// SetContact makes contact a contact of user, or changes the user's grant. It emits EventAddContact in
	// either case, which is harmless.
	SetContact(ctx context.Context, user, contact member.ID, g Grant) error
	// RemoveContact makes contact no contact of user any more. It emits
	// EventRemoveContact.
	RemoveContact(ctx context.Context, user, contact member.ID) error
	// Block hides each of the two members from the other.
	Block(ctx context.Context, user, blocked member.ID) error
	// Unblock undoes Block.
	Unblock(ctx context.Context, user, blocked member.ID) error
	// Upload adds a photo and returns its id. A p.ID other than 0 must be new. Unless
	// the photo is private, it moves the owner's last upload forward to its date, and
	// emits EventUpload.
	Upload(ctx context.Context, p Photo) (id uint64, err error)
	// SetVisibility changes which members see a photo. A photo that was private, and is so no more, counts as
	// uploaded now: SetVisibility moves the owner's last upload forward to the photo's date, and emits
	// EventUpload.
	SetVisibility(ctx context.Context, photoID uint64, v contacts.Visibility) error
	// DeletePhoto removes a photo; the owner's last upload stays as it is.
	DeletePhoto(ctx context.Context, photoID uint64) error
}

// Loader fills a site. Its methods are those of [Changer] for many rows at once, but emit nothing, and are
// atomic only within parts of a thousand rows.
type Loader interface {
	// LoadMembers is AddMember for many.
	LoadMembers(ctx context.Context, members []Member) error
	// LoadContacts is SetContact for many.
	LoadContacts(ctx context.Context, relations []Relation) error
	// LoadPhotos is Upload for many.
	LoadPhotos(ctx context.Context, photos []Photo) error
}

var (
	_ Site = (*MySQL)(nil)
	_ Site = (*Memory)(nil)
)
