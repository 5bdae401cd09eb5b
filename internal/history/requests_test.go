package history_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

// request is a read under way, with the photos that its viewer could see meanwhile.
type request struct {
	viewer   member.ID
	limit    int
	fault    error // the answer of Redis; nil: the set
	calm     bool  // nothing was left to be done when it began
	instants []instant

	got recent.Answer
	err error
}

// instant is the visible state between two changes.
type instant struct {
	isMember bool
	visible  []photo // newest first
}

// newRequest begins a request. It is looked at until done.
func (s *stage) newRequest(viewer member.ID, limit int, fault error) *request {
	r := &request{viewer: viewer, limit: limit, fault: fault, calm: s.calm}
	r.look(s.world)
	s.requests = append(s.requests, r)
	return r
}

func (r *request) look(w *world) {
	r.instants = append(r.instants, instant{w.members[r.viewer], w.visible(r.viewer)})
}

type requestKey struct{}

// read reads for a request.
func (r *request) read(ctx context.Context, reader *recent.Reader) {
	r.got, r.err = reader.Read(context.WithValue(ctx, requestKey{}, r), contacts.Viewer{ID: r.viewer}, r.limit)
}

// done ends a request and judges its response.
func (s *stage) done(r *request) error {
	s.requests = slices.DeleteFunc(s.requests, func(other *request) bool { return other == r })
	switch {
	case r.fault != nil:
		s.counted.faulted++
	case r.got.Source == recent.FromIndex:
		s.counted.indexed++
		if slices.ContainsFunc(r.got.Candidates(), func(c recent.Candidate) bool { return c.Broadcast && c.Verdict == recent.Chosen }) {
			s.counted.fromRow++
		}
	default:
		s.counted.walked++
	}
	if err := r.judge(); err != nil {
		return fmt.Errorf("%w (%+v)", err, r.got.Trace)
	}
	return nil
}

func (r *request) judge() error {
	switch {
	case errors.Is(r.err, contacts.ErrNoMember):
		if r.someInstant(func(i instant) bool { return !i.isMember }) {
			return nil
		}
		return violation("%s is no member, says the read, but was one all the time", r.viewer)
	case r.err != nil:
		return violation("the read of %s failed: %v", r.viewer, r.err)
	case !r.someInstant(func(i instant) bool { return i.isMember }):
		return violation("%s was no member and got an answer", r.viewer)
	}
	return r.judgePhotos()
}

// judgePhotos: the response is the album of a single contact, as the viewer saw it at some instant. It is the
// answer by the definition if the read did without the index, or if nothing was left to be done.
func (r *request) judgePhotos() error {
	var ids []uint64
	for _, p := range r.got.Photos {
		ids = append(ids, p.ID)
	}
	if (len(ids) == 0) != (r.got.Contact == nil) {
		return violation("%s is shown photos %v of %v", r.viewer, ids, r.got.Contact)
	}
	if len(ids) > 0 && !r.someInstant(func(i instant) bool { return slices.Equal(ids, album(i.visible, r.got.Contact.ID, r.limit)) }) {
		return violation("%s is shown photos %v of %s, who showed that at no instant of the request: %v",
			r.viewer, ids, r.got.Contact.ID, r.instants)
	}
	exact := r.got.Source == recent.FromDatabase || r.calm && len(r.instants) == 1
	if exact && !r.someInstant(func(i instant) bool { return slices.Equal(ids, answer(i.visible, r.limit)) }) {
		return violation("%s is shown photos %v, which were the answer at no instant of the request: %v", r.viewer, ids, r.instants)
	}
	return nil
}

func (r *request) someInstant(holds func(instant) bool) bool {
	return slices.ContainsFunc(r.instants, holds)
}

// faults are the answers of Redis in place of a set.
var faults = []error{index.ErrUnavailable, index.ErrMalformed, index.ErrSettings, index.ErrMissing, errors.New("an unknown error")}
