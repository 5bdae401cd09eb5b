package redisnodes

import (
	"context"
	"time"
)

// losses records when each slot of a cluster last lost data, as far as this process knows. A
// slot of which it does not know that counts as lost at the last loss of any node. A value is
// not changed once it is made.
//
// A node's losses are noted under its tags, which move as the slots do. So a slot that was
// on a node when a loss was found there keeps it, wherever it moves; and one that moved less
// than an hour before a loss is found may have been there when it happened, because deleting
// what may be old takes time. Nothing is known of the time before the first probe.
type losses struct {
	last  int64 // the last loss that it knows of, in unix milliseconds
	at    time.Time
	tags  map[string]int64       // the last loss noted under each
	slots *[slotCount]slotLosses // nil of one server
}

// slotLosses is what is known of a slot.
type slotLosses struct {
	on    *Node // nil: it is not known
	lost  int64 // the last time at which it may have lost data, in unix milliseconds
	moved int64 // when it was found on another node than before, in unix nanoseconds; 0: never
}

const (
	lookForMoves  = 10 * time.Second // the longest time between two looks at which slots have moved
	longUnwatched = time.Minute      // after a longer time without a look, slots may have moved away and back
	movedLately   = time.Hour        // for how long a slot that moved counts as lost with any node
)

// noteLosses notes which slots lost data, after the nodes were judged. The caller holds
// probing.
func (ns *Nodes) noteLosses(ctx context.Context) {
	before, now, last := ns.losses.Load(), ns.now(), ns.lostAt
	if before != nil && before.last == last && !ns.newLoss && now.Sub(before.at) < lookForMoves {
		return
	}
	ns.newLoss = false
	if ns.single != nil {
		ns.losses.Store(&losses{last: last, at: now})
		return
	}
	noted := &losses{last: last, at: now, tags: make(map[string]int64), slots: new([slotCount]slotLosses)}
	doubtful, lostOf := make(map[*Node]bool), make(map[*Node]int64)
	on := ns.laid(ctx).slots[:]
	for _, tag := range ns.allTags() {
		n := on[slotOf(tag)]
		isRead, isKnown := ns.readTags[tag]
		switch {
		case n == nil, !isKnown: // it is moving
		case !isRead:
			doubtful[n] = true
		case before != nil && before.tags[tag] == ns.marks[tag].lost: // it may have come from another node
			lostOf[n] = max(lostOf[n], 0)
		default: // a loss is noted under all tags of a node
			lostOf[n] = max(lostOf[n], ns.marks[tag].lost)
		}
		noted.tags[tag] = ns.marks[tag].lost
	}
	for slot, n := range on {
		lost, isKnown := lostOf[n] // not of a node that is away, or has so few slots that it has no tag
		s := slotLosses{on: n, lost: lost}
		if before != nil {
			was := before.slots[slot]
			s.lost, s.moved = max(s.lost, was.lost), was.moved
			if was.on != n {
				s.moved = now.UnixNano()
			}
		}
		if before == nil || !isKnown || doubtful[n] || now.Sub(before.at) > longUnwatched ||
			s.moved != 0 && now.Sub(time.Unix(0, s.moved)) < movedLately {
			s.lost = last
		}
		noted.slots[slot] = s
	}
	ns.losses.Store(noted)
}

// LostAt is when a node was last found to have lost data, in unix milliseconds by the clock
// of the process that found out; 0: never, as far as [Nodes.Probe] knows. [Nodes.KeyLostSince]
// reports which keys it concerns.
func (ns *Nodes) LostAt() int64 {
	if known := ns.losses.Load(); known != nil {
		return known.last
	}
	return 0
}

// KeyLostSince reports whether a key may have been lost later than at, a value that
// [Nodes.LostAt] returned. It reports true where that is not known, and always for one server.
// It sends nothing to Redis, and relies on [Nodes.Watch].
func (ns *Nodes) KeyLostSince(key string, at int64) bool {
	known := ns.losses.Load()
	if ns.single != nil || at == 0 || known == nil {
		return true
	}
	return known.slots[slotOf(key)].lost > at
}
