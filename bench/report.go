package main

import (
	"encoding/json"
	"os"
)

// report is all that was measured.
type report struct {
	Machine    machine           `json:"machine"`
	Options    reported          `json:"options"`
	Throughput []contenderReport `json:"throughput,omitempty"`
	Ratios     []ratio           `json:"ratios,omitempty"`
	Wake       []latency         `json:"wake,omitempty"`
	Backlog    []growth          `json:"backlog,omitempty"`
	Plans      []plan            `json:"plans,omitempty"`
}

// reported are the options that one has to know to read the report.
type reported struct {
	Rounds    int `json:"rounds"`
	Tasks     int `json:"tasks"`
	Members   int `json:"members"`
	Contacts  int `json:"contacts_of_each"`
	Producers int `json:"producers"`
}

// contenderReport is what came out for one contender in one phase.
type contenderReport struct {
	Name  string    `json:"name"`
	Phase phase     `json:"phase"`
	Rate  spread    `json:"tasks_per_second"`
	CPU   cpuReport `json:"cpu_microseconds_per_task"`
	Runs  []run     `json:"runs"`
}

// cpuReport is the processor time for a task, in microseconds.
type cpuReport struct {
	Sum   spread `json:"sum"`
	Own   spread `json:"own"`
	MySQL spread `json:"mysql"`
	Redis spread `json:"redis"`
}

// ratio compares two contenders round by round.
type ratio struct {
	Name  string `json:"name"`
	Phase phase  `json:"phase"`
	Over  string `json:"over"`
	Rate  spread `json:"rate"` // how many times as many tasks per second
	CPU   spread `json:"cpu"`  // how many times as little processor time for each
}

func (t *throughput) report(list []contender) (out []contenderReport) {
	for _, p := range phases() {
		for _, c := range list {
			runs := t.runs[p][c.name]
			out = append(out, contenderReport{c.name, p, spreadOfRuns(runs, run.rate), cpuReport{
				spreadOfRuns(runs, func(r run) float64 { return r.micros(r.CPU.sum()) }),
				spreadOfRuns(runs, func(r run) float64 { return r.micros(r.CPU.Own) }),
				spreadOfRuns(runs, func(r run) float64 { return r.micros(r.CPU.MySQL) }),
				spreadOfRuns(runs, func(r run) float64 { return r.micros(r.CPU.Redis) }),
			}, runs})
		}
	}
	return out
}

func spreadOfRuns(runs []run, figure func(run) float64) spread {
	values := make([]float64, len(runs))
	for i, r := range runs {
		values[i] = figure(r)
	}
	return spreadOf(values)
}

// ratios compares contenders from end to end with their rivals: of several in a
// class, with the one that did best.
func (t *throughput) ratios(list []contender) (out []ratio) {
	classes := make(map[string][]contender)
	for _, c := range list {
		classes[c.class] = append(classes[c.class], c)
	}
	for _, c := range list {
		for _, class := range c.against {
			out = append(out, t.ratio(c, t.best(classes[class])))
		}
	}
	return out
}

// best returns the contender with the highest median rate from end to end.
func (t *throughput) best(list []contender) contender {
	best := list[0]
	for _, c := range list[1:] {
		if t.medianRate(c) > t.medianRate(best) {
			best = c
		}
	}
	return best
}

func (t *throughput) medianRate(c contender) float64 {
	return spreadOfRuns(t.runs[endToEnd][c.name], run.rate).Median
}

func (t *throughput) ratio(ours, theirs contender) ratio {
	var rates, cpus []float64
	rivals := t.runs[endToEnd][theirs.name]
	for i, r := range t.runs[endToEnd][ours.name] {
		rates = append(rates, r.rate()/rivals[i].rate())
		cpus = append(cpus, rivals[i].micros(rivals[i].CPU.sum())/r.micros(r.CPU.sum()))
	}
	return ratio{ours.name, endToEnd, theirs.name, spreadOf(rates), spreadOf(cpus)}
}

// writeJSON writes the report, with every single run.
func (r *report) writeJSON(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600) //nolint:gosec // whoever runs it chooses the file
}
