package redisnodes

import (
	"context"
	"errors"
	"time"
)

// State is the use that the data of a node are of.
type State int

// The states of a node, the best first.
const (
	// Usable: the data can be read and written, and the tasks that waited for the node were done.
	Usable State = iota
	// Behind: it came back a moment ago with its data. Writes that waited for it may not be done yet.
	Behind
	// Unseen: no probe has looked at it yet, but each connection is looked at.
	Unseen
	// Refusing: it answers, and takes no writes.
	Refusing
	// Unknown: its data may be old, and are being deleted, or are of other settings; or no probe has looked at it lately.
	Unknown
	// Away: it does not answer, or is of no use.
	Away
)

// TakesWrites reports whether the data can be written.
func (s State) TakesWrites() bool { return s <= Unseen }

// IsLate reports whether the data can be read, and may lack writes that wait.
func (s State) IsLate() bool { return s == Behind || s == Refusing }

// takesCalls reports whether calls are sent.
func (s State) takesCalls() bool { return s <= Refusing }

// A node that is back is behind for minBehind, and for as much longer as a task that waited for it may be postponed: an eighth
// of the outage, maxPostponed at most. By then the tasks are usually done.
const (
	minBehind     = 5 * time.Second
	maxPostponed  = 30 * time.Second
	postponeShare = 8
)

// seenFor is how long a probe counts. It is longer than the time between two probes, even while a node hangs.
func seenFor() time.Duration { return ProbeTimeout + 3*probeEvery }

// seen is the sum of the probes of a node. A value is not changed once it is stored.
type seen struct {
	probed time.Time // when the last probe of it ended; zero: there was none
	failed error     // why that probe does not believe it, or could not read and write; nil: it could
	good   time.Time // when a probe last could read and write
	behind time.Time // until then tasks that waited for it may not be done
}

// state returns the state of the node, and why it is neither usable nor behind.
func (n *Node) state() (State, error) {
	s, now := n.seen.Load(), time.Now()
	switch {
	case n.timeouts.Load() >= maxTimeouts:
		return Away, errHangs
	case s.probed.IsZero():
		return Unseen, errUnseen
	case now.Sub(s.probed) >= seenFor():
		return Unknown, errStale
	case s.failed != nil:
		return stateOf(s.failed), s.failed
	case now.Before(s.behind):
		return Behind, nil
	}
	return Usable, nil
}

// stateOf returns the state of a node of which a probe failed.
func stateOf(err error) State {
	switch {
	case errors.Is(err, ErrUnknown), errors.Is(err, ErrStamp):
		return Unknown
	case errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrRefused), isTimeout(err):
		return Away
	}
	return Refusing
}

// probed takes note of the end of a probe of the node, and returns the state that follows. The caller holds probing.
func (n *Node) probed(err error) NodeStatus {
	s, now := *n.seen.Load(), time.Now()
	waited := n.timeouts.Load() >= maxTimeouts || s.failed != nil && stateOf(s.failed) != Unknown ||
		s.failed == nil && !s.good.IsZero() && now.Sub(s.probed) >= seenFor()
	switch {
	case errors.Is(err, context.Canceled): // it says nothing of the node
		now = s.probed
	case isTimeout(err) && !s.probed.IsZero(): // the second shows that it hangs, unless calls over other connections succeed
		n.timeouts.Add(1)
		now = s.probed
	default:
		n.timeouts.Store(0)
		s.failed = err
	}
	s.probed = now
	if err == nil {
		if waited {
			s.behind = now.Add(minBehind + min(now.Sub(s.good)/postponeShare, maxPostponed))
		}
		s.good = now
	}
	n.seen.Store(&s)
	status := NodeStatus{Node: n.String()}
	status.State, status.Err = n.state()
	return status
}
