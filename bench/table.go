package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// tables writes the tables of docs/benchmarks from the JSON of runs: those on the same
// servers make a column, in the order of the files; of a figure that was measured twice on
// the same ones the later file counts. With --page it replaces what stands in a page between
// lines such as
//
//	<!-- tables: reads rows -->
//	<!-- end of tables -->
//
// by the tables of these parts, without what is [leftOut]; "machine" is that of the machines.
// What was not measured stays as it is. Without --page it prints all tables, with all figures.
func tables(args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("bench table [--page FILE]... JSON...", flag.ContinueOnError)
	flags.SetOutput(log)
	var pages []string
	flags.Func("page", "`file` whose tables are replaced; may be repeated", func(file string) error {
		pages = append(pages, file)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	columns, err := readColumns(flags.Args())
	if err != nil {
		return err
	}
	if len(pages) == 0 {
		fmt.Fprint(out, machineTable(columns))
		for _, bench := range columns.benches() {
			fmt.Fprint(out, columns.tablesOf(columns.figures(bench)))
		}
	}
	for _, page := range pages {
		text, err := os.ReadFile(page) //nolint:gosec // the user names it
		if err != nil {
			return err
		}
		if err := os.WriteFile(page, []byte(columns.fill(string(text))), 0o644); err != nil { //nolint:gosec // a page is for all to read
			return err
		}
	}
	return nil
}

// leftOut matches what the pages leave out, because no one decides by it: a figure, as in
// "reads/A read, by the viewer's number of contacts/100 contacts, p50".
var leftOut = regexp.MustCompile(strings.Join([]string{
	`p90$`,
	`^reads/A read of an owner`,
	`^reads/A read, by .*/(100|1000|10000|20000|50000) contacts`,
	`^plain/.* active`,
	`^fanout/(.*(/activityd's (writing|handlers)|an UPDATE for each| 300000 followers)|.* already/.*ZREMRANGEBYRANK)`,
	`^refill/.*(one viewer at a time|by 4 workers)`,
	`^throughput/.*((enqueuing only|working off)/|concurrency 20)`,
	`^wake/.*p99`,
	`^backlog/.*(, 1000 waiting$|/(extend|sweep|pending|enqueue 100 that))`,
	`^deliveries/A cold start`,
	`^pace/.*25 %`,
	`^once/.*(Do, whose work does nothing|compare and delete|: statements$|p99)`,
}, "|"))

// column is what was measured on the same servers.
type column struct {
	name    string
	machine machine
	figures []figure
}

// columns are in the order of the files.
type columns []*column

func readColumns(files []string) (list columns, err error) {
	if len(files) == 0 {
		return nil, errors.New("table: no JSON of a run is named")
	}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // the user names it
		if err != nil {
			return nil, err
		}
		var r results
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		i := slices.IndexFunc(list, func(c *column) bool { return c.name == r.Machine.servers() })
		if i < 0 {
			i, list = len(list), append(list, &column{name: r.Machine.servers(), machine: r.Machine})
		}
		for _, f := range r.Figures {
			list[i].add(f)
		}
	}
	return list, nil
}

// servers names the servers by what matters of their versions.
func (m machine) servers() string {
	database := "MySQL "
	if strings.Contains(m.MySQL, "MariaDB") {
		database = "MariaDB "
	}
	store := m.Redis
	if !strings.Contains(store, " ") { // only Valkey says its name
		store = "Redis " + store
	}
	return majorMinor(database+m.MySQL) + ", " + majorMinor(store)
}

var version = regexp.MustCompile(`^(\w+ \d+\.\d+).*`)

func majorMinor(text string) string { return version.ReplaceAllString(text, "$1") }

// is reports whether both are the same figure.
func (f *figure) is(g *figure) bool {
	return f.Bench == g.Bench && f.Part == g.Part && f.Name == g.Name && f.Against == g.Against
}

// find returns the first figure that is wanted, nil if there is none.
func (c *column) find(wanted func(*figure) bool) *figure {
	for i := range c.figures {
		if wanted(&c.figures[i]) {
			return &c.figures[i]
		}
	}
	return nil
}

func (c *column) add(f figure) {
	if old := c.find(f.is); old != nil {
		*old = f
		return
	}
	c.figures = append(c.figures, f)
}

// benches returns the names of the parts that were measured.
func (list columns) benches() (names []string) {
	for _, p := range allParts() {
		if len(list.figures(p.name)) > 0 {
			names = append(names, p.name)
		}
	}
	return names
}

// figures returns the figures of a part, each once.
func (list columns) figures(bench string) (all []figure) {
	for _, c := range list {
		for _, f := range c.figures {
			if f.Bench == bench && !slices.ContainsFunc(all, func(g figure) bool { return f.is(&g) }) {
				all = append(all, f)
			}
		}
	}
	return all
}

var marked = regexp.MustCompile(`(?s)(<!-- tables: ([a-z ]+) -->\n).*?(<!-- end of tables -->)`)

// fill replaces the tables in a page.
func (list columns) fill(page string) string {
	return marked.ReplaceAllStringFunc(page, func(old string) string {
		parts := marked.FindStringSubmatch(old)
		var b strings.Builder
		for bench := range strings.FieldsSeq(parts[2]) {
			if bench == "machine" {
				b.WriteString(machineTable(list))
			} else {
				b.WriteString(list.tablesOf(slices.DeleteFunc(list.figures(bench), func(f figure) bool {
					return leftOut.MatchString(f.Bench + "/" + f.Part + "/" + f.Name)
				})))
			}
		}
		if b.Len() == 0 {
			return old
		}
		return parts[1] + b.String() + "\n" + parts[3]
	})
}

func machineTable(list columns) string {
	rows := [][]string{{"", "date", "processor", "kernel", "Go", "database", "Redis or Valkey"}}
	for _, c := range list {
		m := c.machine
		kernel, _, _ := strings.Cut(m.Kernel, "-") // without the name of its build
		rows = append(rows, []string{c.name, m.Date, fmt.Sprintf("%s, %d cores", m.CPU, m.Cores), kernel, m.Go, m.MySQL, m.Redis})
	}
	return markdown(rows)
}

// tablesOf returns the tables of some figures, one for each title.
func (list columns) tablesOf(all []figure) string {
	var titles []string
	for _, f := range all {
		if !slices.Contains(titles, f.Part) {
			titles = append(titles, f.Part)
		}
	}
	var b strings.Builder
	for _, title := range titles {
		of := slices.DeleteFunc(slices.Clone(all), func(f figure) bool { return f.Part != title })
		if of[0].P99 != nil {
			fmt.Fprintf(&b, "\n**%s**: p50 / p99 ms / rows read; ÷ is the better one's p50 to that of activityd\n%s", title, list.gridOf(of))
			continue
		}
		to, others := against(of)
		fmt.Fprintf(&b, "\n**%s**", title)
		if to != "" {
			fmt.Fprintf(&b, ": ÷ is to %s", to)
		}
		b.WriteString("\n" + list.tableOf(of, to, others))
	}
	return b.String()
}

// against names what the ratios of figures are to, "" if there are none. If others, some are to
// something else.
func against(of []figure) (to string, others bool) {
	above, last := true, "" // ratios are to the last row without one
	for _, f := range of {
		switch {
		case f.Against == "":
			last = f.Name
			continue
		case to == "":
			to = f.Against
		}
		others = others || f.Against != to
		above = above && f.Against == last
	}
	if others && above {
		return "the last row without one", false
	}
	return to, others
}

// unitOf is the unit that all values have, "" if there is none.
func unitOf(of []figure) (unit string) {
	for i, f := range slices.DeleteFunc(slices.Clone(of), func(f figure) bool { return f.Value == nil }) {
		if i > 0 && f.Unit != unit {
			return ""
		}
		unit = f.Unit
	}
	return unit
}

// tableOf has a row for each figure, and for each column its value, its ratio, and the processor
// time of an operation, where any has these.
func (list columns) tableOf(of []figure, to string, others bool) string {
	unit := unitOf(of)
	cpu := slices.ContainsFunc(of, func(f figure) bool { return f.Each != nil && f.Each.CPU != nil })
	aims := slices.ContainsFunc(of, func(f figure) bool { return f.Aim != nil })
	row := func(name string, cells func(*column) (value, ratio, micros string), other, aim string) []string {
		row := []string{name}
		for _, c := range list {
			value, ratio, micros := cells(c)
			row = append(row, value)
			if to != "" {
				row = append(row, ratio)
			}
			if cpu {
				row = append(row, micros)
			}
		}
		if others {
			row = append(row, other)
		}
		if aims {
			row = append(row, aim)
		}
		return row
	}
	rows := [][]string{row(unit, func(c *column) (value, ratio, micros string) { return c.short(list), "÷", "CPU µs" }, "if not to that", "aim")}
	for _, f := range of {
		other := f.Against
		if other == to {
			other = ""
		}
		rows = append(rows, row(f.Name, func(c *column) (value, ratio, micros string) { return c.find(f.is).cells(unit) }, other, f.Aim.String()))
	}
	return markdown(rows)
}

// gridOf has a row and a column for what stands before and after the colon in the names of figures
// with a p99, and for each server the smallest of the row's ratios.
func (list columns) gridOf(of []figure) string {
	var names, ways []string
	for _, f := range of {
		name, way, _ := strings.Cut(f.Name, ": ")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if !slices.Contains(ways, way) {
			ways = append(ways, way)
		}
	}
	head := []string{""}
	for _, c := range list {
		for _, way := range ways {
			head = append(head, c.short(list)+": "+way)
		}
		head = append(head, "÷")
	}
	rows := [][]string{head}
	for _, name := range names {
		row := []string{name}
		for _, c := range list {
			better := (*figure)(nil)
			for _, way := range ways {
				f := c.find(func(f *figure) bool { return f.Part == of[0].Part && f.Name == name+": "+way })
				cell := ""
				if f != nil {
					cell = fmt.Sprintf("%s / %s / %.0f", f.median(f.Value), number(f.P99.Median), f.Each.Counts.RowsRead)
				}
				row = append(row, cell)
				if f != nil && f.Ratio != nil && (better == nil || f.Ratio.Median < better.Ratio.Median) {
					better = f
				}
			}
			ratio := ""
			if better != nil {
				ratio = better.median(better.Ratio)
			}
			row = append(row, ratio)
		}
		rows = append(rows, row)
	}
	return markdown(rows)
}

// short is the database of the column, or all of its name if another one has that database, too.
func (c *column) short(list columns) string {
	database, _, _ := strings.Cut(c.name, ",")
	for _, other := range list {
		if other != c && strings.HasPrefix(other.name, database+",") {
			return c.name
		}
	}
	return database
}

// cells are a figure's value, its ratio and the processor time of an operation. The unit
// is left out that the whole table has. A missed aim is marked: of the ratio, if there is one.
func (f *figure) cells(unit string) (value, ratio, micros string) {
	if f == nil {
		return "", "", ""
	}
	verdict := ""
	if f.Verdict == missed {
		verdict = ": " + missed
	}
	if f.Ratio != nil {
		ratio, verdict = f.median(f.Ratio)+verdict, ""
	}
	if f.Value != nil {
		value = f.median(f.Value)
		if unit == "" && f.Unit != "" {
			value += " " + f.Unit
		}
	}
	if f.Each != nil && f.Each.CPU != nil {
		micros = number(f.Each.CPU.Sum)
	}
	return value + verdict, ratio, micros
}

// median formats a spread without its range.
func (f *figure) median(s *spread) string {
	if !f.Exact && s.noisy() {
		return unclear
	}
	return number(s.Median)
}

var numeral = regexp.MustCompile(`\b\d+(\.\d+)?\b`)

// markdown formats a table, whose first row is its head, after an empty line.
func markdown(rows [][]string) string {
	var b strings.Builder
	b.WriteString("\n")
	for i, row := range rows {
		for j, cell := range row {
			if i > 0 && j > 0 && !strings.Contains(cell, "-") { // neither dates nor versions
				cell = numeral.ReplaceAllStringFunc(cell, grouped)
			}
			row[j] = strings.ReplaceAll(cell, "|", `\|`)
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}

// grouped writes 12345.6 as 12,345.6.
func grouped(number string) string {
	digits, _, _ := strings.Cut(number, ".")
	decimals := number[len(digits):]
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits + decimals
}
