package contacts_test

import (
	"fmt"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// testDetails goes through every class × grant × block × direction, as testPrivacy
// does: a hidden photo is named, with everything that hides it.
func testDetails(t *testing.T, w world) {
	owners := ownersOfEachClass(t, w)
	bare := member.ID(len(owners) + 1) // has no photos
	w.members(t, bare)
	for i, r := range allRelations() {
		v := viewer(member.ID(1000 + i))
		w.relate(t, v, owners, r)
		got, err := w.Details(t.Context(), v, append(owners, bare, bare+1))
		var want []contacts.Detail
		for i, owner := range owners {
			want = append(want, r.detail(owner, visibilities[i]))
		}
		want = append(want,
			contacts.Detail{Standing: contacts.Standing{Owner: bare}, IsMember: true, Username: "member " + bare.String()},
			contacts.Detail{Standing: contacts.Standing{Owner: bare + 1}})
		equal(t, fmt.Sprintf("Details under %+v", r), got, err, want)
	}
	got, err := w.Details(t.Context(), viewer(1000), nil)
	equal(t, "Details of none", got, err, nil)
	testNewestHidden(t, w)
}

// detail is the detail of an owner of a single photo.
func (r relation) detail(owner member.ID, v contacts.Visibility) contacts.Detail {
	d := contacts.Detail{
		Standing: contacts.Standing{Owner: owner, IsContact: r.called},
		IsMember: true, Username: "member " + owner.String(), LastUpload: 100,
		Blocks: r.blocked, Blocked: r.blocks, Friend: r.grant.Friend, Family: r.grant.Family,
	}
	if v == contacts.Private {
		d.LastUpload = 0
	}
	photo := contacts.Photo{ID: uint64(owner), DateUpload: 100}
	if r.shows(v) {
		d.Newest = &photo
	} else {
		d.Hidden = &contacts.HiddenPhoto{Photo: photo, Visibility: v}
	}
	return d
}

// testNewestHidden: of several classes, the newest visible photo and
// the newest hidden photo.
func testNewestHidden(t *testing.T, w world) {
	w.members(t, 50, 51)
	w.calls(t, 50, 51)
	must(t, w.site.SetContact(t.Context(), 51, 50, site.Grant{Friend: true}))
	w.photo(t, 500, 51, contacts.Public, 100)
	w.photo(t, 501, 51, contacts.Friends, 200)
	w.photo(t, 502, 51, contacts.FriendsFamily, 150)
	w.photo(t, 503, 51, contacts.Private, 300)
	w.photo(t, 504, 51, contacts.Family, 300) // the higher id
	w.photo(t, 505, 51, contacts.Private, 250)
	got, err := w.Details(t.Context(), viewer(50), []member.ID{51})
	equal(t, "Details of many photos", got, err, []contacts.Detail{{
		Standing: contacts.Standing{Owner: 51, IsContact: true, Newest: &contacts.Photo{ID: 501, DateUpload: 200}},
		IsMember: true, Username: "member 51", LastUpload: 300, Friend: true,
		Hidden: &contacts.HiddenPhoto{Photo: contacts.Photo{ID: 504, DateUpload: 300}, Visibility: contacts.Family},
	}})
}
