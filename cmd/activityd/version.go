package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// release is the version of this source: the newest version in CHANGELOG.md. While the changelog has unreleased
// changes, it is the next version with "-dev". scripts/dist reads it here, and sets both by -ldflags -X.
var release, commit = "0.1.0", ""

// version describes the build, as far as it is known.
func version() string {
	number, revision := built()
	return fmt.Sprintf("activityd %s commit %s %s %s/%s", number, cmp.Or(revision, "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// versionNumber is the first part of [version] alone.
func versionNumber() string {
	number, _ := built()
	return number
}

func built() (number, revision string) {
	info, _ := debug.ReadBuildInfo()
	return build(release, commit, info)
}

// build returns the version and the commit of a program whose source has this release, and whose script may have set a
// commit. The commit is empty if the go command recorded none, and ends in "+dirty" if files were changed; then so does
// the version. A version with "-dev" has the commit and its time, as in 0.2.0-dev.20261124093000+0123456789ab: later
// versions sort behind earlier versions, and before the release.
func build(release, commit string, info *debug.BuildInfo) (number, revision string) {
	if commit != "" || info == nil {
		return release, commit
	}
	recorded := make(map[string]string)
	for _, s := range info.Settings {
		recorded[s.Key] = s.Value
	}
	number, revision = release, recorded["vcs.revision"]
	var details []string
	if revision != "" && strings.HasSuffix(release, "-dev") {
		number += "." + strings.NewReplacer("-", "", "T", "", ":", "", "Z", "").Replace(recorded["vcs.time"])
		details = append(details, revision[:min(len(revision), 12)])
	}
	if recorded["vcs.modified"] == "true" {
		details = append(details, "dirty")
		revision += "+dirty"
	}
	if len(details) > 0 {
		number += "+" + strings.Join(details, ".")
	}
	return number, revision
}
