package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/testing/browsertest"
)

// tinyWorld is the demo's world, made small.
func tinyWorld() world.Spec {
	spec := world.Demo()
	spec.Members, spec.Photos, spec.Blocks = 410, 2400, 20
	spec.Quiet = 0
	spec.Featured, spec.Celebrities = []int{400, 150, 40, 12, 0}, []int{200, 80}
	return spec
}

// runTheDemo starts it and returns its address; it stops with the test.
func runTheDemo(t *testing.T, o demoOptions, spec world.Spec) *running {
	t.Helper()
	c := &config{role: roleAll, mysqlConnections: defaultConnections}
	f := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	c.listenFlag(f, "")
	c.serverFlags(f)
	c.indexFlags(f)
	c.logFlags(f)
	must(t, f.Parse([]string{"--listen=127.0.0.1:0"}))
	ctx, cancel := context.WithCancel(context.Background())
	said, ended := &notes{}, make(chan error, 1)
	go func() { ended <- runDemo(ctx, c, o, spec, said, slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("demo: %v", err)
		}
	})
	r := &running{}
	eventually(t, "the demo prints its address", func() bool {
		if len(ended) > 0 {
			t.FailNow() // the cleanup reports the error
		}
		_, rest, _ := strings.Cut(said.String(), "The demo is at ")
		url, _, printed := strings.Cut(rest, "/  ")
		r.url = url
		return printed
	})
	return r
}

func TestDemo(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		options demoOptions
		engine  string
		pushes  bool
	}{
		"imitations":      {demoOptions{embedded: true, rate: 20}, "miniredis", false},
		"private servers": {demoOptions{rate: 20}, "private to this demo", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := runTheDemo(t, want.options, tinyWorld())
			var status int
			if page := r.get(t, "/", &status); status != 200 || !strings.Contains(page, want.engine) {
				t.Errorf("page: %d, does not name %q", status, want.engine)
			}
			eventually(t, "the index answers", func() bool { return r.read(t, 1).Source == "index" })
			if want.pushes {
				r.isNotified(t)
				r.survives(t)
			} else if page := r.get(t, "/", &status); !strings.Contains(page, "Push needs the real servers") {
				t.Errorf("the page says nothing of push:\n%s", page)
			}
			r.awaitReady(t)
			r.get(t, "/nonsense", &status)
			if status != 404 {
				t.Errorf("nonsense: %d", status)
			}
		})
	}
}

// The widget in the homepage, by the lines that it shows, with tokens that the demo signs.
func TestBrowserShowsTheHomepage(t *testing.T) {
	t.Parallel()
	r := runTheDemo(t, demoOptions{embedded: true, rate: 0.001}, tinyWorld()) // nothing but what is asked for
	b := browsertest.New(t)
	b.Open(r.url + "/demo/home?viewer=2")
	const shown = `[...document.querySelector("recent-contact-photos").shadowRoot.querySelectorAll("img")]`
	b.Await(shown + `.length > 0 && ` + shown + `.every(i => i.complete && i.naturalWidth > 0)`)
	b.Await(`(e => e.outerHTML.replace(/ state="[a-z]*"/, ""))(document.querySelector("recent-contact-photos")) ===
		document.getElementById("lines").textContent.split("\n").slice(1).join(" ").replace(/ +/g, " ").replace("> <", ">\n<")`)
	if n := strings.Count(browsertest.Eval[string](b, `document.getElementById("lines").textContent`), "\n"); n != 4 {
		t.Errorf("%d lines embed the widget, want 5", n+1)
	}
	if found := b.Axe(); found != "" {
		t.Errorf("axe finds: %s", found)
	}

	before := browsertest.Eval[string](b, shown+`[0].src`)
	for range 3 { // one may be of a contact that blocks the viewer
		b.Click("#do-other")
	}
	b.Await(shown + fmt.Sprintf(`[0].src !== %q`, before))
	if path := browsertest.Eval[string](b, "location.pathname"); path != "/demo/home" {
		t.Errorf("the upload leads to %s", path)
	}
	b.RequireCalm()
}

// TestBrowserShowsTheWholeDemo also takes the picture for the README, of the whole of the
// demo's world, when the environment says where to put it.
func TestBrowserShowsTheWholeDemo(t *testing.T) {
	t.Parallel()
	path, spec := os.Getenv("ACTIVITYD_SCREENSHOT"), tinyWorld()
	if path != "" {
		spec = world.Demo()
	}
	r := runTheDemo(t, demoOptions{rate: 2}, spec)
	b := browsertest.New(t)
	b.Emulate(emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "reduce"}}})
	b.Open(r.url + "/?viewer=1")
	click := func(selector string) { // although the page may move what it clicks on
		t.Helper()
		browsertest.Eval[chromedp.Void](b, fmt.Sprintf(`document.querySelector(%q).click()`, selector))
	}
	b.Await(`/^Plain SQL: [\d.]+ m?s\. activityd: [\d.]+ m?s, same answer\.$/.test(document.getElementById("figures")?.innerText)`)
	b.Await(`document.getElementById("source").textContent.endsWith("index") && document.querySelectorAll(".set tbody tr").length === 12`)
	b.Await(`/ wrong of [1-9]/.test(document.getElementById("audit").textContent)`)
	click("#do-celebrity")
	b.Await(`/ → [\d,]+ sets? in [\d.]+ m?s$/.test(document.getElementById("largest")?.innerText)`)
	b.RequireCalm()
	if path == "" {
		return
	}
	b.Await(`/ → 10,\d+ sets /.test(document.getElementById("largest").innerText)`)
	b.Open(r.url + "/") // the first viewer, whose contacts are quiet
	// What is made private in time does not arrive; what has arrived stays on the phone.
	click("#do-other")
	b.Await(`document.querySelectorAll(".push .fate.yes").length === 2 && document.querySelectorAll(".screen li").length === 2`)
	click(".push td button")
	b.Await(`document.querySelector(".push tbody tr:first-child button") === null`)
	click("#do-hold")
	b.Await(`document.getElementById("do-hold").textContent === "Let the deliveries go"`)
	click("#do-other")
	b.Await(`document.querySelectorAll(".push .fate.wait").length === 2`)
	click(".push td button")
	b.Await(`document.querySelector(".push tbody tr:first-child button") === null`)
	click("#do-hold")
	b.Await(`document.querySelectorAll(".push .fate.no").length === 2`)
	// Now the contacts are quiet again, for all that the viewer may see.
	b.Await(`/^Plain SQL: \d\d+ ms\. activityd: [\d.]+ ms, same answer\.$/.test(document.getElementById("figures").innerText)`)
	b.Await(`document.getElementById("audit").textContent.length >= "0 wrong of 1,000 (0 %)".length`)
	b.Await(`document.getElementById("queue").textContent === "no task" && document.getElementById("toast").textContent === ""`)
	b.Await("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
	must(t, os.WriteFile(path, browsertest.Ask(b, chromedp.FullScreenshot(100)), 0o600))
}

// survives fails the test unless the demo does without MySQL, and with it again.
func (r *running) survives(t *testing.T) {
	t.Helper()
	var status int
	eventually(t, "the audit has looked", func() bool {
		page := r.get(t, "/demo/widget?viewer=1", &status) // other tests of this process count, too
		return strings.Contains(page, ` wrong of `) && !strings.Contains(page, " wrong of 0 ")
	})
	for _, server := range []string{"Redis", "MySQL"} {
		r.press(t, "switch", url.Values{"server": {server}, "do": {"off"}})
		page := r.get(t, "/demo/widget?viewer=1", &status)
		if want := map[string]int{"Redis": 200, "MySQL": 503}[server]; status != want || !strings.Contains(page, "is away") {
			t.Errorf("without %s: %d, want %d\n%s", server, status, want, page)
		}
		r.press(t, "switch", url.Values{"server": {server}, "do": {"on"}})
		eventually(t, server+" is back", func() bool {
			page := r.get(t, "/demo/widget?viewer=1", &status)
			return status == 200 && strings.Contains(page, "Turn "+server+" off") && strings.Contains(page, `badge index"`)
		})
	}
}

// press presses a button of the page of the first viewer.
func (r *running) press(t *testing.T, action string, form url.Values) {
	t.Helper()
	form.Set("viewer", "1")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/demo/actions/"+action, strings.NewReader(form.Encode()))
	must(t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("X-Requested-With", "fetch")
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	must(t, response.Body.Close())
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", action, response.Status)
	}
}

// isNotified fails the test unless an upload of a contact reaches the phone and the browser of
// the first viewer. The traffic may let a contact block the viewer: there are some uploads.
func (r *running) isNotified(t *testing.T) {
	t.Helper()
	for range 5 {
		r.press(t, "upload", url.Values{"owner": {"other"}})
	}
	eventually(t, "both devices are notified", func() bool {
		var status int
		return strings.Count(r.get(t, "/demo/widget?viewer=1", &status), "<code>accepted</code>") >= 2 // the words of the receipts
	})
}
