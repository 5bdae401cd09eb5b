package browsertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// axeVersion is also that of scripts/install-test-deps, which puts the file there.
const axeVersion = "4.14.1"

var readAxe = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(filepath.Join(cache, "activityd", "axe-core-"+axeVersion, "axe.min.js"))
	return string(source), err
})

// Axe returns the barriers that axe-core finds in the page, one a line: each rule that is
// broken, and where. All rules are tried, those of best practice too.
func (b *Tab) Axe() string {
	b.Helper()
	source, err := readAxe()
	if err != nil {
		b.Fatalf("pages are tested with axe-core; install it by make test-deps: %v", err)
	}
	if !Eval[bool](b, `typeof axe === "object"`) {
		Eval[bool](b, source+"\n;true")
	}
	type result struct {
		Passes int
		Broken []string
	}
	r := Eval[result](b, `axe.run(document, {resultTypes: ["violations", "incomplete"]}).then((r) => ({
		passes: r.passes.length,
		broken: [...r.violations, ...r.incomplete].flatMap((rule) => rule.nodes.map((n) => rule.id + ": " + n.target.flat().join(" ") + ": " + n.failureSummary)),
	}))`)
	if r.Passes == 0 {
		return fmt.Sprintf("axe-core %s tried nothing", axeVersion)
	}
	return strings.Join(r.Broken, "\n")
}
