package main

import (
	"fmt"
	"strings"
)

// figure is one line of the result: what was measured, with what it is compared,
// and what one operation cost.
type figure struct {
	Part    string   `json:"part"`
	Name    string   `json:"name"`
	Unit    string   `json:"unit,omitempty"`
	Exact   bool     `json:"exact,omitempty"` // it was counted: no noise is in it
	Value   *spread  `json:"value,omitempty"`
	Against string   `json:"against,omitempty"`
	Ratio   *spread  `json:"ratio,omitempty"` // to it, round by round
	Aim     *aim     `json:"aim,omitempty"`
	Verdict string   `json:"verdict,omitempty"`
	Each    *expense `json:"each,omitempty"`
	Samples samples  `json:"samples,omitempty"`
}

// expense is what one operation cost, in the median of the rounds. Where CPU is
// nil nothing but counts is known.
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

// aim is what a ratio, or a value without one, is meant to be.
type aim struct {
	Limit  float64 `json:"limit"`
	AtMost bool    `json:"at_most"`
}

func atMost(x float64) *aim  { return &aim{x, true} }
func atLeast(x float64) *aim { return &aim{x, false} }

// String writes the aim as the tables have it.
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

func (a *aim) judge(s spread, exact bool) string {
	switch {
	case !exact && s.noisy() && !a.decided(s):
		return unclear
	case a.holds(s.Median):
		return reached
	}
	return missed
}

func (a *aim) holds(x float64) bool { return a.AtMost == (x <= a.Limit) || x == a.Limit }

// decided tells that all rounds agree, however far they are apart.
func (a *aim) decided(s spread) bool { return a.holds(s.Min) == a.holds(s.Max) }

// results gathers figures.
type results struct {
	Machine machine  `json:"machine"`
	Site    siteSize `json:"site"`
	Rounds  int      `json:"rounds"`
	Figures []figure `json:"figures"`
	Notes   []string `json:"notes"`
}

// add takes a figure and judges it by its aim.
func (r *results) add(f figure) {
	if f.Aim != nil {
		judged := f.Value
		if f.Ratio != nil {
			judged = f.Ratio
		}
		f.Verdict = f.Aim.judge(*judged, f.Exact)
	}
	r.Figures = append(r.Figures, f)
}

// notef adds a sentence to what is told below the tables.
func (r *results) notef(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// rates adds the rate of an entrant, and how it compares with another, if one is
// named.
func (r *results) rates(part string, all map[string]samples, name, unit, against string, a *aim) {
	rate := all[name].spread(sample.rate)
	f := figure{Part: part, Name: name, Unit: unit, Value: &rate, Against: against, Aim: a, Each: all[name].expense(), Samples: all[name]}
	if against != "" {
		ratio := all[name].over(all[against], sample.rate)
		f.Ratio = &ratio
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
			count(func(c counts) float64 { return c.MySQLBytes }), count(func(c counts) float64 { return c.Commands }),
			count(func(c counts) float64 { return c.RedisBytes }), count(func(c counts) float64 { return c.RedisTrips }),
		},
	}
}

// text writes the results as tables.
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
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "\n%s\n", note)
	}
	return b.String()
}

func writeFigures(b *strings.Builder, part string, list []figure) {
	rows := [][]string{{"", "median (min..max)", "ratio", "to", "aim", ""}}
	for _, f := range list {
		value, ratio := "", ""
		if f.Value != nil {
			value = strings.TrimSpace(f.write(*f.Value) + " " + f.Unit)
		}
		if f.Ratio != nil {
			ratio = "× " + f.write(*f.Ratio)
		}
		rows = append(rows, []string{f.Name, value, ratio, f.Against, f.Aim.String(), f.Verdict})
	}
	table(b, part, rows...)
}

// write writes a spread of the figure's.
func (f *figure) write(s spread) string {
	if f.Exact {
		return s.exact()
	}
	return s.String()
}

func writeExpenses(b *strings.Builder, list []figure) {
	rows := [][]string{{
		"", "CPU µs", "client", "activityd", "MySQL", "Redis", "Redis trips", "commands", "bytes", "MySQL statements", "rows", "bytes",
	}}
	for _, f := range list {
		if f.Each != nil {
			rows = append(rows, append([]string{f.Name}, f.Each.cells()...))
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
	return append(cells, number(c.RedisTrips), number(c.Commands), number(c.RedisBytes), number(c.Statements), number(c.RowsRead), number(c.MySQLBytes))
}
