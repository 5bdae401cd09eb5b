package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The test runs the tool on a module made for it, with the go test that is there.
func TestRun(t *testing.T) {
	t.Setenv("GOWORK", "off")
	for name, test := range map[string]struct {
		args  []string
		tests string // the body of a test file
		code  int
		last  string
		says  []string
		not   []string
	}{
		"all pass": {
			tests: `func TestA(t *testing.T) { t.Log("quiet"); t.Run("sub", func(t *testing.T) {}) }`,
			last:  "2 passed, 0 failed, 0 skipped",
			says:  []string{"ok  \texample.test/m"},
			not:   []string{"quiet", "=== RUN"},
		},
		"one fails": {
			tests: `func TestA(t *testing.T) { t.Log("quiet") }
				func TestB(t *testing.T) { t.Error("alas") }`,
			code: 1, last: "1 passed, 1 failed, 0 skipped",
			says: []string{"alas", "--- FAIL: TestB", "FAIL\texample.test/m"},
			not:  []string{"quiet"},
		},
		"one is skipped": {
			tests: `func TestA(t *testing.T) {}
				func TestB(t *testing.T) { t.Skip("no server") }`,
			code: 1, last: "1 passed, 0 failed, 1 skipped",
			says: []string{"example.test/m.TestB", "no server", "every test must run"},
		},
		"nothing runs": {
			tests: `func helper(t *testing.T) {}`,
			code:  1, last: "0 passed, 0 failed, 0 skipped",
			says: []string{"nothing was tested"},
		},
		"it does not compile": {
			tests: `func TestA(t *testing.T) { undefinedThing() }`,
			code:  1, last: "0 passed, 1 failed, 0 skipped",
			says: []string{"undefined: undefinedThing", "[build failed]"},
		},
		"it breaks outside the tests": {
			tests: `func TestA(t *testing.T) {}
				func TestMain(m *testing.M) { m.Run(); println("leak"); os.Exit(3) }`,
			code: 1, last: "1 passed, 1 failed, 0 skipped",
			says: []string{"leak", "FAIL\texample.test/m"},
		},
		"it panics": {
			tests: `func TestA(t *testing.T) {}
				func TestB(t *testing.T) { panic("oh no") }`,
			code: 1, last: "1 passed, 1 failed, 0 skipped",
			says: []string{"panic: oh no", "FAIL\texample.test/m"},
		},
		"go test refuses": {
			args:  []string{"-count=many"},
			tests: `func TestA(t *testing.T) {}`,
			code:  1, last: "0 passed, 0 failed, 0 skipped",
			says: []string{"many", "nothing was tested"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(module(t, test.tests))
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), test.args, &stdout, &stderr); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
			if last := lines[len(lines)-1]; last != test.last {
				t.Errorf("the last line is %q, want %q", last, test.last)
			}
			said := stdout.String() + stderr.String()
			missing := func(s string) bool { return !strings.Contains(said, s) }
			if slices.ContainsFunc(test.says, missing) || !all(test.not, missing) {
				t.Errorf("want %q and not %q in:\n%s", test.says, test.not, said)
			}
		})
	}
}

func all(list []string, holds func(string) bool) bool {
	for _, s := range list {
		if !holds(s) {
			return false
		}
	}
	return true
}

// module makes a module of a single test file and returns its folder.
func module(t *testing.T, tests string) string {
	t.Helper()
	dir := t.TempDir()
	imports := "import \"testing\"\n"
	if strings.Contains(tests, "os.") {
		imports += "import \"os\"\n"
	}
	for name, text := range map[string]string{
		"go.mod":    "module example.test/m\n\ngo 1.26\n",
		"m_test.go": "package m\n\n" + imports + tests + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
