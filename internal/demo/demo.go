// Package demo shows activityd at work on a made-up photo site. A page asks the question of the
// homepage for any viewer, and asks it again as a site without activityd would. It says how long
// both took; it shows the photos, the set in Redis, the events of the site, and a phone that is
// notified of the visitor's uploads. Visitors can wipe Redis and turn MySQL off.
//
// [Run] is the whole program: it starts private servers, or stands in for them where they are
// not installed, makes up a site (package world), and works on its tasks. [New] is the page
// alone.
//
// The page is made on the server, and works without a script. With its script, the page asks for
// its live part every second and replaces the elements that differ.
package demo

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo/pictures"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/site"
)

// Reader answers the question of the homepage, as the API does.
type Reader interface {
	// Read returns the viewer's answer with at most limit photos. It fails with
	// [contacts.ErrNoMember] for a viewer that does not exist.
	Read(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error)
}

// Config has the parts of a [Demo].
type Config struct {
	World     *world.World // as it was loaded into Site
	Site      site.Changer // its tasks must reach the index
	Reader    Reader
	Plain     []site.Plain                // all are asked; the quickest for a viewer is compared
	PlainName string                      // of all of Plain; it begins a sentence, such as "Plain SQL"
	Engine    string                      // the servers underneath, for the page's foot
	Wipe      func(context.Context) error // empties Redis
	Rate      float64                     // of the traffic, in changes a second
	Log       *slog.Logger
	// MySQL, Phones and Console are nil where tables in memory stand in for MySQL.
	MySQL   *Switch
	Phones  *Phones
	Console http.Handler // of /console/
}

// Switch is a server that visitors may turn off and on again.
type Switch struct {
	Off func() error                // ends it at once
	On  func(context.Context) error // starts it again, and returns when it answers
}

// photosShown is for how many photos the page has room.
const photosShown = 10

// Demo is the demo's page and traffic. Its methods are safe for concurrent use; [Demo.Traffic] is
// to be called once.
type Demo struct {
	cfg       Config
	town      *town
	templates *template.Template
	lastPhoto atomic.Uint64
	switching sync.Mutex  // held while MySQL is ended or started
	off       atomic.Bool // MySQL is
}

//go:embed assets
var assets embed.FS

// New returns a Demo that is ready to serve.
func New(cfg Config) *Demo {
	d := &Demo{cfg: cfg, town: newTown(cfg.World), templates: template.Must(template.ParseFS(assets, "assets/*.html"))}
	d.lastPhoto.Store(uint64(len(cfg.World.Photos)))
	return d
}

// contentPolicy forbids other hosts, inline scripts and inline styles: the page needs none.
const contentPolicy = "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Handler serves the page at /, its resources below /demo/, and the console.
func (d *Demo) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", d.page)
	mux.HandleFunc("GET /demo/live", d.live)
	mux.HandleFunc("GET /demo/photos/{file}", picture(pictures.SVG))
	mux.HandleFunc("GET /demo/avatars/{file}", picture(pictures.Avatar))
	mux.HandleFunc("GET /demo/style.css", asset("style.css"))
	mux.HandleFunc("GET /demo/app.js", asset("app.js"))
	mux.HandleFunc("POST /demo/upload", d.action(d.doUpload))
	mux.HandleFunc("POST /demo/private", d.action(d.doPrivate))
	mux.HandleFunc("POST /demo/wipe", d.action(d.doWipe))
	mux.HandleFunc("POST /demo/mysql", d.action(d.doSwitch))
	if d.cfg.Console != nil {
		mux.Handle("/console/", d.cfg.Console)
	}
	sameOrigin := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		sameOrigin.ServeHTTP(w, r)
	})
}

// page serves the whole page for ?id=, which the visitor typed in, or else ?viewer=, or else the
// first of the featured viewers.
func (d *Demo) page(w http.ResponseWriter, r *http.Request) {
	text := strings.TrimSpace(r.FormValue("id"))
	if text == "" {
		text = strings.TrimSpace(r.FormValue("viewer"))
	}
	if text == "" {
		text = d.cfg.World.Featured[0].String()
	}
	viewer, err := member.Parse(text)
	if err != nil {
		view := d.frame(d.cfg.World.Featured[0])
		view.Problem = err.Error()
		d.render(w, r, "page", http.StatusBadRequest, view)
		return
	}
	view, status := d.view(r.Context(), viewer)
	d.render(w, r, "page", status, view)
}

// live serves the live part of the page alone.
func (d *Demo) live(w http.ResponseWriter, r *http.Request) {
	viewer, err := member.Parse(r.URL.Query().Get("viewer"))
	if err != nil {
		http.Error(w, "viewer: "+err.Error(), http.StatusBadRequest)
		return
	}
	view, status := d.view(r.Context(), viewer)
	d.render(w, r, "live", status, view)
}

// render writes the output of a template, or an error if the template fails.
func (d *Demo) render(w http.ResponseWriter, r *http.Request, name string, status int, view any) {
	var buf bytes.Buffer
	if err := d.templates.ExecuteTemplate(&buf, name, view); err != nil {
		d.cfg.Log.ErrorContext(r.Context(), "page not rendered", "template", name, "error", err)
		http.Error(w, "the page could not be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(buf.Bytes()) // the visitor may be gone
}

// picture serves the picture that paint draws of the id in the path.
func picture(paint func(uint64) []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, isSVG := strings.CutSuffix(r.PathValue("file"), ".svg")
		id, err := strconv.ParseUint(name, 10, 64)
		if err != nil || !isSVG {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "image/svg+xml")
		w.Header().Set("Cache-Control", "public, max-age=86400, immutable")
		_, _ = w.Write(paint(id)) // the visitor may be gone
	}
}

func asset(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, assets, "assets/"+name)
	}
}
