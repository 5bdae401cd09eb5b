package demo_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/site"
)

// tinyWorld is the world of the demo, made small: member 1 has 400 contacts, member 5 none.
func tinyWorld() world.Spec {
	spec := world.Demo()
	spec.Members, spec.Photos, spec.Blocks, spec.Quiet = 410, 2400, 20, 30
	spec.Featured, spec.Celebrities = []int{400, 150, 40, 12, 0}, []int{200, 80}
	return spec
}

// quietViewer is the first viewer that the page of tinyWorld offers.
const quietViewer = "441"

// reads is a Reader made of a function.
type reads func(context.Context) (recent.Answer, error)

func (f reads) Read(ctx context.Context, _ contacts.Viewer, _ int) (recent.Answer, error) {
	return f(ctx)
}

// answering is a read of a photo after a while.
func answering(photo uint64, while time.Duration) reads {
	return func(context.Context) (recent.Answer, error) {
		<-time.After(while)
		return recent.Answer{Album: albumOf(photo), Source: recent.FromIndex}, nil
	}
}

func albumOf(photo uint64) contacts.Album {
	return contacts.Album{Contact: &contacts.Profile{ID: 9, Username: "someone"}, Photos: []contacts.Photo{{ID: photo, Title: "A & B", DateUpload: 1}}}
}

// plainly is a plain way that answers with a photo after a while, or fails.
func plainly(photo uint64, while time.Duration, err error) site.Plain {
	return site.Plain{Name: fmt.Sprintf("way of %v", while), Ask: func(ctx context.Context, _ contacts.Viewer, _ int) (contacts.Album, error) {
		select {
		case <-time.After(while):
			return albumOf(photo), err
		case <-ctx.Done():
			return contacts.Album{}, ctx.Err()
		}
	}}
}

func newDemo(read demo.Reader, to site.Changer, plain ...site.Plain) *demo.Demo {
	return demo.New(demo.Config{
		World: tinyWorld().Generate(time.Now()), Site: to, Reader: read, Plain: plain, PlainName: "Plain SQL", Rate: 4,
		Log: slog.New(slog.DiscardHandler),
	})
}

func ask(t *testing.T, d *demo.Demo, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	d.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w
}

// press presses a button as the page's script does.
func press(t *testing.T, d *demo.Demo, action, form string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/demo/"+action, strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Requested-With", "fetch")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	d.Handler().ServeHTTP(w, r)
	return w
}

func requireContains(t *testing.T, body string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not contain %q:\n%s", want, body)
		}
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	d := newDemo(answering(1, 0), &journal{}, plainly(1, 0, nil))
	for _, c := range []struct {
		path, contentType, contains string
		status                      int
	}{
		{"/", "text/html", `data-viewer="` + quietViewer + `"`, 200},
		{"/?id=+3+&viewer=1", "text/html", `data-viewer="3"`, 200},
		{"/?id=0", "text/html", "not a member id", 400},
		{"/?viewer=%3Cb%3E", "text/html", "&lt;b&gt;", 400},
		{"/?viewer=2", "text/html", "Who of my 150 contacts posted last?", 200},
		{"/demo/live?viewer=5", "text/html", "A member without contacts has no set", 200},
		{"/demo/live?viewer=0", "text/plain", "viewer: not a member id", 400},
		{"/demo/photos/18446744073709551615.svg", "image/svg+xml", "<svg", 200},
		{"/demo/avatars/1.svg", "image/svg+xml", "<svg", 200},
		{"/demo/photos/1.png", "text/plain", "", 404},
		{"/demo/style.css", "text/css", "--paper", 200},
		{"/demo/app.js", "text/javascript", "morph", 200},
		{"/demo/page.html", "text/plain", "", 404},
		{"/console/", "text/plain", "", 404}, // without a database
	} {
		w := ask(t, d, c.path)
		if w.Code != c.status || !strings.HasPrefix(w.Header().Get("Content-Type"), c.contentType) || !strings.Contains(w.Body.String(), c.contains) {
			t.Errorf("GET %s = %d %s, want %d %s with %q:\n%.600s", c.path, w.Code, w.Header().Get("Content-Type"), c.status, c.contentType, c.contains, w.Body)
		}
		if h := w.Header(); !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("GET %s: headers %v", c.path, h)
		}
		if strings.Contains(w.Body.String(), " style=") || strings.Contains(w.Body.String(), "<script>") {
			t.Errorf("GET %s: inline style or script, which the policy forbids", c.path)
		}
	}
}

// The page compares with the quickest of the plain ways, in a plain way's own time.
func TestTimesAreCompared(t *testing.T) {
	t.Parallel()
	const enough, long = "plain SQL is enough", "the larger the site, the longer"
	for _, c := range []struct {
		took  time.Duration
		plain []time.Duration
		want  []string
	}{
		{2 * time.Millisecond, []time.Duration{228 * time.Millisecond, time.Millisecond}, []string{`<strong id="took">2.0 ms</strong>`, `<strong id="plain">1.0 ms</strong>`, "228 ms, way of 1ms 1.0 ms.", `class="plain" width="50"`, enough}},
		{1500 * time.Microsecond, []time.Duration{120 * time.Millisecond, time.Second}, []string{`<strong id="took">1.5 ms</strong>`, `<strong id="plain">120 ms</strong>`, `class="ours" y="8" width="1"`, ">same answer<", long}},
		{time.Millisecond, []time.Duration{time.Hour}, []string{"no answer within 3 s", "someone"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var plain []site.Plain
			for _, took := range c.plain {
				plain = append(plain, plainly(1, took, nil))
			}
			requireContains(t, ask(t, newDemo(answering(1, c.took), &journal{}, plain...), "/demo/live?viewer=1").Body.String(), c.want...)
		})
	}
}

// A change between two answers is no difference.
func TestDifferenceIsReadTwiceBeforeItIsShown(t *testing.T) {
	t.Parallel()
	for plain, want := range map[uint64]string{2: ">same answer<", 9: "the index is a task behind"} {
		calls := uint64(0)
		read := reads(func(context.Context) (recent.Answer, error) {
			calls++
			return recent.Answer{Album: albumOf(calls), Source: recent.FromIndex}, nil
		})
		requireContains(t, ask(t, newDemo(read, &journal{}, plainly(plain, 0, nil)), "/demo/live?viewer=1").Body.String(), want, "A &amp; B")
	}
}

func TestFailuresAreDescribed(t *testing.T) {
	t.Parallel()
	secret := errors.New("secret of the database")
	for _, c := range []struct {
		read, plain error
		status      int
		want        string
	}{
		{contacts.ErrNoMember, nil, 404, "There is no member 1."},
		{recent.ErrBusy, nil, 503, "The database is busy"},
		{mysql.ErrUnavailable, nil, 503, "activityd answers 503 until it is back"},
		{secret, nil, 500, "the log says why"},
		{nil, secret, 200, `<strong id="plain">failed</strong>`},
	} {
		d := newDemo(reads(func(context.Context) (recent.Answer, error) { return recent.Answer{Album: albumOf(1)}, c.read }), &journal{}, plainly(1, 0, c.plain))
		w := ask(t, d, "/demo/live?viewer=1")
		if w.Code != c.status || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%v, %v: status %d, want %d:\n%s", c.read, c.plain, w.Code, c.status, w.Body)
		}
		requireContains(t, w.Body.String(), c.want)
	}
}

func TestEveryVerdictIsShown(t *testing.T) {
	t.Parallel()
	verdicts := []recent.Verdict{recent.Chosen, recent.Older, recent.Nothing, recent.NotContact, recent.NotLooked}
	answer := recent.Answer{Album: albumOf(1), Source: recent.FromDatabase}
	answer.Trace.WalkReason = recent.SetMissing
	for i, v := range verdicts {
		answer.Trace.Candidates = append(answer.Trace.Candidates, recent.Candidate{Contact: 20, Score: 1363665432 - uint64(i), Verdict: v})
	}
	d := newDemo(reads(func(context.Context) (recent.Answer, error) { return answer, nil }), &journal{}, plainly(1, 0, nil))
	body := ask(t, d, "/demo/live?viewer=1").Body.String()
	requireContains(t, body, "1363665432", "activityd walked through the tables this time: the set was missing.", "badge database")
	for _, v := range verdicts {
		requireContains(t, body, `<span class="verdict">`+string(v)+`</span>`)
	}
}

func TestBadPresses(t *testing.T) {
	t.Parallel()
	d := newDemo(answering(1, 0), &journal{}, plainly(1, 0, nil))
	for _, c := range []struct {
		action, form string
		status       int
		want         string
	}{
		{"upload", "viewer=x", 400, "viewer"},
		{"upload", "viewer=5", 409, "no other contact"},
		{"upload", "viewer=1&%zz", 400, "form"},
		{"upload", "viewer=1&shown=" + strings.Repeat("9", 5000), 400, "form"},
		{"private", "viewer=1&photo=x", 400, "photo"},
		{"private", "viewer=1&photo=2", 409, "not shown"},
		{"mysql", "viewer=1&do=off", 409, "no MySQL"},
		{"else", "viewer=1", 404, ""},
	} {
		w := press(t, d, c.action, c.form)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("POST %s %.60s = %d %s, want %d about %q", c.action, c.form, w.Code, w.Body, c.status, c.want)
		}
	}
	if w := ask(t, d, "/demo/wipe"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET of an action = %d", w.Code)
	}
	d = newDemo(answering(1, 0), &journal{err: errors.New("secret of the database")}, plainly(1, 0, nil))
	if w := press(t, d, "upload", "viewer=1"); w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	requireContains(t, ask(t, d, "/").Body.String(), "Nothing yet.")
}

func TestOtherSitesCannotPress(t *testing.T) {
	t.Parallel()
	to := &journal{}
	d := newDemo(answering(1, 0), to, plainly(1, 0, nil))
	for _, header := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://elsewhere.example"}, {"Origin", "null"}} {
		if w := press(t, d, "upload", "viewer=1", header...); w.Code != http.StatusForbidden {
			t.Errorf("with %v: %d %s", header, w.Code, w.Body)
		}
	}
	if len(to.all()) != 0 {
		t.Errorf("another site made changes: %q", to.all())
	}
	if w := press(t, d, "upload", "viewer=1", "Sec-Fetch-Site", "same-origin"); w.Code != http.StatusOK {
		t.Errorf("the page itself: %d %s", w.Code, w.Body)
	}
	w := press(t, d, "upload", "viewer=2", "X-Requested-With", "") // without the script
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/?viewer=2" || len(to.all()) != 2 {
		t.Errorf("%d to %q after %q", w.Code, w.Header().Get("Location"), to.all())
	}
}
