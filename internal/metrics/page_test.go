package metrics_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pageFile is written from the code by "make pages".
const pageFile = "../../docs/metrics.md"

var write = flag.Bool("write", false, "write docs/metrics.md")

// sections are the page's, with the names of their metrics. The first that matches has a metric.
var sections = []struct {
	title, text string
	names       *regexp.Regexp
}{
	{"Reads", "", regexp.MustCompile(`^activityd_(read|reads|walks|behind)_`)},
	{
		"Queues", "These are facts of the database, which each process asks for during a scrape: **take the maximum over processes, never the sum**.\n" +
			"While a process gets no answer, those with the label `queue` have no series. An answer is good for five seconds, or for ten times\n" +
			"as long as it took. A scrape waits for it for 50 ms, and then shows the answer before; a process gives a question up after five seconds.",
		regexp.MustCompile(`^activityd_(tasks$|oldest_|queue_|counts_|stats_)`),
	},
	{"Tasks", "", regexp.MustCompile(`^activityd_(task|tasks|lease|leases|uploads|guard|refills|backfill|fan_out|upload)_`)},
	{"Index", "A `node` is one server, or a master of a cluster, by its address. One that is no master any more has no series.", regexp.MustCompile(`^activityd_(index|adds|trims|redis)_`)},
	{
		"Audit", "How much of what was compared was wrong, over all processes, in a day; without a value, nothing was compared:\n\n" +
			"```promql\n# of the sets\nsum(increase(activityd_audit_erroneous_total{origin!=\"answer\"}[24h])) / sum(increase(activityd_audit_checked_total{origin!=\"answer\"}[24h]))\n" +
			"# of the answers\nsum(increase(activityd_audit_erroneous_total{origin=\"answer\"}[24h])) / sum(increase(activityd_audit_checked_total{origin=\"answer\"}[24h]))\n```",
		regexp.MustCompile(`^activityd_audit_`),
	},
	{
		"Stream", "The gauges are facts of Redis, for which each process with workers asks every 5 s: take the maximum over processes. While Redis does\n" +
			"not answer they stay as they were.", regexp.MustCompile(`^activityd_stream_`),
	},
	{"Push", "Those of each process with workers: add them up.", regexp.MustCompile(`^activityd_push_`)},
	{
		"Once", "The counters are those of Go programs that use the package and name a registerer; the command `activityd once` is too short-lived to be\n" +
			"scraped. `serve` shows `activityd_once_exhausted_names`, a fact of the database: take the maximum over processes.", regexp.MustCompile(`^activityd_once_`),
	},
	{"HTTP and the process", "`go_*` and `process_*` are those of every Go program.", regexp.MustCompile(`^activityd_(http|access|enqueues|tls|mysql|site|build|late)_`)},
}

const pageHead = `# Metrics

Each process shows them at ` + "`/metrics`" + ` of the operator's listener ([how to scrape it](deploy.md#metrics-and-probes)). Add up what the
processes show, but for what is a fact of a server: there take the maximum. The [runbook](operate.md) has the alerts.

Times are in seconds. Labels take few values, whatever clients and sites send: ` + "`type`" + ` is a type of task, ` + "`queue`" + ` a standard queue or
one that this process works on, ` + "`route`" + ` the template of a route or ` + "`unmatched`" + `, ` + "`token`" + ` the name of a token in use; all else is
` + "`other`" + `.

This page is written from the code by ` + "`make pages`" + `.
`

// openLabels have values that the code does not list.
var openLabels = []string{"queue", "type", "route", "method", "code", "token", "node", "database", "server_id", "version", "go_version"}

func TestThePageOfMetrics(t *testing.T) {
	t.Parallel()
	page := metricsPage(t)
	if *write {
		if err := os.WriteFile(pageFile, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(page, read(t, pageFile)); diff != "" {
		t.Errorf("%s is not what the code says (-code +page); run \"make pages\":\n%s", pageFile, diff)
	}
}

// metricsPage returns the page of the program's own metrics.
func metricsPage(t *testing.T) string {
	t.Helper()
	all := everything()
	var page strings.Builder
	page.WriteString(pageHead)
	left := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return !strings.HasPrefix(name, "activityd_") || all[name].help == "" })
	for _, s := range sections {
		fmt.Fprintf(&page, "\n## %s\n\n", s.title)
		if s.text != "" {
			fmt.Fprintf(&page, "%s\n\n", s.text)
		}
		page.WriteString("| metric | type | labels | means |\n|---|---|---|---|\n")
		left = slices.DeleteFunc(left, func(name string) bool {
			if !s.names.MatchString(name) {
				return false
			}
			e := all[name]
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", name, e.kind, labelCell(e), e.help)
			return true
		})
	}
	if len(left) > 0 {
		t.Errorf("no section has %q", left)
	}
	return strings.ReplaceAll(page.String(), "  |", " |") // of cells without text
}

// labelCell returns the labels of a metric and, where the code lists them, their values.
func labelCell(e exported) string {
	var cells []string
	for _, label := range e.names {
		values := slices.Compact(slices.Sorted(slices.Values(e.labels[label])))
		values = slices.DeleteFunc(values, func(value string) bool { return value == "" })
		if slices.Contains(openLabels, label) || len(values) < 2 {
			cells = append(cells, "`"+label+"`")
		} else {
			cells = append(cells, "`"+label+"`: "+strings.Join(values, ", "))
		}
	}
	return strings.Join(cells, "; ")
}
