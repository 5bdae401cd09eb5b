//go:build dist

package packaging_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// Without VERSION a build has the version of the source. The version of a build between releases has its
// commit, too, and dpkg sorts it between the releases before and after it.
func TestBuildsHaveTheVersionOfTheSource(t *testing.T) {
	clone := filepath.Join(t.TempDir(), "clone")
	output(t, "git", "clone", "--quiet", "..", clone)
	source := filepath.Join(clone, "cmd", "activityd", "version.go")
	text, err := os.ReadFile(source)
	must(t, err)
	declared := regexp.MustCompile(`(?m)^var release, commit = "([^"]+)", ""$`).FindSubmatch(text)
	if declared == nil {
		t.Fatalf("%s declares no release", source)
	}
	set := func(release string) {
		must(t, os.WriteFile(source, []byte(strings.Replace(string(text), `"`+string(declared[1])+`"`, `"`+release+`"`, 1)), 0o600))
	}
	commit := func() string {
		output(t, "git", "-C", clone, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--allow-empty", "--all", "--message", "Set the version")
		return strings.TrimSpace(output(t, "git", "-C", clone, "rev-parse", "HEAD"))
	}
	for _, test := range []struct {
		release string
		changed bool
		want    string // COMMIT is the commit's first 12 digits
	}{
		{"1.2.0", false, `1\.2\.0`},
		{"1.3.0-dev", true, `1\.3\.0-dev\.20\d{12}\+COMMIT\.dirty`},
	} {
		set(test.release)
		revision := commit()
		if test.changed {
			must(t, os.WriteFile(filepath.Join(clone, "new.txt"), nil, 0o600))
		}
		folder := filepath.Join(t.TempDir(), "dist")
		dist(t, clone, folder, "", nil, "linux/"+runtime.GOARCH)
		must(t, os.RemoveAll(filepath.Join(clone, "new.txt")))

		root := filepath.Join(folder, "root")
		deb := one(t, folder, "*.deb")
		output(t, "dpkg-deb", "--extract", deb, root)
		program := strings.Fields(output(t, filepath.Join(root, "usr", "bin", "activityd"), "--version"))
		if want := "^" + strings.ReplaceAll(test.want, "COMMIT", revision[:12]) + "$"; !regexp.MustCompile(want).MatchString(program[1]) {
			t.Errorf("%s, changed %t: the program is %v, want %s", test.release, test.changed, program, want)
		}
		packaged := strings.TrimSpace(output(t, "dpkg-deb", "--field", deb, "Version"))
		if want := strings.ReplaceAll(program[1], "-", "~"); packaged != want {
			t.Errorf("%s: the package is %s, want %s", test.release, packaged, want)
		}
		if strings.HasSuffix(test.release, "-dev") {
			for _, order := range [][3]string{{"1.2.0", "lt", packaged}, {packaged, "lt", "1.3.0~rc.1"}, {packaged, "lt", "1.3.0"}} {
				if err := exec.CommandContext(t.Context(), "dpkg", "--compare-versions", order[0], order[1], order[2]).Run(); err != nil {
					t.Errorf("dpkg: not %v: %v", order, err)
				}
			}
		}
	}
}
