package activityd_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/activityd/activityd/"

// layers says who must not know whom: the table of docs/architecture.md. A
// package is meant with all below it. .golangci.yml has the same rules for
// depguard, which marks them in an editor; change both.
var layers = []struct {
	pkg  string
	deny []string
}{
	{"internal/index", []string{"database/sql", "net/http", "github.com/labstack/echo", module + "internal/tasks", module + "internal/api"}},
	{"internal/contacts", []string{"github.com/redis", "net/http", "github.com/labstack/echo"}},
	{"internal/tasks", []string{"net/http", "github.com/labstack/echo"}},
	{"internal/recent", []string{"net/http", "github.com/labstack/echo", "database/sql", "github.com/redis"}},
	{"internal/api", []string{"database/sql", "github.com/redis"}},
	{"internal/access", []string{"database/sql", "net/http", "github.com/redis", "github.com/labstack/echo", module}},
	{"internal/httpserver", []string{"database/sql", "github.com/redis", "github.com/labstack/echo", module}},
	{"internal/audit", []string{"net/http", "github.com/labstack/echo", "database/sql", "github.com/redis", module + "internal/api"}},
	{"internal/plural", []string{module}},
	{"internal/pace", []string{"net/http", "github.com/labstack/echo", "database/sql", "github.com/redis", module}},
	{"internal/sweep", []string{"net/http", "github.com/labstack/echo", "database/sql", "github.com/redis", module + "internal/tasks", module + "internal/index", module + "internal/contacts"}},
	{"internal/backfill", []string{"net/http", "github.com/labstack/echo", "database/sql", "github.com/redis", module + "internal/api"}},
	{"internal/wake", []string{"database/sql", "net/http", "github.com/labstack/echo", module}},
	{"internal/taskjson", []string{"database/sql", "net/http", "github.com/redis", "github.com/labstack/echo"}},
	{"internal/metrics", []string{"database/sql", "github.com/redis", "github.com/labstack/echo", module + "internal/api"}},
}

// The driver's error numbers mean something in one place only. Of the others,
// one starts servers and one makes tables, before there is a store.
const driver = "github.com/go-sql-driver/mysql"

var driverUsers = []string{"internal/contacts", "internal/localserver", "internal/schema"}

// What is measured and how it is exported are two things: others tell their
// observers, and only these know where it goes.
const prometheus = "github.com/prometheus"

var prometheusUsers = []string{"internal/metrics", "cmd"}

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
		{"internal/tasks", module + "internal/index", false},
		{"internal/wake", module + "internal/tasks", true},
		{"internal/access", module + "internal/member", true},
		{"internal/httpserver", module + "internal/api", true},
		{"internal/metrics", module + "internal/httpserver", false},
		{"internal/wake", "github.com/redis/go-redis/v9", false},
		{"cmd/activityd", driver, true},
		{"internal/contacts", driver, false},
		{"internal/localserver/servertest", driver, false},
		{"internal/tasks", prometheus + "/client_golang/prometheus", true},
		{"internal/metrics", prometheus + "/client_golang/prometheus", false},
		{"cmd/activityd", prometheus + "/client_golang/prometheus", false},
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
		for _, layer := range layers {
			if within(i.pkg, layer.pkg) && withinAny(i.path, layer.deny) {
				found = append(found, fmt.Sprintf("%s: %s must not know %s", i.file, layer.pkg, i.path))
			}
		}
		if within(i.path, driver) && !withinAny(i.pkg, driverUsers) {
			found = append(found, fmt.Sprintf("%s: only %v may know the MySQL driver", i.file, driverUsers))
		}
		if within(i.path, prometheus) && !withinAny(i.pkg, prometheusUsers) {
			found = append(found, fmt.Sprintf("%s: only %v may know Prometheus", i.file, prometheusUsers))
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
