package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/settings"
)

// reference writes the pages and returns their folder.
func reference(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	succeed(t, "reference", folder)
	return folder
}

// Every command has a page with each of its options and of its words.
func TestEachCommandHasAManPage(t *testing.T) {
	t.Parallel()
	folder := reference(t)
	root := newRoot(nil, io.Discard, io.Discard)
	root.InitDefaultCompletionCmd("help")
	pages := 0
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		pages++
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		raw, err := os.ReadFile(filepath.Join(folder, "man", name+".1"))
		must(t, err)
		page := strings.NewReplacer(`\-`, "-", `\(aq`, "'", `\(ga`, "`", `\(ha`, "^", `\(ti`, "~", `\e`, `\`, `\fB`, "", `\fI`, "", `\fP`, "", `\&`, "", `\:`, "").Replace(string(raw))
		want := append(strings.Fields(cmd.Long), strings.Fields(cmd.Example)...)
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if _, usage := pflag.UnquoteUsage(f); !f.Hidden && f.Name != "help" && f.Name != "version" {
				want = append(want, "\n--"+f.Name, "\n"+usage)
			}
		})
		for _, word := range want {
			if !strings.Contains(page, word) && !strings.Contains(page, strings.Replace(word, "\n--", ", --", 1)) {
				t.Errorf("%s: the page has no %q", name, word)
			}
		}
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				check(sub)
			}
		}
	}
	check(root)
	written, err := filepath.Glob(filepath.Join(folder, "man", "*"))
	must(t, err)
	if len(written) != pages || pages < 25 {
		t.Errorf("there are %d pages, and %d commands", len(written), pages)
	}
}

// No line of text is taken for a request of roff.
func TestRoffKeepsText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		".conf":              `\&.conf`,
		"'quoted' text":      `\(aqquoted\(aq text`,
		`back\slash --flag`:  `back\eslash \-\-flag`,
		"two\nlines":         "two lines",
		"~/a^b`c`":           `\(ti/a\(hab\(gac\(ga`,
		"plain words, (all)": "plain words, (all)",
	} {
		if got := roff(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

// The example has each setting, with its default: all of it uncommented is a file that serve takes, and changes
// nothing.
func TestTheExampleEnvironmentHasTheDefaults(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join(reference(t), "environment.example"))
	must(t, err)
	var file strings.Builder
	for line := range strings.Lines(string(raw)) {
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
