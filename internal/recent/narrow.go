package recent

import (
	"context"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// narrow answers by the set S and by the broadcast members, or returns the reason why a walk is needed.
//
// Let s be the score of the first of S. One statement has the photos of a member and, at the same instant, the
// broadcast members that the viewer calls contacts and that uploaded at s or later: they are above. The member is
// the first of S; if a broadcast contact is above, the statement is sent once more, for the newest of them.
func (rd *reading) narrow(ctx context.Context) (Reason, error) {
	at, s := rd.set[0].Contact, rd.set[0].Score
	look, err := rd.store.Look(ctx, rd.viewer, at, rd.limit, s)
	rd.broadcasts = look.Above
	if err == nil && len(look.Above) > 0 && look.Above[0].ID != at {
		at = look.Above[0].ID
		look, err = rd.store.Look(ctx, rd.viewer, at, rd.limit, s)
		rd.broadcasts = append(rd.broadcasts, look.Above...)
	}
	if err != nil {
		return "", err
	}
	// Strictly newer: photos of the same second are ordered by id, and a bound has no id.
	bound := rd.bound(at, look)
	if len(look.Photos) == 0 || look.Photos[0].DateUpload <= bound {
		return rd.compare(ctx)
	}
	if at != rd.set[0].Contact {
		rd.hints.LookAgain(rd.viewer.ID, at) // then it is the first of S, and the next read sends a single statement
	}
	rd.prove(look.Album, ByNext, bound)
	return "", nil
}

// bound returns when any contact other than at uploaded at the latest. It is the last upload of a second broadcast
// contact above. Without that, where at is above itself, it is s. Where at is the first of S, the rest of S is bounded by
// its second (I2), the contacts outside S by low(S) (I1), and the broadcast members by the newest upload below s.
func (rd *reading) bound(at member.ID, look contacts.Look) uint64 {
	for _, above := range look.Above {
		if above.ID != at {
			return above.LastUpload
		}
	}
	switch {
	case at != rd.set[0].Contact:
		return rd.set[0].Score
	case len(rd.set) > 1:
		return max(rd.set[1].Score, look.Below)
	}
	return max(rd.low(), look.Below)
}

// low returns low(S), the lowest score of S: no contact outside S uploaded later (I1), but for broadcast members. It is
// 0 for a set of fewer than Min members, outside of it no contact ever uploaded (I3).
func (rd *reading) low() uint64 {
	if len(rd.set) < rd.options.Min {
		return 0
	}
	return rd.set[len(rd.set)-1].Score
}

// compare takes the newest visible photo of all of S and of the broadcast contacts that uploaded after low(S), in a
// single statement: an answer from two instants may have been right at neither. The best is the answer if it is newer
// than low(S) and than the broadcast contacts beyond the limit of the statement; or if no contact is left out.
//
// A second statement reads its photos. The comparison is void if the photo that decided it is no longer the newest that
// the viewer may see.
func (rd *reading) compare(ctx context.Context) (Reason, error) {
	owners := make([]member.ID, len(rd.set))
	for i, e := range rd.set {
		owners[i] = e.Contact
	}
	c, err := rd.store.Compare(ctx, rd.viewer, owners, rd.low())
	if err != nil {
		return "", err
	}
	rd.broadcasts, rd.standings = append(rd.broadcasts, c.Broadcasts...), c.Standings
	var best contacts.Standing
	for i, s := range c.Standings {
		if !s.IsContact && i < len(rd.set) {
			rd.hints.LookAgain(rd.viewer.ID, s.Owner) // it is a ghost in S
		}
		if s.Newest != nil && (best.Newest == nil || s.Newest.Newer(*best.Newest)) {
			best = s
		}
	}
	bound := max(rd.low(), c.Beyond)
	switch {
	case best.Newest == nil && bound == 0:
		rd.prove(contacts.Album{}, ByAll, 0)
		return "", nil
	case best.Newest == nil:
		return NothingVisible, nil
	case bound > 0 && best.Newest.DateUpload <= bound:
		return BestTooOld, nil
	}
	look, err := rd.store.Look(ctx, rd.viewer, best.Owner, rd.limit, rd.set[0].Score)
	if err != nil {
		return "", err
	}
	if len(look.Photos) == 0 || look.Photos[0].ID != best.Newest.ID {
		return PhotosChanged, nil
	}
	rd.prove(look.Album, ByLowest, bound)
	return "", nil
}

// prove takes the answer and its proof. A bound of 0 says that no contact is left out.
func (rd *reading) prove(album contacts.Album, proof Proof, bound uint64) {
	if bound == 0 && proof != ByWalk {
		proof = ByAll
	}
	rd.Album, rd.Trace.Proof, rd.Trace.Bound = album, proof, bound
}
