package recent

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// narrow answers by the set S and by the broadcast members, or returns the reason why a walk is needed.
//
// Let s be the score of the first of S. One statement has the photos of a member and, at the same instant, the
// broadcast members that the viewer calls contacts and that uploaded at s or later: they are above. At first the member is
// the first of S; if a broadcast contact is above, the statement is sent once more, for the newest of them.
func (rd *reading) narrow(ctx context.Context) (contacts.Album, Reason, error) {
	var look contacts.Look
	var err error
	at := rd.set[0].Contact
	for range 2 {
		if look, err = rd.look(ctx, at); err != nil {
			return contacts.Album{}, "", err
		}
		if len(look.Above) > 0 && look.Above[0].ID != at {
			at = look.Above[0].ID
			continue
		}
		// Strictly newer: photos of one second are ordered by id, which no bound has.
		if bound := rd.bound(at, look); len(look.Photos) > 0 && look.Photos[0].DateUpload > bound {
			if at != rd.set[0].Contact {
				rd.hints.LookAgain(rd.viewer.ID, at) // then it is the first of S, and the next read sends one statement
			}
			return rd.proven(look.Album, ByNext, bound), "", nil
		}
		break
	}
	return rd.compare(ctx, look.Album)
}

// bound returns when any contact other than at uploaded at the latest. It is the last upload of the second broadcast
// contact above. If there is none, all others are below s, where at is above itself; and where at is the first of S, they
// are bounded by the second of S (I2), and so those outside S (I1), and by the newest broadcast upload below s.
func (rd *reading) bound(at member.ID, look contacts.Look) uint64 {
	others := slices.DeleteFunc(look.Above, func(c contacts.Contact) bool { return c.ID == at })
	switch {
	case len(others) > 0:
		return others[0].LastUpload
	case at != rd.set[0].Contact:
		return rd.set[0].Score
	case len(rd.set) > 1:
		return max(rd.set[1].Score, look.Below)
	}
	return max(rd.low(), look.Below)
}

// low returns low(S), the lowest score of S: no contact outside S uploaded later (I1), but for broadcast members. It is 0 for a
// set of fewer than Min members, which has all other contacts (I3).
func (rd *reading) low() uint64 {
	if len(rd.set) < rd.options.Min {
		return 0
	}
	return rd.set[len(rd.set)-1].Score
}

// compare takes the newest visible photo of all of S and of the broadcast contacts that uploaded after low(S), in one
// statement: an answer from two instants may have been right at neither. The best is the answer if it is newer than low(S)
// and than the broadcast contacts that were too many to look at; or if no contact is left out. known are photos read before.
func (rd *reading) compare(ctx context.Context, known contacts.Album) (contacts.Album, Reason, error) {
	standings, beyond, err := rd.standings(ctx)
	if err != nil {
		return contacts.Album{}, "", err
	}
	bound, best := max(rd.low(), beyond), rd.judge(standings)
	switch {
	case best == nil && bound == 0:
		return rd.proven(contacts.Album{}, ByAll, 0), "", nil
	case best == nil:
		return contacts.Album{}, NothingVisible, nil
	case bound > 0 && best.Newest.DateUpload <= bound:
		return contacts.Album{}, BestTooOld, nil
	}
	return rd.winner(ctx, known, *best, bound)
}

// winner returns the photos of the best of a comparison, which may be known. The comparison is void if the photo
// that decided it is no longer the newest that the viewer may see. The photos after the newest are those of the statement that read
// them, which is another one of the same request.
func (rd *reading) winner(ctx context.Context, album contacts.Album, best contacts.Standing, bound uint64) (contacts.Album, Reason, error) {
	isBest := func() bool { return len(album.Photos) > 0 && album.Photos[0].ID == best.Newest.ID }
	if !isBest() {
		done := rd.timed("winner")
		var err error
		album, err = rd.store.VisiblePhotos(ctx, rd.viewer, best.Owner, rd.limit)
		if done(); err != nil {
			return contacts.Album{}, "", err
		}
	}
	if !isBest() {
		return contacts.Album{}, PhotosChanged, nil
	}
	return rd.proven(album, ByLowest, bound), "", nil
}

// candidates reads the set, within IndexWait. A reason says why it cannot be used.
func (rd *reading) candidates(ctx context.Context) (Reason, error) {
	defer rd.timed("redis")()
	wait, cancel := context.WithTimeout(ctx, rd.options.IndexWait)
	defer cancel()
	set, err := rd.index.Candidates(wait, rd.viewer.ID)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	isBehind := errors.Is(err, index.ErrBehind)
	switch {
	case err != nil && !isBehind:
		return reasonOf(err), nil
	case len(set) == 0:
		return SetMissing, nil
	}
	rd.set = set
	rd.trace.Candidates = make([]Candidate, 0, len(set)+2) // a look adds at most two
	for _, e := range set {
		rd.trace.Candidates = append(rd.trace.Candidates, Candidate{Contact: e.Contact, InSet: true, Score: e.Score, Verdict: NotLooked})
	}
	if isBehind && !rd.options.Uncounted && rd.place.Walk() {
		return WritesRefused, nil
	}
	return "", nil
}

// reasonOf returns why a set cannot be used that could not be read.
func reasonOf(err error) Reason {
	switch {
	case errors.Is(err, index.ErrMissing):
		return SetMissing
	case errors.Is(err, index.ErrMalformed):
		return SetMalformed
	case errors.Is(err, index.ErrSettings):
		return OtherSettings
	case errors.Is(err, index.ErrUnknown): // a refill would be deleted with the old sets
		return SetUnknown
	}
	return RedisUnavailable
}

// look asks for the photos of a member, and for the broadcast members about s.
func (rd *reading) look(ctx context.Context, at member.ID) (contacts.Look, error) {
	defer rd.timed("first")()
	look, err := rd.store.Look(ctx, rd.viewer, at, rd.limit, rd.set[0].Score)
	rd.addBroadcasts(look.Above)
	return look, err
}

// standings returns how the set stands, and the broadcast contacts that uploaded after low(S); and the latest upload
// of those that were too many.
func (rd *reading) standings(ctx context.Context) (all []contacts.Standing, beyond uint64, err error) {
	defer rd.timed("others")()
	owners := make([]member.ID, len(rd.set))
	for i, e := range rd.set {
		owners[i] = e.Contact
	}
	c, err := rd.store.Compare(ctx, rd.viewer, owners, rd.low())
	rd.addBroadcasts(c.Broadcasts)
	return c.Standings, c.Beyond, err
}

// judge gives each candidate its verdict, reports ghosts, and returns the standing with the newest visible photo, nil if there is none.
func (rd *reading) judge(standings []contacts.Standing) (best *contacts.Standing) {
	for i, s := range standings {
		switch {
		case !s.IsContact:
			rd.examined(s.Owner, nil, NotContact)
			if i < len(rd.set) {
				rd.hints.LookAgain(rd.viewer.ID, s.Owner)
			}
		case s.Newest == nil:
			rd.examined(s.Owner, nil, Nothing)
		default:
			rd.examined(s.Owner, s.Newest, Older)
			if best == nil || s.Newest.Newer(*best.Newest) {
				best = &standings[i]
			}
		}
	}
	return best
}

// proven takes note of the answer and its proof. A bound of 0 says that no contact is left out.
func (rd *reading) proven(album contacts.Album, proof Proof, bound uint64) contacts.Album {
	if bound == 0 && proof != ByWalk {
		proof = ByAll
	}
	rd.trace.Proof, rd.trace.Bound = proof, bound
	if album.Contact != nil {
		rd.examined(album.Contact.ID, &album.Photos[0], Chosen)
	}
	return album
}

// addBroadcasts adds broadcast members to the candidates of the trace, which are sorted by score.
func (rd *reading) addBroadcasts(list []contacts.Contact) {
	for _, b := range list {
		if c := rd.trace.candidate(b.ID); c != nil {
			c.Score, c.Broadcast = max(c.Score, b.LastUpload), true
		} else {
			rd.trace.Candidates = append(rd.trace.Candidates, Candidate{Contact: b.ID, Broadcast: true, Score: b.LastUpload, Verdict: NotLooked})
		}
	}
	if len(list) > 0 {
		slices.SortStableFunc(rd.trace.Candidates, func(x, y Candidate) int { return cmp.Compare(y.Score, x.Score) })
	}
}

// examined stores the verdict on a candidate, and its newest visible photo if not nil.
func (rd *reading) examined(id member.ID, newest *contacts.Photo, verdict Verdict) {
	c := rd.trace.candidate(id)
	if c == nil {
		return
	}
	c.Verdict = verdict
	if newest != nil {
		c.Newest = contacts.Photo{ID: newest.ID, DateUpload: newest.DateUpload}
	}
}
