package inspect

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/activityd/activityd/queue"
)

// Failures are the tasks of a queue, a type and a state whose last errors are alike but for numbers.
type Failures struct {
	Queue, Kind string
	State       queue.State
	Error       string // of the newest, the example
	Example     uint64 // its id
	Count       int
	// Pattern finds them, and perhaps more; see [queue.Filter].
	Pattern string
}

var (
	digits    = regexp.MustCompile(`\d+`)
	likeSigns = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)
)

// maxAlike is how many characters of errors are compared: a stack behind them differs.
const maxAlike = 300

// GroupFailures returns the groups of failures, the largest first, at most so many.
func GroupFailures(list []queue.Record, most int) []Failures {
	type key struct {
		queue, kind, shape string
		state              queue.State
	}
	groups := make(map[key]*Failures)
	for _, f := range list {
		text := f.LastError
		if runes := []rune(text); len(runes) > maxAlike {
			text = string(runes[:maxAlike])
		}
		k := key{f.Queue, f.Kind, digits.ReplaceAllString(text, "0"), f.State}
		g := groups[k]
		if g == nil {
			g = &Failures{Queue: f.Queue, Kind: f.Kind, State: f.State, Pattern: digits.ReplaceAllString(likeSigns.Replace(text), "%")}
			groups[k] = g
		}
		if g.Count++; f.ID >= g.Example {
			g.Example, g.Error = f.ID, text
		}
	}
	var sorted []Failures
	for _, g := range groups {
		sorted = append(sorted, *g)
	}
	slices.SortFunc(sorted, func(a, b Failures) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.Example, a.Example))
	})
	return sorted[:min(len(sorted), most)]
}
