package main

import (
	"runtime/debug"
	"testing"
)

// What is not known is not made up.
func TestBuild(t *testing.T) {
	t.Parallel()
	settings := func(changed string) []debug.BuildSetting {
		return []debug.BuildSetting{{Key: "vcs.revision", Value: "abc123"}, {Key: "vcs.modified", Value: changed}}
	}
	for _, test := range []struct {
		info             *debug.BuildInfo
		ok               bool
		number, revision string
	}{
		{nil, false, "(devel)", ""},
		{&debug.BuildInfo{}, true, "(devel)", ""},
		{&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: settings("false")}, true, "v1.2.3", "abc123"},
		{&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: settings("true")}, true, "(devel)", "abc123+dirty"},
	} {
		if number, revision := build(test.info, test.ok); number != test.number || revision != test.revision {
			t.Errorf("%+v: %q, %q, want %q, %q", test.info, number, revision, test.number, test.revision)
		}
	}
}
