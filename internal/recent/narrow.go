package recent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// narrow reads by way of the candidates. It returns a proven answer, or an
// [unprovenError], or what went wrong with the database.
func (rd *reading) narrow(ctx context.Context) (contacts.Album, error) {
	// The photos of one candidate are asked for, and in the same statement which of the broadcast members that stand before
	// it are contacts: at first of the best of the set, and if the best of all is another one then, of that.
	at, others, isGuess := 0, []int(nil), rd.trace.Candidates[0].Broadcast && rd.isFan()
	if !isGuess {
		if err := rd.deepenToSet(ctx); err != nil {
			return contacts.Album{}, err
		}
		at = rd.bestOfSet()
		others = rd.undecided(at)
	}
	hidden := -1 // the place of one that showed nothing, contact or not
	for tries := 1; ; tries++ {
		album, err := rd.look(ctx, at, others)
		if err != nil {
			return contacts.Album{}, err
		}
		best := rd.best()
		switch {
		case best == at && rd.isNewest(album, at):
			rd.examined(at, &album.Photos[0], Chosen)
			rd.trace.Proof = ByNext
			return album, nil
		case isGuess && len(album.Photos) == 0: // it may be no contact
			isGuess, hidden = false, at
			if err := rd.deepenToSet(ctx); err != nil {
				return contacts.Album{}, err
			}
			at = min(1, rd.bestOfSet())
			others = rd.undecided(max(at+1, rd.bestOfSet()))
		case !isGuess && rd.broadcast.Bound >= rd.entries[best].Score:
			return contacts.Album{}, &unprovenError{reason: ManyBroadcasts}
		case best != at && best != hidden && tries < maxLooks:
			at = best
			others = rd.undecided(at)
		default:
			return rd.compare(ctx, album)
		}
	}
}

// isNewest reports whether the photos of a candidate prove that they are the answer, where all candidates before it are no
// contacts: the newest is strictly newer than the next candidate's score, which bounds all others among the
// candidates (sorted, I2), and than the bound of those that are none (I1). compare decides on a lone candidate.
func (rd *reading) isNewest(album contacts.Album, at int) bool {
	return len(album.Photos) > 0 && at+1 < len(rd.entries) && album.Photos[0].DateUpload > max(rd.entries[at+1].Score, rd.trace.Beyond)
}

// isFan reports whether the last answer for the viewer was one of the first two candidates, a broadcast member. Such a viewer is
// likely to follow many of them, and so its reads begin with the first. It is a guess: another viewer may have taken its place.
func (rd *reading) isFan() bool {
	return rd.fans != nil && rd.fans[uint64(rd.viewer.ID)%uint64(len(rd.fans))].Load() == uint64(rd.viewer.ID)
}

// remember takes note of whose the answer is.
func (rd *reading) remember() {
	if rd.fans == nil {
		return
	}
	firstTwo := rd.trace.Candidates[:min(2, len(rd.trace.Candidates))]
	place, id := &rd.fans[uint64(rd.viewer.ID)%uint64(len(rd.fans))], uint64(rd.viewer.ID)
	if rd.trace.Proof == ByNext && slices.ContainsFunc(firstTwo, func(c Examined) bool { return c.Broadcast && c.Verdict == Chosen }) {
		place.Store(id)
	} else {
		place.CompareAndSwap(id, 0)
	}
}

// deepenToSet makes sure that all broadcast members that stand before the best of the set are candidates.
func (rd *reading) deepenToSet(ctx context.Context) error {
	if rd.broadcast.Bound < rd.entries[rd.bestOfSet()].Score {
		return nil
	}
	// Those of the second's own second are read, too.
	return rd.deepen(ctx, max(1, rd.secondOfSet())-1)
}

// maxLooks bounds how often a read decides broadcast members, while contacts change.
const maxLooks = 4

// deepen makes candidates of all broadcast members that uploaded after a time, if they are not too many. A viewer whose set is small
// has few contacts, and the walk is cheap. What is read now must not be much younger than the set: see package broadcast.
func (rd *reading) deepen(ctx context.Context, above uint64) error {
	if rd.broadcast.More == nil || len(rd.set) < rd.options.Min {
		return &unprovenError{reason: ManyBroadcasts}
	}
	defer rd.timed("redis")()
	wait, cancel := context.WithDeadline(ctx, rd.asked.Add(rd.options.IndexWait))
	defer cancel()
	more := rd.broadcast.More(wait, above)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case time.Since(rd.asked) >= noneTTL:
		return &unprovenError{reason: RedisUnavailable}
	case errors.Is(more.Err, index.ErrMissing): // it was there a moment ago
		return &unprovenError{reason: NoBroadcastSet, mend: more.Of}
	}
	more.More = rd.broadcast.More
	rd.broadcast = more
	return rd.merge(ctx)
}

// noneTTL is how long before and after it counts that MySQL had no broadcast members. A member that is to become one is
// announced for longer before it counts as one, and is one for longer after it is in all sets: see package broadcast.
const noneTTL = 3 * time.Second

// known returns what is known of broadcast members. That there are none holds whatever the copy is.
func (rd *reading) known(ctx context.Context) (index.Copy, error) {
	b := rd.broadcast
	if b.Err == nil && !b.IsBehind {
		return b, nil
	}
	if none, err := rd.hasNone(ctx); none || err != nil {
		return index.Copy{}, err
	}
	rd.isBehind = rd.isBehind || b.IsBehind
	if b.Err == nil {
		return b, nil
	}
	err := unproven(b.Err)
	if err.refill {
		err = &unprovenError{reason: NoBroadcastSet, mend: b.Of}
	}
	return b, err
}

// merge makes candidates of the set and of broadcast members.
func (rd *reading) merge(ctx context.Context) error {
	b, err := rd.known(ctx)
	if err != nil {
		return err
	}
	rd.broadcast = b
	rd.complete = len(rd.set) < rd.options.Min && b.Bound == 0
	rd.trace.Broadcast = CopyRead{Copy: b.Of, Read: len(b.Entries), Bound: b.Bound}
	rd.trace.Beyond, rd.trace.Candidates = b.Bound, nil
	if len(rd.set) >= rd.options.Min {
		rd.trace.Beyond = max(b.Bound, rd.set[len(rd.set)-1].Score)
	}
	for _, e := range rd.set {
		// What was fanned out to the set may be older than what is in the broadcast set.
		if i := placeOf(b.Entries, e.Contact); i >= 0 {
			e.Score = max(e.Score, b.Entries[i].Score)
		}
		rd.trace.Candidates = append(rd.trace.Candidates, Examined{Contact: e.Contact, Score: e.Score, Verdict: NotLooked})
	}
	for _, e := range b.Entries {
		if e.Score <= rd.trace.Beyond && !rd.complete {
			break
		}
		if placeOf(rd.set, e.Contact) < 0 {
			rd.trace.Candidates = append(rd.trace.Candidates, Examined{Contact: e.Contact, Score: e.Score, Verdict: NotLooked, Broadcast: true})
		}
	}
	if len(b.Entries) > 0 {
		slices.SortStableFunc(rd.trace.Candidates, func(x, y Examined) int { return cmp.Compare(y.Score, x.Score) })
	}
	rd.entries = make([]index.Entry, len(rd.trace.Candidates))
	for i, c := range rd.trace.Candidates {
		rd.entries[i] = index.Entry{Contact: c.Contact, Score: c.Score}
	}
	return nil
}

// placeOf returns the place of a member, -1 if there is none. Here a search of some dozens is faster than a map is made.
func placeOf(entries []index.Entry, id member.ID) int {
	return slices.IndexFunc(entries, func(e index.Entry) bool { return e.Contact == id })
}

// hasNone reports whether there were no broadcast members a moment before or after the set was read. If that moment was long, it
// is not known: one may have been there when the set was read, and have ceased since.
func (rd *reading) hasNone(ctx context.Context) (bool, error) {
	asked := time.Since(rd.made)
	if at := rd.none.Load(); at == 0 || asked-time.Duration(at) >= noneTTL {
		defer rd.timed("broadcasts")()
		some, err := rd.store.AnyBroadcast(ctx)
		if some || err != nil {
			return false, err
		}
		rd.none.Store(max(1, int64(asked)))
	}
	return time.Since(rd.asked) < noneTTL, nil
}

// bestOfSet returns the place of the candidate of the set with the highest score.
func (rd *reading) bestOfSet() int {
	return slices.IndexFunc(rd.trace.Candidates, func(c Examined) bool { return !c.Broadcast })
}

// secondOfSet returns the score of the second candidate of the set; that of the first, if there is no other.
func (rd *reading) secondOfSet() (score uint64) {
	first := rd.bestOfSet()
	score = rd.entries[first].Score
	if second := slices.IndexFunc(rd.trace.Candidates[first+1:], func(c Examined) bool { return !c.Broadcast }); second >= 0 {
		score = rd.entries[first+1+second].Score
	}
	return score
}

// undecided returns the places of the broadcast members before one.
func (rd *reading) undecided(before int) (places []int) {
	for i, c := range rd.trace.Candidates[:before] {
		if c.Broadcast {
			places = append(places, i)
		}
	}
	return places
}

// best returns the place of the first candidate that is not known to be no contact.
func (rd *reading) best() int {
	return slices.IndexFunc(rd.trace.Candidates, func(c Examined) bool { return !c.Broadcast || c.Verdict != NotContact })
}

// look returns the photos of a candidate, and decides which of others are contacts. What was decided before is forgotten: a proof is of
// one statement.
func (rd *reading) look(ctx context.Context, at int, others []int) (contacts.Album, error) {
	for i := range rd.trace.Candidates {
		rd.trace.Candidates[i].Verdict = NotLooked
	}
	if len(others) == 0 {
		return rd.photosOf(ctx, "first", rd.entries[at].Contact)
	}
	defer rd.timed("first")()
	ids := make([]member.ID, len(others))
	for i, place := range others {
		ids[i] = rd.entries[place].Contact
	}
	album, related, err := rd.store.VisiblePhotosAnd(ctx, rd.viewer, rd.entries[at].Contact, rd.limit, ids)
	for _, place := range others {
		if !slices.Contains(related, rd.entries[place].Contact) {
			rd.trace.Candidates[place].Verdict = NotContact
		}
	}
	return album, err
}

// errLate is the reason why there is no answer where the process itself is late.
var errLate = fmt.Errorf("%w: the process was late to see the reply of Redis", ErrBusy)

// candidates reads the set, within IndexWait. A reply that is late because the process is says
// nothing of Redis, and such a read must not become a walk: that is the dearest one, at the worst
// time. So it is asked for once more, and then the read is refused.
func (rd *reading) candidates(ctx context.Context) error {
	defer rd.timed("redis")()
	for try := 1; ; try++ {
		began := time.Now()
		pause := time.AfterFunc(rd.options.IndexWait/pauseShare, func() { rd.pause(began) })
		err := rd.candidatesOnce(ctx)
		pause.Stop()
		if err := rd.place.Resume(ctx); err != nil {
			return err
		}
		unproven, ok := errors.AsType[*unprovenError](err)
		switch {
		case !ok || unproven.reason != RedisUnavailable || !rd.isLate(began):
			return err
		case try == 2:
			return errLate
		}
	}
}

// isLate reports whether a reply of Redis that was asked for at a time may have been missed because the process was late.
func (rd *reading) isLate(began time.Time) bool {
	return time.Since(began) >= rd.options.IndexWait && rd.options.Late(began) >= rd.options.IndexWait/lateShare
}

// lateShare: a process that was late by one in so many parts of IndexWait may have missed the
// reply of a Redis that answers in time.
const lateShare = 2

// pauseShare: a read that waits for Redis for one in so many parts of IndexWait keeps nothing busy, and
// others may begin. A Redis that hangs would else leave few reads to be answered by walks.
const pauseShare = 25

func (rd *reading) pause(began time.Time) {
	d := rd.options.IndexWait / pauseShare
	if rd.options.Late(began.Add(-2*d)) < d/2 { // else Redis may have answered
		rd.place.Pause()
	}
}

func (rd *reading) candidatesOnce(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, rd.options.IndexWait)
	defer cancel()
	rd.asked = time.Now()
	set, broadcast, err := rd.index.Candidates(wait, rd.viewer.ID)
	rd.isBehind = errors.Is(err, index.ErrBehind)
	switch {
	case time.Since(rd.asked) >= noneTTL: // this process was stopped: what two nodes said may be too far apart
		err = context.DeadlineExceeded
	case err == nil && errors.Is(broadcast.Err, index.ErrUnavailable) && rd.isLate(rd.asked): // the set came, and the copy after it did not
		err = broadcast.Err
	case len(set) > 0 && (err == nil || rd.isBehind):
		rd.set, rd.broadcast = set, broadcast
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		err = index.ErrMissing
	}
	return unproven(err)
}

// unproven returns why sets cannot be used that could not be read.
func unproven(err error) *unprovenError {
	switch {
	case errors.Is(err, index.ErrMissing):
		return &unprovenError{reason: SetMissing, refill: true}
	case errors.Is(err, index.ErrMalformed):
		return &unprovenError{reason: SetMalformed, refill: true}
	case errors.Is(err, index.ErrSettings):
		return &unprovenError{reason: OtherSettings}
	case errors.Is(err, index.ErrUnknown): // a refill would be deleted with the old sets
		return &unprovenError{reason: SetUnknown}
	}
	return &unprovenError{reason: RedisUnavailable}
}

func (rd *reading) photosOf(ctx context.Context, step string, owner member.ID) (contacts.Album, error) {
	defer rd.timed(step)()
	return rd.store.VisiblePhotos(ctx, rd.viewer, owner, rd.limit)
}

// compare looks at all candidates at one instant, also at the one whose photos are known again: an answer from
// two instants may have been right at neither. Where only broadcast members may be newer than the best, it looks at these, too.
func (rd *reading) compare(ctx context.Context, known contacts.Album) (contacts.Album, error) {
	for isDeep := false; ; isDeep = true {
		standings, err := rd.standings(ctx)
		if err != nil {
			return contacts.Album{}, err
		}
		best := rd.judge(standings)
		rd.trace.Proof = ByLowest
		if rd.complete {
			rd.trace.Proof = ByAll
		}
		switch {
		case best < 0 && rd.complete:
			return contacts.Album{}, nil
		case best < 0:
			return contacts.Album{}, &unprovenError{reason: NothingVisible}
		case rd.complete || standings[best].Newest.DateUpload > rd.trace.Beyond:
			return rd.winner(ctx, known, *standings[best].Newest, best)
		}
		newest := standings[best].Newest.DateUpload
		if isDeep || newest <= rd.set[len(rd.set)-1].Score {
			return contacts.Album{}, &unprovenError{reason: BestTooOld}
		}
		if err := rd.deepen(ctx, newest-1); err != nil {
			return contacts.Album{}, err
		}
	}
}

// standings returns how all candidates stand.
func (rd *reading) standings(ctx context.Context) ([]contacts.Standing, error) {
	defer rd.timed("others")()
	owners := make([]member.ID, len(rd.entries))
	for i, e := range rd.entries {
		owners[i] = e.Contact
	}
	return rd.store.Standings(ctx, rd.viewer, owners)
}

// judge gives every candidate its verdict, reports ghosts, and returns the
// position of the one with the newest visible photo, or -1.
func (rd *reading) judge(standings []contacts.Standing) (best int) {
	best = -1
	for i, s := range standings {
		switch {
		case !s.IsContact:
			rd.examined(i, nil, NotContact)
			if !rd.trace.Candidates[i].Broadcast {
				rd.hints.LookAgain(rd.viewer.ID, s.Owner)
			}
		case s.Newest == nil:
			rd.examined(i, nil, Nothing)
		default:
			rd.examined(i, s.Newest, Older)
			if best < 0 || s.Newest.Newer(*standings[best].Newest) {
				best = i
			}
		}
	}
	if best >= 0 {
		rd.trace.Candidates[best].Verdict = Chosen
	}
	return best
}

// winner returns the photos of the best candidate, which may be known. The comparison is void if the photo
// that decided it is no longer its newest visible one.
func (rd *reading) winner(ctx context.Context, album contacts.Album, newest contacts.Photo, best int) (contacts.Album, error) {
	if len(album.Photos) == 0 || album.Photos[0].ID != newest.ID {
		var err error
		if album, err = rd.photosOf(ctx, "winner", rd.entries[best].Contact); err != nil {
			return contacts.Album{}, err
		}
	}
	if len(album.Photos) == 0 || album.Photos[0].ID != newest.ID {
		return contacts.Album{}, &unprovenError{reason: PhotosChanged}
	}
	return album, nil
}

// examined stores the verdict on a candidate, and its newest visible photo if not nil.
func (rd *reading) examined(i int, newest *contacts.Photo, verdict Verdict) {
	c := &rd.trace.Candidates[i]
	c.Verdict = verdict
	if newest != nil {
		c.Newest, c.NewestID = newest.DateUpload, newest.ID
	}
}
