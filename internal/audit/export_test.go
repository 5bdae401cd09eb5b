package audit

import "time"

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
	p := Progress{Began: time.UnixMilli(r.Began), Hurried: r.Hurried, Done: r.Done, Total: r.Total}
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
