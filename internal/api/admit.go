package api

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/member"
)

// The routes of reads.
const (
	photosOfMember = "/v1/users/:id/recent-contact-photos"
	photosOfViewer = pathOfViewers + "recent-contact-photos"
)

// arrival is what is known of a request before it is routed.
type arrival struct {
	at      time.Time
	checked bool
	need    auth.Scope // for which it was checked
	access  access
}

type arrivalKey struct{}

// arrivalOf returns the arrival of a request that [Server.admit] let in.
func arrivalOf(r *http.Request) *arrival {
	a, _ := r.Context().Value(arrivalKey{}).(*arrival)
	return a
}

// accessFor returns the access of a request for a scope, if that was checked.
func (a *arrival) accessFor(need auth.Scope) (_ access, checked bool) {
	return a.access, a.checked && a.need == need
}

// admit comes before all else. It lets the reads in that [Config.Limiter] does, with their places in
// their contexts. The others it answers itself: they come in any number, and so they must cost next
// to nothing. All that is let in has a deadline from its arrival on.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) {
	requestsInFlight.Inc()
	defer requestsInFlight.Dec()
	if s.closing.Load() {
		w.Header()[echo.HeaderConnection] = closeConnection
	}
	if r.Method == http.MethodHead { // as GET; net/http sends no body
		r = r.WithContext(r.Context())
		r.Method = http.MethodGet
	}
	a, ctx := &arrival{at: time.Now()}, r.Context()
	if f, need, by := s.readOf(r); f != nil {
		place, refusal := s.enter(r, a, f, need, &by)
		if refusal != nil {
			s.refuse(w, r, refusal, a.at)
			return
		}
		if place != nil {
			defer place.Leave(false)
			ctx = admit.WithPlace(ctx, place)
		}
	}
	timeout := s.cfg.RequestTimeout
	if isClaim(r) {
		timeout += maxWait
	}
	ctx, cancel := context.WithDeadline(context.WithValue(ctx, arrivalKey{}, a), a.at.Add(timeout))
	defer cancel() // after errors are judged
	s.echo.ServeHTTP(w, r.WithContext(ctx))
}

// enter returns the place of a read, or how it is refused. One that is not allowed has neither.
func (s *Server) enter(r *http.Request, a *arrival, f *refusals, need auth.Scope, by *admit.By) (admit.Place, *refusal) {
	// The token of a viewer is dear to verify, and one that is not verified displaces no other read.
	if need == ofViewers && s.cfg.Limiter.Refuses(admit.By{Caller: auth.AnyViewer}) {
		return nil, &f.busy
	}
	a.checked, a.need, a.access = true, need, s.check(r, need)
	if a.access.err != nil {
		return nil, nil
	}
	by.Caller = a.access.caller.Name
	if need == ofViewers {
		by.Viewer = a.access.viewer
	}
	place, err := s.cfg.Limiter.Enter(r.Context(), *by)
	switch {
	case errors.Is(err, admit.ErrShare):
		return nil, &f.share
	case errors.Is(err, admit.ErrBusy):
		return nil, &f.busy
	case err != nil: // the client left
		a.access.err = err
		return nil, nil
	}
	return place, nil
}

// readOf returns which scope a read needs, what refuses it, and the member of its path. Another
// request has no refusals, nor has one whose member is none: it is refused without being read for.
func (s *Server) readOf(r *http.Request) (_ *refusals, need auth.Scope, by admit.By) {
	if r.Method != http.MethodGet {
		return nil, 0, by
	}
	if r.URL.Path == photosOfViewer && s.cfg.Viewers != nil {
		return &s.viewerRefusals, ofViewers, by
	}
	before, after, _ := strings.Cut(photosOfMember, ":id")
	id, isUser := strings.CutPrefix(r.URL.Path, before)
	id, isRead := strings.CutSuffix(id, after)
	if !isUser || !isRead {
		return nil, 0, by
	}
	var err error
	if by.Viewer, err = member.Parse(id); err != nil {
		return nil, 0, by
	}
	return &s.memberRefusals, auth.Read, by
}

// refusals are the answers to reads of a route that are not let in.
type refusals struct{ busy, share refusal }

// refusal is an answer that is always the same, but for its id and the jitter of its Retry-After.
type refusal struct {
	status     int
	body       []byte
	retryAfter [][]string // one of them, by lot
	count      prometheus.Counter
	seconds    prometheus.Observer
}

func newRefusals(route string, tooMany *problem) refusals {
	share := rateLimited.problem("more requests are under way for this member than for others; try again after Retry-After seconds")
	share.retryAfter = 1
	return refusals{newRefusal(route, tooMany), newRefusal(route, share)}
}

func newRefusal(route string, p *problem) refusal {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // it is one of a few constants
	}
	labels := []string{route, http.MethodGet, strconv.Itoa(p.Status)}
	f := refusal{
		status: p.Status, body: body,
		count: requests.WithLabelValues(labels...), seconds: requestSeconds.WithLabelValues(labels...),
	}
	for after := p.retryAfter; after <= p.maxRetryAfter(); after++ {
		f.retryAfter = append(f.retryAfter, []string{strconv.Itoa(after)})
	}
	return f
}

// refuse sends a refusal, as [problem.write] does a problem.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, f *refusal, began time.Time) {
	header := w.Header()
	setHeader(header, r)
	s.allowOrigin(header, r)
	header[echo.HeaderContentType] = typeOfProblem
	header[echo.HeaderRetryAfter] = f.retryAfter[rand.IntN(len(f.retryAfter))]
	w.WriteHeader(f.status)
	_, _ = w.Write(f.body) //nolint:gosec // a constant, and JSON; an error is that the client left
	s.Refused("busy")
	f.count.Inc()
	f.seconds.Observe(time.Since(began).Seconds())
}
