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
func GroupFailures(list []queue.Record, most int) (groups []Failures) {
	type key struct {
		queue, kind, shape string
		state              queue.State
	}
	places := make(map[key]int)
	for _, f := range list {
		text := f.LastError
		if runes := []rune(text); len(runes) > maxAlike {
			text = string(runes[:maxAlike])
		}
		shape := digits.ReplaceAllString(text, "0")
		k := key{f.Queue, f.Kind, shape, f.State}
		at, known := places[k]
		if !known {
			at = len(groups)
			places[k] = at
			groups = append(groups, Failures{Queue: f.Queue, Kind: f.Kind, State: f.State, Pattern: digits.ReplaceAllString(likeSigns.Replace(text), "%")})
		}
		g := &groups[at]
		g.Count++
		if f.ID >= g.Example {
			g.Example, g.Error = f.ID, text
		}
	}
	slices.SortFunc(groups, func(a, b Failures) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.Example, a.Example))
	})
	return groups[:min(len(groups), most)]
}
