package console_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/testing/browsertest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// tab is a browser at a page, as narrow as a telephone.
type tab struct {
	*browsertest.Tab
	*rig
}

func newTab(t *testing.T, r *rig) tab {
	t.Helper()
	b := tab{browsertest.New(t), r}
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
			b.want(`document.querySelectorAll("script, img, iframe, object").length`, "0")
			b.want(`[...document.querySelectorAll("main *")].filter((e) => e.checkVisibility() && !e.closest("thead") && (e.getBoundingClientRect().right > 375 || e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline")).map((e) => e.outerHTML).join()`, "")
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
		browsertest.Eval[bool](b.Tab, `document.querySelector("h1").style.cssText = "color: #bbb; background: #fff"; true`)
		if found := b.Axe(); !strings.Contains(found, "color-contrast: ") {
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
	// A page that has just come may lose what was found of it.
	click := func(selector string) {
		b.Tab.Helper()
		servertest.EventuallyWithin(b.Tab, browsertest.Patience, "a click on "+selector, func() bool {
			_, err := chromedp.Run(b.Ctx, chromedp.Click(chromedp.CSS(selector)))
			return err == nil
		})
	}
	b.open("/console/")
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=token]"), secret))
	click("main button")
	says("Failures")
	click(`button[value=resume]`)
	b.until(`document.querySelectorAll("button[value=resume]").length`, "0")
	click(`a[href*="do=retry"][href*="type=upload"]`)
	says("Retry 3 tasks?")
	click("main button")
	says("3 tasks were retried.")
	if n := r.count("parked_tasks"); n != 2 {
		t.Errorf("%d tasks are parked", n)
	}
	click(`nav a[href="/console/tasks"]`)
	says("Error contains")
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=error]"), "timeout"))
	click("main form button")
	b.until(`document.querySelectorAll("tbody tr").length`, "1")
	says("<b>own</b>")
	click(`header form button`)
	says("Sign in")
}
