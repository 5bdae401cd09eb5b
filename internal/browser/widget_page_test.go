package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/browsertest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// widgetScript runs in each page before all else. It gives the widget a clock that only the test moves, and
// records the effects that a site would notice.
const widgetScript = `
	window.clock = {now: Math.ceil(Date.now() / 1000) * 1000, timers: new Map(), last: 0, random: 1};
	Math.random = () => clock.random;
	clock.add = (kind, run, delay) => {
		clock.timers.set(++clock.last, {kind, run, due: clock.now + delay});
		return -clock.last;
	};
	clock.advance = (ms) => {
		const end = clock.now + ms;
		for (;;) {
			const [id, t] = [...clock.timers].filter(([, t]) => t.due <= end).sort(([, a], [, b]) => a.due - b.due)[0] ?? [];
			if (!t) break;
			clock.timers.delete(id);
			clock.now = Math.max(clock.now, t.due);
			t.run();
		}
		clock.now = end;
	};
	// pending are the milliseconds until each timer.
	clock.pending = () => [...clock.timers.values()].filter((t) => t.kind === "timer").map((t) => t.due - clock.now);
	{
		const set = window.setTimeout, clear = window.clearTimeout;
		window.setTimeout = (run, delay = 0, ...rest) =>
			delay > 0 && new Error().stack.includes("/widget.js") ? clock.add("timer", run, delay) : set(run, delay, ...rest);
		window.clearTimeout = (id) => id < 0 ? void clock.timers.delete(-id) : clear(id);
		Date.now = () => clock.now;
		AbortSignal.timeout = (ms) => {
			const c = new AbortController();
			clock.add("limit", () => c.abort(new DOMException("too late", "TimeoutError")), ms);
			return c.signal;
		};
	}
	window.pageHidden = false;
	Object.defineProperty(Document.prototype, "hidden", {get: () => window.pageHidden});
	window.setHidden = (hidden) => {
		window.pageHidden = hidden;
		document.dispatchEvent(new Event("visibilitychange", {bubbles: true}));
	};
	window.faults = [];
	addEventListener("securitypolicyviolation", (e) => faults.push("policy: " + e.violatedDirective + " " + e.blockedURI));
	addEventListener("error", (e) => faults.push("error: " + (e.message ?? e.target.outerHTML)), true);
	addEventListener("unhandledrejection", (e) => faults.push("rejection: " + e.reason));
	window.told = [];
	for (const name of ["change", "state"]) {
		addEventListener("recent-contact-photos-" + name, (e) => told.push({name, on: e.target.id, detail: e.detail, composed: e.composed, live: live(e.target.id)}));
	}
	window.$ = (selector, id = "w") => document.getElementById(id).shadowRoot.querySelector(selector);
	window.$$ = (selector, id = "w") => [...document.getElementById(id).shadowRoot.querySelectorAll(selector)];
	window.state = (id = "w") => document.getElementById(id).getAttribute("state");
	window.live = (id = "w") => $("[part=heading]", id).getAttribute("aria-live");
	window.alts = (id = "w") => $$("img", id).map((i) => i.alt).join();
	// shownText is what the slots that are shown say, the site's words before the widget's.
	window.shownText = (id = "w") => $$("slot", id).filter((s) => getComputedStyle(s).display !== "none")
		.flatMap((s) => s.assignedNodes({flatten: true}).map((n) => n.textContent)).join("|");
`

// asked is a question to the API.
type asked struct{ query, token, tag string }

// site is a site with a page, and the real API at another origin. The page's policy allows only the sources that
// docs/page.md names.
type site struct {
	*browsertest.Tab

	url, api string
	viewers  *auth.Viewers

	mu         sync.Mutex
	key        auth.ViewerKey // that signs tokens
	asked      []asked
	tokens     int           // that were made
	ttl        time.Duration // of the first token; the nth has n times as long
	siteStatus int           // the site's status, instead of a token or photos; a redirect leads to signIn
	signIn     string        // the address of a page to sign in
	album      contacts.Album
	fault      http.HandlerFunc // answers for the API
	stopped    int              // requests that the page gave up
}

// widgetBrowser starts the browser of a test's pages.
func widgetBrowser(t *testing.T) *browsertest.Tab {
	t.Helper()
	b := browsertest.New(t)
	if _, err := chromedp.Call(b.Ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: widgetScript}); err != nil {
		t.Fatal(err)
	}
	b.Do(chromedp.EmulateViewport(800, 600))
	return b
}

// newSite starts a site for the test t, seen in b.
func newSite(t *testing.T, b *browsertest.Tab) *site {
	t.Helper()
	tab := *b
	tab.T = t
	b.Emulate(emulation.SetEmulatedMediaParams{})
	mux, log := http.NewServeMux(), log.New(io.Discard, "", 0)
	siteServer, apiServer := httptest.NewUnstartedServer(mux), httptest.NewUnstartedServer(nil)
	s := &site{
		Tab: &tab, ttl: 3590 * time.Second, album: albumOf("maya", 3, 2, 1), viewers: auth.NewViewers(nil, auth.ViewerOptions{}),
		api: "http://" + apiServer.Listener.Addr().String(), url: "http://" + siteServer.Listener.Addr().String(),
	}
	s.replaceKey()
	behind := api.New(api.Config{
		Reader: reader{s}, Viewers: s.viewers, AllowOrigins: []string{s.url}, Enqueuer: struct{ api.Enqueuer }{}, // nil: nothing is enqueued
		Health: func() api.Health { return api.Health{} }, Logger: slog.New(slog.DiscardHandler),
	}).Handler()
	apiServer.Config.Handler = s.before(behind)
	text := func(kind, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, text)
		}
	}
	mux.HandleFunc("GET /token", s.token)
	mux.HandleFunc("GET /photos", func(w http.ResponseWriter, r *http.Request) { s.photos(w, r, behind) })
	mux.HandleFunc("GET /page", s.page)
	mux.HandleFunc("GET /sign-in", text("text/html; charset=utf-8", `<!DOCTYPE html><title>Sign in</title>`))
	mux.HandleFunc("GET /i/", text("image/svg+xml", `<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9" fill="gray"/></svg>`))
	mux.HandleFunc("GET /style.css", text("text/css", `body { background: Canvas; color: CanvasText }`))
	mux.HandleFunc("GET /favicon.ico", func(http.ResponseWriter, *http.Request) {})
	for _, server := range []*httptest.Server{apiServer, siteServer} {
		server.Config.ErrorLog = log
		server.Start()
		t.Cleanup(server.Close)
	}
	// A blank page stops the last page's requests before the servers end.
	t.Cleanup(func() { tab.Do(chromedp.Navigate("about:blank")) })
	return s
}

// albumOf is what the API reads: the photos of a contact; "" is no contact.
func albumOf(contact string, photos ...uint64) (a contacts.Album) {
	if contact != "" {
		a.Contact = &contacts.Profile{ID: 98765, Username: contact}
	}
	for _, id := range photos {
		a.Photos = append(a.Photos, contacts.Photo{ID: id, Title: fmt.Sprintf("photo %d", id), DateUpload: 1_700_500_000 + id})
	}
	return a
}

// reader reads the album of the site.
type reader struct{ s *site }

func (r reader) Read(_ context.Context, v contacts.Viewer, _ int) (recent.Answer, error) {
	if v.ID != 12345 {
		r.s.Errorf("read for %v", v)
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return recent.Answer{Source: recent.FromIndex, Album: r.s.album}, nil
}

// Explain implements [api.Reader]. No page asks for it.
func (reader) Explain(context.Context, contacts.Viewer, int) (recent.Answer, error) {
	return recent.Answer{}, errors.ErrUnsupported
}

// before notes the questions to the API, and answers those that are to fail.
func (s *site) before(behind http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if cookies := r.Header.Get("Cookie"); cookies != "" {
			s.Errorf("the API gets the cookies %q", cookies)
		}
		if r.Method != http.MethodGet || !strings.HasPrefix(r.URL.Path, "/v1/") {
			behind.ServeHTTP(w, r)
			return
		}
		s.mu.Lock()
		s.asked = append(s.asked, asked{r.URL.RawQuery, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), r.Header.Get("If-None-Match")})
		fault := s.fault
		s.mu.Unlock()
		if fault == nil {
			behind.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Access-Control-Allow-Origin", s.url)
		w.Header().Set("Access-Control-Expose-Headers", "ETag, Retry-After")
		fault(w, r)
		if r.Context().Err() != nil {
			s.locked(func() { s.stopped++ })
		}
	}
}

func (s *site) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// replaceKey replaces the key that signs tokens, so that the API refuses all tokens of before.
func (s *site) replaceKey() {
	key, err := auth.NewViewerKey("key", auth.EdDSA)
	if err != nil {
		s.Fatal(err)
	}
	s.viewers.Replace([]auth.ViewerKey{key})
	s.locked(func() { s.key = key })
}

// sign makes a token. The caller holds mu.
func (s *site) sign() string {
	s.tokens++
	token, err := s.key.Sign(12345, s.ttl*time.Duration(s.tokens), "")
	if err != nil {
		s.Error(err)
	}
	return token
}

// token answers the signed-in browser.
func (s *site) token(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, err := r.Cookie("session"); err != nil || c.Value != "secret" {
		s.Errorf("the site is asked for a token without its cookie: %v", err)
	}
	if !s.siteFault(w) {
		_, _ = fmt.Fprintf(w, `{"token":%q}`, s.sign())
	}
}

// photos answers the signed-in browser by the API, in the name of the member.
func (s *site) photos(w http.ResponseWriter, r *http.Request, behind http.Handler) {
	s.mu.Lock()
	isFault, token := s.siteFault(w), s.sign()
	if given := r.Header.Get("Authorization"); given != "" {
		s.Errorf("the site gets the token %s", given)
	}
	if !isFault {
		s.asked = append(s.asked, asked{query: r.URL.RawQuery, tag: r.Header.Get("If-None-Match")})
	}
	s.mu.Unlock()
	if !isFault {
		r.URL = &url.URL{Path: "/v1/me/recent-contact-photos"}
		r.Header.Set("Authorization", "Bearer "+token)
		behind.ServeHTTP(w, r)
	}
}

// siteFault answers with the site's fault, if there is a fault.
func (s *site) siteFault(w http.ResponseWriter) bool {
	if s.siteStatus != 0 {
		w.Header().Set("Location", s.signIn)
		w.WriteHeader(s.siteStatus)
	}
	return s.siteStatus != 0
}

func (s *site) page(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: "session", Value: "secret"})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", fmt.Sprintf("default-src 'none'; script-src %s; connect-src 'self' %s; img-src 'self'; style-src 'self'; "+
		"base-uri 'none'; require-trusted-types-for 'script'; trusted-types 'none'", s.api, s.api))
	_, _ = fmt.Fprintf(w, `<!DOCTYPE html><html lang=%q dir=%q><head><meta charset="utf-8"><title>A site</title>
		<meta name="color-scheme" content="light dark"><meta name="viewport" content="width=device-width">
		<link rel="stylesheet" href="/style.css">
		<script type="module" src="%s/widget.js" crossorigin></script>
		</head><body><main><h1>A site</h1><p><a href="#before">before</a></p>%s<p><a href="#after">after</a></p></main></body></html>`,
		r.FormValue("lang"), r.FormValue("dir"), s.api, r.FormValue("body"))
}

// status makes the API answer with it, and with the headers, in pairs.
func (s *site) status(status int, headers ...string) {
	s.locked(func() {
		s.fault = func(w http.ResponseWriter, _ *http.Request) {
			for pair := range slices.Chunk(headers, 2) {
				w.Header().Set(pair[0], pair[1])
			}
			w.WriteHeader(status)
		}
	})
}

// hang makes the API answer nothing until the page gives up, or the test ends.
func (s *site) hang() {
	s.locked(func() {
		s.fault = func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-s.Context().Done():
			}
		}
	})
}

// says makes something answer for the API.
func (s *site) says(text string) {
	s.locked(func() {
		s.fault = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"1"`)
			_, _ = io.WriteString(w, text)
		}
	})
}

// answers makes the API answer with an album.
func (s *site) answers(a contacts.Album) { s.locked(func() { s.album, s.fault = a, nil }) }

// questions returns the API's requests so far.
func (s *site) questions() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// made is how many tokens the site has made.
func (s *site) made() (n int) {
	s.locked(func() { n = s.tokens })
	return n
}

// element is the element in HTML, with a test's changes of its attributes.
func (s *site) element(changes map[string]string, inside ...string) string {
	all := map[string]string{
		"id": "w", "src": s.api + "/v1/me/recent-contact-photos", "token-src": "/token",
		"photo-href": "https://photos.example/{owner}/{id}", "image-src": "/i/{id}.svg",
	}
	maps.Copy(all, changes)
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] != "" {
			fmt.Fprintf(&text, " %s='%s'", name, all[name])
		}
	}
	return "<recent-contact-photos" + text.String() + ">" + strings.Join(inside, "") + "</recent-contact-photos>"
}

// open shows a page with body.
func (s *site) open(body string) { s.openIn("en", "ltr", body) }

func (s *site) openIn(lang, dir, body string) {
	s.Helper()
	s.Do(chromedp.Navigate(s.url + "/page?" + url.Values{"lang": {lang}, "dir": {dir}, "body": {body}}.Encode()))
}

// await waits until an expression is true in the page. (Tab.Await is not allowed by the
// page's policy.)
func (s *site) await(expression string) {
	s.Helper()
	servertest.Eventually(s.T, expression, func() bool { return browsertest.Eval[bool](s.Tab, "!!("+expression+")") })
}

// awaitQuestions waits until the API was asked n times, and is not being asked.
func (s *site) awaitQuestions(n int) []asked {
	s.Helper()
	servertest.Eventually(s.T, fmt.Sprintf("%d questions", n), func() bool { return len(s.questions()) >= n })
	s.await(`clock.pending().length > 0`)
	all := s.questions()
	if len(all) != n {
		s.Fatalf("%d questions, want %d: %v", len(all), n, all)
	}
	return all
}

// advance moves the page's clock.
func (s *site) advance(seconds float64) { s.eval(fmt.Sprintf("clock.advance(%f * 1000)", seconds)) }

// next moves the page's clock to when the widget wants to do something, and no further.
func (s *site) next() { s.eval("clock.advance(Math.min(...clock.pending()))") }

func (s *site) eval(script string) {
	s.Helper()
	browsertest.Eval[chromedp.Void](s.Tab, script)
}

// want checks the value of an expression that is a string.
func (s *site) want(expression, want string) {
	s.Helper()
	if got := browsertest.Eval[string](s.Tab, "String("+expression+")"); got != want {
		s.Errorf("%s is %q, want %q", expression, got, want)
	}
}

// barriers returns the violations that axe-core finds. The page's policy refuses axe-core's own styles, so
// that barriers clears the faults.
func (s *site) barriers() string {
	s.Helper()
	s.calm()
	found := s.Axe()
	s.eval(`faults.length = 0`)
	return found
}

// calm checks that the page's policy was kept, and that there were no errors.
func (s *site) calm() {
	s.Helper()
	if faults := browsertest.Eval[[]string](s.Tab, "faults"); len(faults) > 0 {
		s.Errorf("the page has faults: %q", faults)
	}
}
