package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/sweep"
)

// mostFindings is how many findings of a class are told one by one to people.
// Programs are told all.
const mostFindings = 100

// findingPrinter writes findings as they come. Its callers see to it that it is
// called by one goroutine at a time.
type findingPrinter struct {
	w    io.Writer
	json *json.Encoder       // nil: for people
	told map[audit.Class]int // people: of each class, and how many more there were
	more map[audit.Class]int
	// lagSince is the earliest of all lags; zero: there is none, or it is not known.
	lagSince time.Time
}

func newFindingPrinter(w io.Writer, output string) *findingPrinter {
	p := &findingPrinter{w: w, told: map[audit.Class]int{}, more: map[audit.Class]int{}}
	if output == outputJSON {
		p.json = newLineEncoder(w)
	}
	return p
}

// findingJSON is a finding as a line of JSON.
type findingJSON struct {
	User    member.ID   `json:"user"`
	Contact member.ID   `json:"contact,omitzero"`
	Class   audit.Class `json:"class"`
	Cause   audit.Cause `json:"cause"`
	Stored  uint64      `json:"stored"`
	Actual  uint64      `json:"actual"`
	Since   time.Time   `json:"since,omitzero"`
	Lasting bool        `json:"lasting,omitzero"`
	Detail  string      `json:"detail,omitzero"`
}

// print writes findings.
func (p *findingPrinter) print(findings []audit.Finding) error {
	for _, f := range findings {
		if err := p.printOne(f); err != nil {
			return fmt.Errorf("tell the findings: %w", err)
		}
	}
	return nil
}

// printOne tells people so many of each class, and of lag none: it will pass, and is
// in the table.
func (p *findingPrinter) printOne(f audit.Finding) error {
	if !f.Since.IsZero() && (p.lagSince.IsZero() || f.Since.Before(p.lagSince)) {
		p.lagSince = f.Since.UTC()
	}
	if p.json != nil {
		return p.json.Encode(findingJSON{f.User, f.Contact, f.Class, f.Cause, f.Stored, f.Actual, f.Since.UTC(), f.Lasting, f.Detail})
	}
	if f.Class == audit.Lag {
		return nil
	}
	if p.told[f.Class] == mostFindings {
		p.more[f.Class]++
		return nil
	}
	p.told[f.Class]++
	_, err := fmt.Fprintln(p.w, oneLine(f.String()))
	return err
}

// summary ends the output: how many there were of what, whether it came to the end
// or not. LeftOut names members whose answers were not compared.
func (p *findingPrinter) summary(r result, leftOut string, complete bool) error {
	n := r.Counts
	if p.json != nil {
		summary := map[string]any{
			"complete": complete, "checked": n[countChecked], "answers": n[countAnswers], "answers_left_out": n[countLeftOut], "erroneous": n[countErroneous],
			"unsettled": n[countUnsettled], "repairs": n[countRepairs], "lasting": n[countLasting],
			"failed": n[sweep.Failed], "findings": findingCounts(n), "seconds": r.took.Seconds(),
		}
		if !p.lagSince.IsZero() {
			summary["lag_since"] = p.lagSince
		}
		return p.json.Encode(map[string]any{"summary": summary})
	}
	for _, class := range audit.Classes() {
		if p.more[class] == 0 {
			continue
		}
		if _, err := fmt.Fprintf(p.w, "%s: and %d more, all of them with --output=json\n", class, p.more[class]); err != nil {
			return err
		}
	}
	if count := n[countLeftOut]; count > 0 {
		_, err := fmt.Fprintf(p.w, "%d answers were not compared, as the index had no part in them: those of members %s\n", count, leftOut)
		if err != nil {
			return err
		}
	}
	return p.table(r, complete)
}

// table tells people the counts, by cause and class.
func (p *findingPrinter) table(r result, complete bool) error {
	counts := findingCounts(r.Counts)
	if len(counts) > 0 {
		table := newTable(p.w)
		fmt.Fprintln(table, "FOUND\tCLASS\tCAUSE") // Flush returns its error
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			class, cause, _ := strings.Cut(name, "/")
			fmt.Fprintf(table, "%d\t%s\t%s\n", counts[name], class, cause)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	n, text := r.Counts, "checked"
	if !complete {
		text = "checked so far"
	}
	text = fmt.Sprintf("%s: %d sets, %d answers; %d wrong", text,
		n[countChecked], n[countAnswers], n[countErroneous])
	if n[countUnsettled] > 0 {
		text += fmt.Sprintf(", %d changed too often to be judged", n[countUnsettled])
	}
	if !p.lagSince.IsZero() {
		text += fmt.Sprintf(", lag since %s UTC (%s)", p.lagSince.Format(time.DateTime), shortDuration(time.Since(p.lagSince)))
	}
	if n[sweep.Failed] > 0 {
		text += fmt.Sprintf(", %d failed", n[sweep.Failed])
	}
	if n[countRepairs] > 0 {
		text += fmt.Sprintf(", %d refills enqueued", n[countRepairs])
	}
	_, err := fmt.Fprintf(p.w, "%s; %s\n", text, r.rate(n[countChecked]))
	return err
}

// findingCounts are the counts of findings, by class and cause.
func findingCounts(n sweep.Counts) map[string]int64 {
	found := make(map[string]int64)
	for name, count := range n {
		if strings.Contains(name, "/") {
			found[name] = count
		}
	}
	return found
}
