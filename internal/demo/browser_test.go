package demo_test

import (
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo/world"
)

// landmarks are the role and the name of each region.
const landmarks = `[...document.querySelectorAll("main, header, footer, nav, section, [role=region]")].map(e =>
	(e.getAttribute("role") ?? e.tagName) + " " + (e.getAttribute("aria-label") ?? document.getElementById(e.getAttribute("aria-labelledby"))?.textContent ?? ""))
	.map(name => name.replace("SECTION", "region"))`

const shownPhotos = `[...document.querySelectorAll(".photos img")].map(i => i.getAttribute("src"))`

func TestBrowserShowsTheChosenViewerAndFollowsWhatHappens(t *testing.T) {
	s := startService(t)
	s.unblockAll(t) // any contact's upload is to be seen
	b := openTab(t)
	b.open(s.url + "/")
	b.do(chromedp.SetValue(chromedp.ID("viewer"), "2"))
	eval[bool](b, `document.getElementById("viewer").dispatchEvent(new Event("change"))`)
	b.await(`document.getElementById("main").dataset.viewer === "2"`)
	if path := eval[string](b, "location.search"); path != "?viewer=2" {
		t.Errorf("the address is %s", path)
	}

	// The contact who was active last now uploads more, so that ten are shown.
	for owner := s.shown(t, contacts.Viewer{ID: 2}).Contact.ID; len(s.shown(t, contacts.Viewer{ID: 2}).Photos) < 10; {
		press(t, s.demo.Handler(), "upload", "viewer=2&owner="+owner.String())
	}
	b.await(`document.querySelectorAll(".photos img").length === 10`)
	b.await(`document.getElementById("source").innerText.trim().endsWith("index")`)
	b.await(`document.querySelector("#agree.yes") !== null`)
	b.await(`document.querySelectorAll(".set tbody tr").length === 12`)

	newest := eval[[]string](b, shownPhotos)[0]
	b.click("#do-private")
	b.await(fmt.Sprintf(`!%s.includes(%q)`, shownPhotos, newest))
	b.await(`document.getElementById("toast").textContent.includes("is private now")`)

	before := eval[string](b, `document.querySelector(".album h2").textContent`)
	b.click("#do-other")
	b.await(fmt.Sprintf(`document.querySelector(".album h2").textContent !== %q`, before))
	b.await(`document.getElementById("changes").textContent.startsWith("Now showing")`)
	if got, want := eval[string](b, `document.querySelector(".album h2").textContent`), s.shown(t, contacts.Viewer{ID: 2}).Contact.Username; got != want {
		t.Errorf("the page shows %s, the definition says %s", got, want)
	}
	b.requireCalm()
}

func TestBrowserSeesRedisWipedAndRefilled(t *testing.T) {
	s := startService(t)
	b := openTab(t)
	b.open(s.url + "/?viewer=1")
	b.await(`document.getElementById("source").innerText.trim().endsWith("index")`)
	eval[chromedp.Void](b, `
		window.sources = [];
		new MutationObserver(() => window.sources.push(document.getElementById("source").textContent))
			.observe(document.getElementById("main"), {subtree: true, childList: true, characterData: true});`)
	b.click("#do-wipe")
	b.await(`window.sources.some(s => s.endsWith("database"))`)
	b.await(`document.getElementById("source").textContent.endsWith("index")`)
	b.await(`document.querySelectorAll(".set tbody tr").length === 12`)
	b.requireCalm()
}

func TestBrowserPausesAndResumesTheTraffic(t *testing.T) {
	s := startService(t)
	run(t, s.demo.Run)
	b := openTab(t)
	b.open(s.url + "/?viewer=1")
	b.await(`document.querySelectorAll(".feed li").length >= 5`)
	b.do(chromedp.Focus(chromedp.ID("do-traffic")), chromedp.KeyEvent("\r"))
	b.await(`document.getElementById("do-traffic").textContent === "Resume the traffic"`)
	if focus := eval[string](b, "document.activeElement.id"); focus != "do-traffic" {
		t.Errorf("after the update the focus is on %q", focus)
	}
	b.click("#do-traffic")
	b.await(`document.getElementById("do-traffic").textContent === "Pause the traffic"`)
	b.requireCalm()
}

func TestBrowserFindsNoBarrier(t *testing.T) {
	s := startService(t)
	b := openTab(t)
	for _, path := range []string{"/", "/?viewer=5"} {
		b.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile), chromedp.Navigate(s.url+path))
		b.await(`document.getElementById("main") !== null`)
		if path == "/" {
			b.await(`document.querySelectorAll(".set tbody tr").length === 12`)
		}
		if wide := eval[int](b, "document.documentElement.scrollWidth"); wide > 360 {
			t.Errorf("%s is %d pixels wide on a screen of 360", path, wide)
		}
		for what, expression := range map[string]string{
			"fields without a label":   `[...document.querySelectorAll("input:not([type=hidden]), select")].filter(e => e.labels.length === 0).map(e => e.id)`,
			"pictures without alt":     `[...document.images].filter(i => !i.hasAttribute("alt")).map(i => i.src)`,
			"photos with an empty alt": `[...document.querySelectorAll(".photos img")].filter(i => i.alt === "").map(i => i.src)`,
			"buttons without a name":   `[...document.querySelectorAll("button")].filter(e => !e.textContent.trim()).map(e => e.outerHTML)`,
			"ids that are there twice": `[...document.querySelectorAll("[id]")].map(e => e.id).filter((id, i, all) => all.indexOf(id) !== i)`,
			"labels that do not exist": `[...document.querySelectorAll("[aria-labelledby]")].map(e => e.getAttribute("aria-labelledby")).filter(id => !document.getElementById(id))`,
			"landmarks of one name":    landmarks + `.filter((name, i, all) => all.indexOf(name) !== i)`,
			"targets below 24 pixels":  `[...document.querySelectorAll("button, select, input:not([type=hidden])")].filter(e => e.getBoundingClientRect().height < 24).map(e => e.outerHTML)`,
		} {
			if found := eval[[]string](b, expression); len(found) > 0 {
				t.Errorf("%s: %s: %q", path, what, found)
			}
		}
		if eval[string](b, "document.documentElement.lang") != "en" || eval[int](b, `document.querySelectorAll("h1").length`) != 1 {
			t.Errorf("%s: no language or not one h1", path)
		}
	}
	b.requireCalm()
}

// A phone shows the whole table, with the verdicts.
func TestBrowserShowsTheVerdictsOnANarrowScreen(t *testing.T) {
	s := startService(t)
	b := openTab(t)
	b.do(chromedp.EmulateViewport(375, 740, chromedp.EmulateMobile), chromedp.Navigate(s.url+"/?viewer=1"))
	b.await(`document.querySelectorAll(".set tbody tr").length === 12`)
	b.await(`document.getElementById("source").textContent.endsWith("index")`)
	// The longest names and verdicts that there are.
	eval[chromedp.Void](b, `document.querySelectorAll(".set tbody th").forEach(e => e.firstChild.nodeValue = "wandering_compass ");
		document.querySelectorAll(".set .verdict").forEach(e => e.textContent = "nothing visible")`)
	for what, expression := range map[string]string{
		"the page":  "document.documentElement.scrollWidth - 375",
		"the table": `(e => e.scrollWidth - e.clientWidth)(document.querySelector(".scroll"))`,
		"a verdict": `Math.max(...[...document.querySelectorAll(".verdict")].map(e => Math.ceil(e.getBoundingClientRect().right))) - 375`,
	} {
		if over := eval[int](b, expression); over > 0 {
			t.Errorf("%s is %d pixels too wide", what, over)
		}
	}
	if hidden := eval[int](b, `[...document.querySelectorAll(".verdict")].filter(e => e.getBoundingClientRect().width < 10).length`); hidden > 0 {
		t.Errorf("%d verdicts are not seen", hidden)
	}
}

// Without a connection the page claims nothing about the present.
func TestBrowserTakesBackWhatItSaysWithoutAConnection(t *testing.T) {
	s := startService(t)
	b := openTab(t)
	b.open(s.url + "/?viewer=1")
	b.await(`document.querySelector("#agree.yes") !== null && document.getElementById("source").textContent.endsWith("index")`)
	address := s.server.Listener.Addr().String()
	s.server.CloseClientConnections()
	s.server.Close()
	b.await(`document.querySelector("#agree.yes") === null && document.getElementById("agree").textContent.startsWith("No connection")`)
	b.await(`document.getElementById("source").textContent === "no connection"`)
	b.await(`document.getElementById("toast").textContent.startsWith("No connection")`)

	again := httptest.NewUnstartedServer(s.demo.Handler())
	t.Cleanup(again.Close)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again.Listener = listener
	again.Start()
	b.await(`document.querySelector("#agree.yes") !== null && document.getElementById("source").textContent.endsWith("index")`)
}

func TestBrowserFindsEnoughContrast(t *testing.T) {
	s := startService(t)
	b := openTab(t)
	for _, scheme := range []string{"light", "dark"} {
		b.emulate(emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		for _, path := range []string{"/", "/?viewer=5"} {
			b.do(chromedp.EmulateViewport(1280, 1000), chromedp.Navigate(s.url+path))
			b.await(`document.getElementById("main") !== null`)
			if found := eval[[]string](b, paleText); len(found) > 0 {
				t.Errorf("%s, %s: text below 4.5:1 (WCAG AA):\n%s", path, scheme, strings.Join(found, "\n"))
			}
		}
	}
}

// TestBrowserShowsRealServers also takes the picture for the README, of the
// whole of the demo's world, when the environment says where to put it.
func TestBrowserShowsRealServers(t *testing.T) {
	path, w := os.Getenv("ACTIVITYD_SCREENSHOT"), smallWorld()
	if path != "" {
		w = world.Demo().Generate(time.Now())
	}
	s := startRealService(t, w)
	run(t, s.demo.Run)
	b := openTab(t)
	b.emulate(emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "reduce"}}})
	b.open(s.url + "/?viewer=1")
	b.await(`document.querySelectorAll(".feed li").length >= 10`)
	b.await(`document.getElementById("source").textContent.endsWith("index")`)
	b.await(`document.querySelectorAll(".set tbody tr").length === 12`)
	b.await(`document.querySelector("#agree.yes") !== null && document.querySelectorAll(".photos img").length > 0`)
	b.requireCalm()
	if path != "" {
		b.await(`document.querySelectorAll(".photos img").length === 10`)
		b.await("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
		if err := os.WriteFile(path, ask(b, chromedp.FullScreenshot(100)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
