package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// release is the version of this source: the newest version in CHANGELOG.md. While the changelog has unreleased
// changes, it is the next version with "-dev". scripts/dist reads it here, and sets both by -ldflags -X.
var release, commit = "0.1.0", ""

// version describes the build, as far as it is known.
func version() string {
	info, _ := debug.ReadBuildInfo()
	return fmt.Sprintf("activityd %s commit %s %s %s/%s", release, cmp.Or(commit, recorded(info), "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// recorded is the commit that the go command recorded, with "+dirty" if files were changed; "": none.
func recorded(info *debug.BuildInfo) (commit string) {
	if info == nil {
		return ""
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value + commit
		case s.Key == "vcs.modified" && s.Value == "true":
			commit += "+dirty"
		}
	}
	return commit
}
