package metrics_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	yaml "github.com/oasdiff/yaml3"
	dto "github.com/prometheus/client_model/go"
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

type alertRules struct {
	Groups []struct {
		Name  string
		Rules []alertRule
	}
}

type alertRule struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) (all []alertRule) {
	t.Helper()
	var rules alertRules
	if err := yaml.Unmarshal([]byte(read(t, alertsFile)), &rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rules", alertsFile)
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
	Templating struct {
		List []struct{ Name string }
	}
}

func panels(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// exported is a metric of the registry: the values of each label.
type exported struct {
	kind   dto.MetricType
	labels map[string][]string
	help   string
	names  []string // of the labels, as they are declared
}

// everything is a scrape after all that makes a series was used.
var everything = sync.OnceValue(func() map[string]exported {
	all := map[string]exported{
		"up": {kind: dto.MetricType_GAUGE},
		// TestConnectionsAreCountedByServer asserts it: there is no server here.
		"activityd_mysql_connections": {kind: dto.MetricType_GAUGE, labels: map[string][]string{"database": nil, "server_id": nil}},
	}
	families, collectors := use()
	for _, family := range families {
		e := exported{kind: family.GetType(), labels: make(map[string][]string)}
		for _, metric := range family.GetMetric() {
			for _, l := range metric.GetLabel() {
				e.labels[l.GetName()] = append(e.labels[l.GetName()], l.GetValue())
			}
			if len(metric.GetSummary().GetQuantile()) > 0 {
				e.labels["quantile"] = []string{"0", "0.25", "0.5", "0.75", "1"}
			}
		}
		all[family.GetName()] = e
	}
	describe(all, collectors...)
	return all
})

// Prometheus adds labels when it scrapes, and the metric up.
var scraped = []string{"job", "instance"}

var (
	metricName = regexp.MustCompile(`\b(?:(?:activityd|go|process)_[a-z0-9_]+|up)\b`)
	selector   = regexp.MustCompile(`\b((?:activityd|go|process)_[a-z0-9_]+|up)\s*\{([^}]*)\}`)
	matcher    = regexp.MustCompile(`([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	grouping   = regexp.MustCompile(`\b(?:by|on|without|ignoring)\s*\(([^)]*)\)`)
	legend     = regexp.MustCompile(`\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}`)
)

// base returns the name of a histogram without the suffix of a series.
func base(name string, all map[string]exported) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if stem, ok := strings.CutSuffix(name, suffix); ok && all[stem].kind == dto.MetricType_HISTOGRAM {
			return stem
		}
	}
	return name
}

// faults are the metrics, labels and values in an expression, and in the text
// beside it, that the registry does not have.
func faults(expr, text string, all map[string]exported) (found []string) {
	labels := slices.Clone(scraped)
	for _, name := range metricName.FindAllString(grouping.ReplaceAllString(matcher.ReplaceAllString(expr, ""), ""), -1) {
		metric, ok := all[base(name, all)]
		if !ok || metric.kind == dto.MetricType_HISTOGRAM && base(name, all) == name {
			found = append(found, "metric "+name)
		}
		labels = slices.AppendSeq(labels, maps.Keys(metric.labels))
		if strings.HasSuffix(name, "_bucket") {
			labels = append(labels, "le")
		}
	}
	for _, s := range selector.FindAllStringSubmatch(expr, -1) {
		found = append(found, selectorFaults(s[1], s[2], all)...)
	}
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		for name := range strings.SplitSeq(g[1], ",") {
			if name = strings.TrimSpace(name); name != "" && !slices.Contains(labels, name) {
				found = append(found, "grouping by "+name)
			}
		}
	}
	for _, l := range legend.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(labels, l[1]) {
			found = append(found, "legend "+l[1])
		}
	}
	return found
}

func selectorFaults(name, matchers string, all map[string]exported) (found []string) {
	metric := all[base(name, all)]
	for _, m := range matcher.FindAllStringSubmatch(matchers, -1) {
		label, op, value := m[1], m[2], m[3]
		values, ok := metric.labels[label]
		switch {
		case slices.Contains(scraped, label):
		case !ok:
			found = append(found, name+" has no label "+label)
		case op == "=~" && !slices.ContainsFunc(values, regexp.MustCompile("^(?:"+value+")$").MatchString),
			op == "=" && !slices.Contains(values, value):
			found = append(found, name+" has no "+label+" "+value)
		}
	}
	return found
}

func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	all := everything()
	for expr, want := range map[string]bool{
		`sum by (queue) (activityd_tasks{state="dead"})`:                         true,
		`sum by (queues) (activityd_tasks)`:                                      false,
		`activityd_tasks{state="deaf"}`:                                          false,
		`activityd_tasks{status="dead"}`:                                         false,
		`activityd_task{state="dead"}`:                                           false,
		`sum by (le) (rate(activityd_read_seconds_bucket{source=~"in.*"}[5m]))`:  true,
		`sum by (le) (rate(activityd_read_seconds_bucket{source=~"out.*"}[5m]))`: false,
		`rate(activityd_read_seconds[5m])`:                                       false,
		`rate(activityd_reads_total_count[5m])`:                                  false,
		`sum by (le) (activityd_reads_total)`:                                    false,
		`go_goroutines{job=~"$job"} + process_open_fds{instance="x"}`:            true,
	} {
		if got := faults(expr, "", all); (len(got) == 0) != want {
			t.Errorf("%s: faults %q, want it to be right: %v", expr, got, want)
		}
	}
	if len(faults("activityd_tasks", "{{ $labels.queue }} {{state}}", all)) != 0 || len(faults("activityd_tasks", "{{nonsense}}", all)) != 1 {
		t.Error("legends are not read")
	}
}

func TestAlertsUseWhatIsExported(t *testing.T) {
	t.Parallel()
	all, names := everything(), make(map[string]bool)
	for _, a := range alerts(t) {
		if a.Alert == "" || names[a.Alert] {
			t.Errorf("alert %q has no name of its own", a.Alert)
		}
		names[a.Alert] = true
		if !metricName.MatchString(a.Expr) {
			t.Errorf("%s: no metric in %q", a.Alert, a.Expr)
		}
		for _, f := range faults(a.Expr, a.Annotations["summary"]+a.Annotations["description"], all) {
			t.Errorf("%s: %s", a.Alert, f)
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

func TestEveryAlertHasACaseInWhichItFiresAndOneInWhichItIsSilent(t *testing.T) {
	t.Parallel()
	var cases struct {
		Tests []struct {
			Name  string
			Rules []struct {
				Alert string `yaml:"alertname"`
				Fires []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, casesFile)), &cases); err != nil {
		t.Fatal(err)
	}
	fires, silent := make(map[string]bool), make(map[string]bool)
	for _, test := range cases.Tests {
		for _, c := range test.Rules {
			if len(c.Fires) > 0 {
				fires[c.Alert] = true
			} else {
				silent[c.Alert] = true
			}
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !silent[a.Alert] {
			t.Errorf("%s: a case in which it fires: %v; in which it is silent: %v", a.Alert, fires[a.Alert], silent[a.Alert])
		}
		delete(fires, a.Alert)
		delete(silent, a.Alert)
	}
	if len(fires)+len(silent) > 0 {
		t.Errorf("cases of alerts that are not there: %v, %v", fires, silent)
	}
}

func TestAlertsHaveRunbooks(t *testing.T) {
	t.Parallel()
	headings := anchors(read(t, runbookFile))
	for _, a := range alerts(t) {
		if a.Annotations["summary"] == "" || !slices.Contains([]string{"page", "ticket"}, a.Labels["severity"]) {
			t.Errorf("%s: summary %q, severity %q", a.Alert, a.Annotations["summary"], a.Labels["severity"])
		}
		page, anchor, _ := strings.Cut(a.Annotations["runbook_url"], "#")
		want := strings.ToLower(a.Alert)
		if page != runbookURL || anchor != want || !slices.Contains(headings, anchor) {
			t.Errorf("%s: its runbook %q is no section of %s", a.Alert, a.Annotations["runbook_url"], runbookFile)
		}
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
	all, d := everything(), panels(t)
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
			for _, f := range faults(target.Expr, target.LegendFormat, all) {
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
	all := everything()
	others := []string{"activityd_events", "activityd_events_dead", "activityd_events_turn", "activityd_wake", "activityd_1"} // keys of Redis, a package
	for _, page := range []string{"deploy", "http", "limits", "once", "operate", "page", "push", "queue", "setup"} {
		text := regexp.MustCompile("(?s)```sql.*?```").ReplaceAllString(read(t, "../../docs/"+page+".md"), "") // columns and keys
		for _, name := range metricName.FindAllString(text, -1) {
			if _, ok := all[base(name, all)]; !ok && strings.HasPrefix(name, "activityd_") && !strings.HasSuffix(name, "_") && !slices.Contains(others, name) {
				t.Errorf("docs/%s.md names %s, which is not exported", page, name)
			}
		}
	}
}
