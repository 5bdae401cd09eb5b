package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release and commit are of a release: scripts/dist sets them by -ldflags -X. Other builds
// leave them empty.
var release, commit string

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version())
			return err
		},
	}
}

// version describes the build, as far as it is known.
func version() string {
	number, revision := build(debug.ReadBuildInfo())
	return fmt.Sprintf("activityd %s commit %s %s %s/%s", number, cmp.Or(revision, "unknown"), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// versionNumber is the first part of [version] alone.
func versionNumber() string {
	number, _ := build(debug.ReadBuildInfo())
	return number
}

// build returns the version and the commit of a release, or what the go command recorded:
// "(devel)" if it recorded none. The commit may be empty, and ends in "+dirty" if files
// were changed.
func build(info *debug.BuildInfo, ok bool) (number, revision string) {
	if release != "" {
		return release, commit
	}
	if !ok {
		return "(devel)", ""
	}
	changed := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+dirty"
		}
	}
	if revision != "" {
		revision += changed
	}
	return cmp.Or(info.Main.Version, "(devel)"), revision
}
