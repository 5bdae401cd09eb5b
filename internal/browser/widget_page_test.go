package browser

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/testing/browsertest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// widgetNow is the page's clock when a page is opened, in unix seconds: before that of every
// machine, so that real tokens have not expired.
const widgetNow = 1_700_600_000

// widgetScript runs in each page before all else. It gives the widget a clock that only the test moves, and
// records the effects that a site would notice.
const widgetScript = `
	window.clock = {now: 1700600000000, timers: new Map(), last: 0, random: 1};
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
type asked struct {
	query, token, tag string
}

// site is a site with a page, and the API at another origin. The page's policy allows only the sources that
// docs/page.md names.
type site struct {
	*browsertest.Tab

	url, api string

	mu         sync.Mutex
	asked      []asked
	tokens     int                // that were made
	life       int                // of a token, in seconds
	sign       func(n int) string // makes the nth token
	refused    map[string]bool
	siteStatus int    // the site's status, instead of a token or photos; a redirect leads to signIn
	signIn     string // the address of a page to sign in
	answer     string // the API's
	fault      func(w http.ResponseWriter, r *http.Request)
	stopped    int // requests that the page gave up
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
	s := &site{Tab: &tab, life: 3600, refused: map[string]bool{}, answer: answerOf("maya", 3, 2, 1)}
	b.Emulate(emulation.SetEmulatedMediaParams{})

	s.sign = func(n int) string {
		return jwtOf(fmt.Sprintf(`{"sub":"12345","name":"ä?>~","exp":%d,"jti":"%d"}`, widgetNow+s.life*n, n))
	}
	apiMux, siteMux := http.NewServeMux(), http.NewServeMux()
	apiMux.Handle("GET /widget.js", apiOf(api.Config{Reader: reader(nil)}))
	apiMux.HandleFunc("OPTIONS /v1/me/recent-contact-photos", s.preflight)
	apiMux.HandleFunc("GET /v1/me/recent-contact-photos", s.read)
	siteMux.HandleFunc("GET /token", s.token)
	siteMux.HandleFunc("GET /photos", s.photos)
	siteMux.HandleFunc("GET /sign-in", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, `<!DOCTYPE html><title>Sign in</title>`)
	})
	siteMux.HandleFunc("GET /i/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/svg+xml")
		_, _ = io.WriteString(w, `<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9" fill="gray"/></svg>`)
	})
	siteMux.HandleFunc("GET /style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css")
		_, _ = io.WriteString(w, `body { background: Canvas; color: CanvasText }`)
	})
	siteMux.HandleFunc("GET /favicon.ico", func(http.ResponseWriter, *http.Request) {})
	siteMux.HandleFunc("GET /page", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
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
	})
	apiServer, siteServer := httptest.NewUnstartedServer(apiMux), httptest.NewUnstartedServer(siteMux)
	s.api, s.url = "http://"+apiServer.Listener.Addr().String(), "http://"+siteServer.Listener.Addr().String()
	for _, server := range []*httptest.Server{apiServer, siteServer} {
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.Start()
		t.Cleanup(server.Close)
	}
	// A blank page stops the last page's requests before the servers end.
	t.Cleanup(func() { tab.Do(chromedp.Navigate("about:blank")) })
	return s
}

// answerOf is the API's answer of the photos of a contact.
func answerOf(contact string, photos ...int) string {
	list := []map[string]any{}
	for _, id := range photos {
		list = append(list, map[string]any{"id": fmt.Sprint(id), "title": fmt.Sprintf("photo %d", id), "date_upload": 1_700_500_000 + id})
	}
	return answerWith(map[string]any{"id": "98765", "username": contact, "last_upload": 1_700_500_000 + photos[0]}, list)
}

func answerWith(contact, photos any) string {
	text, err := json.Marshal(map[string]any{"viewer_id": "12345", "contact": contact, "photos": photos})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func (s *site) locked(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
}

// token answers the signed-in browser.
func (s *site) token(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, err := r.Cookie("session"); err != nil || c.Value != "secret" {
		s.Errorf("the site is asked for a token without its cookie: %v", err)
	}
	if s.siteFault(w) {
		return
	}
	s.tokens++
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"token":%q}`, s.sign(s.tokens))
}

// photos answers the signed-in browser as the API would.
func (s *site) photos(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token := r.Header.Get("Authorization"); token != "" {
		s.Errorf("the site gets the token %s", token)
	}
	if s.siteFault(w) {
		return
	}
	s.asked = append(s.asked, asked{query: r.URL.RawQuery, tag: r.Header.Get("If-None-Match")})
	w.Header().Set("ETag", `"1"`)
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, s.answer)
}

// siteFault answers with the site's fault, if there is a fault.
func (s *site) siteFault(w http.ResponseWriter) bool {
	if s.siteStatus == 0 {
		return false
	}
	w.Header().Set("Location", s.signIn)
	w.WriteHeader(s.siteStatus)
	return true
}

func jwtOf(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2lnbmF0dXJl"
}

// allowOrigin writes the API's CORS headers for the site's origin.
func (s *site) allowOrigin(w http.ResponseWriter, r *http.Request) {
	if origin := r.Header.Get("Origin"); origin != s.url {
		s.Errorf("%s %s: Origin %q, want %q", r.Method, r.URL, origin, s.url)
	}
	if cookies := r.Header.Get("Cookie"); cookies != "" {
		s.Errorf("the API gets the cookies %q", cookies)
	}
	w.Header().Set("Access-Control-Allow-Origin", s.url)
	w.Header().Set("Vary", "Origin, Authorization")
}

func (s *site) preflight(w http.ResponseWriter, r *http.Request) {
	s.allowOrigin(w, r)
	for name := range strings.SplitSeq(r.Header.Get("Access-Control-Request-Headers"), ",") {
		if !slices.Contains([]string{"", "authorization", "if-none-match"}, name) {
			s.Errorf("the header %q is not one that the API allows", name)
		}
	}
	w.Header().Set("Access-Control-Allow-Methods", "GET, PUT, DELETE")
	w.Header().Set("Access-Control-Allow-Headers", "Authorization, Content-Type, If-None-Match")
	w.Header().Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

func (s *site) read(w http.ResponseWriter, r *http.Request) {
	s.allowOrigin(w, r)
	w.Header().Set("Access-Control-Expose-Headers", "ETag, Retry-After, X-Request-Id")
	w.Header().Set("Cache-Control", "private, no-cache")
	s.mu.Lock()
	q := asked{r.URL.RawQuery, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), r.Header.Get("If-None-Match")}
	s.asked = append(s.asked, q)
	fault, answer, refused := s.fault, s.answer, s.refused[q.token]
	s.mu.Unlock()
	if given := r.Header.Get("Authorization"); given != "" && given != "Bearer "+q.token {
		s.Errorf("Authorization: %q", given)
	}
	tag := fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(answer)))
	switch {
	case fault != nil:
		fault(w, r)
		if r.Context().Err() != nil {
			s.locked(func() { s.stopped++ })
		}
	case q.token == "" || refused:
		w.Header().Set("WWW-Authenticate", `Bearer realm="activityd", error="invalid_token"`)
		w.WriteHeader(http.StatusUnauthorized)
	case q.tag == tag:
		w.Header().Set("ETag", tag)
		w.WriteHeader(http.StatusNotModified)
	default:
		w.Header().Set("ETag", tag)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	}
}

// status makes the API answer with it, and with the headers.
func (s *site) status(status int, headers map[string]string) {
	s.locked(func() {
		s.fault = func(w http.ResponseWriter, _ *http.Request) {
			for name, value := range headers {
				w.Header().Set(name, value)
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

// answers makes the API answer so.
func (s *site) answers(answer string) {
	s.locked(func() { s.answer, s.fault = answer, nil })
}

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

// attributes returns the attributes of the element, with a test's changes.
func (s *site) attributes(changes map[string]string) string {
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
	return text.String()
}

// element is the element in HTML.
func (s *site) element(changes map[string]string, inside ...string) string {
	return "<recent-contact-photos" + s.attributes(changes) + ">" + strings.Join(inside, "") + "</recent-contact-photos>"
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
func (s *site) advance(seconds float64) {
	s.Helper()
	browsertest.Eval[chromedp.Void](s.Tab, fmt.Sprintf("clock.advance(%f * 1000)", seconds))
}

// next moves the page's clock to when the widget wants to do something, and no further.
func (s *site) next() {
	s.Helper()
	s.eval("clock.advance(Math.min(...clock.pending()))")
}

func (s *site) eval(script string) {
	s.Helper()
	browsertest.Eval[chromedp.Void](s.Tab, script)
}

func (s *site) text(expression string) string {
	s.Helper()
	return browsertest.Eval[string](s.Tab, expression)
}

// want checks the value of an expression that is a string.
func (s *site) want(expression, want string) {
	s.Helper()
	if got := s.text("String(" + expression + ")"); got != want {
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
