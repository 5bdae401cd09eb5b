package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// report is all that was measured.
type report struct {
	Machine machine  `json:"machine"`
	Figures []figure `json:"figures"`
}

// machine describes the machine and its software, and the date of the measurement.
type machine struct {
	Date   string `json:"date"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Go     string `json:"go"`
	MySQL  string `json:"mysql"`
	Redis  string `json:"redis"` // its version, after "Valkey " if it is that
	Beside string `json:"beside"`
}

// figure is a value, or its ratio to another value, or both.
type figure struct {
	Part    string  `json:"part"`
	Name    string  `json:"name"`
	Unit    string  `json:"unit"`
	Value   spread  `json:"value"`
	Micros  float64 `json:"micros,omitzero"` // processor time of an operation; 0: it was not measured
	Against string  `json:"against,omitempty"`
	Ratio   spread  `json:"ratio,omitzero"`
	Bound   bound   `json:"bound,omitzero"`
}

// spread is the spread of a figure over the rounds.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(values []float64) spread {
	return spread{quantile(values, 0.5), slices.Min(values), slices.Max(values)}
}

// String is the median; with its range if the rounds are so far apart that it means little.
func (s spread) String() string {
	if s.Min >= 0 && s.Max > 2*s.Min {
		return fmt.Sprintf("%s (%s to %s)", number(s.Median), number(s.Min), number(s.Max))
	}
	return number(s.Median)
}

// bound is the least or the largest ratio that is wanted, or value if there is no ratio; 0: none is.
type bound struct {
	Limit  float64 `json:"limit"`
	AtMost bool    `json:"at_most"`
}

func atLeast(x float64) bound { return bound{x, false} }
func atMost(x float64) bound  { return bound{x, true} }

// String says whether a median keeps the bound.
func (o bound) of(median float64) string {
	sign, kept := "≥", median >= o.Limit
	if o.AtMost {
		sign, kept = "≤", median <= o.Limit
	}
	switch {
	case o.Limit == 0:
		return ""
	case kept:
		return sign + " " + number(o.Limit)
	}
	return sign + " " + number(o.Limit) + ": missed"
}

// rates adds the rates of some contenders. If there are several, each further contender has its
// ratio to the first; bounds are by the contender's name.
func (r *report) rates(part, unit string, all map[string]*samples, bounds map[string]bound, names ...string) {
	for i, name := range names {
		s := all[name]
		f := figure{Part: part, Name: name, Unit: unit, Value: spreadOf(s.rates), Micros: spreadOf(s.micros).Median, Bound: bounds[name]}
		if i > 0 {
			f.Against, f.Ratio = names[0], ratio(s.rates, all[names[0]].rates)
		}
		r.Figures = append(r.Figures, f)
	}
}

// ratio is that of two contenders, round by round.
func ratio(a, b []float64) spread {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return spreadOf(ratios)
}

// times adds the quantiles of a contender's times.
func (r *report) times(part string, s *samples, name string, bounds map[string]bound) {
	for _, q := range []string{"p50", "p99"} {
		f := figure{Part: part, Name: name + ", " + q, Unit: "ms", Value: spreadOf(s.times[q]), Bound: bounds[q]}
		if q == "p50" {
			f.Micros = spreadOf(s.micros).Median
		}
		r.Figures = append(r.Figures, f)
	}
}

// write writes a table in Markdown for each part.
func (r *report) write(out io.Writer) {
	m := r.Machine
	fmt.Fprintf(out, "%s: %s, %d cores; %s; MySQL or MariaDB %s; Redis %s; %s\n", m.Date, m.CPU, m.Cores, m.Go, m.MySQL, m.Redis, m.Beside)
	part := ""
	for _, f := range r.Figures {
		if f.Part != part {
			part = f.Part
			fmt.Fprintf(out, "\n**%s**\n\n|  |  |  | CPU µs | ÷ | of | bound |\n|---|---|---|---|---|---|---|\n", part)
		}
		micros, ratio, judged := "", "", f.Value.Median
		if f.Micros > 0 {
			micros = number(f.Micros)
		}
		if f.Against != "" {
			ratio, judged = f.Ratio.String(), f.Ratio.Median
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s |\n", f.Name, f.Value, f.Unit, micros, ratio, f.Against, f.Bound.of(judged))
	}
}

// writeJSON writes the report to a file.
func (r *report) writeJSON(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}

// number formats x with about three digits: no measurement here is more precise.
func number(x float64) string {
	if x == 0 {
		return "0"
	}
	digits := 2 - int(math.Floor(math.Log10(math.Abs(x))))
	scale := math.Pow10(digits)
	return fmt.Sprintf("%.*f", max(0, digits), math.Round(x*scale)/scale)
}

func describe(ctx context.Context, b *bench) (m machine, err error) {
	info, err := b.client.InfoMap(ctx, "server").Result()
	if err != nil {
		return m, err
	}
	version := info["Server"]["redis_version"]
	if own := info["Server"]["valkey_version"]; own != "" {
		version = "Valkey " + own // Valkey also names a version of Redis that it is like
	}
	m = machine{
		Date: time.Now().UTC().Format(time.DateOnly), CPU: processor(), Cores: runtime.NumCPU(), Go: runtime.Version(),
		MySQL: b.mysql.Version(), Redis: version,
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		var beside []string
		for _, d := range build.Deps {
			if slices.Contains([]string{"github.com/hibiken/asynq", "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4", "github.com/sideshow/apns2"}, d.Path) {
				beside = append(beside, strings.TrimPrefix(d.Path, "github.com/")+" "+d.Version)
			}
		}
		m.Beside = strings.Join(beside, ", ")
	}
	return m, nil
}

// processor is its name; empty on a system without /proc.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
