package demo

import (
	"fmt"
	"html/template"
	"log/slog"
	"net/http"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// embedLines are the lines that put the widget on the homepage, and that it shows.
const embedLines = `<script type="module" src="/widget.js"></script>
<recent-contact-photos src="/v1/me/recent-contact-photos" token-src="/demo/token"
  photo-href="/demo/photos/{id}.svg" image-src="/demo/photos/{id}.svg"
  limit="4" refresh="10">
</recent-contact-photos>`

// memberCookie names the member that is signed in on the homepage. It is no secret: every
// client that reaches the demo may be any member.
const memberCookie = "activityd_demo_member"

// homeView is the made-up site's homepage, ready to print.
type homeView struct {
	Member memberView
	Fresh  []freshView
	Embed  template.HTML // a constant
	Lines  string        // the same, to be read
	Tokens bool          // else the widget has none to show
}

// freshView is a photo that all may see.
type freshView struct {
	ID        uint64
	Title, By string
}

// home serves the homepage of the made-up site, and signs in the member in the query.
func (d *Demo) home(w http.ResponseWriter, r *http.Request) {
	id := d.signedIn(r)
	if text := r.URL.Query().Get("viewer"); text != "" {
		var err error
		if id, err = member.Parse(text); err != nil {
			http.Error(w, "viewer: "+err.Error(), http.StatusBadRequest)
			return
		}
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // without TLS, on this machine alone
		Name: memberCookie, Value: id.String(), Path: "/demo/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	d.memory.watch(id)
	d.render(w, r, "home", http.StatusOK, homeView{
		Member: d.memberView(id), Fresh: d.fresh(), Embed: embedLines, Lines: embedLines, Tokens: d.cfg.Token != nil,
	})
}

// signedIn returns the member in the cookie, or the first of the featured viewers.
func (d *Demo) signedIn(r *http.Request) member.ID {
	if c, err := r.Cookie(memberCookie); err == nil {
		if id, err := member.Parse(c.Value); err == nil {
			return id
		}
	}
	return d.cfg.World.Featured[0]
}

// fresh returns photos that all may see: the newest public ones of the world.
func (d *Demo) fresh() (list []freshView) {
	const most = 8
	photos := d.cfg.World.Photos
	for i := len(photos) - 1; i >= 0 && len(list) < most; i-- {
		if p := photos[i]; p.Visibility == contacts.Public {
			list = append(list, freshView{p.ID, p.Title, d.memory.name(p.Owner)})
		}
	}
	return list
}

// token answers the signed-in browser with a token of its member, as a site's back-end
// would.
func (d *Demo) token(w http.ResponseWriter, r *http.Request) {
	if d.cfg.Token == nil {
		http.NotFound(w, r)
		return
	}
	token, err := d.cfg.Token(d.signedIn(r))
	if err != nil {
		d.cfg.Log.ErrorContext(r.Context(), "demo: no token", slog.Any("error", err))
		http.Error(w, "There is no token; the log says why.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"token":%q}`, token) // nothing to escape in base64; the visitor may be gone
}
