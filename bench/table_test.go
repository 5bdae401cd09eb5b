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
	page := filepath.Join(t.TempDir(), "page.md")
	const before = "prose\n<!-- tables: fanout -->\nold\n<!-- end of tables -->\nmore\n<!-- tables: refill -->\nnot measured\n<!-- end of tables -->\n" +
		"<!-- tables: machine -->\n<!-- end of tables -->\n"
	if err := os.WriteFile(page, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time changes nothing
		if err := bench(t.Context(), append([]string{"table", "--page", page}, runs...), io.Discard, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const want = `prose
<!-- tables: fanout -->

**Fan-out**

|  | MariaDB 10.11, Redis 7.0 | ÷ | MySQL 9.7, Valkey 9.1 | ÷ | to | aim |
|---|---|---|---|---|---|---|
| all | 123,000 followers/s | × 0.600: reached | 98,800 followers/s | × 0.400: missed | raw | ≥ 0.500 |
| trips |  |  | 2.00 |  |  |  |

| for each operation | MariaDB 10.11, Redis 7.0: CPU µs | of client, activityd, database, Redis | commands | rows | MySQL 9.7, Valkey 9.1: CPU µs | of client, activityd, database, Redis | commands | rows |
|---|---|---|---|---|---|---|---|---|
| all | 3.00 | 1.00, 0, 0, 2.00 | 0 | 0 | 3.00 | 1.00, 0, 0, 2.00 | 0 | 0 |

<!-- end of tables -->
more
<!-- tables: refill -->
not measured
<!-- end of tables -->
<!-- tables: machine -->

|  | date | processor | kernel | Go | database | Redis or Valkey |
|---|---|---|---|---|---|---|
| MariaDB 10.11, Redis 7.0 | 2026-11-22 | , 0 cores |  |  | 10.11.19-MariaDB | 7.0.15 |
| MySQL 9.7, Valkey 9.1 | 2026-11-22 | , 0 cores |  |  | 9.7.0 | Valkey 9.1.2 |

<!-- end of tables -->
`
	if string(text) != want {
		t.Errorf("the page is\n%s\nwant\n%s", text, want)
	}
}

func TestTablesArePrinted(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	run := writeRun(t, "9.7.0", "8.0.2", figure{Bench: "reads", Part: "Reads", Name: "p50", Unit: "ms", Value: spreadOf(1)})
	if err := bench(t.Context(), []string{"table", run}, &out, io.Discard); err != nil || !strings.Contains(out.String(), "| p50 | 1.00 ms |") {
		t.Errorf("%v: %s", err, &out)
	}
	for _, args := range [][]string{{"table"}, {"table", "no-such.json"}, {"table", "--page", "no-such.md", run}} {
		if err := bench(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
