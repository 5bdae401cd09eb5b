package demo_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/testing/browsertest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// landmarks are the role and the name of each region.
const landmarks = `[...document.querySelectorAll("main, header, footer, nav, section, [role=region]")].map(e =>
	(e.getAttribute("role") ?? e.tagName) + " " + (e.getAttribute("aria-label") ?? document.getElementById(e.getAttribute("aria-labelledby"))?.textContent ?? ""))
	.map(name => name.replace("SECTION", "region"))`

const shownPhotos = `[...document.querySelectorAll(".photos img")].map(i => i.getAttribute("src"))`

func TestBrowserShowsTheChosenViewerAndFollowsWhatHappens(t *testing.T) {
	s := startService(t)
	s.unblockAll(t) // any contact's upload is to be seen
	b := browsertest.New(t)
	b.Open(s.url + "/")
	b.Do(chromedp.SetValue(chromedp.ID("viewer"), "2"))
	browsertest.Eval[bool](b, `document.getElementById("viewer").dispatchEvent(new Event("change"))`)
	b.Await(`document.getElementById("main").dataset.viewer === "2"`)
	if path := browsertest.Eval[string](b, "location.search"); path != "?viewer=2" {
		t.Errorf("the address is %s", path)
	}

	// The contact who was active last now uploads more, so that ten are shown.
	for owner := s.shown(t, contacts.Viewer{ID: 2}).Contact.ID; len(s.shown(t, contacts.Viewer{ID: 2}).Photos) < 10; {
		press(t, s.demo.Handler(), "upload", "viewer=2&owner="+owner.String())
	}
	b.Await(`document.querySelectorAll(".photos img").length === 10`)
	b.Await(`document.getElementById("source").innerText.trim().endsWith("index")`)
	b.Await(`document.querySelector("#agree.yes") !== null`)
	b.Await(`document.querySelectorAll(".set tbody tr").length === 12`)

	newest := browsertest.Eval[[]string](b, shownPhotos)[0]
	b.Click("#do-private")
	b.Await(fmt.Sprintf(`!%s.includes(%q)`, shownPhotos, newest))
	b.Await(`document.getElementById("toast").textContent.includes("is private now")`)

	before := browsertest.Eval[string](b, `document.querySelector(".album h2").textContent`)
	b.Click("#do-other")
	b.Await(fmt.Sprintf(`document.querySelector(".album h2").textContent !== %q`, before))
	b.Await(`document.getElementById("changes").textContent.startsWith("Now showing")`)
	if got, want := browsertest.Eval[string](b, `document.querySelector(".album h2").textContent`), s.shown(t, contacts.Viewer{ID: 2}).Contact.Username; got != want {
		t.Errorf("the page shows %s, the definition says %s", got, want)
	}
	b.RequireCalm()
}

func TestBrowserSeesRedisWipedAndRefilled(t *testing.T) {
	s := startService(t)
	b := browsertest.New(t)
	b.Open(s.url + "/?viewer=1")
	b.Await(`document.getElementById("source").innerText.trim().endsWith("index")`)
	browsertest.Eval[chromedp.Void](b, `
		window.sources = [];
		new MutationObserver(() => window.sources.push(document.getElementById("source").textContent))
			.observe(document.getElementById("main"), {subtree: true, childList: true, characterData: true});`)
	b.Click("#do-wipe")
	b.Await(`window.sources.some(s => s.endsWith("database"))`)
	b.Await(`document.getElementById("source").textContent.endsWith("index")`)
	b.Await(`document.querySelectorAll(".set tbody tr").length === 12`)
	b.RequireCalm()
}

// figures are the sentence as it is read.
const figures = `document.getElementById("figures").innerText`

func TestBrowserTellsWhy(t *testing.T) {
	s := startRealService(t, smallWorld())
	b := browsertest.New(t)
	b.Open(s.url + "/?viewer=1")
	b.Await(`document.getElementById("why-title").textContent === "Who of my 400 contacts posted last?"`)
	b.Await(`/^Plain SQL: [\d.]+ m?s\. activityd: [\d.]+ m?s, same answer\.$/.test(` + figures + `)`)
	b.Await(`document.querySelector(".why").innerText.includes("Redis says where to look, MySQL decides what you may see.")`)

	clickNow(b, "#do-celebrity")
	b.Await(`/ → \d+ sets? in [\d.]+ m?s/.test(document.getElementById("fan-outs")?.innerText)`)
	b.Await(`document.getElementById("queue").textContent === "no task"`)

	// As a broadcast member it is written to the copies of the broadcast set.
	clickNow(b, "#do-broadcast")
	b.Await(`document.getElementById("do-celebrity").textContent.endsWith("a broadcast member")`)
	clickNow(b, "#do-celebrity")
	b.Await(`/ → 16 sets in [\d.]+ m?s/.test(document.getElementById("fan-outs")?.innerText)`)
	b.Await(figures + `.endsWith("same answer.")`)
	clickNow(b, "#do-broadcast")
	b.Await(`!document.getElementById("do-celebrity").textContent.endsWith("a broadcast member")`)
	b.Await(`document.getElementById("do-broadcast").textContent.endsWith("a broadcast member")`)
	b.Await(`document.getElementById("queue").textContent === "no task"`)
	b.RequireCalm()
}

func TestBrowserTurnsRedisOffAndOn(t *testing.T) {
	s := startService(t)
	b := browsertest.New(t)
	b.Open(s.url + "/?viewer=1")
	b.Await(`document.getElementById("source").textContent.endsWith("index")`)
	b.Do(chromedp.Focus(chromedp.ID("do-switch-Redis")), chromedp.KeyEvent("\r"))
	b.Await(`document.getElementById("walked")?.textContent.endsWith("Redis is away.")`)
	b.Await(`document.getElementById("do-switch-Redis").textContent === "Turn Redis on again"`)
	b.Await(figures + `.endsWith("same answer.")`)
	if focus := browsertest.Eval[string](b, "document.activeElement.id"); focus != "do-switch-Redis" {
		t.Errorf("after the update the focus is on %q", focus)
	}
	clickNow(b, "#do-switch-Redis")
	b.Await(`document.getElementById("walked") === null && document.getElementById("source").textContent.endsWith("index")`)
	b.Await(`document.getElementById("do-switch-Redis").textContent === "Turn Redis off"`)
	b.RequireCalm()
}

func TestBrowserPausesAndResumesTheTraffic(t *testing.T) {
	s := startService(t)
	run(t, s.demo.Run)
	b := browsertest.New(t)
	b.Open(s.url + "/?viewer=1")
	b.Await(`document.querySelectorAll(".feed li").length >= 5`)
	b.Do(chromedp.Focus(chromedp.ID("do-traffic")), chromedp.KeyEvent("\r"))
	b.Await(`document.getElementById("do-traffic").textContent === "Resume the traffic"`)
	if focus := browsertest.Eval[string](b, "document.activeElement.id"); focus != "do-traffic" {
		t.Errorf("after the update the focus is on %q", focus)
	}
	b.Click("#do-traffic")
	b.Await(`document.getElementById("do-traffic").textContent === "Pause the traffic"`)
	b.RequireCalm()
}

// pagesToLookAt are those of a service in memory, and one of real servers with all that push
// shows.
func pagesToLookAt(t *testing.T) []string {
	t.Helper()
	s, whole := startService(t), startRealService(t, smallWorld())
	const viewer = 2
	one, other := whole.contactsSeen(t, viewer)
	whole.pressed(t, "upload", "viewer=%d&owner=%d", viewer, one)
	whole.awaitFates(t, viewer, arrived)
	whole.pressed(t, "push", "viewer=%d&do=mute&contact=%d", viewer, other)
	whole.pressed(t, "upload", "viewer=%d&owner=%d", viewer, other)
	whole.awaitFates(t, viewer, isMuted)
	whole.pressed(t, "push", "viewer=%d&do=hold", viewer)
	whole.pressed(t, "upload", "viewer=%d&owner=%d", viewer, one)
	whole.awaitFates(t, viewer, isHeld)
	whole.pressed(t, "push", "viewer=%d&do=quiet", viewer)
	whole.pressed(t, "push", "viewer=%d&do=opt-out", viewer)
	return []string{s.url + "/", s.url + "/?viewer=5", whole.url + "/?viewer=2", s.url + "/demo/home"}
}

func TestBrowserFindsNoBarrier(t *testing.T) {
	pages := pagesToLookAt(t)
	b := browsertest.New(t)
	for _, path := range pages {
		b.Do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile), chromedp.Navigate(path))
		b.Await(`document.getElementById("main") !== null`)
		switch path {
		case pages[0]:
			b.Await(`document.querySelectorAll(".set tbody tr").length === 12`)
		case pages[2]:
			b.Await(`document.querySelectorAll(".inforce li").length === 4 && document.querySelectorAll(".push tbody tr").length === 3`)
		}
		if wide := browsertest.Eval[int](b, "document.documentElement.scrollWidth"); wide > 360 {
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
			if found := browsertest.Eval[[]string](b, expression); len(found) > 0 {
				t.Errorf("%s: %s: %q", path, what, found)
			}
		}
		for line := range strings.Lines(b.Axe()) {
			// What it cannot tell of texts that are scrolled away, TestBrowserFindsEnoughContrast tells.
			if !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "color-contrast: ") {
				t.Errorf("%s: axe finds %s", path, line)
			}
		}
		if browsertest.Eval[string](b, "document.documentElement.lang") != "en" || browsertest.Eval[int](b, `document.querySelectorAll("h1").length`) != 1 {
			t.Errorf("%s: no language or not one h1", path)
		}
	}
	b.RequireCalm()
}

// A phone shows the whole table, with the verdicts.
func TestBrowserShowsTheVerdictsOnANarrowScreen(t *testing.T) {
	s := startService(t)
	b := browsertest.New(t)
	b.Do(chromedp.EmulateViewport(375, 740, chromedp.EmulateMobile), chromedp.Navigate(s.url+"/?viewer=1"))
	b.Await(`document.querySelectorAll(".set tbody tr").length === 12`)
	b.Await(`document.getElementById("source").textContent.endsWith("index")`)
	// The longest names and verdicts that there are.
	browsertest.Eval[chromedp.Void](b, `document.querySelectorAll(".set tbody th").forEach(e => e.firstChild.nodeValue = "wandering_compass ");
		document.querySelectorAll(".set .verdict").forEach(e => e.textContent = "nothing visible")`)
	for what, expression := range map[string]string{
		"the page":  "document.documentElement.scrollWidth - 375",
		"the table": `(e => e.scrollWidth - e.clientWidth)(document.querySelector(".scroll"))`,
		"a verdict": `Math.max(...[...document.querySelectorAll(".verdict")].map(e => Math.ceil(e.getBoundingClientRect().right))) - 375`,
	} {
		if over := browsertest.Eval[int](b, expression); over > 0 {
			t.Errorf("%s is %d pixels too wide", what, over)
		}
	}
	if hidden := browsertest.Eval[int](b, `[...document.querySelectorAll(".verdict")].filter(e => e.getBoundingClientRect().width < 10).length`); hidden > 0 {
		t.Errorf("%d verdicts are not seen", hidden)
	}
}

// A phone shows what became of an upload in words, not in letters below each other.
func TestBrowserShowsTheFatesOnANarrowScreen(t *testing.T) {
	pages := pagesToLookAt(t)
	b := browsertest.New(t)
	b.Do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile), chromedp.Navigate(pages[2]))
	b.Await(`document.querySelectorAll(".push tbody tr").length === 3`)
	for what, expression := range map[string]string{
		"the page":    "document.documentElement.scrollWidth - 360",
		"the highest": `Math.max(...[...document.querySelectorAll(".push tbody tr")].map(e => Math.ceil(e.getBoundingClientRect().height))) - 250`,
		"the table":   `(e => e.scrollWidth - e.clientWidth)(document.querySelector(".push .scroll"))`,
	} {
		if over := browsertest.Eval[int](b, expression); over > 0 {
			t.Errorf("%s is %d pixels too large", what, over)
		}
	}
}

// Without a connection the page claims nothing about the present.
func TestBrowserTakesBackWhatItSaysWithoutAConnection(t *testing.T) {
	s := startService(t)
	b := browsertest.New(t)
	proxy := servertest.NewProxy(t, s.server.Listener.Addr().String())
	b.Open("http://" + proxy.Addr() + "/?viewer=1")
	b.Await(`document.querySelector("#agree.yes") !== null && document.getElementById("source").textContent.endsWith("index")`)
	proxy.Refuse(true)
	proxy.Cut()
	b.Await(`document.querySelector("#agree.yes") === null && document.getElementById("agree").textContent.startsWith("no connection")`)
	b.Await(`document.getElementById("source").textContent === "no connection"`)
	b.Await(`document.getElementById("toast").textContent.startsWith("No connection")`)

	proxy.Refuse(false)
	b.Await(`document.querySelector("#agree.yes") !== null && document.getElementById("source").textContent.endsWith("index")`)
}

func TestBrowserFindsEnoughContrast(t *testing.T) {
	pages := pagesToLookAt(t)
	b := browsertest.New(t)
	for _, scheme := range []string{"light", "dark"} {
		b.Emulate(emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		for _, path := range pages {
			b.Do(chromedp.EmulateViewport(1280, 1000), chromedp.Navigate(path))
			b.Await(`document.getElementById("main") !== null`)
			if found := browsertest.Eval[[]string](b, paleText); len(found) > 0 {
				t.Errorf("%s, %s: text below 4.5:1 (WCAG AA):\n%s", path, scheme, strings.Join(found, "\n"))
			}
		}
	}
}

func TestBrowserReceivesAndChangesItsMind(t *testing.T) {
	s := startRealService(t, smallWorld())
	s.unblockAll(t) // any contact's upload is to be seen
	b := browsertest.New(t)
	b.Open(s.url + "/?viewer=1")
	b.Await(`document.querySelectorAll(".screen").length === 2`)
	clickNow(b, "#do-hold")
	b.Await(`document.getElementById("do-hold").textContent === "Let the deliveries go"`)
	clickNow(b, "#do-upload")
	b.Await(`[...document.querySelectorAll(".push .fate")].map(e => e.textContent).join() === "waits: deliveries are held,waits: deliveries are held"`)
	clickNow(b, ".push td button")
	b.Await(`document.querySelector(".push td button") === null`)
	clickNow(b, "#do-hold")
	b.Await(`[...document.querySelectorAll(".push .fate.no")].filter(e => e.textContent === "not sent: may not see the photo").length === 2`)
	if n := browsertest.Eval[int](b, `document.querySelectorAll(".screen li").length`); n != 0 {
		t.Errorf("%d notifications about a photo that may not be seen", n)
	}

	// What is announced may be followed by what the next update of the page announces.
	browsertest.Eval[chromedp.Void](b, `window.said = []; new MutationObserver(() => said.push(document.getElementById("changes").textContent))
		.observe(document.getElementById("changes"), {childList: true})`)
	b.Do(chromedp.Focus(chromedp.ID("do-other")), chromedp.KeyEvent("\r"))
	b.Await(`document.querySelectorAll("#phone li").length === 1 && document.querySelectorAll("#browser li").length === 1`)
	b.Await(`document.querySelectorAll(".push .fate.yes").length === 2`)
	b.Await(`said.some(text => text.startsWith("Notification: "))`)
	if focus := browsertest.Eval[string](b, "document.activeElement.id"); focus != "do-other" {
		t.Errorf("after the update the focus is on %q", focus)
	}
	b.RequireCalm()
}

// clickNow clicks although the page may move what it clicks on at this moment.
func clickNow(b *browsertest.Tab, selector string) {
	b.Helper()
	browsertest.Eval[chromedp.Void](b, fmt.Sprintf(`document.querySelector(%q).click()`, selector))
}

func TestBrowserShowsRealServers(t *testing.T) {
	s := startRealService(t, smallWorld())
	run(t, s.demo.Run)
	b := browsertest.New(t)
	b.Open(s.url + "/?viewer=1")
	b.Await(`document.querySelectorAll(".feed li").length >= 10`)
	b.Await(`document.getElementById("source").textContent.endsWith("index")`)
	b.Await(`document.querySelectorAll(".set tbody tr").length === 12`)
	b.Await(`document.querySelector("#agree.yes") !== null && document.querySelectorAll(".photos img").length > 0`)
	b.RequireCalm()
}

// paleText lists texts whose contrast with the nearest background that is not
// transparent is below 4.5. Captions lie over pictures and are left out.
const paleText = `(() => {
  const parse = (c) => {
    const context = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    context.fillStyle = c;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (c) => {
    const [r, g, b] = c.slice(0, 3).map((v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c[3] === 255) return c;
    }
    return [255, 255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.nodeValue.trim() || e.closest("figcaption, .skip, .aside, option, script")) continue;
    const [a, b] = [luminance(parse(getComputedStyle(e).color)), luminance(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) found.push(ratio.toFixed(2) + " " + e.className + ": " + walker.currentNode.nodeValue.trim());
  }
  return found;
})()`
