package sweep

import "github.com/activityd/activityd/internal/member"

// ledger keeps the batches in the order of their members, to know up to whom
// everything is done.
type ledger struct {
	state State
	open  []*batch // begun and not yet behind the position, in order
}

// batch is the members of one visit, and what became of them.
type batch struct {
	users  []member.ID
	counts Counts
	done   bool
	err    error // why it was given up
}

func newLedger(from State) *ledger {
	state := from.clone()
	if state.Counts == nil {
		state.Counts = Counts{}
	}
	return &ledger{state: state}
}

// begin adds a batch behind those that have begun.
func (l *ledger) begin(users []member.ID) *batch {
	b := &batch{users: users, counts: Counts{}}
	l.open = append(l.open, b)
	return b
}

// settle moves the position over the batches that are done, and reports whether
// it moved.
func (l *ledger) settle() (moved bool) {
	for len(l.open) > 0 && l.open[0].done {
		b := l.open[0]
		l.open = l.open[1:]
		l.state.Position = b.users[len(b.users)-1]
		l.state.Counts.Add(b.counts)
		moved = true
	}
	return moved
}
