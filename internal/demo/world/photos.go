package world

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// photos makes up all photos by ascending id; their dates are in another order.
func (s Spec) photos(r *rand.Rand, now time.Time) []site.Photo {
	all := make([]site.Photo, 0, s.Photos)
	for _, u := range s.uploaders(r) {
		date := now.Add(-u.age(r)).Unix()
		secretive := r.IntN(100) < 4
		for range u.photos {
			id := uint64(len(all) + 1)
			p := site.Photo{ID: id, Owner: u.id, Title: s.Titles.of(id), Visibility: Visibility(r), DateUpload: uint64(date)}
			if secretive {
				p.Visibility = contacts.Private
			}
			all = append(all, p)
			date -= 1 + int64(r.ExpFloat64()*float64(3*time.Hour/time.Second))
		}
	}
	return all
}

// addQuiet gives each quiet member a public photo, older than the last uploads of all other
// members. It makes the quiet members the contacts of an additional member.
func (w *World) addQuiet(s Spec, now time.Time) {
	const day = 24 * time.Hour
	w.quiet = member.ID(s.Members + 1)
	viewer, r := w.quiet+member.ID(s.Quiet), s.dice(5)
	w.Featured = slices.Insert(w.Featured, 0, viewer)
	for id := w.quiet; id < viewer; id++ {
		w.Contacts = append(w.Contacts, site.Relation{User: viewer, Contact: id})
		photo, age := uint64(len(w.Photos)+1), longest+day+time.Duration(r.Int64N(int64(longest)))
		w.Photos = append(w.Photos, site.Photo{ID: photo, Owner: id, Title: s.Titles.of(photo), Visibility: contacts.Public, DateUpload: uint64(now.Add(-age).Unix())})
	}
}

// longest is the time in which all members but the quiet members uploaded last.
const longest = 400 * 24 * time.Hour

type uploader struct {
	id        member.ID
	photos    int
	celebrity bool
}

// uploaders shares out the photos among about 40 % of the members: a few each to the majority,
// and up to some hundred. The rest never uploaded.
func (s Spec) uploaders(r *rand.Rand) []uploader {
	const share, shape, maxWeight = 40, 1.2, 120
	var all []uploader
	var weights []float64
	var sum float64
	for i := range s.Members {
		celebrity := i >= len(s.Featured) && i < len(s.Featured)+len(s.Celebrities)
		if !celebrity && r.IntN(100) >= share {
			continue
		}
		weight := min(1/math.Pow(1-r.Float64(), 1/shape), maxWeight)
		all = append(all, uploader{id: member.ID(i + 1), celebrity: celebrity})
		weights = append(weights, weight)
		sum += weight
	}
	left := s.Photos
	for i := range all {
		all[i].photos = min(left, max(1, int(float64(s.Photos)*weights[i]/sum)))
		left -= all[i].photos
	}
	return all
}

// age draws the age of the newest upload, from minutes to many months; at most some
// hours for a celebrity. The minutes are spread evenly, or dozens of members would have
// uploaded in the same latest second.
func (u uploader) age(r *rand.Rand) time.Duration {
	share := math.Pow(r.Float64(), 3)
	if u.celebrity {
		share /= 1000
	}
	latest := 2*time.Minute + time.Duration(r.Int64N(int64(30*time.Minute)))
	return latest + time.Duration(share*float64(longest))
}
