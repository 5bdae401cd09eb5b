package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeRun writes the results of a run on some servers to a file.
func writeRun(t *testing.T, database, store string, figures ...figure) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "run.json")
	r := results{Machine: machine{Date: "2026-11-22", MySQL: database, Redis: store}, Figures: figures}
	if err := r.writeJSON(file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTablesOfAPage(t *testing.T) {
	t.Parallel()
	rate := func(x, ratio float64) figure {
		return figure{
			Bench: "fanout", Part: "Fan-out", Name: "all", Unit: "followers/s", Value: spreadOf(x), Against: "raw", Ratio: spreadOf(ratio),
			Aim: atLeast(0.5), Verdict: atLeast(0.5).judge(spreadOf(ratio), false), Each: &expense{CPU: &cpuMicros{Sum: 3, Own: 1, Redis: 2}},
		}
	}
	runs := []string{
		writeRun(t, "10.11.19-MariaDB", "7.0.15", rate(1, 1)), // repeated by the third
		writeRun(t, "9.7.0", "Valkey 9.1.2", rate(98765, 0.4), figure{Bench: "fanout", Part: "Fan-out", Name: "trips", Exact: true, Value: spreadOf(2)}),
		writeRun(t, "10.11.19-MariaDB", "7.0.15", rate(123456, 0.6), figure{Bench: "reads", Part: "Reads", Name: "p50", Unit: "ms", Value: spreadOf(1)}),
	}
	dir := t.TempDir()
	before := map[string]string{
		"a.md": "prose\n<!-- tables: fanout -->\nold\n<!-- end of tables -->\nmore\n<!-- tables: refill -->\nnot measured\n<!-- end of tables -->\n",
		"b.md": "<!-- tables: machine -->\n<!-- end of tables -->\n",
	}
	args := []string{"table"}
	for name, text := range before {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--page", file)
	}
	for range 2 { // the second time changes nothing
		if err := bench(t.Context(), append(args, runs...), io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{
		"a.md": `prose
<!-- tables: fanout -->

**Fan-out**: ÷ is to raw

|  | MariaDB 10.11 | ÷ | CPU µs | MySQL 9.7 | ÷ | CPU µs | aim |
|---|---|---|---|---|---|---|---|
| all | 123,000 followers/s | 0.600 | 3.00 | 98,800 followers/s | 0.400: missed | 3.00 | ≥ 0.500 |
| trips |  |  |  | 2.00 |  |  |  |

<!-- end of tables -->
more
<!-- tables: refill -->
not measured
<!-- end of tables -->
`,
		"b.md": `<!-- tables: machine -->

|  | date | processor | kernel | Go | database | Redis or Valkey |
|---|---|---|---|---|---|---|
| MariaDB 10.11, Redis 7.0 | 2026-11-22 | , 0 cores |  |  | 10.11.19-MariaDB | 7.0.15 |
| MySQL 9.7, Valkey 9.1 | 2026-11-22 | , 0 cores |  |  | 9.7.0 | Valkey 9.1.2 |

<!-- end of tables -->
`,
	}
	for name := range want {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != want[name] {
			t.Errorf("%s is\n%s\nwant\n%s", name, text, want[name])
		}
	}
}

// What the ratios are to stands above the table, where it is the same of all, or the last row
// without one; otherwise most of it.
func TestTablesSayWhatTheRatiosAreTo(t *testing.T) {
	t.Parallel()
	row := func(name, to string) figure {
		f := figure{Bench: "reads", Part: "P", Name: name, Unit: "ms", Value: spreadOf(1), Against: to}
		if to != "" {
			f.Ratio = spreadOf(1, 1.5)
		}
		return f
	}
	for want, figures := range map[string][]figure{
		"**P**\n\n| ms | x |\n|---|---|\n| a | 1.00 |\n":                                                                                                         {row("a", "")},
		"**P**: ÷ is to a\n\n| ms | x | ÷ |\n|---|---|---|\n| a | 1.00 |  |\n| b | 1.00 | 1.25 |\n":                                                              {row("a", ""), row("b", "a")},
		"**P**: ÷ is to the last row without one\n\n| ms | x | ÷ |\n|---|---|---|\n| a | 1.00 |  |\n| b | 1.00 | 1.25 |\n| c | 1.00 |  |\n| d | 1.00 | 1.25 |\n": {row("a", ""), row("b", "a"), row("c", ""), row("d", "c")},
		"**P**: ÷ is to a\n\n| ms | x | ÷ | if not to that |\n|---|---|---|---|\n| b | 1.00 | 1.25 |  |\n| d | 1.00 | 1.25 | c |\n":                              {row("b", "a"), row("d", "c")},
	} {
		list := columns{{name: "x", figures: figures}}
		if got := list.tablesOf(list.figures("reads")); got != "\n"+want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
}

// Figures with a p99 make a grid: what the names have in common is the row, and the smallest ratio of a row counts.
func TestTimesWithTheirSlowestAreAGrid(t *testing.T) {
	t.Parallel()
	cell := func(name string, ratio float64) figure {
		f := figure{Bench: "plain", Part: "P", Name: name, Unit: "ms", Value: spreadOf(ratio), P99: spreadOf(10, 40), Each: &expense{Counts: counts{RowsRead: 12345}}}
		if ratio > 1 {
			f.Against, f.Ratio = "few: ours", spreadOf(ratio)
		}
		return f
	}
	list := columns{{name: "x", figures: []figure{cell("few: a", 3), cell("few: b", 2), cell("few: ours", 1), cell("many: a", 4)}}}
	const want = `
**P**: p50 / p99 ms / rows read; ÷ is the better one's p50 to that of activityd

|  | x: a | x: b | x: ours | ÷ |
|---|---|---|---|---|
| few | 3.00 / 25.0 / 12,345 | 2.00 / 25.0 / 12,345 | 1.00 / 25.0 / 12,345 | 2.00 |
| many | 4.00 / 25.0 / 12,345 |  |  | 4.00 |
`
	if got := list.tablesOf(list.figures("plain")); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// A page is for who decides: what no one decides by is printed, and is on no page.
func TestPagesLeaveOut(t *testing.T) {
	t.Parallel()
	list := columns{{name: "x", figures: []figure{
		{Bench: "reads", Part: "P", Name: "10 contacts, p50", Value: spreadOf(1)}, {Bench: "reads", Part: "P", Name: "10 contacts, p90", Value: spreadOf(2)},
	}}}
	page := list.fill("<!-- tables: reads -->\n<!-- end of tables -->\n")
	if !strings.Contains(page, "p50") || strings.Contains(page, "p90") {
		t.Errorf("the page is\n%s", page)
	}
	if text := list.tablesOf(list.figures("reads")); !strings.Contains(text, "p90") {
		t.Errorf("printed are\n%s", text)
	}
}

func TestTablesArePrinted(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	run := writeRun(t, "9.7.0", "8.0.2", figure{Bench: "reads", Part: "Reads", Name: "p50", Unit: "ms", Value: spreadOf(1)})
	if err := bench(t.Context(), []string{"table", run}, &out, io.Discard); err != nil || !strings.Contains(out.String(), "| p50 | 1.00 |") {
		t.Errorf("%v: %s", err, &out)
	}
	for _, args := range [][]string{{"table"}, {"table", "no-such.json"}, {"table", "--page", "no-such.md", run}} {
		if err := bench(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
