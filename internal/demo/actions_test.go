package demo_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
)

// press presses a button as the page's script does.
func press(t *testing.T, h http.Handler, action, form string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/demo/actions/"+action, strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Requested-With", "fetch")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// shown returns what the viewer is to see now, by the definition.
func (s *service) shown(t *testing.T, viewer contacts.Viewer) contacts.Album {
	t.Helper()
	album, err := s.walk(t.Context(), viewer, 10)
	if err != nil || album.Contact == nil {
		t.Fatalf("viewer %d sees %+v, %v", viewer.ID, album, err)
	}
	return album
}

func TestMakePrivateIsGoneFromTheNextAnswer(t *testing.T) {
	t.Parallel()
	s := startService(t)
	before := s.shown(t, contacts.Viewer{ID: 1}).Photos[0]
	id := photoID(before)
	w := press(t, s.demo.Handler(), "private", "viewer=1&photo="+id)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "is private now") {
		t.Fatalf("private = %d %s", w.Code, w.Body)
	}
	body := get(t, s.demo.Handler(), "/demo/widget?viewer=1").Body.String()
	if strings.Contains(body, "/demo/photos/"+id+".svg") {
		t.Error("the private photo is in the next answer")
	}
	requireContains(t, body, "made “"+before.Title+"” private", "<b>You:</b>")
	if again := press(t, s.demo.Handler(), "private", "viewer=1&photo="+id); again.Code != http.StatusConflict {
		t.Errorf("once more = %d %s", again.Code, again.Body)
	}
}

func TestUploadAsContactIsShown(t *testing.T) {
	t.Parallel()
	s := startService(t)
	first := s.shown(t, contacts.Viewer{ID: 1}).Contact.ID
	if w := press(t, s.demo.Handler(), "upload", "viewer=1&owner=other&shown="+first.String()); w.Code != http.StatusOK {
		t.Fatalf("upload = %d %s", w.Code, w.Body)
	}
	requireContains(t, get(t, s.demo.Handler(), "/demo/widget?viewer=1").Body.String(), "<b>You:</b>", "uploaded “")
	if w := press(t, s.demo.Handler(), "upload", "viewer=1&owner="+first.String()); w.Code != http.StatusOK {
		t.Fatalf("upload = %d %s", w.Code, w.Body)
	}
	now := s.shown(t, contacts.Viewer{ID: 1})
	if now.Contact.ID != first || now.Photos[0].Title != s.config.World.Title(now.Photos[0].ID) {
		t.Errorf("after an upload as %d: %+v", first, now)
	}
}

func TestWipeEmptiesRedis(t *testing.T) {
	t.Parallel()
	s := startService(t)
	if err := s.redis.Set("something", "there"); err != nil {
		t.Fatal(err)
	}
	if w := press(t, s.demo.Handler(), "wipe", "viewer=1"); w.Code != http.StatusOK || s.redis.Exists("something") {
		t.Errorf("wipe = %d %s", w.Code, w.Body)
	}
}

func TestBadPresses(t *testing.T) {
	t.Parallel()
	s := startService(t)
	other := "410" // no contact of viewer 4
	if s.isContact(4, other) {
		t.Fatal("the test needs a member that is no contact of viewer 4")
	}
	for _, c := range []struct {
		action, form string
		status       int
		want         string
	}{
		{"upload", "owner=1", 400, "viewer"},
		{"upload", "viewer=x&owner=1", 400, "viewer"},
		{"upload", "viewer=1&owner=", 400, "owner"},
		{"upload", "viewer=1&owner=0", 400, "owner"},
		{"upload", "viewer=4&owner=" + other, 409, "no contact"},
		{"upload", "viewer=5&owner=other", 409, "no other contact"},
		{"upload", "viewer=1&%zz", 400, "form"},
		{"upload", "viewer=1&owner=" + strings.Repeat("9", 5000), 400, "form"},
		{"private", "viewer=1&photo=x", 400, "photo"},
		{"private", "viewer=1&photo=18446744073709551615", 409, "not shown"},
		{"private", "viewer=999999&photo=1", 404, "no member"},
		{"traffic", "viewer=1&do=explode", 400, "pause or resume"},
		{"broadcast", "viewer=1&do=add", 409, "real servers"},
		{"else", "viewer=1", 404, ""},
	} {
		w := press(t, s.demo.Handler(), c.action, c.form)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("POST %s %.60s = %d %s, want %d about %q", c.action, c.form, w.Code, w.Body, c.status, c.want)
		}
	}
	if w := get(t, s.demo.Handler(), "/demo/actions/wipe"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET of an action = %d", w.Code)
	}
	requireContains(t, get(t, s.demo.Handler(), "/").Body.String(), "Nothing yet.")
}

func TestOtherSitesCannotPress(t *testing.T) {
	t.Parallel()
	site := &journal{}
	d := newTraffic(t, site, 1)
	for _, header := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Origin", "https://elsewhere.example"},
		{"Origin", "null"},
	} {
		if w := press(t, d.Handler(), "upload", "viewer=1&owner=other", header...); w.Code != http.StatusForbidden {
			t.Errorf("with %v: %d %s", header, w.Code, w.Body)
		}
	}
	if len(site.all()) != 0 {
		t.Errorf("another site made changes: %q", site.all())
	}
	for _, header := range [][]string{{"Sec-Fetch-Site", "same-origin"}, {"Origin", "http://example.com"}} {
		if w := press(t, d.Handler(), "upload", "viewer=1&owner=other", header...); w.Code != http.StatusOK {
			t.Errorf("with %v: %d %s", header, w.Code, w.Body)
		}
	}
}

func TestPressWithoutScriptGoesBackToThePage(t *testing.T) {
	t.Parallel()
	s := startService(t)
	w := press(t, s.demo.Handler(), "traffic", "viewer=2&do=pause", "X-Requested-With", "")
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/?viewer=2" {
		t.Errorf("%d to %q", w.Code, w.Header().Get("Location"))
	}
	requireContains(t, get(t, s.demo.Handler(), "/?viewer=2").Body.String(), "Resume the traffic", "(paused)")
}

func TestPressOnASiteThatIsDown(t *testing.T) {
	t.Parallel()
	d := newTraffic(t, &journal{err: errors.New("secret of the database")}, 1)
	w := press(t, d.Handler(), "upload", "viewer=1&owner=other")
	if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
