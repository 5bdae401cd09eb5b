package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/settings"
)

// The example has each setting, with its default: all of it uncommented is a file that serve takes, and changes
// nothing.
func TestTheExampleEnvironmentHasTheDefaults(t *testing.T) {
	t.Parallel()
	var file strings.Builder
	for line := range strings.Lines(succeed(t, "reference")) {
		if line != "\n" && !strings.HasPrefix(line, "#") {
			t.Errorf("%q is not commented out", line)
		}
		if setting, ok := strings.CutPrefix(line, "#"+settings.Prefix); ok {
			file.WriteString(settings.Prefix + setting)
		} else if len(line) > 110 {
			t.Errorf("%q is long", line)
		}
	}
	path := filepath.Join(t.TempDir(), "environment")
	must(t, os.WriteFile(path, []byte(file.String()), 0o600))
	all := allSettings()
	var warnings bytes.Buffer
	must(t, settings.Loader{Settings: all, Warnings: &warnings}.Load(all, path))
	if warnings.Len() > 0 {
		t.Error(warnings.String())
	}
	all.VisitAll(func(f *pflag.Flag) {
		if _, forTests := f.Annotations["for tests"]; forTests {
			return
		}
		parts := func(list string) []string { // of maps and of lists, in any order
			return slices.Sorted(strings.SplitSeq(strings.Trim(list, "[]"), ","))
		}
		if got := f.Value.String(); !f.Changed || !slices.Equal(parts(got), parts(f.DefValue)) {
			t.Errorf("%s: is in the example %v, as %q, and by default %q", f.Name, f.Changed, got, f.DefValue)
		}
	})
}
