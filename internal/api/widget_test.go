package api_test

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// maxWidget is how many bytes the widget may have.
const maxWidget = 10 << 10

func TestTheWidgetIsServedToPagesOfEveryOrigin(t *testing.T) {
	t.Parallel()
	g := guard(t) // with tokens, and the widget needs none
	r := newRequest(t.Context(), http.MethodGet, "/widget.js", http.NoBody)
	r.Host = "api.example"
	r.Header.Set("Origin", "https://site.example")
	w := g.do(t, r)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "customElements.define") {
		t.Fatalf("status %d, %.100s", w.Code, w.Body)
	}
	if w.Body.Len() > maxWidget {
		t.Errorf("the widget has %d bytes, want at most %d", w.Body.Len(), maxWidget)
	}
	for name, want := range map[string]string{
		"Content-Type":                 "text/javascript; charset=utf-8",
		"Cache-Control":                "public, max-age=600",
		"Access-Control-Allow-Origin":  "*",
		"Cross-Origin-Resource-Policy": "cross-origin",
		"X-Content-Type-Options":       "nosniff",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for name, test := range map[string]struct {
		tag  string
		want int
	}{
		"the same":    {w.Header().Get("ETag"), http.StatusNotModified},
		"one of many": {`"x", W/` + w.Header().Get("ETag"), http.StatusNotModified},
		"another":     {`"x"`, http.StatusOK},
	} {
		r := newRequest(t.Context(), http.MethodGet, "/widget.js", http.NoBody)
		r.Header.Set("If-None-Match", test.tag)
		again := g.do(t, r)
		if again.Code != test.want || (test.want == http.StatusNotModified) != (again.Body.Len() == 0) {
			t.Errorf("%s: status %d with %d bytes, want %d", name, again.Code, again.Body.Len(), test.want)
		}
	}
}

// The page for sites names all names of the widget, and nothing else.
func TestTheWidgetsPageNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	code, page := readText(t, "widget.js"), readText(t, "../../docs/page.md")
	names := func(text, pattern string) (all []string) {
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, match[1])
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	section := func(from, to string) string {
		_, rest, _ := strings.Cut(page, "\n"+from+"\n")
		text, _, _ := strings.Cut(rest, "\n"+to+"\n")
		return text
	}
	const row = "(?m)^\\| `([^`]+)` \\|"
	for what, is := range map[string]struct{ code, page []string }{
		"attributes": {
			append(strings.Fields(names(code, `observedAttributes = "([^"]+)"`)[0]), "hidden"),
			names(section("### Attributes", "### The token"), row),
		},
		"parts":      {names(code, `part: "(\w+)"`), names(section("#### Parts", "#### Custom properties"), row)},
		"properties": {names(code, `(--rcp-[a-z-]+)`), names(section("#### Custom properties", "#### Texts"), row)},
		"slots":      {names(code, `(?m)^\t\t(\w+): "[A-Z]`), names(page, `<span slot="(\w+)"`)},
		"events":     {names(code, `#tell\("(\w+)"`), names(section("### States and events", "### When activityd is away"), "(?m)^\\| `recent-contact-photos-(\\w+)` \\|")},
	} {
		slices.Sort(is.code)
		if diff := cmp.Diff(is.code, is.page); diff != "" || len(is.code) == 0 {
			t.Errorf("%s: widget.js (-), docs/page.md (+):\n%s", what, diff)
		}
	}
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
