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

// admit comes before all else. It lets the reads in that [Config.Limiter] does, with the place and
// the access in their contexts. The others it answers itself: they come in any number, and so they
// must cost next to nothing.
func (s *Server) admit(w http.ResponseWriter, r *http.Request) {
	requestsInFlight.Inc()
	defer requestsInFlight.Dec()
	began := time.Now()
	refusals, need, by := s.readOf(r)
	if refusals == nil {
		s.echo.ServeHTTP(w, r)
		return
	}
	// The token of a viewer is dear to verify, and one that is not verified displaces no other read.
	if need == ofViewers && s.cfg.Limiter.Refuses(admit.By{Caller: auth.AnyViewer}) {
		s.refuse(w, r, &refusals.busy, began)
		return
	}
	a, ctx := s.check(r, need), r.Context()
	if a.err == nil {
		by.Caller = a.caller.Name
		if need == ofViewers {
			by.Viewer = a.viewer
		}
		place, err := s.cfg.Limiter.Enter(ctx, admit.Proven, by)
		switch {
		case errors.Is(err, admit.ErrShare):
			s.refuse(w, r, &refusals.share, began)
			return
		case errors.Is(err, admit.ErrBusy):
			s.refuse(w, r, &refusals.busy, began)
			return
		case err != nil: // the client left
			a.err = err
		default:
			defer place.Leave(false)
			ctx = admit.WithPlace(ctx, place, by)
		}
	}
	s.echo.ServeHTTP(w, r.WithContext(context.WithValue(ctx, accessKey(need), a)))
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
	id, isRead := strings.CutPrefix(r.URL.Path, before)
	if id, isRead = strings.CutSuffix(id, after); !isRead {
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
	length     []string
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
		status: p.Status, body: body, length: []string{strconv.Itoa(len(body))},
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
	header[echo.HeaderContentLength] = f.length
	header[echo.HeaderRetryAfter] = f.retryAfter[rand.IntN(len(f.retryAfter))]
	w.WriteHeader(f.status)
	_, _ = w.Write(f.body) // or the client left
	s.Refused("busy")
	f.count.Inc()
	f.seconds.Observe(time.Since(began).Seconds())
}

var typeOfProblem = []string{typeProblem}
