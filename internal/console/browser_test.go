package console_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/testing/browsertest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// clock is for the page's timers, which only the test fires, and counts what the page asks for.
const clock = `
	window.timers = new Map(); window.fetched = 0;
	{
		const set = window.setTimeout, clear = window.clearTimeout, ask = window.fetch;
		let last = 0;
		window.setTimeout = (run, delay = 0, ...rest) => {
			if (!new Error().stack.includes("/console/script.js")) return set(run, delay, ...rest);
			timers.set(++last, {run, delay});
			return -last;
		};
		window.clearTimeout = (id) => id < 0 ? void timers.delete(-id) : clear(id);
		window.fetch = (...args) => { fetched++; return ask(...args); };
		window.fire = () => { const all = [...timers]; timers.clear(); for (const [, t] of all) t.run(); };
		window.hide = (is) => {
			Object.defineProperty(document, "hidden", {configurable: true, get: () => is});
			document.dispatchEvent(new Event("visibilitychange"));
		};
	}`

// tab is a browser at a page, as narrow as a telephone.
type tab struct {
	*browsertest.Tab
	*rig
}

func newTab(t *testing.T, r *rig) tab {
	t.Helper()
	b := tab{browsertest.New(t), r}
	if _, err := chromedp.Call(b.Ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: clock}); err != nil {
		t.Fatal(err)
	}
	b.Do(chromedp.EmulateViewport(375, 700))
	return b
}

func (b tab) open(path string) {
	b.Tab.Helper()
	b.Do(chromedp.Navigate(b.url + path))
}

func (b tab) want(expression, want string) {
	b.Tab.Helper()
	if got := browsertest.Eval[string](b.Tab, "String("+expression+")"); got != want {
		b.Tab.Errorf("%s is %q, want %q", expression, got, want)
	}
}

// barriers are what axe-core finds, but for contrasts that it cannot judge: of single characters, whose colours others have as
// well, and, where the page is narrow, of cells that are out of sight.
func (b tab) barriers(narrow bool) string {
	b.Tab.Helper()
	var found []string
	for line := range strings.Lines(b.Axe()) {
		if last := len(found) - 1; strings.HasPrefix(line, " ") || strings.TrimSpace(line) == "" {
			found[last] += line
		} else {
			found = append(found, line)
		}
	}
	found = slices.DeleteFunc(found, func(one string) bool {
		return strings.HasPrefix(one, "color-contrast: ") &&
			(strings.Contains(one, "too short to determine") || narrow && strings.Contains(one, "partially obscured"))
	})
	return strings.Join(found, "")
}

// until waits until an expression is so, also on the next page.
func (b tab) until(expression, want string) {
	b.Tab.Helper()
	servertest.EventuallyWithin(b.Tab, browsertest.Patience, expression+" is "+want, func() bool {
		got, err := chromedp.Run(b.Ctx, chromedp.Evaluate[string]("String("+expression+")", chromedp.EvalAwaitPromise))
		return err == nil && got == want
	})
}

var everyPage = []string{
	"/console/", "/console/tasks", "/console/tasks?error=nothing", "/console/tasks/12", "/console/once", "/console/event", "/console/event?id=upload-901",
	"/console/explain", "/console/explain?member=7", "/console/act?do=discard&type=upload", "/console/tasks/999",
}

// At the width of a telephone, light and dark, nothing is a barrier and nothing is cut off.
func TestThePagesInABrowser(t *testing.T) {
	t.Parallel()
	one, secret := token(t, "ann", auth.Admin)
	for name, list := range map[string][]auth.Token{"this machine": nil, "signed in": {one}} {
		r := newRig(t, list...)
		r.fill()
		b := newTab(t, r)
		look := func(path string) {
			b.Tab.Helper()
			b.open(path)
			colours := map[string]bool{}
			for _, scheme := range []string{"light", "dark"} {
				b.Emulate(emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
				for _, width := range []int64{1600, 375} {
					b.Do(chromedp.EmulateViewport(width, 700))
					if found := b.barriers(width == 375); found != "" {
						t.Errorf("%s, %s, %s, %d px: axe-core finds\n%s", name, path, scheme, width, found)
					}
				}
				colours[browsertest.Eval[string](b.Tab, `getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color`)] = true
			}
			if len(colours) != 2 {
				t.Errorf("%s: the colours are %v", path, colours)
			}
			b.want(`document.documentElement.scrollWidth <= 375`, "true")
			b.want(`document.querySelectorAll("script, img, iframe, object").length`, "1")
			b.want(`document.querySelectorAll("h1").length + document.title.replace(/.* – /, "")`, "1activityd")
		}
		if list != nil {
			look("/console/once")
			b.want(`document.querySelector("h1").textContent`, "Sign in")
			b.Do(chromedp.SendKeys(chromedp.CSS("[name=token]"), secret))
			b.Click("main button")
			b.until(`document.querySelector("h1")?.textContent`, "Once")
		}
		for _, path := range everyPage {
			look(path)
		}
		b.open("/console/once")
		browsertest.Eval[bool](b.Tab, `document.querySelector("th").style.cssText = "color: #bbb; background: #fff"; document.querySelector(".scroll").removeAttribute("tabindex"); true`)
		if found := b.Axe(); !strings.Contains(found, "color-contrast: ") || !strings.Contains(found, "scrollable-region-focusable: ") {
			t.Errorf("axe-core does not find what is there:\n%s", found)
		}
	}
}

// All can be read and done without a script.
func TestThePagesWithoutAScript(t *testing.T) {
	t.Parallel()
	one, secret := token(t, "ann", auth.Admin)
	r := newRig(t, one)
	r.fill()
	b := newTab(t, r)
	if _, err := chromedp.Call(b.Ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	says := func(text string) {
		b.Tab.Helper()
		b.until(fmt.Sprintf("document.body?.innerText.includes(%q)", text), "true")
	}
	b.open("/console/")
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=token]"), secret))
	b.Click("main button")
	says("Failures")
	b.want(`document.getElementById("refresh").checkVisibility()`, "false")
	b.Click(`a[href*="do=retry"][href*="type=upload"]`)
	says("Retry 3 tasks?")
	b.Click("main button")
	says("3 tasks were retried.")
	if n := r.count("parked_tasks"); n != 2 {
		t.Errorf("%d tasks are parked", n)
	}
	b.Click(`nav a[href="/console/tasks"]`)
	says("Error contains")
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=error]"), "timeout"))
	b.Click("main form button")
	b.until(`document.querySelectorAll("tbody tr").length`, "1")
	says("<b>own</b>")
	b.Click(`header form button`)
	says("Sign in")
}

// The script puts in what is new, and takes nothing away from the one who reads.
func TestThePageIsRefreshed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fill()
	for i := range 30 {
		r.park("dead", "upload", "late "+strings.Repeat("x", i), 200+i, 1)
	}
	b := newTab(t, r)
	b.open("/console/tasks?state=dead")
	b.want(`[...timers.values()].map((t) => t.delay)`, "5000")
	b.want(`document.getElementById("refresh").hidden`, "false")

	// The focus, what is scrolled, and what is typed stay.
	browsertest.Eval[bool](b.Tab, `scrollTo(0, 300); document.querySelector(".scroll").scrollLeft = 120; document.querySelector('a[href="/console/tasks/210"]').focus({preventScroll: true}); window.y = scrollY; window.first = document.getElementById("tasks"); true`)
	r.exec("UPDATE parked_tasks SET attempts = 17 WHERE id = 210")
	browsertest.Eval[bool](b.Tab, `fire(); true`)
	b.Await(`document.querySelector("main").innerText.includes("17/25")`)
	b.want(`document.activeElement.getAttribute("href") + " " + document.querySelector(".scroll").scrollLeft + " " + (scrollY === y) + " " + first.isConnected`, "/console/tasks/210 120 true false")
	b.Await(`[...timers.values()].map((t) => t.delay).join() === "5000"`)

	// What did not change stays as it is.
	browsertest.Eval[bool](b.Tab, `window.first = document.getElementById("tasks"); window.before = fetched; fire(); true`)
	b.Await(`fetched > before && timers.size === 1`)
	b.want(`first.isConnected`, "true")
	browsertest.Eval[bool](b.Tab, `document.querySelector("[name=error]").value = "typed"; document.querySelector("[name=error]").focus(); true`)
	r.exec("UPDATE parked_tasks SET attempts = 18 WHERE id = 210")
	browsertest.Eval[bool](b.Tab, `fire(); true`)
	b.Await(`document.querySelector("main").innerText.includes("18/25")`)
	b.want(`document.activeElement.name + document.activeElement.value`, "errortyped")

	// It asks nothing while it is hidden, or told not to.
	b.Await(`timers.size === 1`)
	browsertest.Eval[bool](b.Tab, `hide(true); true`)
	b.want(`timers.size`, "0")
	browsertest.Eval[bool](b.Tab, `hide(false); true`)
	b.want(`[...timers.values()].map((t) => t.delay)`, "0")
	b.Click("#refresh input")
	b.want(`timers.size`, "0")
	b.Click("#refresh input")
	b.want(`timers.size`, "1")

	// It says when it cannot, and goes on.
	r.exec("RENAME TABLE parked_tasks TO away")
	browsertest.Eval[bool](b.Tab, `fire(); true`)
	b.Await(`document.querySelector("#refresh output").textContent.startsWith("not refreshed since ") && timers.size === 1`)
	b.want(`document.querySelector("main").innerText.includes("18/25")`, "true")
	r.exec("RENAME TABLE away TO parked_tasks")
	browsertest.Eval[bool](b.Tab, `fire(); true`)
	b.Await(`document.querySelector("#refresh output").textContent === "" && timers.size === 1`)

	// A change is not refreshed: nothing is sent twice.
	b.open("/console/act?do=retry&id=210")
	b.want(`timers.size + " " + document.getElementById("refresh").hidden`, "0 true")
}
