package main

import (
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
)

// build makes up no unknown value.
func TestBuild(t *testing.T) {
	t.Parallel()
	settings := func(changed string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-11-24T09:30:00Z"}, {Key: "vcs.modified", Value: changed},
		}}
	}
	for _, test := range []struct {
		source, stamped  string
		info             *debug.BuildInfo
		number, revision string
	}{
		{"1.2.3", "", nil, "1.2.3", ""},
		{"1.2.3", "", &debug.BuildInfo{}, "1.2.3", ""},
		{"1.2.3", "", settings("false"), "1.2.3", "0123456789abcdef"},
		{"1.2.3", "", settings("true"), "1.2.3+dirty", "0123456789abcdef+dirty"},
		{"1.3.0-dev", "", &debug.BuildInfo{}, "1.3.0-dev", ""},
		{"1.3.0-dev", "", settings("false"), "1.3.0-dev.20261124093000+0123456789ab", "0123456789abcdef"},
		{"1.3.0-dev", "", settings("true"), "1.3.0-dev.20261124093000+0123456789ab.dirty", "0123456789abcdef+dirty"},
		{"1.3.0-rc.1", "fedcba", &debug.BuildInfo{}, "1.3.0-rc.1", "fedcba"},
	} {
		if number, revision := build(test.source, test.stamped, test.info); number != test.number || revision != test.revision {
			t.Errorf("%s, %+v: %q, %q, want %q, %q", test.source, test.info, number, revision, test.number, test.revision)
		}
	}
}

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
