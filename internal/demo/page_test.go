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
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/site"
)

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
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

func TestPageIsWholeWithoutScript(t *testing.T) {
	t.Parallel()
	s := startService(t)
	w := get(t, s.demo.Handler(), "/?viewer=2")
	if w.Code != http.StatusOK {
		t.Fatalf("status %d", w.Code)
	}
	want, err := s.walk(t.Context(), contacts.Viewer{ID: 2}, 10)
	if err != nil {
		t.Fatal(err)
	}
	requireContains(t, w.Body.String(), want.Contact.Username, `<html lang="en">`,
		"Who of my 150 contacts posted last?", "A plain walk: ", "same answer", "tables in memory", `value="2" selected`)
	if n := strings.Count(w.Body.String(), `src="/demo/photos/`); n != len(want.Photos) {
		t.Errorf("%d photos on the page, want %d", n, len(want.Photos))
	}
	if strings.Contains(w.Body.String(), "style=") || strings.Contains(w.Body.String(), "<script>") {
		t.Error("inline style or script, which the page's own policy forbids")
	}
}

func TestEveryResponseForbidsWhatThePageDoesNotNeed(t *testing.T) {
	t.Parallel()
	s := startService(t)
	for _, path := range []string{"/", "/demo/widget?viewer=1", "/demo/home", "/demo/token", "/demo/style.css", "/demo/app.js", "/demo/photos/1.svg", "/nowhere"} {
		h := get(t, s.demo.Handler(), path).Header()
		if !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") || strings.Contains(h.Get("Content-Security-Policy"), "unsafe") ||
			h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", path, h)
		}
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	s := startService(t)
	for _, c := range []struct {
		path, contentType, contains string
		status                      int
	}{
		{"/", "text/html", "activityd", 200},
		{"/?id=3&viewer=1", "text/html", `data-viewer="3"`, 200},
		{"/?id=+3+", "text/html", `data-viewer="3"`, 200},
		{"/?id=0", "text/html", "not a member id", 400},
		{"/?viewer=abc", "text/html", "not a member id", 400},
		{"/?viewer=%3Cb%3E", "text/html", "&lt;b&gt;", 400},
		{"/?viewer=18446744073709551616", "text/html", "not a member id", 400},
		{"/?viewer=999999", "text/html", "There is no member 999999", 404},
		{"/?viewer=999999", "text/html", `<h2 id="why-title">No such member</h2>`, 404},
		{"/?viewer=5", "text/html", "No contacts yet", 200},
		{"/demo/widget?viewer=1", "text/html", "<main", 200},
		{"/demo/widget?viewer=0", "text/plain", "viewer: not a member id", 400},
		{"/demo/widget", "text/plain", "viewer: not a member id", 400},
		{"/demo/widget?viewer=999999", "text/html", "There is no member 999999", 404},
		{"/demo/photos/18446744073709551615.svg", "image/svg+xml", "<svg", 200},
		{"/demo/avatars/1.svg", "image/svg+xml", "<svg", 200},
		{"/demo/photos/1.png", "text/plain", "", 404},
		{"/demo/photos/x.svg", "text/plain", "", 404},
		{"/demo/home", "text/html", "Lumen", 200},
		{"/demo/home?viewer=x", "text/plain", "viewer: not a member id", 400},
		{"/demo/token", "text/plain", "", 404}, // without keys
		{"/demo/home.css", "text/css", ".fresh", 200},
		{"/demo/style.css", "text/css", "--paper", 200},
		{"/demo/app.js", "text/javascript", "morph", 200},
		{"/demo/page.html", "text/plain", "", 404},
		{"/else", "text/plain", "", 404},
	} {
		w := get(t, s.demo.Handler(), c.path)
		if w.Code != c.status || !strings.HasPrefix(w.Header().Get("Content-Type"), c.contentType) || !strings.Contains(w.Body.String(), c.contains) {
			t.Errorf("GET %s = %d %s, want %d %s with %q:\n%.600s", c.path, w.Code, w.Header().Get("Content-Type"), c.status, c.contentType, c.contains, w.Body)
		}
	}
}

// The question to a member with one contact does not count it.
func TestMemberWithOneContact(t *testing.T) {
	t.Parallel()
	s := startService(t)
	counts := make(map[member.ID]int)
	for _, row := range s.config.World.Contacts {
		counts[row.User]++
	}
	for id, n := range counts {
		if n == 1 {
			requireContains(t, get(t, s.demo.Handler(), "/?viewer="+id.String()).Body.String(), "Who of my contacts posted last?")
			return
		}
	}
	t.Fatal("no member has one contact")
}

// A member without contacts gets no warning, and no button that would be refused.
func TestMemberWithoutContactsIsNoProblem(t *testing.T) {
	t.Parallel()
	s := startService(t)
	body := get(t, s.demo.Handler(), "/?viewer=5").Body.String()
	requireContains(t, body, "calls no member a contact", "A member without contacts has no set", "Who of my contacts posted last?", "· no contacts</option>", `<p class="badge " id="source">`)
	for _, not := range []string{"Nothing to show", `class="walk"`, "No set is there now", "do-other", "· 0 contacts<", "<strong>"} {
		if strings.Contains(body, not) {
			t.Errorf("the page contains %q:\n%s", not, body)
		}
	}
}

// reads is a Reader made of a function.
type reads func(context.Context, contacts.Viewer, int) (recent.Answer, error)

func (f reads) Read(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error) {
	return f(ctx, v, limit)
}

func albumOf(photo uint64) contacts.Album {
	return contacts.Album{Contact: &contacts.Profile{ID: 9, Username: "someone"}, Photos: []contacts.Photo{{ID: photo, Title: "A & B", DateUpload: 1}}}
}

// widgetOf shows the widget of viewer 1 over the given read and plain answer.
func widgetOf(t *testing.T, read reads, plain []site.Plain) *httptest.ResponseRecorder {
	t.Helper()
	d := demo.New(demo.Config{World: smallWorld(), Site: &journal{}, Reader: read, Plain: plain, PlainName: "plain SQL", Rate: 2, Log: slog.New(slog.DiscardHandler)})
	return get(t, d.Handler(), "/demo/widget?viewer=1")
}

func plainly(a contacts.Album, err error) []site.Plain {
	return []site.Plain{{Ask: func(context.Context, contacts.Viewer, int) (contacts.Album, error) { return a, err }}}
}

func TestDifferenceIsReadTwiceBeforeItIsShown(t *testing.T) {
	t.Parallel()
	calls := 0
	read := func(context.Context, contacts.Viewer, int) (recent.Answer, error) {
		calls++
		return recent.Answer{Album: albumOf(uint64(calls)), Source: recent.FromIndex}, nil
	}
	requireContains(t, widgetOf(t, read, plainly(albumOf(2), nil)).Body.String(), ">same answer<", "A &amp; B")
	calls = 0
	requireContains(t, widgetOf(t, read, plainly(albumOf(9), nil)).Body.String(), "the index is a task behind")
	calls = 0
	requireContains(t, widgetOf(t, read, plainly(contacts.Album{}, nil)).Body.String(), "the index is a task behind")
}

// taking is an answer after a while of the bubble's time.
func taking(while time.Duration) reads {
	return func(ctx context.Context, _ contacts.Viewer, _ int) (recent.Answer, error) {
		<-time.After(while)
		return recent.Answer{Album: albumOf(1), Source: recent.FromIndex}, ctx.Err()
	}
}

// plainlyTaking are ways that take so long.
func plainlyTaking(whiles ...time.Duration) (ways []site.Plain) {
	for i, while := range whiles {
		ways = append(ways, site.Plain{Name: fmt.Sprintf("way %d", i+1), Ask: func(ctx context.Context, _ contacts.Viewer, _ int) (contacts.Album, error) {
			select {
			case <-time.After(while):
				return albumOf(1), nil
			case <-ctx.Done():
				return contacts.Album{}, ctx.Err()
			}
		}})
	}
	return ways
}

// The page compares with the quickest of the plain ways, and says what the others take.
func TestQuickestPlainWayIsCompared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		body := widgetOf(t, taking(2*time.Millisecond), plainlyTaking(228*time.Millisecond, time.Millisecond)).Body.String()
		requireContains(t, body, `<strong id="plain">1.0 ms</strong>`, `<rect class="plain" width="50"`, "way 1 228 ms, way 2 1.0 ms.", ">same answer<")
	})
	synctest.Test(t, func(t *testing.T) {
		ways := append(plainlyTaking(time.Millisecond), plainly(albumOf(9), nil)...)
		requireContains(t, widgetOf(t, taking(0), ways).Body.String(), "the index is a task behind")
	})
}

// The page says when both plain ways are slow, and where to see it.
func TestQuietContactsAreTold(t *testing.T) {
	t.Parallel()
	spec := world.Demo()
	spec.Members, spec.Photos, spec.Quiet, spec.Featured, spec.Celebrities = 100, 300, 30, []int{20}, nil
	d := demo.New(demo.Config{
		World: spec.Generate(time.Now()), Site: &journal{}, Reader: taking(0), Plain: plainlyTaking(0, 0), PlainName: "plain SQL", Rate: 2,
		Log: slog.New(slog.DiscardHandler),
	})
	requireContains(t, get(t, d.Handler(), "/").Body.String(), "Who of my 30 quiet contacts posted last?", "None of these contacts has uploaded for more than a year.")
	requireContains(t, get(t, d.Handler(), "/?viewer=1").Body.String(), "plain SQL is enough.", `<a href="/?viewer=131">`, "with 30 quiet contacts</a>")
}

func TestTimesAreCompared(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		took, plain time.Duration
		want        []string
	}{
		{1500 * time.Microsecond, 120 * time.Millisecond, []string{`<strong id="took">1.5 ms</strong>`, `<strong id="plain">120 ms</strong>`, `<rect class="ours" y="8" width="1"`, `<rect class="plain" width="100"`}},
		{40 * time.Millisecond, 16 * time.Millisecond, []string{`<strong id="took">40 ms</strong>`, `<strong id="plain">16 ms</strong>`, `<rect class="plain" width="40"`}},
		{300 * time.Microsecond, 1200 * time.Millisecond, []string{`<strong id="took">0.30 ms</strong>`, `<strong id="plain">1.2 s</strong>`}},
		{time.Millisecond, time.Hour, []string{"no answer within 3 s", "someone"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			requireContains(t, widgetOf(t, taking(c.took), plainlyTaking(c.plain)).Body.String(), c.want...)
		})
	}
}

func TestWidgetIsShownIfPlainFails(t *testing.T) {
	t.Parallel()
	w := widgetOf(t, taking(0), plainly(contacts.Album{}, errors.New("secret of the database")))
	if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("status %d:\n%s", w.Code, w.Body)
	}
	requireContains(t, w.Body.String(), "someone", `<strong id="plain">failed</strong>`)
}

func TestReadThatFailsIsDescribed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		want   string
	}{
		{recent.ErrBusy, http.StatusServiceUnavailable, "The database is busy"},
		{mysql.ErrUnavailable, http.StatusServiceUnavailable, "activityd answers 503 until it is back"},
		{errors.New("secret of the database"), http.StatusInternalServerError, "the log says why"},
	} {
		w := widgetOf(t, func(context.Context, contacts.Viewer, int) (recent.Answer, error) { return recent.Answer{}, c.err }, plainly(contacts.Album{}, nil))
		if w.Code != c.status || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%v: status %d, want %d:\n%s", c.err, w.Code, c.status, w.Body)
		}
		requireContains(t, w.Body.String(), c.want)
	}
}

func TestEveryVerdictIsShown(t *testing.T) {
	t.Parallel()
	verdicts := []recent.Verdict{recent.Chosen, recent.Older, recent.Nothing, recent.NotContact, recent.NotLooked}
	answer := recent.Answer{Album: albumOf(1), Source: recent.FromDatabase}
	answer.Trace.WalkReason = "the index proved nothing"
	for i, v := range verdicts {
		answer.Trace.Candidates = append(answer.Trace.Candidates, recent.Examined{Contact: 20, Score: 1363665432 - uint64(i), Verdict: v})
	}
	body := widgetOf(t, func(context.Context, contacts.Viewer, int) (recent.Answer, error) { return answer, nil }, plainly(answer.Album, nil)).Body.String()
	requireContains(t, body, "1363665432", "walked through the tables this time: the index proved nothing.", "badge database")
	for _, v := range verdicts {
		requireContains(t, body, `<span class="verdict">`+string(v)+`</span>`)
	}
}
