package browser

import (
	"fmt"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/activityd/activityd/internal/testing/browsertest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// looksRight fails the test for barriers, and for a page that is wider than its window: light and
// dark, on a desk and on a telephone. It leaves the tab light, and as narrow as a telephone.
func looksRight(b *browsertest.Tab) {
	b.Helper()
	where, colours := browsertest.Eval[string](b, `location.pathname`), map[string]bool{}
	for _, scheme := range []string{"dark", "light"} {
		b.Emulate(emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
		for _, width := range []int64{1280, 375} {
			b.Do(chromedp.EmulateViewport(width, 1000))
			if found := barriers(b, width == 375); found != "" {
				b.Errorf("%s, %s, %d px: axe-core finds\n%s", where, scheme, width, found)
			}
			if wide := browsertest.Eval[int64](b, `document.documentElement.scrollWidth`); wide > width {
				b.Errorf("%s, %s: the page is %d px wide in a window of %d px", where, scheme, wide, width)
			}
		}
		colours[browsertest.Eval[string](b, `getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color`)] = true
	}
	if len(colours) != 2 {
		b.Errorf("%s: the colours are %v, light and dark", where, colours)
	}
}

// barriers returns the violations that axe-core finds. It leaves out contrasts that axe-core cannot judge: of
// text over a picture, of single characters, and, where the page is narrow, of cells that are out of sight.
func barriers(b *browsertest.Tab, narrow bool) string {
	b.Helper()
	var found []string
	for line := range strings.Lines(b.Axe()) {
		if last := len(found) - 1; strings.HasPrefix(line, " ") || strings.TrimSpace(line) == "" {
			found[last] += line
		} else {
			found = append(found, line)
		}
	}
	found = slices.DeleteFunc(found, func(text string) bool {
		return strings.HasPrefix(text, "color-contrast: ") && (strings.Contains(text, "too short to determine") ||
			strings.Contains(text, "due to a background gradient") || narrow && strings.Contains(text, "partially obscured"))
	})
	return strings.Join(found, "")
}

// until waits until an expression is so, also on the next page.
func until(b *browsertest.Tab, expression, want string) {
	b.Helper()
	servertest.EventuallyWithin(b, browsertest.Patience, fmt.Sprintf("%s is %s", expression, want), func() bool {
		got, err := chromedp.Run(b.Ctx, chromedp.Evaluate[string]("String("+expression+")", chromedp.EvalAwaitPromise))
		return err == nil && got == want
	})
}
