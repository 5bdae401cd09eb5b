package demo_test

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

// browserPatience bounds each wait for the page; generous, for slow machines.
const browserPatience = 30 * time.Second

// tab is a browser's tab that shows the demo's page.
type tab struct {
	*testing.T
	ctx     context.Context //nolint:containedctx // it is chromedp's handle for a tab
	console iter.Seq2[chromedp.ConsoleMessage, error]
}

// openTab starts a headless Chromium of its own, which ends with the test.
func openTab(t *testing.T) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(findChromium(t)),
		chromedp.UserDataDir(filepath.Join(t.TempDir(), "profile")),
		chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.WSURLReadTimeout(browserPatience),
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
	return &tab{T: t, ctx: ctx, console: chromedp.Console(ctx)}
}

func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("no Chromium on the PATH: the demo's page is tested in a real browser; install it, on Debian: apt-get install chromium")
	return ""
}

// requireCalm fails the test for everything that the console shows in red or
// yellow. It is to be called once, at the end.
func (b *tab) requireCalm() {
	b.Helper()
	const over = "the test is over"
	eval[chromedp.Void](b, `console.log("`+over+`")`)
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

// ask runs an action and returns its value.
func ask[V any](b *tab, action chromedp.Action[V]) V {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, browserPatience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		b.Fatal(err)
	}
	return value
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ask(b, chromedp.Steps(actions...))
}

// eval returns the value of an expression in the page.
func eval[V any](b *tab, expression string) V {
	b.Helper()
	return ask(b, chromedp.Evaluate[V](expression))
}

// await waits until an expression in the page is true.
func (b *tab) await(expression string) {
	b.Helper()
	poll := chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(browserPatience))
	if _, err := chromedp.Run(b.ctx, poll); err != nil {
		b.Fatalf("waiting for %s: %v; the page says:\n%s", expression, err, eval[string](b, "document.body.innerText"))
	}
}

// open shows the page and waits until its pictures are there.
func (b *tab) open(url string) {
	b.Helper()
	b.do(chromedp.EmulateViewport(1280, 1000), chromedp.Navigate(url))
	b.await("document.images.length > 0 && [...document.images].every(i => i.complete && i.naturalWidth > 0)")
}

func (b *tab) click(selector string) {
	b.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector)))
}

func (b *tab) emulate(media emulation.SetEmulatedMediaParams) {
	b.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media); err != nil {
		b.Fatal(err)
	}
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
