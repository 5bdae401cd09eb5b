package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// measuredFigures is the file that scale wrote last, as it is committed.
//
//go:embed capacity.json
var measuredFigures []byte

// capacityOptions say what the model is asked.
type capacityOptions struct {
	figures   figuresOfScale
	members   []float64
	workloads []namedWorkload
}

type namedWorkload struct {
	name string
	workload

	known map[string]bool // what the reader says of its site, by the names in the JSON
}

// reportCapacity is the subcommand capacity.
func reportCapacity(args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("bench capacity", flag.ContinueOnError)
	flags.SetOutput(log)
	members := flags.String("members", "1e7,1e8,1e9", "numbers of members")
	costsFile := flags.String("costs", "", "file that scale wrote, instead of the committed one")
	figuresFiles := flags.String("figures", "", "files that other parts wrote with --json: costs of push (deliveries), of forks (save), and in a cluster (fanout,cluster)")
	workloadFile := flags.String("workload", "", "file of a workload (JSON); what it does not name is as in the first column")
	set := flags.String("set", "", "fields of the workload, as in peak=4,headroom=0.6")
	clusterTold := flags.Float64("cluster-told", 0, "cost of updating a set for an upload in a cluster, of activityd and Redis, over that on one server")
	save := flags.String("save", "", "file for the costs, with those of --figures in them")
	page := flags.String("page", "", "page whose tables are to be written")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected arguments %q", flags.Args())
	}
	o, err := committedCapacity()
	if err == nil && *costsFile != "" {
		err = o.replace(*costsFile)
	}
	if err != nil {
		return err
	}
	for _, file := range strings.FieldsFunc(*figuresFiles, func(r rune) bool { return r == ',' }) {
		if err := o.figures.Costs.takeFrom(file); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if *clusterTold > 0 {
		o.figures.Costs.ClusterTold = *clusterTold
	}
	if o.members, err = numbers(*members); err != nil {
		return fmt.Errorf("--members: %w", err)
	}
	if err := o.change(*workloadFile, *set); err != nil {
		return err
	}
	if *save != "" {
		if err := o.figures.write(*save); err != nil {
			return err
		}
	}
	if *page != "" {
		return o.writePage(*page)
	}
	for _, t := range o.tables() {
		fmt.Fprintf(out, "\n## %s\n\n%s", t.name, t.text)
	}
	return nil
}

// committedCapacity is what the page is written from.
func committedCapacity() (o capacityOptions, err error) {
	o = capacityOptions{members: []float64{1e7, 1e8, 1e9}, workloads: []namedWorkload{{name: "quiet", workload: quiet()}, {name: "busy", workload: busy()}}}
	return o, strictly(measuredFigures, &o.figures)
}

// replace takes the figures in a file that scale wrote. Costs that scale does not measure
// stay as they are.
func (o *capacityOptions) replace(file string) error {
	text, err := os.ReadFile(file) //nolint:gosec // the user chooses the file
	if err != nil {
		return err
	}
	var f figuresOfScale
	if err := strictly(text, &f); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	old := o.figures.Costs
	if f.Costs.Deliver == (cost{}) {
		f.Costs.Deliver, f.Costs.Target = old.Deliver, old.Target
	}
	f.Costs.ForkMillis = cmp.Or(f.Costs.ForkMillis, old.ForkMillis)
	f.Costs.ClusterTold = cmp.Or(f.Costs.ClusterTold, old.ClusterTold)
	f.Costs.ToldCall = cmp.Or(f.Costs.ToldCall, old.ToldCall)
	o.figures = f
	return nil
}

// model are the costs from which the needs of sites are computed that are larger than any
// that was measured.
func (o *capacityOptions) model() costs {
	c := o.figures.Costs
	if list := o.sorted(); len(list) > 0 {
		largest := list[len(list)-1]
		c.LargeRefill = largest.Refill.MySQL / o.predict(largest).refill().MySQL / largest.Crowd.Members
	}
	return c
}

// strictly reads JSON whose fields are all known.
func strictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func numbers(list string) (all []float64, err error) {
	for text := range strings.SplitSeq(list, ",") {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || x < 1000 || x > 1e12 {
			return nil, fmt.Errorf("%q: want numbers of a thousand or more", text)
		}
		all = append(all, x)
	}
	return all, nil
}

// change replaces the workloads by the reader's, if there is one in a file or in settings.
func (o *capacityOptions) change(file, settings string) error {
	if file == "" && settings == "" {
		return nil
	}
	own, known := quiet(), make(map[string]bool)
	if file != "" {
		text, err := os.ReadFile(file) //nolint:gosec // the user chooses the file
		if err != nil {
			return err
		}
		var named map[string]float64
		if err := errors.Join(strictly(text, &own), json.Unmarshal(text, &named)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for name := range named {
			known[name] = true
		}
	}
	for setting := range strings.SplitSeq(settings, ",") {
		if setting == "" {
			continue
		}
		name, value, _ := strings.Cut(setting, "=")
		if err := strictly(fmt.Appendf(nil, "{%q: %s}", name, value), &own); err != nil {
			return fmt.Errorf("--set %s: %w", setting, err)
		}
		known[name] = true
	}
	o.workloads = []namedWorkload{{"yours", own, known}}
	return own.check()
}

func (w workload) check() error {
	switch {
	case w.Headroom <= 0 || w.Headroom > 1:
		return fmt.Errorf("headroom %v: want more than 0, and at most 1", w.Headroom)
	case w.LeastContacts <= 0 || w.ContactsTail <= 0 || w.FollowTail < 1 || w.UploadTail < 1 || w.Uploaders <= 0 || w.Uploaders >= 1:
		return errors.New("the crowd: want positive numbers, follow_tail and upload_tail of at least 1, and uploaders below 1")
	}
	return nil
}

// takeFrom takes the costs that other parts of the benchmark measured from its figures.
func (c *costs) takeFrom(file string) error {
	text, err := os.ReadFile(file) //nolint:gosec // the user chooses the file
	if err != nil {
		return err
	}
	var r results
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	took := 0
	var one, cluster float64 // CPU of activityd and Redis for a set told
	var few, many cost       // of a set, by calls with few sets and with many, of the first audience
	for _, f := range r.Figures {
		switch each := f.Each; {
		case each != nil && each.CPU != nil && f.Name == wayPool && strings.HasSuffix(f.Part, "hold the uploader already"):
			if strings.Contains(f.Part, "through a cluster") {
				cluster = each.CPU.Own + each.CPU.Redis
			} else if one == 0 { // of the first audience, as in the cluster
				one = each.CPU.Own + each.CPU.Redis
			}
		case each != nil && each.CPU != nil && f.Name == wayFew && few == (cost{}) && !strings.Contains(f.Part, "through a cluster"):
			few = costOfEach(each)
		case each != nil && each.CPU != nil && f.Name == wayIndex && many == (cost{}) && strings.HasSuffix(f.Part, "hold the uploader already") &&
			!strings.Contains(f.Part, "through a cluster"):
			many = costOfEach(each)
		case each != nil && each.CPU != nil && strings.HasPrefix(f.Part, "Deliveries of") && f.Name == wayDeliver:
			c.Deliver, took = costOfEach(each), took+1
		case each != nil && each.CPU != nil && strings.HasPrefix(f.Part, "Deliveries of") && f.Name == wayTarget:
			c.Target, took = costOfEach(each), took+1
		case f.Value != nil && f.Name == "one instance, longest fork":
			var pace string
			var sets float64
			if _, err := fmt.Sscanf(f.Part, "Reads of sets, one each %s while Redis saves %g sets", &pace, &sets); err != nil {
				return fmt.Errorf("%q: %w", f.Part, err)
			}
			full := c.SetBytes[len(c.SetBytes)-1] + c.KeyBytes
			c.ForkMillis, took = f.Value.Median/(sets*full)*1e9, took+1
		}
	}
	if few != (cost{}) && many != (cost{}) {
		each := few.plus(many, -1).times(1 / (1./fewSets - 1./setsInCall)).atLeastZero()
		c.ToldCall, took = cost{Activityd: each.Activityd, Redis: each.Redis}, took+1
	}
	if one > 0 && cluster > 0 {
		c.ClusterTold, took = cluster/one, took+1
	}
	if took == 0 {
		return errors.New("none of its figures is a cost: want the JSON of the parts deliveries, save, or fanout and cluster")
	}
	return nil
}

func costOfEach(e *expense) cost {
	return cost{Activityd: e.CPU.Own, MySQL: e.CPU.MySQL, Redis: e.CPU.Redis, Counts: e.Counts}
}

// mdTable is a table of the page, by the name of the place where it stands.
type mdTable struct{ name, text string }

// tables are all of the page.
func (o *capacityOptions) tables() []mdTable {
	return []mdTable{
		{"costs", o.costTable()},
		{"workloads", o.workloadTable()},
		{"check", o.checkTable()},
		{"needs", o.needTable()},
		{"fan-outs and rebuilds", o.timeTable()},
		{"limits", o.limitTable()},
	}
}

// markdownTable formats rows, the first of which is the head.
func markdownTable(rows ...[]string) string {
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	return b.String()
}

// begin and end of a table's place in the page.
func marks(name string) (begin, end string) {
	return "<!-- capacity: " + name + " -->\n", "<!-- end of " + name + " -->\n"
}

// writePage writes the tables into their places.
func (o *capacityOptions) writePage(file string) error {
	text, err := os.ReadFile(file) //nolint:gosec // the user chooses the file
	if err != nil {
		return err
	}
	page := string(text)
	for _, t := range o.tables() {
		begin, end := marks(t.name)
		before, rest, ok := strings.Cut(page, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			return fmt.Errorf("%s has no %q, or no %q after it", file, begin, end)
		}
		page = before + begin + t.text + end + after
	}
	return os.WriteFile(file, []byte(page), 0o644) //nolint:gosec // documentation
}

func (o *capacityOptions) costTable() string {
	c := o.figures.Costs
	rows := [][]string{{"", "activityd, µs", "MySQL, µs", "Redis, µs", "rows read"}}
	add := func(name string, c cost) {
		rows = append(rows, []string{name, number(c.Activityd), number(c.MySQL), number(c.Redis), number(c.Counts.RowsRead)})
	}
	add("a read", c.Read)
	add("a set updated for an upload", c.Told)
	add("…, and for each call of the script, of up to 100 sets", c.ToldCall)
	add("the row of a task, in the site's transaction", c.Enqueue)
	add("a change of contacts, claimed alone", c.ChangeAlone)
	add("…, in a full claim", c.ChangeBatched)
	add("an upload, claimed alone, without its followers", c.UploadAlone)
	add("…, in a full claim", c.UploadBatched)
	add("a refill", c.Refill)
	add("…, and for each contact", c.RefillContact)
	add("a set that the audit sweeps", c.Swept)
	add("a process at rest, a second", c.Process)
	add("a recipient of an event", c.Target)
	add("a message to a device", c.Deliver)
	add("the site's own: a change of contacts", c.SiteChange)
	add("…, an upload", c.SiteUpload)
	return markdownTable(rows...) + fmt.Sprintf("\nA full set takes %s bytes, and %s in the table of keys. HTTP: %s bytes a read. A fork takes %s ms for a gigabyte. In a cluster a set updated costs activityd and Redis %s times as much.\n",
		number(c.SetBytes[len(c.SetBytes)-1]), number(c.KeyBytes), number(c.Read.HTTPBytes), number(c.ForkMillis), short(c.ClusterTold))
}

// workloadTable leaves out what is the same of several workloads.
func (o *capacityOptions) workloadTable() string {
	var lists [][]string
	for i, w := range o.workloads {
		text, err := json.Marshal(w.workload)
		if err != nil {
			panic(err) // it is numbers
		}
		d := json.NewDecoder(bytes.NewReader(text))
		_, _ = d.Token()
		for j := 0; d.More(); j++ {
			name, _ := d.Token()
			value, _ := d.Token()
			if i == 0 {
				lists = append(lists, []string{fmt.Sprintf("`%v`", name)})
			}
			x, _ := value.(float64)
			lists[j] = append(lists[j], amount(x))
		}
	}
	lists = slices.DeleteFunc(lists, func(row []string) bool { return row[0] == "`members`" })
	if len(o.workloads) > 1 {
		lists = slices.DeleteFunc(lists, func(row []string) bool { return len(slices.Compact(slices.Clone(row[1:]))) == 1 })
	}
	head := []string{"", "contacts, in the mean", "followers of an upload, in the mean, of 10⁸ members", "followers of the most followed of 10⁸ members"}
	derived := [][]string{{head[1]}, {head[2]}, {head[3]}}
	for _, w := range o.workloads {
		w.Members = 1e8
		for i, x := range []float64{w.contacts(), w.followersOfUpload(), w.mostFollowers()} {
			derived[i] = append(derived[i], amount(x))
		}
	}
	return markdownTable(append([][]string{o.head("")}, append(lists, derived...)...)...)
}

func (o *capacityOptions) head(first string) []string {
	row := []string{first}
	for _, w := range o.workloads {
		row = append(row, w.name)
	}
	return row
}

// amount formats a number of things.
func amount(x float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e4, " k"}} {
		if math.Abs(x) >= unit.size {
			if unit.size == 1e4 {
				unit.size = 1e3
			}
			return short(x/unit.size) + unit.name
		}
	}
	return short(x)
}

// short formats x with three digits, and without zeros at the end.
func short(x float64) string {
	text := number(x)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// bytesOf formats a number of bytes.
func bytesOf(x float64) string {
	if x >= 1e12 {
		return short(x/1e12) + " TB"
	}
	return short(x/1e9) + " GB"
}

// duration formats seconds.
func duration(s float64) string {
	switch {
	case s < 120:
		return short(s) + " s"
	case s < 2*3600:
		return short(s/60) + " min"
	case s < 2*day:
		return short(s/3600) + " h"
	}
	return short(s/day) + " days"
}

// members formats how many there are, powers of ten as such.
func members(x float64) string {
	e := math.Round(math.Log10(x))
	if math.Abs(x/math.Pow(10, e)-1) > 1e-9 {
		return amount(x)
	}
	digits := []rune("⁰¹²³⁴⁵⁶⁷⁸⁹")
	text := []rune("10")
	for _, d := range strconv.Itoa(int(e)) {
		text = append(text, digits[d-'0'])
	}
	return string(text)
}

// predict is what a load that was measured should have taken.
func (o *capacityOptions) predict(t taken) need {
	w := quiet()
	w.crowd = t.Crowd
	w.MySQLMemory = 1 << 30 // as in backend.go
	w.Photos = 10 * w.Uploaders
	r, pace := t.Rates, t.Planned/t.Seconds // less than 1 where the machine was too slow for the rates
	r.Reads, r.Uploads, r.Changes = r.Reads*pace, r.Uploads*pace, r.Changes*pace
	r.SweepSets = t.Swept / t.Seconds // it hurried, as Redis was empty before
	n := n0(o.figures.Costs, w, r)
	return n.perSecond(1)
}

// comparison is a prediction beside what was measured.
type comparison struct {
	name                string
	predicted, measured float64
}

// compare predicts what a load took.
func (o *capacityOptions) compare(t taken) []comparison {
	n := o.predict(t)
	c, m := n.total(), t.Cost.times(1/t.Seconds)
	r := n.refill().times(t.Crowd.Members)
	return []comparison{
		{"contacts, in the mean", n.contacts, t.Contacts / t.Crowd.Members},
		{followersTold, n.told, t.Told / t.Seconds},
		{"sets", n.sets, t.Sets},
		{"memory of the sets, MB", n.setBytes / 1e6, t.SetMemory / 1e6},
		{"CPU of activityd, ms a second", c.Activityd / 1e3, m.Activityd / 1e3},
		{"CPU of MySQL, ms a second", c.MySQL / 1e3, m.MySQL / 1e3},
		{"CPU of Redis, ms a second", c.Redis / 1e3, m.Redis / 1e3},
		{"rows MySQL reads, a second", c.Counts.RowsRead, m.Counts.RowsRead},
		{"statements, a second", c.Counts.Statements, m.Counts.Statements},
		{"bytes from and to MySQL, kB a second", c.Counts.MySQLBytes / 1e3, m.Counts.MySQLBytes / 1e3},
		{"bytes from and to Redis, kB a second", c.Counts.RedisBytes / 1e3, m.Counts.RedisBytes / 1e3},
		{"HTTP, kB a second", c.HTTPBytes / 1e3, m.HTTPBytes / 1e3},
		{"pages MySQL reads from its disk, a second", n.pages, t.Pages / t.Seconds},
		{"the site on disk, MB", n.siteBytes / 1e6, t.Disk / 1e6},
		{"all sets made: CPU of activityd, s", r.Activityd / 1e6, t.Refill.Activityd / 1e6},
		{"…, of MySQL, s", r.MySQL / 1e6, t.Refill.MySQL / 1e6},
		{"…, of Redis, s", r.Redis / 1e6, t.Refill.Redis / 1e6},
		{"…, rows read, thousands", r.Counts.RowsRead / 1e3, t.Refill.Counts.RowsRead / 1e3},
	}
}

const followersTold = "sets updated for uploads, a second"

// checkTable has a column for each load: by how much its prediction is off.
func (o *capacityOptions) checkTable() string {
	var b strings.Builder
	rows := [][]string{{""}}
	chance := []string{"…, by chance"}
	for i, t := range o.sorted() {
		fmt.Fprintf(&b, "%d. **%s members**, %s reads, %s uploads and %s contact changes a second, %s sets swept a second\n",
			i+1, members(t.Crowd.Members), short(t.Rates.Reads), short(t.Rates.Uploads), short(t.Rates.Changes), short(t.Swept/t.Seconds))
		rows[0] = append(rows[0], fmt.Sprintf("%d, %s", i+1, members(t.Crowd.Members)))
		chance = append(chance, fmt.Sprintf("±%.0f %%", 100*t.Crowd.chance(t.Rates.Uploads*t.Planned)))
		for j, c := range o.compare(t) {
			if i == 0 {
				rows = append(rows, []string{c.name})
			}
			rows[j+1] = append(rows[j+1], errorOf(c.predicted, c.measured))
		}
	}
	at := slices.IndexFunc(rows, func(row []string) bool { return row[0] == followersTold })
	return b.String() + "\n" + markdownTable(slices.Insert(rows, at+1, chance)...)
}

// errorOf formats by how much a prediction is off.
func errorOf(predicted, measured float64) string {
	if measured == 0 {
		return ""
	}
	percent := math.Round(100 * (predicted/measured - 1))
	if percent == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%+.0f %%", percent)
}

// sorted are the loads by the size of their sites.
func (o *capacityOptions) sorted() []taken {
	list := slices.Clone(o.figures.Loads)
	slices.SortStableFunc(list, func(a, b taken) int { return int(a.Crowd.Members - b.Crowd.Members) })
	return list
}

// line is a line of a table: a number and its format.
type line struct {
	name string
	of   func(need) float64
	as   func(float64) string
}

// each returns the table of lines for each workload with each number of members. Numbers are ranges
// where some of what they are computed from has no source.
func (o *capacityOptions) each(lines []line) string {
	rows, costs := [][]string{{""}}, o.model()
	for _, l := range lines {
		rows = append(rows, []string{l.name})
	}
	for _, w := range o.workloads {
		for _, m := range o.members {
			rows[0] = append(rows[0], w.name+", "+members(m))
			w.Members = m
			var needs []need
			for _, other := range w.spread(w.known) {
				needs = append(needs, compute(costs, other))
			}
			for i, l := range lines {
				rows[i+1] = append(rows[i+1], rangeOf(needs, l.of, l.as))
			}
		}
	}
	return markdownTable(rows...)
}

// rangeOf formats the smallest and the largest value.
func rangeOf[T any](list []T, of func(T) float64, as func(float64) string) string {
	low, high := math.Inf(1), math.Inf(-1)
	for _, x := range list {
		low, high = min(low, of(x)), max(high, of(x))
	}
	if as(low) == as(high) {
		return as(low)
	}
	return as(low) + " – " + as(high)
}

func (o *capacityOptions) needTable() string {
	w := o.workloads[0]
	percent := func(x float64) string { return short(100*x) + " %" }
	ofMySQL := func(micros func(need) float64) func(need) float64 {
		return func(n need) float64 { return micros(n) / n.total().MySQL }
	}
	return o.each([]line{
		{"reads a second", func(n need) float64 { return n.rates.Reads }, amount},
		{"uploads a second", func(n need) float64 { return n.rates.Uploads }, amount},
		{"sets updated for uploads, a second", func(n need) float64 { return n.told }, amount},
		{"**activityd: hosts** of " + short(w.HostCores) + " cores", func(n need) float64 { return n.processes }, amount},
		{"…, cores in use", func(n need) float64 { return n.total().Activityd / 1e6 }, short},
		{"**Redis: masters**, and as many replicas", need.masters, amount},
		{"…, memory of all, replicas included", need.redisMemory, bytesOf},
		{"…, cores in use, all masters", func(n need) float64 { return n.total().Redis / 1e6 }, short},
		{"**MySQL: cores in use** on the primary", func(n need) float64 { return n.total().MySQL / 1e6 }, short},
		{"…, of these for reads", ofMySQL(func(n need) float64 { return n.reads.MySQL }), percent},
		{"…, commits a second", func(n need) float64 { return n.commits }, amount},
		{"…, the site's tables", func(n need) float64 { return n.siteBytes }, bytesOf},
		{"…, pages from its disk a second, at worst", func(n need) float64 { return n.pages }, amount},
		{"MySQL primaries that it takes, were the site sharded", need.primaries, amount},
	})
}

func (o *capacityOptions) timeTable() string {
	w := o.workloads[0]
	return o.each([]line{
		{"a fan-out of the most followed member takes", func(n need) float64 { return n.fanOutSeconds(n.workload.mostFollowers()) }, duration},
		{"a fan-out to " + amount(w.Celebrity) + " followers takes", func(n need) float64 { return n.fanOutSeconds(n.workload.Celebrity) }, duration},
		{"a lost Redis node: its sets are made again in", func(n need) float64 { return n.rebuild(1) }, duration},
		{"all sets, by as many workers", func(n need) float64 { return n.rebuild(n.masters()) }, duration},
		{"sets a second for a round in " + short(w.SweepDays) + " days", func(n need) float64 { return n.rates.SweepSets }, amount},
	})
}

// enoughFor formats a number of members that something is enough for.
func enoughFor(members float64) string {
	if members > 1e11 {
		return "> 100 G"
	}
	return amount(members)
}

func (o *capacityOptions) limitTable() string {
	type limited struct {
		cells []string
		reach float64
	}
	var lines []limited
	for _, l := range limits() {
		row := limited{[]string{l.name}, math.Inf(1)}
		for i, w := range o.workloads {
			reach := func(w workload) float64 { return l.reach(o.model(), w) }
			row.cells = append(row.cells, rangeOf(w.spread(w.known), reach, enoughFor))
			if i == len(o.workloads)-1 {
				row.reach = reach(w.workload)
			}
		}
		row.cells = append(row.cells, l.remedy)
		lines = append(lines, row)
	}
	slices.SortStableFunc(lines, func(a, b limited) int {
		switch {
		case a.reach < b.reach:
			return -1
		case a.reach > b.reach:
			return 1
		}
		return 0
	})
	rows := [][]string{append(o.head("enough for so many members"), "remedy")}
	for _, l := range lines {
		rows = append(rows, l.cells)
	}
	return markdownTable(rows...)
}
