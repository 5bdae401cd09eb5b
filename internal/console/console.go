package console

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/httpserver"
	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/queue"
)

// Options are for [New].
type Options struct {
	Queue   *queue.Queue
	Push    *push.MySQL
	Explain func(ctx context.Context, viewer member.ID) (recent.Explanation, error)
	Kinds   []string               // of tasks about a member's answer
	Tokens  *auth.Tokens           // nil: there are none
	Knows   func(host string) bool // see [httpserver.Server.Knows]
	Log     *slog.Logger
}

// The bounds of a request: askTimeout of its questions to MySQL, and of waiting for its turn; actTimeout of a change.
const (
	askTimeout = 3 * time.Second
	actTimeout = 8 * time.Second
	maxForm    = 64 << 10 // bytes
)

// Console serves all paths below /console/.
type Console struct {
	Options

	sessions sync.Map      // a session by its id
	turn     chan struct{} // has a place for the request that asks MySQL
	handler  http.Handler
}

//go:embed assets
var assets embed.FS

var templates = template.Must(template.New("").ParseFS(assets, "assets/*.html"))

// page is a path with its scope and fields.
type page struct {
	need   auth.Scope
	show   func(r *http.Request, v *view) error
	fields string
}

// policy allows the style of this package, and no further page to show it.
const policy = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// New returns the console.
func New(o Options) *Console {
	c := &Console{Options: o, turn: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	for pattern, p := range map[string]page{
		"GET /console/{$}":        {auth.Inspect, c.showQueues, "refresh"},
		"GET /console/tasks":      {auth.Inspect, c.showTasks, "page key type queue state error"},
		"GET /console/tasks/{id}": {auth.Inspect, c.showTask, ""},
		"GET /console/event":      {auth.Inspect, c.showEvent, "id member"},
		"GET /console/explain":    {auth.Inspect, c.showExplanation, "member"},
		"POST /console/act":       {auth.Admin, c.change, "do sure id key type queue state error"},
		"POST /console/queue":     {auth.Admin, c.hold, "do queue"},
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, p) })
	}
	mux.HandleFunc("POST /console/signin", c.signIn)
	mux.HandleFunc("POST /console/signout", c.signOut)
	mux.HandleFunc("GET /console/style.css", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, assets, "assets/style.css")
	})
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.write(w, r, &view{Title: "Refused", status: http.StatusForbidden, Problem: "This request came from another site. Nothing was changed."})
	}))
	c.handler = protection.Handler(mux)
	return c
}

// ServeHTTP implements [http.Handler].
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, a browser sends the Origin null
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	c.handler.ServeHTTP(w, r)
}

// view is the content of a page.
type view struct {
	Title, Page string // Page names the template
	Problem     string // instead of it
	Next        string // where to go after signing in, or with the status 303
	Refresh     bool   // the browser asks again every few seconds
	Caller      auth.Caller
	SignIn      bool // the form for it is shown
	SignedIn    bool
	MayAct      bool
	InTheClear  bool // a token can be read on its way
	Body        any

	status int
}

// fault is a mistake of the person who asks, in words.
type fault string

func (f fault) Error() string { return string(f) }

// serve shows a page to a caller with the scope. A single request at a time asks MySQL.
func (c *Console) serve(w http.ResponseWriter, r *http.Request, p page) {
	v := &view{status: http.StatusOK}
	caller, err := c.access(r, p.need)
	if err != nil {
		c.refuse(w, r, v, err)
		return
	}
	v.Caller, v.SignedIn, v.MayAct = caller, c.Tokens != nil, caller.Scopes.Has(auth.Admin)
	bound := askTimeout
	if r.Method == http.MethodPost {
		bound = actTimeout
		// The time for the body is over soon, and would end the request. A recorder has none.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(actTimeout + 2*askTimeout))
	}
	ctx, cancel := context.WithTimeout(r.Context(), bound)
	defer cancel()
	select {
	case c.turn <- struct{}{}:
		if err = p.check(r); err == nil {
			err = p.show(r.WithContext(ctx), v)
		}
		<-c.turn
	case <-ctx.Done():
		err = ctx.Err()
	}
	switch {
	case err != nil:
		c.fail(r, v, err)
	case v.status == http.StatusSeeOther:
		http.Redirect(w, r, v.Next, v.status)
		return
	}
	c.write(w, r, v)
}

// check refuses fields that the page does not take: a filter that is misspelt would match more.
func (p page) check(r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return fault("the form cannot be read")
	}
	for name := range r.Form {
		if !slices.Contains(strings.Fields(p.fields), name) {
			return fault(fmt.Sprintf("there is no field %.40q here: want %s", name, cmp.Or(p.fields, "none")))
		}
	}
	return nil
}

// refuse answers a caller without the scope: with the form to sign in, if that would help.
func (c *Console) refuse(w http.ResponseWriter, r *http.Request, v *view, err error) {
	verdict := auth.VerdictOf(err)
	switch {
	case errors.Is(err, errSignIn):
		v.Title, v.status, v.SignIn, verdict = "Sign in", http.StatusUnauthorized, true, auth.NoToken
		if r.Method == http.MethodGet {
			v.Next = r.URL.RequestURI()
		}
	case verdict == auth.OverLimit:
		v.Title, v.status, v.Problem = "Not allowed", http.StatusTooManyRequests, err.Error()+"."
	default:
		v.Title, v.status, v.Problem = "Not allowed", http.StatusForbidden, "This is not allowed: "+err.Error()+"."
	}
	auth.CountRequest("", verdict)
	c.write(w, r, v)
}

// fail says why there is no page.
func (c *Console) fail(r *http.Request, v *view, err error) {
	v.Title = cmp.Or(v.Title, "Error")
	is, ours := errors.AsType[fault](err)
	switch {
	case ours:
		v.status, v.Problem = http.StatusBadRequest, string(is)
	case errors.Is(err, inspect.ErrNoEvent), errors.Is(err, contacts.ErrNoMember):
		v.status, v.Problem = http.StatusNotFound, err.Error()
	case errors.Is(err, queue.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		v.status, v.Problem = http.StatusServiceUnavailable, "MySQL cannot be asked now, or takes too long. /readyz says how the servers are."
	default:
		v.status, v.Problem = http.StatusInternalServerError, "This did not work; the log says why."
	}
	if v.status >= http.StatusInternalServerError && r.Context().Err() == nil {
		c.Log.WarnContext(r.Context(), "cannot show a page of the console", "page", r.URL.Path, "error", err)
	}
}

// write writes a page.
func (c *Console) write(w http.ResponseWriter, r *http.Request, v *view) {
	v.InTheClear = !httpserver.IsLocal(r) && r.TLS == nil && r.Header.Get("X-Forwarded-Proto") != "https"
	var text bytes.Buffer
	if err := templates.ExecuteTemplate(&text, "page", v); err != nil {
		c.Log.ErrorContext(r.Context(), "cannot make a page of the console", "error", err)
		http.Error(w, "this page cannot be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(v.status)
	_, _ = w.Write(text.Bytes()) // the browser may be gone
}
