package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/auth"
)

// The routes of reads.
const (
	photosOfMember = "/v1/users/:id/recent-contact-photos"
	photosOfViewer = pathOfViewers + "recent-contact-photos"
)

// Requirements of a route besides a scope.
const (
	ofViewers auth.Scope = 0    // the token of a viewer
	open      auth.Scope = 0xff // no token
)

// handler answers a request, in JSON. Without an answer it has sent the response itself, or it is 204.
type handler func(*Server, *call) (answer any, err error)

// route is a row of the table of routes.
type route struct {
	method, path string
	need         auth.Scope // or open, or ofViewers
	handle       handler
	wait         time.Duration // beyond [Config.RequestTimeout]
}

// routes are all routes. A load balancer has no token and chooses the Host, so the open routes disclose nothing that is
// not in the source. Reading a member's devices needs the scope write, too: with the scope read, pages show photos.
func routes() []route {
	all := []route{
		{http.MethodGet, photosOfMember, auth.Read, (*Server).recentContactPhotos, 0},
		{http.MethodGet, photosOfViewer, ofViewers, (*Server).viewerPhotos, 0},
		{http.MethodPost, "/v1/tasks", auth.Write, (*Server).enqueueTasks, 0},
		{http.MethodPost, "/v1/events", auth.Write, (*Server).enqueueEvents, 0},
		{http.MethodPost, pathOfQueues + ":queue/claim", auth.Work, ofQueue((*Server).claimTasks), maxWait},
		{http.MethodPost, pathOfQueues + ":queue/finish", auth.Work, ofQueue((*Server).finishTasks), 0},
		{http.MethodPost, pathOfQueues + ":queue/extend", auth.Work, ofQueue((*Server).extendLease), 0},
		{http.MethodGet, "/healthz", open, (*Server).healthz, 0},
		{http.MethodGet, "/readyz", open, (*Server).readyz, 0},
		{http.MethodGet, "/openapi.yaml", open, (*Server).openAPI, 0},
		{http.MethodGet, "/widget.js", open, (*Server).widget, 0},
	}
	for _, r := range []struct {
		method, path string
		handle       memberHandler
		query        []string // the parameters
	}{
		{http.MethodGet, "devices", (*Server).listDevices, nil},
		{http.MethodPut, "devices", (*Server).putDevice, nil},
		{http.MethodDelete, "devices/:device", (*Server).deleteDevice, nil},
		{http.MethodGet, "push-settings", (*Server).getSettings, nil},
		{http.MethodPut, "push-settings", (*Server).putSettings, nil},
		{http.MethodGet, "mutes", (*Server).listMutes, nil},
		{http.MethodPut, "mutes", (*Server).putMute, nil},
		{http.MethodDelete, "mutes", (*Server).deleteMute, []string{"object"}}, // proxies may drop the body of a DELETE
	} {
		handle := ofMember(r.handle, r.query)
		all = append(all,
			route{r.method, "/v1/users/:id/" + r.path, auth.Write, handle, 0},
			route{r.method, pathOfViewers + r.path, ofViewers, handle, 0})
	}
	for _, r := range all {
		if r.need == ofViewers {
			all = append(all, route{http.MethodOptions, r.path, open, (*Server).preflight, 0})
		}
	}
	return all
}

// call is a request on its way through the chain.
type call struct {
	echo.Context

	start  time.Time
	access access
	status int // of the answer; 0: 200
}

// add adds a route with the middle of the chain: the token, the deadline.
func (s *Server) add(r route) {
	s.echo.Add(r.method, r.path, func(c echo.Context) error {
		k, ok := c.(*call)
		if !ok {
			return errors.New("a request came past the beginning of the chain")
		}
		if err := recovered(func() error { return s.require(k, r) }); err != nil {
			return err
		}
		ctx, cancel := context.WithDeadline(k.Request().Context(), k.start.Add(s.cfg.RequestTimeout+r.wait))
		defer cancel()
		k.SetRequest(k.Request().WithContext(ctx))
		err := recovered(func() error {
			answer, err := r.handle(s, k)
			switch {
			case err != nil || k.Response().Committed:
				return err
			case answer == nil:
				return k.NoContent(http.StatusNoContent)
			}
			return writeJSON(k, cmp.Or(k.status, http.StatusOK), typeJSON, answer)
		})
		if err != nil {
			s.writeError(err, k) // before cancel, as the end of ctx decides
		}
		return err
	})
}

// Handler returns the API as a handler, for a server of the caller's own, that
// limits header and connections.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.begin) }

// begin begins the chain.
func (s *Server) begin(w http.ResponseWriter, r *http.Request) {
	requestsInFlight.Inc()
	defer requestsInFlight.Dec()
	if s.closing.Load() {
		w.Header()[echo.HeaderConnection] = closeConnection
	}
	if r.Method == http.MethodHead { // as GET; net/http sends no body
		r = r.WithContext(r.Context())
		r.Method = http.MethodGet
	}
	s.echo.ServeHTTP(w, r)
}
