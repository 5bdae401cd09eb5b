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

// Limiter lets reads in; [admit.Limiter] is one. It is safe for concurrent use.
type Limiter interface {
	Enter(ctx context.Context) (*admit.Place, error)
	Refuses() bool
	Busy() bool
}

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

// admit comes before all else. It lets the reads in that [Config.Limiter] lets in, with their places in
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
	if refusal, need := s.readOf(r); refusal != nil {
		place, isRefused := s.enter(r, a, need)
		if isRefused {
			s.refuse(w, r, refusal, a.at)
			return
		}
		defer place.Leave(false)
		ctx = admit.WithPlace(ctx, place)
	}
	timeout := s.cfg.RequestTimeout
	if isClaim(r) {
		timeout += maxWait
	}
	ctx, cancel := context.WithDeadline(context.WithValue(ctx, arrivalKey{}, a), a.at.Add(timeout))
	defer cancel() // after errors are judged
	s.echo.ServeHTTP(w, r.WithContext(ctx))
}

// enter returns the place of a read, or that it is refused. A read that is not allowed has no place.
func (s *Server) enter(r *http.Request, a *arrival, need auth.Scope) (place *admit.Place, isRefused bool) {
	// The token of a viewer is dear to verify.
	if need == ofViewers && s.cfg.Limiter.Refuses() {
		return nil, true
	}
	a.checked, a.need, a.access = true, need, s.check(r, need)
	if a.access.err != nil {
		return nil, false
	}
	place, err := s.cfg.Limiter.Enter(r.Context())
	if errors.Is(err, admit.ErrBusy) {
		return nil, true
	}
	a.access.err = err // the client left
	return place, false
}

// readOf returns what refuses a read, and which scope it needs. Another
// request has no refusal, nor has a request whose member is none: it is refused without being read for.
func (s *Server) readOf(r *http.Request) (_ *refusal, need auth.Scope) {
	if r.Method != http.MethodGet {
		return nil, 0
	}
	if r.URL.Path == photosOfViewer && s.cfg.Viewers != nil {
		return &s.viewerRefusal, ofViewers
	}
	before, after, _ := strings.Cut(photosOfMember, ":id")
	id, isUser := strings.CutPrefix(r.URL.Path, before)
	id, isRead := strings.CutSuffix(id, after)
	if !isUser || !isRead {
		return nil, 0
	}
	if _, err := member.Parse(id); err != nil {
		return nil, 0
	}
	return &s.memberRefusal, auth.Read
}

// refusal is an answer that is always the same, but for its id and the jitter of its Retry-After.
type refusal struct {
	status     int
	body       []byte
	retryAfter [][]string // one of them, by lot
	count      prometheus.Counter
	seconds    prometheus.Observer
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
	_, _ = w.Write(f.body) // an error is that the client left
	s.Refused("busy")
	f.count.Inc()
	f.seconds.Observe(time.Since(began).Seconds())
}
