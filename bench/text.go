package main

import (
	"cmp"
	"fmt"
	"strings"
	"text/tabwriter"
)

// text writes the report as tables.
func (r *report) text() string {
	var b strings.Builder
	r.Machine.write(&b)
	r.writeThroughput(&b)
	r.writeRatios(&b)
	r.writeWake(&b)
	r.writeBacklog(&b)
	r.writePlans(&b)
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

func (m machine) write(b *strings.Builder) {
	table(b, "Machine",
		[]string{"date", m.Date},
		[]string{"processor", fmt.Sprintf("%s, %d cores, %s", m.CPU, m.Cores, m.Memory)},
		[]string{"kernel", m.Kernel},
		[]string{"Go, asynq", m.Go + ", " + m.Asynq},
		[]string{"MySQL", m.MySQL + ": " + m.MySQLSettings},
		[]string{"Redis", m.Redis + ": " + m.RedisSettings})
}

func (r *report) writeThroughput(b *strings.Builder) {
	for _, p := range phases() {
		rows := [][]string{{"", "tasks/s", "CPU µs/task", "of which: own", "MySQL", "Redis"}}
		for _, c := range r.Throughput {
			if c.Phase == p {
				rows = append(rows, []string{
					c.Name, c.Rate.String(), c.CPU.Sum.String(), number(c.CPU.Own.Median), number(c.CPU.MySQL.Median), number(c.CPU.Redis.Median),
				})
			}
		}
		if len(rows) > 1 {
			table(b, fmt.Sprintf("%s, %d rounds of %d tasks: median (min..max)", p, r.Options.Rounds, r.Options.Tasks), rows...)
		}
	}
}

func (r *report) writeRatios(b *strings.Builder) {
	if len(r.Ratios) == 0 {
		return
	}
	rows := [][]string{{"", "over", "tasks/s", "CPU"}}
	for _, c := range r.Ratios {
		rows = append(rows, []string{c.Name, c.Over, "× " + c.Rate.String(), "÷ " + c.CPU.String()})
	}
	table(b, "Ratios, round by round, end to end: median (min..max)", rows...)
}

func (r *report) writeWake(b *strings.Builder) {
	if len(r.Wake) == 0 {
		return
	}
	rows := [][]string{{"", "p50 ms", "p90", "p99", "of which the enqueuing call, p50"}}
	for _, l := range r.Wake {
		rows = append(rows, []string{l.Name, number(l.P50), number(l.P90), number(l.P99), number(l.Enqueue)})
	}
	table(b, fmt.Sprintf("From enqueuing to the start, all idle, %d samples each", r.Wake[0].Samples), rows...)
}

func (r *report) writeBacklog(b *strings.Builder) {
	if len(r.Backlog) == 0 {
		return
	}
	few, many := r.Backlog[0].Few.Waiting, r.Backlog[0].Many.Waiting
	rows := [][]string{{"", fmt.Sprintf("ms, %d wait", few), fmt.Sprintf("ms, %d wait", many), "ratio", "rows read", "rows read"}}
	for _, g := range r.Backlog {
		rows = append(rows, []string{g.Name, g.Few.Millis.String(), g.Many.Millis.String(), number(g.Ratio), number(g.Few.Rows), number(g.Many.Rows)})
	}
	table(b, "With many waiting tasks: median (min..max)", rows...)
}

func (r *report) writePlans(b *strings.Builder) {
	if len(r.Plans) == 0 {
		return
	}
	fmt.Fprintf(b, "\nEXPLAIN with %d waiting tasks (rows is an estimate that knows no LIMIT)\n", r.Backlog[0].Many.Waiting)
	for _, p := range r.Plans {
		fmt.Fprintf(b, "\n%s: %s\n", p.Operation, p.Statement)
		for _, s := range p.Steps {
			fmt.Fprintf(b, "    table %s, type %s, key %s, rows %s, %s\n", cmp.Or(s.Table, "-"), cmp.Or(s.Type, "-"), cmp.Or(s.Key, "-"), cmp.Or(s.Rows, "-"), s.Extra)
		}
	}
}
