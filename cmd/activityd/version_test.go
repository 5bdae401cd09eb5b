package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTheSourceHasTheVersionOfTheChangelog: a release has the newest entry, and while there are
// changes behind it the source says "-dev".
func TestTheSourceHasTheVersionOfTheChangelog(t *testing.T) {
	t.Parallel()
	changelog, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## \[?([^]\s]+)`).FindStringSubmatch(string(changelog))
	if newest == nil {
		t.Fatal("the changelog has no entry")
	}
	if newest[1] == "Unreleased" {
		if !strings.HasSuffix(release, "-dev") {
			t.Errorf("the changelog has changes that are not released, and the source is %s: want the next version with -dev", release)
		}
	} else if newest[1] != release {
		t.Errorf("the newest entry of the changelog is %s, and the source is %s", newest[1], release)
	}
}
