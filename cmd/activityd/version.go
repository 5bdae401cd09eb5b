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

// version describes the build. Without scripts/dist the commit is as the go command recorded it.
func version() string {
	recorded := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		recorded = info.Main.Version
	}
	return fmt.Sprintf("activityd %s commit %s %s %s/%s", release, cmp.Or(commit, recorded), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
