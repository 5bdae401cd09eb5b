package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/recent"
)

const (
	mePath = "/v1/me/recent-contact-photos"
	origin = "https://photos.example"
)

// viewerKey makes the tokens of viewers.
var viewerKey = func() auth.ViewerKey {
	k, err := auth.NewViewerKey("a", auth.HS256)
	if err != nil {
		panic(err)
	}
	return k
}()

func tokenOf(t testing.TB, id member.ID) string {
	t.Helper()
	token, err := viewerKey.Sign(id, time.Hour, "")
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// viewers configures a server for viewers alone, with pages of a second origin.
func viewers(c *api.Config) {
	c.Viewers = auth.NewViewers([]auth.ViewerKey{viewerKey}, auth.ViewerOptions{})
	c.AllowOrigins = []string{"https://other.example", origin}
}

// newMe makes a request of viewer 5 by its browser, from a page of origin.
func newMe(t testing.TB, method, path, body string) *http.Request {
	t.Helper()
	r := newJSON(t.Context(), method, path, body)
	r.Host, r.RemoteAddr = "api.photos.example", "192.0.2.1:50000"
	r.Header.Set("Origin", origin)
	r.Header.Set("Authorization", "Bearer "+tokenOf(t, 5))
	return r
}

func someAnswer(source recent.Source, title string) recent.Answer {
	return recent.Answer{
		Album: contacts.Album{
			Contact: &contacts.Profile{ID: 7, Username: "alice"},
			Photos:  []contacts.Photo{{ID: 901, Title: title, DateUpload: 1363665432}},
		},
		Source: source,
		Trace:  recent.Trace{WalkReason: recent.SetMissing},
	}
}

func TestAViewerReads(t *testing.T) {
	t.Parallel()
	b := setup(t, viewers)
	b.reader.read = func(_ context.Context, v contacts.Viewer, limit int) (recent.Answer, error) {
		if v.ID != 5 || limit != 3 {
			t.Errorf("asked for %d photos for %v", limit, v.ID)
		}
		return someAnswer(recent.FromIndex, "sea"), nil
	}
	r := newMe(t, http.MethodGet, mePath+"?limit=3", "")
	foreseen(t, r)
	w := b.do(t, r)
	const want = `{"viewer_id":"5","contact":{"id":"7","username":"alice","last_upload":1363665432},"photos":[{"id":"901","title":"sea","date_upload":1363665432}]}`
	if w.Code != http.StatusOK || w.Body.String() != want {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Cache-Control": "private, no-cache", "Vary": "Origin, Authorization",
		"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": "ETag, Retry-After, X-Request-Id",
		"Access-Control-Allow-Credentials": "", "X-Content-Type-Options": "nosniff",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if line := b.log.last(t); line["caller"] != "(viewer)" || line["level"] != "DEBUG" || line["route"] != mePath {
		t.Errorf("logged %v", line)
	}
}

func TestParametersOfAViewer(t *testing.T) {
	t.Parallel()
	b := setup(t, viewers)
	for _, query := range []string{"explain=1", "explain=0", "limit=0", "limit=51", "limit=1&limit=1", "access_token=a", "id=7", "viewer_id=7", "%zz"} {
		p := wantProblem(t, b.do(t, newMe(t, http.MethodGet, mePath+"?"+query, "")), http.StatusBadRequest, "invalid-parameter")
		if len(p.Errors) != 1 {
			t.Errorf("%s: %+v", query, p)
		}
	}
}

// The tag is that of the answer, in every process. A request with it gets no body.
func TestAnAnswerThatDidNotChangeHasNoBody(t *testing.T) {
	t.Parallel()
	title := "sea"
	read := func(context.Context, contacts.Viewer, int) (recent.Answer, error) {
		return someAnswer(recent.FromIndex, title), nil
	}
	b, other := setup(t, viewers), setup(t, viewers)
	b.reader.read, other.reader.read = read, read
	ask := func(b *bundle, ifNoneMatch ...string) *httptest.ResponseRecorder {
		t.Helper()
		r := newMe(t, http.MethodGet, mePath, "")
		r.Header["If-None-Match"] = ifNoneMatch
		return b.do(t, r)
	}
	first := ask(b)
	tag := first.Header().Get("ETag")
	if again := ask(other).Header().Get("ETag"); tag == "" || again != tag {
		t.Fatalf("tags %s, %s", tag, again)
	}
	for _, same := range [][]string{
		{tag}, {"W/" + tag}, {"*"}, {" * "}, {`"a", ` + tag}, {tag + `,"a"`}, {`"a",,W/"b" , ` + tag}, {`"a"`, tag}, {`"a,b", ` + tag}, {`"",` + tag},
	} {
		w := ask(b, same...)
		if w.Code != http.StatusNotModified || w.Body.Len() > 0 || w.Header().Get("Content-Type") != "" {
			t.Errorf("%q: %d %q %v", same, w.Code, w.Body, w.Header())
		}
		for _, name := range []string{"ETag", "Cache-Control", "Vary", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers"} {
			if got, want := w.Header().Get(name), first.Header().Get(name); got != want {
				t.Errorf("%q: %s: %q, want %q", same, name, got, want)
			}
		}
	}
	for _, others := range [][]string{{`"a"`}, {strings.Trim(tag, `"`)}, {tag[:10]}, {""}, {","}, {`"`}, {`w/` + tag}, {`a` + tag}, {strings.ToLower(tag) + "x"}, {`"*"`}, {"W/*"}} {
		if w := ask(b, others...); w.Code != http.StatusOK || w.Body.String() != first.Body.String() {
			t.Errorf("%q: %d %s", others, w.Code, w.Body)
		}
	}
	title = "mountain"
	if w := ask(b, tag); w.Code != http.StatusOK || w.Header().Get("ETag") == tag || !strings.Contains(w.Body.String(), "mountain") {
		t.Errorf("after a change: %d %s", w.Code, w.Body)
	}
	r := newMe(t, http.MethodGet, mePath, "")
	title = "sea"
	r.Header.Set("Authorization", "Bearer "+tokenOf(t, 6))
	if w := b.do(t, r); w.Header().Get("ETag") == tag {
		t.Error("another viewer has the same tag")
	}
}

var retryAfter = regexp.MustCompile(`Retry-After: ([5-9]|10)\r\n`)

// Two worlds that differ in hidden photos: here the index finds the
// answer, there a walk does, or is refused, or ends late. The answers are the same,
// byte by byte.
func TestNothingOfWhatIsHiddenShows(t *testing.T) {
	t.Parallel()
	dump := func(read func() (recent.Answer, error), configure ...func(*api.Config)) string {
		t.Helper()
		b := setup(t, append(configure, viewers)...)
		b.reader.read = func(context.Context, contacts.Viewer, int) (recent.Answer, error) { return read() }
		r := newMe(t, http.MethodGet, mePath, "")
		r.Header.Set("X-Request-ID", "a")
		r.Host, r.RemoteAddr = "localhost:8080", "127.0.0.1:50000" // without tokens, an operator's
		response := b.do(t, r).Result()
		defer func() { _ = response.Body.Close() }()
		text, err := httputil.DumpResponse(response, true)
		if err != nil {
			t.Fatal(err)
		}
		return retryAfter.ReplaceAllString(string(text), "Retry-After: 5 to 10\r\n") // it is drawn by lot, for all in the same way
	}
	found := func(source recent.Source) func() (recent.Answer, error) {
		return func() (recent.Answer, error) { return someAnswer(source, "sea"), nil }
	}
	failed := func(err error) func() (recent.Answer, error) {
		return func() (recent.Answer, error) { return recent.Answer{}, fmt.Errorf("walking: %w", err) }
	}
	admin := func(c *api.Config) { c.Auth = auth.NewTokens(nil) }
	for name, worlds := range map[string][]string{
		"an answer": {dump(found(recent.FromIndex)), dump(found(recent.FromDatabase)), dump(found(recent.FromDatabase), admin)},
		"none now": {
			dump(failed(mysql.ErrUnavailable)), dump(failed(recent.ErrBusy)), dump(failed(context.DeadlineExceeded)), dump(failed(context.Canceled)),
		},
	} {
		for _, w := range worlds[1:] {
			if w != worlds[0] {
				t.Errorf("%s:\n%s\n%s", name, worlds[0], w)
			}
		}
		for _, telling := range []string{"source", "index", "database", "walk", "busy", "Timing"} {
			if strings.Contains(worlds[0], telling) {
				t.Errorf("%s: it says %s: %s", name, telling, worlds[0])
			}
		}
	}
}

// A viewer manages its own devices, settings and mutes, and no more.
func TestAViewerManagesItsPush(t *testing.T) {
	t.Parallel()
	b := setup(t, viewers)
	b.push.devices = []push.Device{{ID: 9, Member: 6}}
	b.push.mutes[6] = []push.Mute{{Object: "user:7"}}
	const device = `{"platform":"fcm","token":"t:1"}`
	for _, step := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"PUT", "devices", device, 200, `{"device_id":"1"}`},
		{"GET", "devices", "", 200, `{"devices":[{"id":"1","platform":"fcm","registered_at":1795300000}]}`},
		{"DELETE", "devices/9", "", 404, "no-such-device"},
		{"DELETE", "devices/1", "", 204, ""},
		{"GET", "devices", "", 200, `{"devices":[]}`},
		{"PUT", "push-settings", `{"types":{"upload":false}}`, 200, `{"types":{"upload":false},"quiet_hours":null}`},
		{"GET", "push-settings", "", 200, `{"types":{"upload":false},"quiet_hours":null}`},
		{"PUT", "mutes", `{"object":"user:6","until":4102444800}`, 204, ""},
		{"GET", "mutes", "", 200, `{"mutes":[{"object":"user:6","until":4102444800}]}`},
		{"DELETE", "mutes?object=user:7", "", 404, "no-such-mute"},
		{"DELETE", "mutes?object=user:6", "", 204, ""},
		{"PUT", "devices", `{"platform":"fcm","token":"bad"}`, 400, "invalid-body"},
		{"GET", "devices?id=6", "", 400, "invalid-parameter"},
		{"PUT", "devices?user_id=6", device, 400, "invalid-parameter"},
		{"PUT", "devices", strings.Replace(device, "{", `{"user_id":"6",`, 1), 400, "invalid-body"},
	} {
		r := newMe(t, step.method, "/v1/me/"+step.path, step.body)
		if step.status < 300 {
			foreseen(t, r)
		}
		w := b.do(t, r)
		if w.Code != step.status || step.status < 300 && w.Body.String() != step.want || !strings.Contains(w.Body.String(), step.want) {
			t.Errorf("%+v: %d %s", step, w.Code, w.Body)
		}
		if h := w.Header(); h.Get("Cache-Control") != "no-store" || h.Get("Access-Control-Allow-Origin") != origin || h.Get("Vary") != "Origin, Authorization" {
			t.Errorf("%+v: %v", step, h)
		}
	}
	for id := range b.push.settings {
		if id != 5 {
			t.Errorf("settings of %v", id)
		}
	}
	if devices, mutes := b.push.devices, b.push.mutes[6]; len(devices) != 1 || devices[0].ID != 9 || len(mutes) != 1 {
		t.Errorf("another member's devices are %v, its mutes %v", devices, mutes)
	}
	off := setup(t, viewers, func(c *api.Config) { c.Push = nil })
	wantProblem(t, off.do(t, newMe(t, http.MethodGet, "/v1/me/devices", "")), http.StatusNotImplemented, "push-off")
}

// A viewer's token is good for /v1/me and for nothing else, and no client's token is good there.
func TestTheTwoKindsOfTokensAreApart(t *testing.T) {
	t.Parallel()
	g := guard(t)
	token := "Bearer " + tokenOf(t, 5)
	for _, r := range []*http.Request{
		newRead(t), newUpload(t), newRequest(t.Context(), "GET", "/v1/users/5/recent-contact-photos", http.NoBody),
		newRequest(t.Context(), "GET", "/v1/users/5/devices", http.NoBody), newJSON(t.Context(), "POST", "/v1/events", `{"events":[`+oneEvent+`]}`),
	} {
		wantProblem(t, g.as(t, r, token), http.StatusUnauthorized, "unauthorized")
	}
	for _, authorization := range [][]string{
		nil,
		{""},
		{"Bearer"},
		{"Bearer " + readSecret},
		{"Bearer " + adminSecret},
		{"Basic " + tokenOf(t, 5)},
		{tokenOf(t, 5)},
		{token, token},
		{token, "Bearer " + adminSecret},
		{token + ", " + token},
		{token + " " + tokenOf(t, 5)},
		{token + "="},
		{"Bearer " + strings.Repeat("x", 10_000)},
		{`Bearer {"protected":"","payload":"","signature":""}`},
	} {
		w := g.as(t, newRequest(t.Context(), http.MethodGet, mePath, http.NoBody), authorization...)
		wantProblem(t, w, http.StatusUnauthorized, "unauthorized")
		if got := w.Header().Get("WWW-Authenticate"); !strings.HasPrefix(got, `Bearer realm="activityd"`) {
			t.Errorf("%q: WWW-Authenticate: %s", authorization, got)
		}
		if line := g.log.last(t); line["level"] != "DEBUG" {
			t.Errorf("%q: logged %v", authorization, line)
		}
	}
	for _, target := range []string{mePath + "?access_token=" + tokenOf(t, 5), mePath + "?token=" + tokenOf(t, 5)} {
		wantProblem(t, g.get(t, target), http.StatusUnauthorized, "unauthorized")
	}
	cookie := newRequest(t.Context(), http.MethodGet, mePath, http.NoBody)
	cookie.Header.Set("Cookie", "access_token="+tokenOf(t, 5)+"; Authorization="+tokenOf(t, 5))
	wantProblem(t, g.do(t, cookie), http.StatusUnauthorized, "unauthorized")
	g.nothingDone(t)
	signature := strings.Split(tokenOf(t, 5), ".")[2]
	if strings.Contains(g.log.String(), signature) || strings.Contains(g.log.String(), adminSecret) {
		t.Errorf("the log shows a token:\n%s", g.log)
	}
	if w := g.as(t, newRequest(t.Context(), http.MethodGet, mePath, http.NoBody), token); w.Code != http.StatusOK || len(g.asked) != 1 || g.asked[0].ID != 5 {
		t.Errorf("%d %s, asked for %v", w.Code, w.Body, g.asked)
	}
}

// A page can read the fault, to renew the token.
func TestARefusedTokenSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, viewers)
		r := newMe(t, http.MethodGet, mePath, "")
		<-time.After(time.Hour + 2*time.Minute)
		w := b.do(t, r)
		p := wantProblem(t, w, http.StatusUnauthorized, "unauthorized")
		if got := w.Header().Get("WWW-Authenticate"); !strings.Contains(p.Detail, "expired") || got != `Bearer realm="activityd", error="invalid_token"` {
			t.Errorf("%+v, %s", p, got)
		}
		if w.Header().Get("Access-Control-Allow-Origin") != origin || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%v", w.Header())
		}
	})
}

func TestTheLimitOfAMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, viewers, func(c *api.Config) {
			c.Viewers = auth.NewViewers([]auth.ViewerKey{viewerKey}, auth.ViewerOptions{Limit: auth.Limit{PerSecond: 2.0 / 3600, Burst: 2}})
		})
		for _, path := range []string{mePath, "/v1/me/devices"} {
			if w := b.do(t, newMe(t, http.MethodGet, path, "")); w.Code != http.StatusOK {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		}
		w := b.do(t, newMe(t, http.MethodGet, mePath, ""))
		wantProblem(t, w, http.StatusTooManyRequests, "rate-limited")
		if w.Header().Get("Retry-After") != "1800" || w.Header().Get("Access-Control-Allow-Origin") != origin {
			t.Errorf("%v", w.Header())
		}
		r := newMe(t, http.MethodGet, mePath, "")
		r.Header.Set("Authorization", "Bearer "+tokenOf(t, 6))
		if w := b.do(t, r); w.Code != http.StatusOK {
			t.Errorf("another's limit: %d", w.Code)
		}
	})
}

// Whatever happens below /v1/me, a page of an allowed origin can read it; one of another
// origin can read nothing.
func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	requests := map[string]struct {
		status int
		r      func() *http.Request
		read   func() (recent.Answer, error)
	}{
		"200": {status: 200, r: func() *http.Request { return newMe(t, "GET", mePath, "") }},
		"304": {status: 304, r: func() *http.Request {
			r := newMe(t, "GET", mePath, "")
			r.Header.Set("If-None-Match", "*")
			return r
		}},
		"400": {status: 400, r: func() *http.Request { return newMe(t, "GET", mePath+"?a=b", "") }},
		"401": {status: 401, r: func() *http.Request {
			r := newMe(t, "GET", mePath, "")
			r.Header.Del("Authorization")
			return r
		}},
		"404":     {status: 404, r: func() *http.Request { return newMe(t, "GET", "/v1/me/nonsense", "") }},
		"405":     {status: 405, r: func() *http.Request { return newMe(t, "POST", mePath, "{}") }},
		"500":     {status: 500, r: func() *http.Request { return newMe(t, "GET", mePath, "") }, read: func() (recent.Answer, error) { return recent.Answer{}, errors.New("oh") }},
		"503":     {status: 503, r: func() *http.Request { return newMe(t, "GET", mePath, "") }, read: func() (recent.Answer, error) { return recent.Answer{}, recent.ErrBusy }},
		"a panic": {status: 500, r: func() *http.Request { return newMe(t, "GET", mePath, "") }, read: func() (recent.Answer, error) { panic("oh") }},
	}
	for name, test := range requests {
		for from, allowed := range map[string]bool{
			origin: true, "https://other.example": true, "https://photos.example.attacker.example": false, "https://attacker.example": false,
			"http://photos.example": false, "https://photos.example:8443": false, "https://PHOTOS.example": false, "null": false, "*": false, "": false,
			"https://sub.photos.example": false, "https://photos.example/": false,
		} {
			b := setup(t, viewers)
			if test.read != nil {
				b.reader.read = func(context.Context, contacts.Viewer, int) (recent.Answer, error) { return test.read() }
			}
			r := test.r()
			r.Header["Origin"] = slices.DeleteFunc([]string{from}, func(s string) bool { return s == "" })
			w := b.do(t, r)
			want := ""
			if allowed {
				want = from
			}
			h := w.Header()
			if w.Code != test.status || h.Get("Access-Control-Allow-Origin") != want || (h.Get("Access-Control-Expose-Headers") != "") != allowed ||
				h.Get("Vary") != "Origin, Authorization" || h.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s from %s: %d %s %v", name, from, w.Code, w.Body, h)
			}
		}
	}
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	b := setup(t, viewers)
	for _, path := range []string{mePath, "/v1/me/devices", "/v1/me/devices/1", "/v1/me/push-settings", "/v1/me/mutes"} {
		for from, allowed := range map[string]bool{origin: true, "https://attacker.example": false, "null": false} {
			r := newRequest(t.Context(), http.MethodOptions, path, http.NoBody) // without a token
			r.Host = "api.photos.example"
			r.Header.Set("Origin", from)
			r.Header.Set("Access-Control-Request-Method", "GET")
			r.Header.Set("Access-Control-Request-Headers", "authorization,if-none-match")
			w := b.do(t, r)
			want := []string{"", "", "", ""}
			if allowed {
				want = []string{from, "GET, PUT, POST, DELETE", "Authorization, Content-Type, If-None-Match", "7200"}
			}
			var got []string
			for _, name := range []string{"Origin", "Methods", "Headers"} {
				got = append(got, w.Header().Get("Access-Control-Allow-"+name))
			}
			if got = append(got, w.Header().Get("Access-Control-Max-Age")); w.Code != http.StatusNoContent || w.Body.Len() > 0 || !slices.Equal(got, want) {
				t.Errorf("%s from %s: %d %q, want %q", path, from, w.Code, got, want)
			}
		}
	}
}

// Elsewhere no page of another origin reads anything.
func TestNothingElseIsCrossOrigin(t *testing.T) {
	t.Parallel()
	b := setup(t, viewers)
	for _, path := range []string{readPath, "/v1/me", "/v1/mention/x", "/healthz", "/readyz", "/V1/ME/devices"} {
		for _, method := range []string{http.MethodGet, http.MethodOptions} {
			r := newRequest(t.Context(), method, path, http.NoBody)
			r.Header.Set("Origin", origin)
			w := httptest.NewRecorder()
			b.server.Handler().ServeHTTP(w, r)
			for name := range w.Header() {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("%s %s: %s", method, path, name)
				}
			}
		}
	}
}

func TestOriginsAreExact(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"https://photos.example", "http://localhost:8080", "https://photos.example:8443", "http://127.0.0.1:8080", "http://[::1]:8080", "https://xn--bcher-kva.example", "http://photos.example:443"} {
		if err := api.CheckOrigin(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{
		"", "*", "null", "photos.example", "//photos.example", "https://", "https://*", "https://*.photos.example", "https://photos.example/", "https://photos.example/a",
		"https://photos.example?", "https://photos.example?a", "https://photos.example#", "https://photos.example#a", "https://a@photos.example", "https://a:b@photos.example", "HTTPS://photos.example", "https://Photos.example",
		"https://photos.example:443", "http://photos.example:80", "https://photos.example:", "https://:8080", "ftp://photos.example", "file://", "https://bücher.example",
		" https://photos.example", "https://photos.example ", "https://a https://b", "https://a,https://b", "https://photos.example:a", "javascript:alert(1)", "https:photos.example", "https://photos.example\n", "https://photos.example\\a",
	} {
		if err := api.CheckOrigin(bad); err == nil || !strings.Contains(err.Error(), "want https://host") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
