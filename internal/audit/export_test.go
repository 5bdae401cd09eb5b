package audit

import (
	"time"

	"github.com/activityd/activityd/internal/index"
)

// Rules are what [Judge] judges by.
type Rules struct {
	index.Settings
	ActiveOnly bool
}

// Judge compares a set with the facts.
func Judge(s index.Set, f Facts, r Rules) []Finding { return judge(s, f, r.Settings, r.ActiveOnly) }

// Of returns the findings of a class.
func (r *Report) Of(c Class) (found []Finding) {
	for _, f := range r.Findings {
		if f.Class == c {
			found = append(found, f)
		}
	}
	return found
}

// Progress is where a sweep is, as it keeps it in its ledger.
type Progress struct {
	Began       time.Time
	Hurried     bool
	Done, Total int64
	Ended       time.Time // of the last round; zero: none yet
}

// ProgressOf reads what a sweep kept.
func ProgressOf(state string) Progress {
	r := parseRound(state)
	p := Progress{Began: time.UnixMilli(r.Began), Hurried: r.Hurried, Done: r.seen(), Total: r.Total}
	if r.Ended != 0 {
		p.Ended = time.UnixMilli(r.Ended)
	}
	return p
}

// Show makes the gauges of the sweep those of what a sweep kept; Hide removes them.
func Show(state string) { parseRound(state).show() }

var Hide = hideSweep

// CountSets and CountAnswers count what was compared.
var (
	CountSets    = countSets
	CountAnswers = countAnswers
)

// SinceOf is the loss up to which all sets are built again, as a sweep kept it.
func SinceOf(state string) int64 { return parseRound(state).Since }
