package redisnodes

import "testing"

// Slots that go from their nodes to the replicas of these have not moved; any others have.
func TestSlotsThatMoved(t *testing.T) {
	t.Parallel()
	a, b, replica := &Node{addr: "a"}, &Node{addr: "b"}, &Node{addr: "replica"}
	on := func(first, second *Node) *layout {
		l := &layout{}
		for slot := range l.slots {
			l.slots[slot] = first
			if slot >= SlotCount/2 {
				l.slots[slot] = second
			}
		}
		return l
	}
	moved := on(a, b)
	moved.slots[7] = b
	unknown := on(a, b)
	unknown.slots[7] = nil
	for name, test := range map[string]struct {
		now  *layout
		same bool
	}{
		"nothing": {on(a, b), true}, "a replica took over": {on(replica, b), true}, "both changed places": {on(b, a), true},
		"one slot moved": {moved, false}, "all went to one": {on(b, b), false}, "one is not known": {unknown, false},
	} {
		if before := on(a, b); test.now.dividesAs(before) != test.same || before.dividesAs(test.now) != test.same {
			t.Errorf("%s: want %t", name, test.same)
		}
	}
}
