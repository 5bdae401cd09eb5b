package metrics_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	yaml "github.com/oasdiff/yaml3"
)

// The files about metrics.
const (
	alertsFile    = "../../ops/alerts.yml"
	casesFile     = "../../ops/alerts_test.yml"
	slowCasesFile = "../../ops/alerts_slow_test.yml"
	dashboardFile = "../../ops/grafana.json"
	runbookFile   = "../../docs/operate.md"
	runbookURL    = "/usr/share/doc/activityd/docs/operate.md" // in the Debian package
)

type alertRule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) (all []alertRule) {
	t.Helper()
	var rules struct{ Groups []struct{ Rules []alertRule } }
	if err := yaml.Unmarshal([]byte(read(t, alertsFile)), &rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

type dashboard struct {
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ H, W, X, Y int }
		Targets []struct{ Expr, LegendFormat string }
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Prometheus adds labels when it scrapes, and the metric up.
var scraped = []string{"job", "instance"}

var (
	metricName = regexp.MustCompile(`\b(?:(?:activityd|go|process)_[a-z0-9_]+|up)\b`)
	selector   = regexp.MustCompile(`\b((?:activityd|go|process)_[a-z0-9_]+|up)\s*\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	grouping   = regexp.MustCompile(`\b(?:by|on|without|ignoring)\s*\(([^)]*)\)`)
	legend     = regexp.MustCompile(`\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}`)
)

// faults are the metrics, labels and values in an expression, and in the text beside it, that are not exported.
func faults(expr, text string) (found []string) {
	all, labels := everything(), slices.Clone(scraped)
	for _, name := range metricName.FindAllString(grouping.ReplaceAllString(matcher.ReplaceAllString(expr, ""), ""), -1) {
		metric, ok := all[name]
		if !ok || metric.kind == "histogram" {
			found = append(found, "metric "+name)
		}
		labels = slices.AppendSeq(labels, maps.Keys(metric.labels))
	}
	for _, s := range selector.FindAllStringSubmatch(expr, -1) {
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			values, ok := all[s[1]].labels[m[1]]
			value := map[string]string{"=": regexp.QuoteMeta(m[3]), "=~": m[3]}[m[2]]
			if !slices.Contains(scraped, m[1]) && (!ok || value != "" && !slices.ContainsFunc(values, regexp.MustCompile("^(?:"+value+")$").MatchString)) {
				found = append(found, s[1]+" has no "+m[0])
			}
		}
	}
	named := func(list []string) {
		for _, name := range list {
			if name = strings.TrimSpace(name); name != "" && !slices.Contains(labels, name) {
				found = append(found, "label "+name)
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		named(strings.Split(g[1], ","))
	}
	for _, l := range legend.FindAllStringSubmatch(text, -1) {
		named(l[1:])
	}
	return found
}

func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string]bool{
		`sum by (queue) (activityd_tasks{state="dead"}) {{ $labels.queue }}`:     true,
		`sum by (queues) (activityd_tasks)`:                                      false,
		`activityd_tasks{state="deaf"}`:                                          false,
		`activityd_tasks{status="dead"}`:                                         false,
		`activityd_task{state="dead"}`:                                           false,
		`sum by (le) (rate(activityd_read_seconds_bucket{source=~"in.*"}[5m]))`:  true,
		`sum by (le) (rate(activityd_read_seconds_bucket{source=~"out.*"}[5m]))`: false,
		`rate(activityd_read_seconds[5m])`:                                       false,
		`activityd_tasks {{nonsense}}`:                                           false,
		`go_goroutines{job=~"$job"} + process_open_fds{instance="x"}`:            true,
	} {
		if got := faults(expr, expr); (len(got) == 0) != want {
			t.Errorf("%s: faults %q, want it to be right: %v", expr, got, want)
		}
	}
}

// TestAlertsFire has promtool evaluate the rules over the series of the cases.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatalf("%v: install it, on Debian with: apt-get install --no-install-recommends prometheus", err)
	}
	for _, args := range [][]string{{"check", "rules", alertsFile}, {"test", "rules", casesFile}, {"test", "rules", slowCasesFile}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}

// An alert uses what is exported, has a section of the runbook, a case in which it fires and a case in which it is silent.
func TestAlerts(t *testing.T) {
	t.Parallel()
	var cases struct {
		Tests []struct {
			Rules []struct {
				Alert string `yaml:"alertname"`
				Fires []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, casesFile)), &cases); err != nil {
		t.Fatal(err)
	}
	tested := make(map[string]map[bool]bool) // by alert, whether it fires
	for _, test := range cases.Tests {
		for _, c := range test.Rules {
			if tested[c.Alert] == nil {
				tested[c.Alert] = make(map[bool]bool)
			}
			tested[c.Alert][len(c.Fires) > 0] = true
		}
	}
	headings := anchors(read(t, runbookFile))
	for _, a := range alerts(t) {
		if len(tested[a.Alert]) != 2 {
			t.Errorf("%s has no name of its own, or its cases are missing: %v", a.Alert, tested[a.Alert])
		}
		delete(tested, a.Alert)
		for _, f := range faults(a.Expr, a.Annotations["summary"]+a.Annotations["description"]) {
			t.Errorf("%s: %s", a.Alert, f)
		}
		if a.Annotations["summary"] == "" || !slices.Contains([]string{"page", "ticket"}, a.Labels["severity"]) || !metricName.MatchString(a.Expr) {
			t.Errorf("%s: summary %q, severity %q, expression %s", a.Alert, a.Annotations["summary"], a.Labels["severity"], a.Expr)
		}
		page, anchor, _ := strings.Cut(a.Annotations["runbook_url"], "#")
		if page != runbookURL || anchor != strings.ToLower(a.Alert) || !slices.Contains(headings, anchor) {
			t.Errorf("%s: its runbook %q is no section of %s", a.Alert, a.Annotations["runbook_url"], runbookFile)
		}
	}
	if len(tested) > 0 {
		t.Errorf("cases of alerts that are not there: %v", tested)
	}
}

// anchors are the links to the headings of a document, as GitHub makes them.
func anchors(markdown string) (all []string) {
	for line := range strings.Lines(markdown) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			all = append(all, strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-"))
		}
	}
	return all
}

func TestTheDashboardUsesWhatIsExported(t *testing.T) {
	t.Parallel()
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &d); err != nil {
		t.Fatal(err)
	}
	ids := make(map[int]bool)
	var rows []string
	for _, p := range d.Panels {
		if ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q: id %d, at %+v", p.Title, p.ID, p.GridPos)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			rows = append(rows, p.Title)
		} else if len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			for _, f := range faults(target.Expr, target.LegendFormat) {
				t.Errorf("panel %q: %s in %s", p.Title, f, target.Expr)
			}
		}
	}
	if want := []string{"Reads", "Tasks", "Index", "Audit", "Once", "Push", "Access", "Process"}; !slices.Equal(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
}

// TestThePagesNameMetricsThatAreThere: a page names no metric that is not exported.
func TestThePagesNameMetricsThatAreThere(t *testing.T) {
	t.Parallel()
	others := []string{"activityd_events", "activityd_events_dead", "activityd_events_turn", "activityd_wake", "activityd_1"} // keys of Redis, a package
	for _, page := range []string{"deploy", "http", "limits", "once", "operate", "page", "push", "queue", "setup"} {
		text := regexp.MustCompile("(?s)```sql.*?```").ReplaceAllString(read(t, "../../docs/"+page+".md"), "") // columns and keys
		for _, name := range metricName.FindAllString(text, -1) {
			if _, ok := everything()[name]; !ok && strings.HasPrefix(name, "activityd_") && !strings.HasSuffix(name, "_") && !slices.Contains(others, name) {
				t.Errorf("docs/%s.md names %s, which is not exported", page, name)
			}
		}
	}
}
