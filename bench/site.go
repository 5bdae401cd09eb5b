package main

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// siteSize is the size of the made-up site that everything is measured on.
//
// Its members have photos of mixed visibility, one in five of them not public.
// The first of them have 10 to 100 contacts each: they are refilled, and tasks are about
// them. Those after them follow the two uploaders, with as many more members without
// photos as the larger audience needs. The others are:
//
//   - viewers with a given number of contacts, the same twelve stars among them,
//     which uploaded last: the answer is the same for any number of contacts;
//   - two owners, one of which has only private photos since its last public one, each
//     with a viewer;
//   - a viewer to whom a star shows all but its private photos;
//   - viewers with a thousand contacts each: none, or nine in ten, uploads in private only,
//     and since the others did; of these, last_upload is empty, or counts private uploads, too.
type siteSize struct {
	Members   int   `json:"members_with_photos"`
	Photos    int   `json:"photos_of_each"`
	Contacts  []int `json:"contacts_of_viewers"` // ascending
	Followers []int `json:"followers_of_uploaders"`
	Private   int   `json:"newest_private_photos"`
	Refills   int   `json:"members_with_contacts"`
}

func fullSite() siteSize {
	return siteSize{
		Members: 100_000, Photos: 10, Contacts: []int{10, 100, 1000, 10_000, 20_000, 50_000, 100_000},
		Followers: []int{100_000, 300_000}, Private: 50_000, Refills: 10_000,
	}
}

func quickSite() siteSize {
	return siteSize{
		Members: 5000, Photos: 10, Contacts: []int{10, 100, 1000, 5000},
		Followers: []int{2000, 5000}, Private: 3000, Refills: 500,
	}
}

// overloadSite is all that the overload needs: whose sets there are is asked for.
func overloadSite() siteSize {
	return siteSize{
		Members: 20_000, Photos: 10, Contacts: []int{10, 100, 1000}, Followers: []int{2000, 5000}, Private: 3000, Refills: 4000,
	}
}

// paceSite is all that a backfill needs: each member has contacts.
func paceSite() siteSize {
	return siteSize{
		Members: 50_000, Photos: 10, Contacts: []int{10, 100, 1000}, Followers: []int{2000, 5000}, Private: 3000, Refills: 50_000,
	}
}

// Ids. Ordinary members have seven digits, as on a site of some millions.
const (
	firstMember   = 1_000_001
	firstStar     = 101
	firstViewer   = 201
	hiddenOwner   = 301 // its newest photos are private
	openOwner     = 302 // it has no private ones
	firstOld      = 311 // the other contacts of these two owners' viewers
	hiddenViewer  = 331
	openViewer    = 332
	closeViewer   = 333 // the first star calls it friend and family: all classes but private are read for it
	privateViewer = 334 // nine in ten of its contacts upload in private only
	countedViewer = 335 // the same, on a site where last_upload counts private uploads
	plainViewer   = 336 // none of its contacts does
	firstUploader = 401
	firstPrivate  = 2001 // the contacts that upload in private only
	firstCounted  = 4001
)

const (
	stars     = 12 // as many as a set holds
	olds      = 11
	crowdSize = 1000 // contacts of each of these three viewers
	privates  = 900  // of them that upload in private only
	starShots = 60   // photos of each star, and public ones of the two owners
	// epoch is the latest upload of ordinary members, in unix seconds. Stars uploaded
	// after it, and the uploaders after them.
	epoch = 1_700_000_000
)

// viewer is the viewer with the i-th number of contacts.
func (siteSize) viewer(i int) member.ID { return member.ID(firstViewer + i) }

// most is the largest number of contacts.
func (s siteSize) most() int { return s.Contacts[len(s.Contacts)-1] }

// viewers are all with a given number of contacts.
func (s siteSize) viewers() []member.ID {
	ids := make([]member.ID, len(s.Contacts))
	for i := range ids {
		ids[i] = s.viewer(i)
	}
	return ids
}

// refilled are the ordinary members with contacts of their own.
func (s siteSize) refilled() []member.ID {
	ids := make([]member.ID, s.Refills)
	for i := range ids {
		ids[i] = member.ID(firstMember + i)
	}
	return ids
}

// uploader is the one with the i-th audience.
func (siteSize) uploader(i int) member.ID { return member.ID(firstUploader + i) }

// firstFollower is the lowest id of those who follow the uploaders.
func (s siteSize) firstFollower() member.ID { return member.ID(firstMember + s.Refills) }

// The contacts of ordinary members: each has fewestContacts or more, a stride apart, of
// the members with photos.
const fewestContacts = 10

func (s siteSize) stride() int { return max(1, s.Members/101) }

// pair is an ordinary member, counted from 0, with its k-th contact, counted from 0.
func (s siteSize) pair(user, k int) contacts.Pair {
	return contacts.Pair{User: member.ID(firstMember + user), Contact: member.ID(firstMember + (user*31+k*s.stride())%s.Members)}
}

// pairs returns n different contacts of ordinary members in random order, or as many
// pairs that are none: each one id after a contact, which the stride leaves free.
func (s siteSize) pairs(n int, seed uint64, strangers bool) []contacts.Pair {
	random := rand.New(rand.NewPCG(seed, 1))
	seen := make(map[contacts.Pair]bool, n)
	list := make([]contacts.Pair, 0, n)
	for len(list) < n {
		p := s.pair(random.IntN(s.Refills), random.IntN(fewestContacts))
		if strangers {
			p.Contact = firstMember + (p.Contact-firstMember+1)%member.ID(s.Members)
		}
		if !seen[p] && p.User != p.Contact {
			seen[p] = true
			list = append(list, p)
		}
	}
	return list
}

// ordinary is how many members have seven-digit ids.
func (s siteSize) ordinary() int { return max(s.Members, s.Refills+slices.Max(s.Followers)) }

func (s siteSize) check() error {
	switch {
	case s.most()-stars > s.Members:
		return fmt.Errorf("a viewer cannot have %d contacts among %d members", s.most(), s.Members)
	case s.Refills > s.Members:
		return fmt.Errorf("%d members cannot have contacts among %d", s.Refills, s.Members)
	}
	return nil
}
