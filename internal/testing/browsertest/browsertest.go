// Package browsertest opens pages in a real browser, a headless Chromium, for tests.
package browsertest

import (
	"context"
	"iter"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// Patience bounds each wait for the page; generous, for slow machines.
const Patience = 30 * time.Second

// Tab is a tab of a browser.
type Tab struct {
	*testing.T
	Ctx     context.Context // chromedp's handle for the tab
	console iter.Seq2[chromedp.ConsoleMessage, error]
}

// New starts a headless Chromium of its own, which ends with the test.
func New(t *testing.T) *Tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(findChromium(t)),
		chromedp.UserDataDir(filepath.Join(t.TempDir(), "profile")),
		chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.WSURLReadTimeout(Patience),
	)
	allocator, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(stop)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("closing the browser: %v", err)
		}
	})
	// This starts the browser, whose life is that of ctx.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("starting Chromium: %v", err)
	}
	return &Tab{T: t, Ctx: ctx, console: chromedp.Console(ctx)}
}

func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("no Chromium on the PATH: pages are tested in a real browser; install it, on Debian: apt-get install chromium")
	return ""
}

// RequireCalm fails the test for everything that the console shows in red or
// yellow. It is to be called once, at the end.
func (b *Tab) RequireCalm() {
	b.Helper()
	const over = "the test is over"
	Eval[chromedp.Void](b, `console.log("`+over+`")`)
	for m, err := range b.console {
		if err != nil {
			b.Fatalf("reading the console: %v", err)
		}
		if m.Text == over {
			return
		}
		if m.IsException() || m.Type == "error" || m.Type == "warning" {
			b.Errorf("the console shows: %s", m)
		}
	}
}

// Ask runs an action and returns its value.
func Ask[V any](b *Tab, action chromedp.Action[V]) V {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Ctx, Patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		b.Fatal(err)
	}
	return value
}

// Do runs actions.
func (b *Tab) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	Ask(b, chromedp.Steps(actions...))
}

// Eval returns the value of an expression in the page, of a promise what it resolves to.
func Eval[V any](b *Tab, expression string) V {
	b.Helper()
	return Ask(b, chromedp.Evaluate[V](expression, chromedp.EvalAwaitPromise))
}

// Await waits until an expression in the page is true.
func (b *Tab) Await(expression string) {
	b.Helper()
	poll := chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(Patience))
	if _, err := chromedp.Run(b.Ctx, poll); err != nil {
		b.Fatalf("waiting for %s: %v; the page says:\n%s", expression, err, Eval[string](b, "document.body.innerText"))
	}
}

// Open shows the page and waits until its pictures are there.
func (b *Tab) Open(url string) {
	b.Helper()
	b.Do(chromedp.EmulateViewport(1280, 1000), chromedp.Navigate(url))
	b.Await("document.images.length > 0 && [...document.images].every(i => i.complete && i.naturalWidth > 0)")
}

// Click clicks on the element that the CSS selector finds.
func (b *Tab) Click(selector string) {
	b.Helper()
	b.Do(chromedp.Click(chromedp.CSS(selector)))
}

// Emulate sets media features.
func (b *Tab) Emulate(media emulation.SetEmulatedMediaParams) {
	b.Helper()
	if _, err := chromedp.Call(b.Ctx, emulation.SetEmulatedMedia, media); err != nil {
		b.Fatal(err)
	}
}

// Eval runs a statement in the page.
func (b *Tab) Eval(statement string) {
	b.Helper()
	Eval[chromedp.Void](b, statement+"\n;undefined")
}
