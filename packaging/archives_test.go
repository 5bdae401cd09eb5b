//go:build dist

package packaging_test

import (
	"bytes"
	"debug/elf"
	"debug/macho"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A build is the same, byte by byte, in another folder, with an empty cache, other settings of the go
// command, another umask, locale and time zone, and behind another HOME. The second build is for a single
// platform, as it compiles everything. With ACTIVITYD_TEST_DIST_PLATFORMS=all both are for all platforms.
func TestTwoBuildsGiveTheSameBytes(t *testing.T) {
	platforms, again := []string{"darwin/arm64", "linux/amd64"}, []string{"linux/amd64"}
	if os.Getenv("ACTIVITYD_TEST_DIST_PLATFORMS") == "all" {
		platforms = []string{"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64"}
		again = platforms
	}
	here := filepath.Join(t.TempDir(), "here")
	dist(t, "..", here, newVersion, nil, platforms...)
	elsewhere := filepath.Join(t.TempDir(), "another folder")
	must(t, os.Mkdir(elsewhere, 0o700))
	// With .git, whose commit is part of the program.
	copied := exec.CommandContext(t.Context(), "sh", "-c", `umask 077 && tar -C .. --exclude=./bin --exclude=./dist -cf - . | tar -C "$1" --no-same-permissions -xf -`, "sh", elsewhere)
	if out, err := copied.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	modules := strings.TrimSpace(output(t, "go", "env", "GOMODCACHE"))
	home := t.TempDir()
	wrapper := filepath.Join(home, "go with umask")
	goPath, err := exec.LookPath("go")
	must(t, err)
	must(t, os.WriteFile(wrapper, []byte("#!/bin/sh\numask 077\nexec "+goPath+" \"$@\"\n"), 0o700))
	there := filepath.Join(home, "there")
	// As "go env -w" writes it. Without the module cache nothing is built.
	settings := filepath.Join(home, "goenv")
	must(t, os.WriteFile(settings, []byte("GOMODCACHE="+modules+"\nGOPROXY=off\nGOEXPERIMENT=jsonv2\nGOOS=darwin\n"), 0o600))
	dist(t, elsewhere, there, newVersion, []string{
		"GO=" + wrapper, "HOME=" + home, "GOCACHE=" + filepath.Join(home, "cache"), "GOENV=" + settings,
		"GOFLAGS=-ldflags=-v", "GOAMD64=v3", "GOFIPS140=latest", "CGO_ENABLED=1", "LC_ALL=tr_TR.UTF-8", "TZ=Asia/Tokyo", "GZIP=-1", "TAR_OPTIONS=--owner=7",
	}, again...)
	built := files(t, there)
	if len(built) < 3 {
		t.Fatalf("the second build made %v", built)
	}
	for _, name := range built {
		if name == "SHA256SUMS" && len(again) < len(platforms) {
			continue // of fewer files
		}
		first, err := os.ReadFile(filepath.Join(here, name))
		must(t, err)
		second, err := os.ReadFile(filepath.Join(there, name))
		must(t, err)
		if !bytes.Equal(first, second) {
			t.Errorf("%s differs: %d and %d bytes", name, len(first), len(second))
		}
	}
	checkArchives(t, here, platforms)
}

// files returns the names of the files of a folder.
func files(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// checkArchives checks that there is all for each platform, that the checksums are right, and
// that the programs are static and for their platform.
func checkArchives(t *testing.T, folder string, platforms []string) {
	t.Helper()
	want := []string{"SHA256SUMS"}
	for _, platform := range platforms {
		want = append(want, "activityd-"+newVersion+"-"+strings.ReplaceAll(platform, "/", "-")+".tar.gz")
		if arch, is := strings.CutPrefix(platform, "linux/"); is {
			want = append(want, "activityd_1.1.0~rc.1_"+arch+".deb")
		}
	}
	slices.Sort(want)
	if got := files(t, folder); !slices.Equal(got, want) {
		t.Fatalf("there is %v, want %v", got, want)
	}
	output(t, "sh", "-c", `cd "$1" && sha256sum --strict --check SHA256SUMS`, "sh", folder)
	for _, name := range want[1:] {
		if strings.HasSuffix(name, ".deb") {
			unpacked := t.TempDir()
			output(t, "dpkg-deb", "--extract", filepath.Join(folder, name), unpacked)
			checkDocuments(t, name, filepath.Join(unpacked, "usr", "share", "doc", "activityd"))
			continue
		}
		unpacked := t.TempDir()
		output(t, "tar", "-xzf", filepath.Join(folder, name), "-C", unpacked, "--strip-components=1")
		got := files(t, unpacked)
		for _, file := range []string{"CHANGELOG.md", "CONTRIBUTING.md", "README.md", "THIRD-PARTY-LICENSES", "activityd", "completions", "docs", "environment.example", "examples", "ops"} {
			if !slices.Contains(got, file) {
				t.Errorf("%s: there is no %s", name, file)
			}
		}
		if unit := slices.Contains(got, "activityd.service"); unit != strings.Contains(name, "linux") {
			t.Errorf("%s: a unit: %v", name, unit)
		}
		checkDocuments(t, name, unpacked)
		checkProgram(t, name, filepath.Join(unpacked, "activityd"))
	}
}

var (
	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
	link = regexp.MustCompile(`\]\(([^)\s#]+)[^)]*\)`)
)

// checkDocuments checks that the links of the documents in a folder lead to existing files. It refuses
// symbolic links, which may lead out of the folder.
func checkDocuments(t *testing.T, archive, folder string) {
	t.Helper()
	links := 0
	must(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Type() == fs.ModeSymlink {
			t.Errorf("%s: %s is a symbolic link", archive, path)
		}
		if filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		must(t, err)
		for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(match[1], ":") {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), match[1])); err != nil {
				t.Errorf("%s: %s leads nowhere: %v", archive, filepath.Base(path), err)
			}
		}
		return nil
	}))
	if links < 100 {
		t.Errorf("%s: the documents have %d links, want more", archive, links)
	}
}

func checkProgram(t *testing.T, archive, path string) {
	t.Helper()
	if strings.Contains(archive, "darwin") {
		program, err := macho.Open(path)
		must(t, err)
		defer program.Close()
		if want := map[bool]macho.Cpu{true: macho.CpuArm64, false: macho.CpuAmd64}[strings.Contains(archive, "arm64")]; program.Cpu != want {
			t.Errorf("%s: is for %v, want %v", archive, program.Cpu, want)
		}
		return
	}
	program, err := elf.Open(path)
	must(t, err)
	defer program.Close()
	if want := map[bool]elf.Machine{true: elf.EM_AARCH64, false: elf.EM_X86_64}[strings.Contains(archive, "arm64")]; program.Machine != want {
		t.Errorf("%s: is for %v, want %v", archive, program.Machine, want)
	}
	if slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Errorf("%s: the program is not static", archive)
	}
	if strings.Contains(archive, "linux-"+runtime.GOARCH) {
		commit := strings.TrimSpace(output(t, "git", "rev-parse", "HEAD"))
		if got := output(t, path, "--version"); !strings.HasPrefix(got, "activityd "+newVersion+" commit "+commit) || !strings.Contains(got, runtime.Version()) {
			t.Errorf("it is %q", got)
		}
	}
}
