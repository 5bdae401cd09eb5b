package activityd_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

var (
	heading    = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *#*$`)
	inlineCode = regexp.MustCompile("`[^`\n]+`")
	link       = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	elsewhere  = regexp.MustCompile(`^[a-z]+:`) // https:, mailto:
	namedPage  = regexp.MustCompile(`\bdocs/[\w./-]+\.md(?:#[\w-]+)?`)
)

// prose is a page without its blocks of code.
func prose(text string) string {
	var kept []string
	inBlock := false
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inBlock = !inBlock
		} else if !inBlock {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// anchors returns the fragments under which GitHub shows the headings of a page.
func anchors(text string) map[string]bool {
	all := make(map[string]bool)
	for _, match := range heading.FindAllStringSubmatch(prose(text), -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || unicode.In(r, unicode.Letter, unicode.Mark, unicode.Nd, unicode.Pc):
				return unicode.ToLower(r)
			}
			return -1
		}, linkText.ReplaceAllString(match[1], "$1"))
		unique := anchor
		for n := 1; all[unique]; n++ {
			unique = fmt.Sprint(anchor, "-", n)
		}
		all[unique] = true
	}
	return all
}

// brokenLinks returns the broken links of pages by path: the target is no file, or the page of the
// target lacks the heading.
func brokenLinks(pages map[string]string, exists func(string) bool) (broken []string) {
	headings := headingsOf(pages)
	for page, text := range pages {
		text = inlineCode.ReplaceAllString(prose(text), "")
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			if elsewhere.MatchString(match[1]) {
				continue
			}
			if to := path.Join(path.Dir(page), match[1]); strings.HasPrefix(match[1], "#") {
				broken = append(broken, brokenTarget(page, page+match[1], headings, exists)...)
			} else {
				broken = append(broken, brokenTarget(page, to, headings, exists)...)
			}
		}
	}
	return broken
}

// headingsOf returns the anchors of each page, by its path.
func headingsOf(pages map[string]string) map[string]map[string]bool {
	headings := make(map[string]map[string]bool)
	for page, text := range pages {
		headings[page] = anchors(text)
	}
	return headings
}

// brokenTarget returns the error of a link from a page to a file or its heading.
func brokenTarget(from, to string, headings map[string]map[string]bool, exists func(string) bool) []string {
	file, anchor, hasAnchor := strings.Cut(to, "#")
	all, isPage := headings[file]
	switch {
	case !isPage && !exists(file):
		return []string{from + ": there is no " + file}
	case hasAnchor && !all[anchor]:
		return []string{from + ": " + file + " has no heading #" + anchor}
	}
	return nil
}

// TestLinks: each link of a page to a file or to a heading leads there, and so does
// each page of docs that code, SQL, scripts and settings name.
func TestLinks(t *testing.T) {
	t.Parallel()
	withDocs := []string{".go", ".sql", ".yml", ".yaml", ".json", ".js", ".html", ".conf", ".service"}
	files, _ := filesOf(t)
	pages, others := make(map[string]string), make(map[string]string)
	for _, file := range files {
		switch ext := filepath.Ext(file); {
		case ext == ".md":
			pages[file] = read(t, file)
		case slices.Contains(withDocs, ext), within(file, "scripts"), file == "Makefile":
			others[file] = read(t, file)
		}
	}
	exists := func(file string) bool {
		_, err := os.Stat(file)
		return err == nil
	}
	for _, broken := range brokenLinks(pages, exists) {
		t.Error(broken)
	}
	headings, named := headingsOf(pages), 0
	for file, text := range others {
		for _, page := range namedPage.FindAllString(text, -1) {
			named++
			for _, broken := range brokenTarget(file, page, headings, exists) {
				t.Error(broken)
			}
		}
	}
	if len(pages) < 10 || named < 10 {
		t.Errorf("%d pages, and %d named in other files: want more", len(pages), named)
	}
}

// TestPagesAreShort: a reader reads a page in a go; a longer page is to be divided, or cut.
func TestPagesAreShort(t *testing.T) {
	t.Parallel()
	const most = 30_000 // bytes
	files, _ := filesOf(t)
	for _, file := range files {
		if filepath.Ext(file) != ".md" {
			continue
		}
		if n := len(read(t, file)); n > most {
			t.Errorf("%s has %d bytes: want at most %d", file, n, most)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestBrokenLinksAreFound: TestLinks relies on brokenLinks.
func TestBrokenLinksAreFound(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"# A heading\n[a](#a-heading) [b](other.md#b) [c](https://example.com/#x) `[d](#d)`\n```\n[e](#e)\n```\n": nil,
		"# A `code` heading, [linked](x)\n[a](#a-code-heading-linked) [b](../there.go)":                           {"pages/page.md: there is no pages/x"},
		"# A\n## A\n[a](#a) [b](#a-1)":                       nil,
		"# A\n[a](#a-1)":                                     {"pages/page.md: pages/page.md has no heading #a-1"},
		"[a](other.md#c)":                                    {"pages/page.md: pages/other.md has no heading #c"},
		"[a](missing.md#b)":                                  {"pages/page.md: there is no pages/missing.md"},
		"```\n# Not a heading\n```\n[a](#not-a-heading)":     {"pages/page.md: pages/page.md has no heading #not-a-heading"},
		"# 10⁸ members, or „more“\n[a](#10-members-or-more)": nil,
	} {
		pages := map[string]string{"pages/page.md": text, "pages/other.md": "# B\n"}
		if diff := cmp.Diff(want, brokenLinks(pages, func(file string) bool { return file == "there.go" })); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// blocks returns the blocks of code of a page's section, to the next heading of its level.
func blocks(text, section string) (list []string) {
	level, _, _ := strings.Cut(section, " ")
	_, text, _ = strings.Cut(text, "\n"+section+"\n")
	text, _, _ = strings.Cut(text, "\n"+level+" ")
	for i, part := range strings.Split("\n"+text, "\n```") {
		if _, code, _ := strings.Cut(part, "\n"); i%2 == 1 {
			list = append(list, code+"\n")
		}
	}
	return list
}

// The README's five minutes, and the widget's, are the files of testdata/readme, in order.
// TestTheReadmeByTheLetter in cmd/activityd runs them.
func TestTheReadmeShowsItsStory(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/readme/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	var story []string
	for _, name := range files { // sorted
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		story = append(story, string(file))
	}
	shown := append(blocks(read(t, "README.md"), "## Five minutes"), blocks(read(t, "docs/page.md"), "### On your machine")...)
	if diff := cmp.Diff(story, shown); diff != "" {
		t.Errorf("README.md and docs/page.md differ from %v (-files +pages):\n%s", files, diff)
	}
}
