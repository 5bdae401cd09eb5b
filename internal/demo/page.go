package demo

import (
	"bytes"
	"embed"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/activityd/activityd/internal/demo/pictures"
	"github.com/activityd/activityd/internal/member"
)

//go:embed assets
var assets embed.FS

// contentPolicy forbids other hosts, inline scripts and inline styles: the page needs none.
const contentPolicy = "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; " +
	"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Handler serves the page at / and everything that belongs to it under /demo/.
func (d *Demo) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", d.page)
	mux.HandleFunc("GET /demo/widget", d.widget)
	mux.HandleFunc("GET /demo/home", d.home)
	mux.HandleFunc("GET /demo/token", d.token)
	mux.HandleFunc("GET /demo/photos/{file}", picture(pictures.SVG))
	mux.HandleFunc("GET /demo/avatars/{file}", picture(pictures.Avatar))
	mux.HandleFunc("GET /demo/style.css", asset("style.css"))
	mux.HandleFunc("GET /demo/home.css", asset("home.css"))
	mux.HandleFunc("GET /demo/app.js", asset("app.js"))
	mux.HandleFunc("POST /demo/actions/upload", d.action(d.doUpload))
	mux.HandleFunc("POST /demo/actions/private", d.action(d.doPrivate))
	mux.HandleFunc("POST /demo/actions/wipe", d.action(d.doWipe))
	mux.HandleFunc("POST /demo/actions/traffic", d.action(d.doTraffic))
	mux.HandleFunc("POST /demo/actions/switch", d.action(d.doSwitch))
	mux.HandleFunc("POST /demo/actions/push", d.action(d.doPush))
	mux.HandleFunc("POST /demo/actions/broadcast", d.action(d.doBroadcast))
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

// page serves the whole page for ?id=, which the visitor typed in, or else ?viewer=, or
// else the first of the featured viewers.
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
		view.Events = d.eventViews(0, nil)
		d.render(w, r, "page", http.StatusBadRequest, view)
		return
	}
	view, status := d.view(r.Context(), viewer)
	d.render(w, r, "page", status, view)
}

// widget serves the live parts of the page alone.
func (d *Demo) widget(w http.ResponseWriter, r *http.Request) {
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
		d.cfg.Log.ErrorContext(r.Context(), "demo: rendering failed", slog.String("template", name), slog.Any("error", err))
		http.Error(w, "the page could not be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(buf.Bytes()) // the visitor may be gone
}

// picture serves what paint makes of the id in the path.
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
