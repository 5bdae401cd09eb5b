package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
)

// results are all that was measured. They are written as tables for people and as
// JSON for programs, whose names are stable:
//
//   - machine, site, rounds: where, on what and how often it was measured;
//   - figures: a list, in which part (the title of a table) and name identify a
//     figure, or a ratio together with against; bench is the part of the suite as
//     the command line names it;
//   - value: median, min and max of the rounds, in unit; of a figure with exact, a
//     count that does not depend on the machine;
//   - p99: of times whose median is the value;
//   - ratio: this figure over against, round by round; against is the name of a figure
//     of the part, or says what it is;
//   - aim (limit, at_most) and verdict: of the ratio, or of the value without one;
//   - each: what one operation cost in the median: cpu_microseconds of own (the client,
//     with the workers), mysql, redis and program (activityd as a process), and counts;
//   - samples: the rounds, each with its operations, wall_ns, cpu_ns and counts, the
//     last two for all operations together;
//   - plans: how the database answers the statements of the queue;
//   - notes: sentences.
//
// Fields may be added; none changes its meaning.
type results struct {
	Machine machine  `json:"machine"`
	Site    siteSize `json:"site"`
	Rounds  int      `json:"rounds"`
	Figures []figure `json:"figures"`
	Plans   []plan   `json:"plans,omitempty"`
	Notes   []string `json:"notes"`

	bench string // the part that is running
}

// figure is one line of the results: what was measured, with what it is compared,
// and what one operation cost.
type figure struct {
	Bench   string   `json:"bench"`
	Part    string   `json:"part"`
	Name    string   `json:"name"`
	Unit    string   `json:"unit,omitempty"`
	Exact   bool     `json:"exact,omitempty"`
	Value   *spread  `json:"value,omitempty"`
	P99     *spread  `json:"p99,omitempty"`
	Against string   `json:"against,omitempty"`
	Ratio   *spread  `json:"ratio,omitempty"`
	Aim     *aim     `json:"aim,omitempty"`
	Verdict string   `json:"verdict,omitempty"`
	Each    *expense `json:"each,omitempty"`
	Samples samples  `json:"samples,omitempty"`
}

// expense is what one operation cost, in the median of the rounds. CPU is nil where
// operations are too short for it.
type expense struct {
	CPU    *cpuMicros `json:"cpu_microseconds,omitempty"`
	Counts counts     `json:"counts"`
}

// cpuMicros is the processor time of one operation, in microseconds.
type cpuMicros struct {
	Sum     float64 `json:"sum"`
	Own     float64 `json:"own"`
	MySQL   float64 `json:"mysql"`
	Redis   float64 `json:"redis"`
	Program float64 `json:"program"`
}

// aim is a bound for a ratio, or for a value without one.
type aim struct {
	Limit  float64 `json:"limit"`
	AtMost bool    `json:"at_most"`
}

func atMost(x float64) *aim  { return &aim{x, true} }
func atLeast(x float64) *aim { return &aim{x, false} }

// String formats the aim for the tables.
func (a *aim) String() string {
	switch {
	case a == nil:
		return ""
	case a.AtMost:
		return "≤ " + number(a.Limit)
	}
	return "≥ " + number(a.Limit)
}

// The verdicts on figures with an aim.
const (
	reached = "reached"
	missed  = "missed"
	unclear = "too noisy"
)

func (a *aim) judge(s *spread, exact bool) string {
	switch {
	case !exact && s.noisy() && !a.decided(s):
		return unclear
	case a.holds(s.Median):
		return reached
	}
	return missed
}

func (a *aim) holds(x float64) bool { return a.AtMost == (x <= a.Limit) || x == a.Limit }

// decided reports whether all rounds agree, however far they are apart.
func (a *aim) decided(s *spread) bool { return a.holds(s.Min) == a.holds(s.Max) }

// add appends a figure, judged by its aim.
func (r *results) add(f figure) {
	f.Bench = r.bench
	if f.Aim != nil {
		judged := f.Value
		if f.Ratio != nil {
			judged = f.Ratio
		}
		f.Verdict = f.Aim.judge(judged, f.Exact)
	}
	r.Figures = append(r.Figures, f)
}

// notef adds a sentence below the tables.
func (r *results) notef(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// rates adds the rate of a contender, and its ratio to the rate of another one if
// against names it.
func (r *results) rates(part string, all map[string]samples, name, unit, against string, a *aim) {
	f := figure{Part: part, Name: name, Unit: unit, Value: all[name].spread(sample.rate), Against: against, Aim: a, Each: all[name].expense(), Samples: all[name]}
	if against != "" {
		f.Ratio = all[name].over(all[against], sample.rate)
	}
	r.add(f)
}

// expense returns what one operation cost.
func (list samples) expense() *expense {
	cpu := func(of func(cpuTimes) float64) float64 {
		return list.spread(func(s sample) float64 { return of(s.CPU) / 1e3 / float64(s.Ops) }).Median
	}
	count := func(of func(counts) float64) float64 {
		return list.spread(func(s sample) float64 { return of(s.Counts.each(s.Ops)) }).Median
	}
	return &expense{
		&cpuMicros{
			cpu(func(c cpuTimes) float64 { return float64(c.sum()) }), cpu(func(c cpuTimes) float64 { return float64(c.Own) }),
			cpu(func(c cpuTimes) float64 { return float64(c.MySQL) }), cpu(func(c cpuTimes) float64 { return float64(c.Redis) }),
			cpu(func(c cpuTimes) float64 { return float64(c.Program) }),
		},
		counts{
			count(func(c counts) float64 { return c.Statements }), count(func(c counts) float64 { return c.RowsRead }),
			count(func(c counts) float64 { return c.MySQLBytes }), count(func(c counts) float64 { return c.Redo }), count(func(c counts) float64 { return c.Pages }),
			count(func(c counts) float64 { return c.Commands }),
			count(func(c counts) float64 { return c.RedisBytes }), count(func(c counts) float64 { return c.RedisTrips }),
		},
	}
}

// writeJSON writes the results to a file.
func (r *results) writeJSON(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600) //nolint:gosec // the user chooses the file
}

// text formats the results as tables.
func (r *results) text() string {
	var b strings.Builder
	r.Machine.write(&b)
	var parts []string
	byPart := make(map[string][]figure)
	for _, f := range r.Figures {
		if byPart[f.Part] == nil {
			parts = append(parts, f.Part)
		}
		byPart[f.Part] = append(byPart[f.Part], f)
	}
	for _, part := range parts {
		writeFigures(&b, part, byPart[part])
		writeExpenses(&b, byPart[part])
	}
	writePlans(&b, r.Plans)
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "\n%s\n", note)
	}
	return b.String()
}

// table aligns rows of cells.
func table(b *strings.Builder, title string, rows ...[]string) {
	fmt.Fprintf(b, "\n%s\n", title)
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // a Builder takes everything
}

func writeFigures(b *strings.Builder, part string, list []figure) {
	rows := [][]string{{"", "median (min..max)", "ratio", "to", "aim", ""}}
	for _, f := range list {
		value, ratio := "", ""
		if f.Value != nil {
			value = strings.TrimSpace(f.write(f.Value) + " " + f.Unit)
		}
		if f.P99 != nil {
			value += ", p99 " + f.write(f.P99)
		}
		if f.Ratio != nil {
			ratio = "× " + f.write(f.Ratio)
		}
		rows = append(rows, []string{f.Name, value, ratio, f.Against, f.Aim.String(), f.Verdict})
	}
	table(b, part, rows...)
}

// write formats a value or a ratio of the figure.
func (f *figure) write(s *spread) string {
	if f.Exact {
		return s.exact()
	}
	return s.String()
}

func writeExpenses(b *strings.Builder, list []figure) {
	rows := [][]string{{
		"", "CPU µs", "client", "activityd", "MySQL", "Redis", "Redis trips", "commands", "bytes", "MySQL statements", "rows", "bytes", "redo bytes", "pages",
	}}
	for _, f := range list {
		if f.Each != nil {
			cells := f.Each.cells()
			if f.Each.CPU != nil && len(f.Samples) > 0 {
				cells[0] = f.Samples.spread(sample.micros).String()
			}
			rows = append(rows, append([]string{f.Name}, cells...))
		}
	}
	if len(rows) > 1 {
		table(b, "of which for each operation", rows...)
	}
}

func (e *expense) cells() []string {
	cells := []string{"", "", "", "", ""}
	if c := e.CPU; c != nil {
		cells = []string{number(c.Sum), number(c.Own), number(c.Program), number(c.MySQL), number(c.Redis)}
	}
	c := e.Counts
	return append(cells, number(c.RedisTrips), number(c.Commands), number(c.RedisBytes), number(c.Statements), number(c.RowsRead), number(c.MySQLBytes), number(c.Redo), number(c.Pages))
}
