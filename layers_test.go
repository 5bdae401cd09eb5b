package activityd_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/activityd/activityd/"

// layers says which package must not know which. A package is meant with all below it that
// have no rule of their own; with a slash at the end of its name, those below alone. .golangci.yml has the same rules for depguard, which marks them in
// an editor; change both.
var layers = []struct {
	pkg  string
	deny []string
}{
	{"internal/index", []string{"database/sql", "net/http", "github.com/labstack/echo", module + "internal/tasks", module + "internal/api"}},
	{"internal/redisnodes", []string{"database/sql", "net/http", "github.com/labstack/echo", module + "internal/member", module + "internal/index", module + "internal/tasks", module + "internal/api"}},
	{"internal/retry", []string{module}},
	{"internal/outage", []string{"database/sql", "net/http", "github.com/redis", "github.com/labstack/echo", module}},
	{"internal/health", []string{"database/sql", "net/http", "github.com/labstack/echo", module + "internal/audit", module + "internal/push", module + "internal/stream"}},
	{"internal/backlog", []string{"net/http", "github.com/redis", "github.com/labstack/echo", module + "queue", module + "internal/tasks"}},
	{"internal/filelock", []string{module}},
	{"internal/newest", []string{module}},
	{"internal/admit", []string{"database/sql", "net/http", "github.com/redis", "github.com/labstack/echo", module + "internal/contacts", module + "internal/index", module + "internal/recent", module + "internal/api"}},
	{"internal/settings", []string{module}},
	{"notify", []string{"database/sql", "net/http", "github.com/redis", "github.com/labstack/echo", module}},
	{"internal/redisreply", []string{"database/sql", "net/http", "github.com/labstack/echo", module}},
	{"internal/mysql", []string{"github.com/redis", "net/http", "github.com/labstack/echo", module + "internal/contacts", module + "internal/tasks"}},
	{"internal/contacts", []string{"github.com/redis", "net/http", "github.com/labstack/echo"}},
	{"internal/mapping", []string{"net/http", "github.com/redis", "github.com/labstack/echo", module + "internal/tasks", module + "internal/api"}},
	{"queue", []string{"net/http", "github.com/labstack/echo", "github.com/redis", module + "internal/tasks", module + "internal/index", module + "internal/contacts", module + "internal/member"}},
	{"internal/tasks", []string{"database/sql", "net/http", "github.com/labstack/echo"}},
	{"internal/push", []string{"net/http", "github.com/labstack/echo", "github.com/redis", module + "internal/index", module + "internal/tasks", module + "internal/api"}},
	{"internal/push/", senders},
	{"internal/push/h2pool", []string{"database/sql", "github.com/labstack/echo", "github.com/redis", module}},
	{"internal/stream", []string{"database/sql", "net/http", "github.com/labstack/echo", module + "internal/index", module + "internal/api"}},
	{"internal/strictjson", []string{"database/sql", "net/http", "github.com/labstack/echo", "github.com/redis", module + "queue", module + "internal/tasks", module + "internal/push", module + "internal/api"}},
	{"once", []string{"net/http", "github.com/labstack/echo", module + "internal/index", module + "queue", module + "internal/tasks", module + "internal/contacts", module + "internal/member", module + "internal/api"}},
	{"internal/recent", []string{"net/http", "github.com/labstack/echo", "database/sql", "github.com/redis"}},
	{"internal/api", []string{"database/sql", "github.com/redis"}},
	{"internal/auth", []string{"database/sql", "net/http", "github.com/redis", "github.com/labstack/echo", module + "internal/mysql", module + "internal/contacts", module + "internal/index", module + "internal/recent", module + "queue", module + "internal/tasks", module + "internal/push", module + "internal/httpserver", module + "internal/api"}},
	{"internal/httpserver", []string{"database/sql", "github.com/redis", "github.com/labstack/echo", module}},
	{"internal/audit", []string{"net/http", "github.com/labstack/echo", "database/sql", "github.com/redis", module + "internal/api"}},
	{"internal/shadow", []string{"net/http", "github.com/labstack/echo", "github.com/redis", module + "internal/api"}},
	{"internal/bulk", []string{"net/http", "github.com/labstack/echo", "database/sql", "github.com/redis", module + "internal/api", module + "internal/audit"}},
	{"internal/broadcast", []string{"net/http", "github.com/labstack/echo", "github.com/redis", module + "internal/index", module + "internal/tasks", module + "internal/api"}},
	{"internal/inspect", []string{"database/sql", "net/http", "github.com/labstack/echo", "github.com/redis", module + "internal/index", module + "internal/tasks", module + "internal/api"}},
	{"internal/console", []string{"database/sql", "github.com/labstack/echo", "github.com/redis", module + "internal/index", module + "internal/tasks", module + "internal/api"}},
	{"internal/wake", []string{"database/sql", "net/http", "github.com/labstack/echo", module}},
	{"internal/metrics", []string{"database/sql", "github.com/redis", "github.com/labstack/echo", module + "internal/api", module + "internal/tasks", module + "internal/index", module + "internal/contacts"}},
}

// senders is the rule of the senders of push.
var senders = []string{
	"database/sql", "github.com/labstack/echo", "github.com/redis",
	module + "internal/mysql", module + "queue", module + "internal/tasks", module + "internal/api",
}

// leaves import no other package, and every package may import them.
var leaves = []string{module + "internal/retry", module + "internal/newest", module + "internal/filelock", module + "notify", module + "internal/outage"}

// The driver's error numbers mean something in one place only. The other one starts
// servers.
const driver = "github.com/go-sql-driver/mysql"

var driverUsers = []string{"internal/mysql", "internal/localserver", "internal/testing"}

func TestLayers(t *testing.T) {
	t.Parallel()
	imports := importsOf(t, ".")
	for _, layer := range layers {
		if !slices.ContainsFunc(imports, func(i imported) bool { return within(i.pkg, layer.pkg) }) {
			t.Errorf("%s has no code: was it moved? Then move its rule, too", layer.pkg)
		}
	}
	for _, breach := range breaches(imports) {
		t.Error(breach)
	}
}

// public are the packages that other programs import, and what must not come with them.
var public = map[string][]string{
	module + "queue": {"github.com/spf13/", "github.com/labstack/", "github.com/redis/", module + "internal/push", module + "internal/index", module + "internal/redisnodes", module + "internal/tasks", module + "once"},
	module + "once":  {"github.com/spf13/", "github.com/labstack/", module + "internal/push", module + "internal/index", module + "internal/redisnodes", module + "internal/tasks", module + "queue"},
}

// A program that imports a public package gets none of the rest, through whatever imports.
func TestPublicPackagesBringLittle(t *testing.T) {
	t.Parallel()
	for pkg, deny := range public {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Fields(string(out))
		if !slices.Contains(all, module+"internal/mysql") {
			t.Errorf("%s imports %d packages, and not what it needs", pkg, len(all))
		}
		for _, path := range all {
			if slices.ContainsFunc(deny, func(denied string) bool { return strings.HasPrefix(path, denied) }) {
				t.Errorf("%s brings %s", pkg, path)
			}
		}
	}
}

func TestBreachesAreFound(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pkg, path string
		want      bool
	}{
		{"internal/api", "database/sql", true},
		{"internal/api/deep/down", "database/sql/driver", true},
		{"internal/apis", "database/sql", false},
		{"internal/api", "database/sqlite", false},
		{"internal/index", module + "internal/tasks", true},
		{"internal/index", module + "internal/redisnodes", false},
		{"internal/redisnodes", module + "internal/index", true},
		{"internal/redisnodes", module + "internal/member", true},
		{"internal/tasks", module + "internal/index", false},
		{"internal/wake", module + "internal/tasks", true},
		{"internal/auth", module + "internal/contacts", true},
		{"internal/auth", module + "internal/member", false},
		{"internal/auth", module + "internal/retry", false},
		{"internal/push", "net/http", true},
		{"internal/push", "database/sql", false},
		{"internal/push", module + "internal/tasks", true},
		{"internal/push", module + "internal/contacts", false},
		{"internal/push/apns", "net/http", false},
		{"internal/push/apns", "database/sql", true},
		{"internal/push/webpush", module + "internal/push", false},
		{"internal/push/webpush", module + "internal/push/h2pool", false},
		{"internal/push/fcm", module + "queue", true},
		{"internal/push/h2pool", module + "internal/push", true},
		{"internal/push/elsewhere", "net/http", false},
		{"internal/push/elsewhere", "database/sql", true},
		{"internal/tasks", module + "internal/push", false},
		{"internal/stream", "github.com/redis/go-redis/v9", false},
		{"internal/stream", "database/sql", true},
		{"internal/stream", module + "internal/tasks", false},
		{"once", module + "queue", true},
		{"once", module + "internal/index", true},
		{"once", module + "internal/mysql", false},
		{"once", "github.com/redis/go-redis/v9", false},
		{"internal/testing/oncetest", module + "once", false},
		{"once", "net/http", true},
		{"notify", module + "queue", true},
		{"notify", "database/sql", true},
		{"notify", "github.com/redis/go-redis/v9", true},
		{"internal/httpserver", module + "internal/api", true},
		{"internal/metrics", module + "internal/httpserver", false},
		{"internal/inspect", "net/http", true},
		{"internal/inspect", module + "queue", false},
		{"internal/console", module + "internal/api", true},
		{"internal/console", "net/http", false},
		{"internal/wake", "github.com/redis/go-redis/v9", false},
		{"cmd/activityd", driver, true},
		{"internal/mysql", driver, false},
		{"internal/contacts", driver, true},
		{"internal/testing/servertest", driver, false},
		{"internal/metrics", module + "internal/tasks", true},
	} {
		got := breaches([]imported{{test.pkg, "x.go", test.path}})
		if len(got) > 0 != test.want {
			t.Errorf("%s imports %s: %q, want a breach: %v", test.pkg, test.path, got, test.want)
		}
	}
}

// imported is an import by a file of a package.
type imported struct{ pkg, file, path string }

// breaches are the imports that break a rule, in words.
func breaches(imports []imported) []string {
	var found []string
	for _, i := range imports {
		rule := -1 // the one of the longest name
		for at, layer := range layers {
			if within(i.pkg, layer.pkg) && (rule < 0 || len(layer.pkg) > len(layers[rule].pkg)) {
				rule = at
			}
		}
		if rule >= 0 && withinAny(i.path, layers[rule].deny) && !withinAny(i.path, leaves) {
			found = append(found, fmt.Sprintf("%s: %s must not know %s", i.file, layers[rule].pkg, i.path))
		}
		if within(i.path, driver) && !withinAny(i.pkg, driverUsers) {
			found = append(found, fmt.Sprintf("%s: only %v may know the MySQL driver", i.file, driverUsers))
		}
	}
	return found
}

// within reports whether path is parent or below it.
func within(path, parent string) bool {
	return path == parent || strings.HasPrefix(path, strings.TrimSuffix(parent, "/")+"/")
}

func withinAny(path string, parents []string) bool {
	return slices.ContainsFunc(parents, func(p string) bool { return within(path, p) })
}

// importsOf reads the imports of all Go code below root but that of tests: they
// may look at a thing from all sides.
func importsOf(t *testing.T, root string) []imported {
	t.Helper()
	var all []imported
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			all = append(all, imported{filepath.ToSlash(filepath.Dir(path)), path, name})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	// A path, or the name of a file, in backticks; a test; a target.
	namedPath   = regexp.MustCompile("`((?:internal|cmd|docs|ops|bench|scripts|testdata|\\.ci)(?:/[\\w./-]*)?|[\\w.][\\w./-]*\\.(?:go|sql|md|yml|yaml|mod))`")
	namedTest   = regexp.MustCompile("`(Test[A-Z]\\w*)`")
	namedTarget = regexp.MustCompile("`make ([a-z-]+)")
)

// TestTheDocsNameWhatExists: files, tests and targets of make.
func TestTheDocsNameWhatExists(t *testing.T) {
	t.Parallel()
	files, code := filesOf(t)
	pages := slices.DeleteFunc(slices.Clone(files), func(f string) bool {
		return filepath.Ext(f) != ".md" || f == "CHANGELOG.md" // which names what is gone, too
	})
	if len(pages) < 10 {
		t.Fatalf("there are the pages %v", pages)
	}
	for _, page := range pages {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text := string(raw)
		for _, name := range namedPath.FindAllStringSubmatch(text, -1) {
			if !slices.ContainsFunc(files, func(f string) bool { return f == name[1] || strings.HasSuffix(f, "/"+name[1]) || within(f, name[1]) }) {
				t.Errorf("%s: there is no %s", page, name[1])
			}
		}
		for _, test := range namedTest.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(code, "func "+test[1]+"(") {
				t.Errorf("%s: there is no test %s", page, test[1])
			}
		}
		for _, target := range namedTarget.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(code, "\n"+target[1]+":") {
				t.Errorf("%s: make has no target %s", page, target[1])
			}
		}
	}
}

// filesOf returns the files of the module, and the text of its tests and its Makefile.
func filesOf(t *testing.T) (files []string, code string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if entry != nil && entry.Name() == ".git" {
				return fs.SkipDir
			}
			return err
		}
		files = append(files, filepath.ToSlash(path))
		if strings.HasSuffix(path, "_test.go") || path == "Makefile" {
			raw, err := os.ReadFile(path)
			code += string(raw)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files, code
}
