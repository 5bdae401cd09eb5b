package redisnodes

import (
	"context"
	"time"
)

// losses records when each node of a cluster last lost data, as far as this process knows. A value
// is not changed once it is made.
//
// A node's losses are noted under its tags, which move as the slots do, and go to a replica that
// takes over. Other slots that move take none along; so while slots move, and for an hour after
// that, any key may have been lost with any node. It is as long as that because deleting what may
// be old takes time, and slots may move before a loss is found. Nothing is known of the time before
// the first probe.
type losses struct {
	last  int64 // the last loss that it knows of, in unix milliseconds
	all   int64 // the last one with which any key may have been lost
	at    time.Time
	moved time.Time       // when slots were last found to have moved; zero: never
	on    *layout         // nil of one server
	of    map[*Node]int64 // the last loss of those that all is known of
}

const (
	longUnwatched = time.Minute // after a longer time without a look, slots may have moved away and back
	movedLately   = time.Hour   // for how long after slots have moved any key may have been lost with any node
)

// noteLosses notes which nodes lost data, after they were judged. The caller holds probing.
func (ns *Nodes) noteLosses(ctx context.Context, probed []*inspection) {
	before, now := ns.losses.Load(), ns.now()
	noted := &losses{last: ns.lostAt, at: now, of: make(map[*Node]int64)}
	if ns.single == nil {
		noted.on = ns.laid(ctx)
	}
	for _, in := range probed {
		if !in.answered || len(in.failed) > 0 || len(in.tags) == 0 {
			continue
		}
		lost := int64(0)
		for _, t := range in.tags {
			lost = max(lost, ns.marks[t.tag].lost)
		}
		noted.of[in.node] = lost
	}
	switch {
	case before == nil:
		noted.all = noted.last
	case ns.single == nil && !noted.on.dividesAs(before.on), now.Sub(before.at) > longUnwatched:
		noted.moved = now
	default:
		noted.moved, noted.all = before.moved, before.all
	}
	if now.Sub(noted.moved) < movedLately {
		noted.all = noted.last
	}
	ns.losses.Store(noted)
}

// dividesAs reports whether slots that are on one node are on one node in other as well, and the
// other way round, as where nothing but replicas took over.
func (l *layout) dividesAs(other *layout) bool {
	if l.slots == other.slots {
		return true
	}
	theirs, ours := make(map[*Node]*Node), make(map[*Node]*Node)
	for slot, n := range l.slots[:] {
		m := other.slots[slot]
		if (n == nil) != (m == nil) || theirs[n] != nil && theirs[n] != m || ours[m] != nil && ours[m] != n {
			return false
		}
		theirs[n], ours[m] = m, n
	}
	return true
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
	if ns.single != nil || at == 0 || known == nil || known.all > at {
		return true
	}
	lost, isKnown := known.of[known.on.slots[SlotOf(key)]]
	return lost > at || !isKnown && known.last > at
}
