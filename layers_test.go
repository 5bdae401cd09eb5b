package activityd_test

import (
	"cmp"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/activityd/activityd"

// rooms maps a package to its allowed imports: packages of this module (without "internal/"), and
// the special packages of other modules. A line holds for the packages below it, too, unless they
// have their own. Every package may import the leaves, and any foreign package that is not special.
// A "*" allows all but the driver.
var rooms = map[string]string{
	".":             "",
	"bench":         "*",
	"cmd":           "*",
	"examples":      "queue sql",
	"queue":         "sql mysql",
	"once":          "sql redis mysql schema redisreply",
	"internal/demo": "*",

	"internal/admit":      "",
	"internal/api":        "http echo admit auth contacts httpserver member mysql push queue recent strictjson tasks",
	"internal/auth":       "member strictjson",
	"internal/check":      "sql contacts index member mysql queue recent tasks",
	"internal/console":    "http auth contacts httpserver inspect member push queue recent",
	"internal/contacts":   "sql member mysql",
	"internal/health":     "redis api mysql redisnodes",
	"internal/httpserver": "http",
	"internal/index":      "redis member redisnodes redisreply",
	"internal/inspect":    "member once push queue",
	"internal/mapping":    "sql mysql schema",
	"internal/member":     "",
	"internal/metrics":    "http httpserver",
	"internal/mysql":      "sql driver",
	"internal/oncerun":    "once",
	"internal/push":       "sql contacts member mysql queue strictjson",
	"internal/recent":     "admit contacts index member mysql",
	"internal/redisnodes": "redis redisreply",
	"internal/redisreply": "redis",
	"internal/schema":     "sql mysql .",
	"internal/settings":   "flags",
	"internal/stream":     "redis member mysql push queue redisreply strictjson tasks",
	"internal/strictjson": "member",
	"internal/tasks":      "contacts index member mysql push queue redisnodes strictjson",
	"internal/wake":       "redis",

	"internal/push/apns":      "http member push push/conn strictjson",
	"internal/push/fcm":       "http member push push/conn strictjson",
	"internal/push/webpush":   "http member push push/conn strictjson",
	"internal/push/conn":      "http push",
	"internal/push/platforms": "push push/apns push/fcm push/webpush",

	"internal/testing": "* driver",
	"internal/tools":   "",

	// The leaves.
	"notify":              "",
	"internal/clientcert": "",
	"internal/outage":     "",
	"internal/promreg":    "",
	"internal/retry":      "",
}

// leaves may be imported by each package.
var leaves = []string{"notify", "clientcert", "outage", "promreg", "retry"}

// special maps names in rooms to foreign packages that a line has to allow. A name includes all
// packages below its package.
var special = map[string]string{
	"sql":    "database/sql",
	"http":   "net/http",
	"redis":  "github.com/redis",
	"echo":   "github.com/labstack",
	"driver": "github.com/go-sql-driver/mysql", // its error numbers mean something in internal/mysql alone
	"flags":  "github.com/spf13",
}

func TestLayers(t *testing.T) {
	t.Parallel()
	imports := importsOf(t, ".")
	for room := range rooms {
		if !slices.ContainsFunc(imports, func(i imported) bool { return within(i.pkg, room) }) {
			t.Errorf("%s has no code: was it moved? Then move its line, too", room)
		}
	}
	for _, breach := range breaches(imports) {
		t.Error(breach)
	}
}

// A program that imports a public package gets what the package's own line names and no more, through
// whatever imports: the driver and the embedded tables come with internal/mysql and internal/schema, HTTP with
// Prometheus.
func TestPublicPackagesBringLittle(t *testing.T) {
	t.Parallel()
	for _, pkg := range []string{"queue", "once"} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+"/"+pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Fields(string(out))
		if !slices.Contains(all, module+"/internal/mysql") {
			t.Errorf("%s imports %d packages, and not what it needs", pkg, len(all))
		}
		for _, dependency := range all {
			if name := nameOf(dependency); name != "" && !allows(rooms[pkg]+" driver . http "+pkg, name) {
				t.Errorf("%s brings %s", pkg, dependency)
			}
		}
	}
}

// The server has no fake of another server in it, and no browser.
func TestTheServerHasNoFakes(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module+"/cmd/activityd").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Fields(string(out))
	if !slices.Contains(all, module+"/internal/recent") {
		t.Errorf("the server imports %d packages, and not what it needs", len(all))
	}
	for _, pkg := range all {
		for _, fake := range []string{module + "/internal/testing", module + "/internal/demo", "github.com/alicebob", "github.com/yuin", "github.com/chromedp"} {
			if strings.HasPrefix(pkg, fake) {
				t.Errorf("the server's binary has %s in it", pkg)
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
		{"internal/api", "database/sqlite", false},
		{"internal/api", "net/http/pprof", false},
		{"internal/api", "github.com/labstack/echo/v4", false},
		{"internal/recent", "net/http", true},
		{"internal/index", module + "/internal/tasks", true},
		{"internal/index", module + "/internal/redisnodes", false},
		{"internal/redisnodes", module + "/internal/index", true},
		{"internal/auth", module + "/internal/retry", false},
		{"internal/push", module + "/internal/push/conn", true},
		{"internal/push/fcm", module + "/internal/push/conn", false},
		{"internal/push/fcm", module + "/queue", true},
		{"internal/push/elsewhere", module + "/queue", false},
		{"internal/unheardof", module + "/internal/member", true},
		{"internal/unheardof", "strings", true},
		{"once", module + "/queue", true},
		{"once", "github.com/redis/go-redis/v9", false},
		{"notify", module + "/internal/retry", false},
		{"notify", module + "/internal/member", true},
		{"cmd/activityd", "github.com/spf13/cobra", false},
		{"cmd/activityd", module + "/internal/recent", false},
		{"cmd/activityd", "github.com/go-sql-driver/mysql", true},
		{"internal/mysql", "github.com/go-sql-driver/mysql", false},
		{"internal/testing/servertest", "github.com/go-sql-driver/mysql", false},
		{"internal/mysql", module, true},
		{"internal/schema", module, false},
	} {
		got := breaches([]imported{{test.pkg, "x.go", test.path}})
		if len(got) > 0 != test.want {
			t.Errorf("%s imports %s: %q, want a breach: %v", test.pkg, test.path, got, test.want)
		}
	}
}

// imported is an import by a file of a package.
type imported struct{ pkg, file, path string }

// breaches are the imports that no line allows, in words.
func breaches(imports []imported) []string {
	var found []string
	for _, i := range imports {
		name := nameOf(i.path)
		if room, ok := roomOf(i.pkg); !ok {
			found = append(found, fmt.Sprintf("%s: %s has no line in rooms", i.file, i.pkg))
		} else if name != "" && !allows(rooms[room], name) {
			found = append(found, fmt.Sprintf("%s: %s may not import %s", i.file, room, name))
		}
	}
	return found
}

// roomOf is the package of rooms whose line holds for pkg.
func roomOf(pkg string) (room string, ok bool) {
	for room = pkg; ; room = path.Dir(room) {
		if _, ok := rooms[room]; ok && (room != "." || pkg == ".") {
			return room, true
		}
		if room == "." {
			return "", false
		}
	}
}

// nameOf returns the name of the imported package in a line; "" if any package may import it.
func nameOf(imported string) string {
	for name, prefix := range special {
		if within(imported, prefix) {
			return name
		}
	}
	if !within(imported, module) {
		return ""
	}
	name := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(imported, module), "/"), "internal/")
	if slices.Contains(leaves, name) {
		return ""
	}
	return cmp.Or(name, ".")
}

// allows reports whether a line of rooms has the name.
func allows(line, name string) bool {
	names := strings.Fields(line)
	return slices.Contains(names, name) || slices.Contains(names, "*") && name != "driver"
}

// within reports whether path is parent or below it.
func within(path, parent string) bool {
	return path == parent || strings.HasPrefix(path, parent+"/")
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
		return filepath.Ext(f) != ".md" || f == "CHANGELOG.md" // the changelog names deleted files, too
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
