package redisnodes

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Generation identifies the data that the nodes hold: two that are read one after the
// other show whether data was lost between them. Its fields have a number for each tag, or
// one for one server.
type Generation struct {
	// Lost is when data were last found to be lost; see [Nodes.LostAt]. It is gone with
	// the data, and higher after a loss. 0: no process has looked at the data yet.
	Lost []int64 `json:"lost,omitempty"`
	// Marks are numbers that [Nodes.Probe] raises and nothing lowers: older data have lower
	// marks.
	Marks []int64 `json:"marks,omitempty"`
}

// Rewound reports whether some of what was written before is gone, where before is an
// earlier generation or the zero one: a node was emptied, or came back with older data, or
// its data were deleted because they might be old.
func (g Generation) Rewound(before Generation) bool {
	for i := range min(len(g.Lost), len(before.Lost)) {
		if before.Lost[i] != 0 && g.Lost[i] != before.Lost[i] {
			return true
		}
	}
	for i := range min(len(g.Marks), len(before.Marks)) {
		if g.Marks[i] < before.Marks[i] {
			return true
		}
	}
	return false
}

// Settled reports whether the data of all nodes were looked at, so that a later loss of any
// of them shows.
func (g Generation) Settled() bool { return !slices.Contains(g.Lost, 0) }

// Generation reads the generation. What lies on nodes that cannot be reached is as in
// before; an error says that none can be reached. It asks each node something small, and
// waits for none that is known to be down. It has no effect.
func (ns *Nodes) Generation(ctx context.Context, before Generation) (Generation, error) {
	tags := ns.allTags()
	g := Generation{Lost: make([]int64, len(tags)), Marks: make([]int64, len(tags))}
	copy(g.Lost, before.Lost)
	copy(g.Marks, before.Marks)
	lost, marks := make([]*redis.StringCmd, len(tags)), make([]*redis.StringCmd, len(tags))
	var commands []*Command
	for i, tag := range tags {
		lost[i], marks[i] = textOf(ctx, lostKey(tag)), textOf(ctx, markKey(tag))
		commands = append(commands, NewCommand(lostKey(tag), lost[i]), NewCommand(markKey(tag), marks[i]))
	}
	ns.Send(ctx, commands)
	var away error
	reached := false
	for i := range tags {
		if err := cmp.Or(lost[i].Err(), marks[i].Err()); err != nil {
			away = cmp.Or(away, err)
			continue
		}
		// A value that is missing, or no number, counts as 0.
		g.Lost[i], g.Marks[i], reached = number(lost[i].Val()), number(marks[i].Val()), true
	}
	if !reached {
		return before, fmt.Errorf("none of the nodes answers: %w", Translate(ctx, "read the generation", away))
	}
	return g, nil
}
