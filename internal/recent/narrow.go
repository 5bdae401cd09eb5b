package recent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// narrow reads by way of the candidates. It returns a proven answer, or an
// [unprovenError], or what went wrong with the database.
func (rd *reading) narrow(ctx context.Context) (contacts.Album, error) {
	first, err := rd.photosOf(ctx, "first", rd.entries[0].Contact)
	if err != nil {
		return contacts.Album{}, err
	}
	// Strictly newer than the second candidate's score, which bounds all others, in the
	// set (sorted, I2) and outside of it (I1). compare decides on a lone candidate.
	if len(first.Photos) > 0 && len(rd.entries) > 1 && first.Photos[0].DateUpload > rd.entries[1].Score {
		rd.examined(0, &first.Photos[0], Chosen)
		rd.trace.Proof = ByNext
		return first, nil
	}
	return rd.compare(ctx, first)
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
		isLate := ok && unproven.reason == RedisUnavailable && time.Since(began) >= rd.options.IndexWait &&
			rd.options.Late(began) >= rd.options.IndexWait/lateShare
		switch {
		case !isLate:
			return err
		case try == 2:
			return errLate
		}
	}
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
	entries, err := rd.index.Candidates(wait, rd.viewer.ID)
	rd.isBehind = errors.Is(err, index.ErrBehind)
	switch {
	case len(entries) > 0 && (err == nil || rd.isBehind):
		rd.entries = entries
		for _, e := range entries {
			rd.trace.Candidates = append(rd.trace.Candidates, Examined{Contact: e.Contact, Score: e.Score, Verdict: NotLooked})
		}
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, errors.Is(err, index.ErrMissing):
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

// compare looks at all candidates at one instant, also at the first again: an answer from
// two instants may have been right at neither.
func (rd *reading) compare(ctx context.Context, first contacts.Album) (contacts.Album, error) {
	owners := make([]member.ID, len(rd.entries))
	for i, e := range rd.entries {
		owners[i] = e.Contact
	}
	measured := rd.timed("others")
	standings, err := rd.store.Standings(ctx, rd.viewer, owners)
	measured()
	if err != nil {
		return contacts.Album{}, err
	}
	best := rd.judge(standings)
	complete := len(rd.entries) < rd.options.Min
	low := rd.entries[len(rd.entries)-1].Score
	rd.trace.Proof = ByLowest
	if complete {
		rd.trace.Proof = ByAll
	}
	switch {
	case best < 0 && complete:
		return contacts.Album{}, nil
	case best < 0:
		return contacts.Album{}, &unprovenError{reason: NothingVisible}
	case !complete && standings[best].Newest.DateUpload <= low:
		return contacts.Album{}, &unprovenError{reason: BestTooOld}
	}
	return rd.winner(ctx, first, *standings[best].Newest, best)
}

// judge gives every candidate its verdict, reports ghosts, and returns the
// position of the one with the newest visible photo, or -1.
func (rd *reading) judge(standings []contacts.Standing) (best int) {
	best = -1
	for i, s := range standings {
		switch {
		case !s.IsContact:
			rd.examined(i, nil, NotContact)
			rd.hints.LookAgain(rd.viewer.ID, s.Owner)
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

// winner returns the photos of the best candidate. The comparison is void if the photo
// that decided it is no longer its newest visible one.
func (rd *reading) winner(ctx context.Context, first contacts.Album, newest contacts.Photo, best int) (contacts.Album, error) {
	album := first
	if best != 0 || len(first.Photos) == 0 || first.Photos[0].ID != newest.ID {
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
