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

// tables writes the tables of docs/benchmarks.md from the JSON of runs: those on the same
// servers make a column, in the order of the files; of a figure that was measured twice on
// the same ones the later file counts. With --page it replaces what stands in a page between
// lines such as
//
//	<!-- tables: reads rows -->
//	<!-- end of tables -->
//
// by the tables of these parts; "machine" is that of the machines. What was not measured
// stays as it is. Without --page it prints all tables.
func tables(args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("bench table [--page FILE] JSON...", flag.ContinueOnError)
	flags.SetOutput(log)
	page := flags.String("page", "", "file whose tables are replaced")
	if err := flags.Parse(args); err != nil {
		return err
	}
	columns, err := readColumns(flags.Args())
	if err != nil {
		return err
	}
	if *page == "" {
		fmt.Fprint(out, machineTable(columns))
		for _, bench := range columns.benches() {
			fmt.Fprint(out, columns.tablesOf(bench))
		}
		return nil
	}
	text, err := os.ReadFile(*page)
	if err != nil {
		return err
	}
	return os.WriteFile(*page, []byte(columns.fill(string(text))), 0o644) //nolint:gosec // a page is for all to read
}

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

func (c *column) find(f *figure) *figure {
	for i := range c.figures {
		if c.figures[i].is(f) {
			return &c.figures[i]
		}
	}
	return nil
}

func (c *column) add(f figure) {
	if old := c.find(&f); old != nil {
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
				b.WriteString(list.tablesOf(bench))
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

// tablesOf returns the tables of a part.
func (list columns) tablesOf(bench string) string {
	all := list.figures(bench)
	var titles []string
	for _, f := range all {
		if !slices.Contains(titles, f.Part) {
			titles = append(titles, f.Part)
		}
	}
	var b strings.Builder
	for _, title := range titles {
		of := slices.DeleteFunc(slices.Clone(all), func(f figure) bool { return f.Part != title })
		fmt.Fprintf(&b, "\n**%s**\n", title)
		b.WriteString(list.figureTable(of))
		b.WriteString(list.costTable(of))
	}
	return b.String()
}

// figureTable has a row for each figure, and for each column its value and its ratio.
func (list columns) figureTable(of []figure) string {
	head := []string{""}
	for _, c := range list {
		head = append(head, c.name, "÷")
	}
	rows := [][]string{append(head, "to", "aim")}
	for _, f := range of {
		row := []string{f.Name}
		for _, c := range list {
			row = append(row, c.find(&f).pair()...)
		}
		rows = append(rows, append(row, f.Against, f.Aim.String()))
	}
	return markdown(rows)
}

// pair is a figure's value and its ratio, of which that with an aim has the verdict.
func (f *figure) pair() []string {
	var value, ratio string
	if f == nil {
		return []string{value, ratio}
	}
	verdict := ""
	if f.Verdict != "" {
		verdict = ": " + f.Verdict
	}
	if f.Value != nil {
		value = strings.TrimSpace(f.write(f.Value) + " " + f.Unit)
	}
	if f.Ratio != nil {
		ratio, verdict = "× "+f.write(f.Ratio)+verdict, ""
	}
	return []string{value + verdict, ratio}
}

// costTable has the costs of one operation, for those whose processor time was measured.
func (list columns) costTable(of []figure) string {
	head := []string{"for each operation"}
	for _, c := range list {
		head = append(head, c.name+": CPU µs", "of client, activityd, database, Redis", "commands", "rows")
	}
	rows := [][]string{head}
	for _, f := range of {
		row, measured := []string{f.Name}, false
		for _, c := range list {
			g := c.find(&f)
			if g == nil || g.Each == nil || g.Each.CPU == nil {
				row = append(row, "", "", "", "")
				continue
			}
			cpu, n := g.Each.CPU, g.Each.Counts
			row = append(row, number(cpu.Sum), strings.Join([]string{number(cpu.Own), number(cpu.Program), number(cpu.MySQL), number(cpu.Redis)}, ", "),
				number(n.Commands), number(n.RowsRead))
			measured = true
		}
		if measured {
			rows = append(rows, row)
		}
	}
	if len(rows) == 1 {
		return ""
	}
	return markdown(rows)
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
