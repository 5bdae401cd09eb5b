package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/member"
)

// maxFindings is how many findings of a class are printed one by one. JSON has all.
const maxFindings = 100

// findingPrinter writes findings as they come. It is not safe for concurrent use.
type findingPrinter struct {
	w     io.Writer
	json  *json.Encoder       // nil: as text
	found map[audit.Class]int // text: how many there were of each class
	// lagSince is the earliest of all lags; zero: there is none, or it is not known.
	lagSince time.Time
}

func newFindingPrinter(w io.Writer, output string) *findingPrinter {
	p := &findingPrinter{w: w, found: map[audit.Class]int{}}
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
			return fmt.Errorf("print the findings: %w", err)
		}
	}
	return nil
}

// printOne prints the first findings of each class, and as text no lag: it will pass,
// and is in the table.
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
	p.found[f.Class]++
	if p.found[f.Class] > maxFindings {
		return nil
	}
	_, err := fmt.Fprintln(p.w, oneLine(f.String()))
	return err
}

// summary ends the output: how many there were of what, whether it came to the end
// or not. LeftOut names members whose answers were not compared.
func (p *findingPrinter) summary(r bulk.Result, leftOut string, complete bool) error {
	n := r.Counts
	if p.json != nil {
		summary := map[string]any{
			"complete": complete, "checked": n[countChecked], "answers": n[countAnswers], "answers_left_out": n[countLeftOut], "erroneous": n[countErroneous],
			"unsettled": n[countUnsettled], "repairs": n[countRepairs], "lasting": n[countLasting],
			"failed": n[bulk.Failed], "findings": findingCounts(n), "seconds": r.Took.Seconds(),
		}
		if !p.lagSince.IsZero() {
			summary["lag_since"] = p.lagSince
		}
		return p.json.Encode(map[string]any{"summary": summary})
	}
	var text strings.Builder
	for _, class := range audit.Classes() {
		if more := p.found[class] - maxFindings; more > 0 {
			fmt.Fprintf(&text, "%s: and %d more, all of them with --output=json\n", class, more)
		}
	}
	if n[countLeftOut] > 0 {
		fmt.Fprintf(&text, "%d answers were not compared, as the index had no part in them: those of members %s\n", n[countLeftOut], leftOut)
	}
	if counts := findingCounts(n); len(counts) > 0 {
		table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(table, "FOUND\tCLASS\tCAUSE") // into memory
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			class, cause, _ := strings.Cut(name, "/")
			_, _ = fmt.Fprintf(table, "%d\t%s\t%s\n", counts[name], class, cause)
		}
		_ = table.Flush()
	}
	text.WriteString("checked")
	if !complete {
		text.WriteString(" so far")
	}
	fmt.Fprintf(&text, ": %d sets, %d answers; %d wrong", n[countChecked], n[countAnswers], n[countErroneous])
	if n[countUnsettled] > 0 {
		fmt.Fprintf(&text, ", %d changed too often to be judged", n[countUnsettled])
	}
	if !p.lagSince.IsZero() {
		fmt.Fprintf(&text, ", lag since %s UTC (%s)", p.lagSince.Format(time.DateTime), shortDuration(time.Since(p.lagSince)))
	}
	if n[bulk.Failed] > 0 {
		fmt.Fprintf(&text, ", %d failed", n[bulk.Failed])
	}
	if n[countRepairs] > 0 {
		fmt.Fprintf(&text, ", %d refills enqueued", n[countRepairs])
	}
	_, err := fmt.Fprintf(p.w, "%s; %s\n", text.String(), rate(r, n[countChecked]))
	return err
}

// findingCounts are the counts of findings, by class and cause.
func findingCounts(n bulk.Counts) map[string]int64 {
	found := make(map[string]int64)
	for name, count := range n {
		if strings.Contains(name, "/") {
			found[name] = count
		}
	}
	return found
}
