package redisnodes

import (
	"context"
	"errors"
	"time"
)

// State is what can be done with the data of a node.
type State int

// The states of a node.
const (
	// Usable: what it has can be read and written, and tasks that waited for it were done.
	Usable State = iota
	// Behind: it came back a moment ago with what it had. What waited for it may not be written yet.
	Behind
	// Unknown: its data may be old, and are being deleted; or no probe has looked at it lately.
	Unknown
	// Refusing: it answers, and takes no writes, or its data were made by other settings.
	Refusing
	// Away: it does not answer, or nothing that is of use.
	Away
)

// TakesWrites reports whether the data can be written.
func (s State) TakesWrites() bool { return s < Unknown }

// A node that is back is behind for minBehind, and for as much longer as a task that waited for it may be postponed: an eighth
// of the outage, maxPostponed at most. By then the tasks are usually done.
const (
	minBehind     = 5 * time.Second
	maxPostponed  = 30 * time.Second
	postponeShare = 8
)

// seenFor is how long a probe counts, and how long calls to a node that hangs fail at once if no
// probe ends that. It is longer than the time between two probes, even while a node hangs.
func seenFor() time.Duration { return ProbeTimeout + 3*probeEvery }

// seen is what was seen of a node. A value is not changed once it is stored.
type seen struct {
	hung   time.Time // it hangs: until then calls fail at once
	probed time.Time // when the last probe of it ended; zero: there was none
	failed error     // why that probe does not believe it, or could not read and write; nil: it could
	good   time.Time // when a probe last could read and write
	behind time.Time // until then tasks that waited for it may not be done
}

// state returns the state of a node of which s was seen, and why it is neither usable nor behind.
func (s seen) state(now time.Time) (State, error) {
	switch {
	case now.Before(s.hung):
		return Away, errHangs
	case s.probed.IsZero():
		return Unknown, ErrUnseen
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
	case isOld(err):
		return Unknown
	case errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrRefused), isTimeout(err):
		return Away
	}
	return Refusing
}

// see changes what was seen of the node.
func (n *Node) see(change func(s *seen)) {
	n.seeing.Lock()
	defer n.seeing.Unlock()
	s := *n.seen.Load()
	change(&s)
	n.seen.Store(&s)
}

// probed takes note of the end of a probe of the node, and returns the state that follows.
func (n *Node) probed(err error) NodeStatus {
	status, now := NodeStatus{Node: n.name()}, time.Now()
	n.see(func(s *seen) {
		wasAway := now.Before(s.hung) || s.failed != nil && stateOf(s.failed) == Away
		waited := wasAway || s.failed != nil && stateOf(s.failed) == Refusing
		switch {
		case errors.Is(err, context.Canceled): // it says nothing of the node
		case err == nil || !isTimeout(err):
			n.timeouts.Store(0)
			s.hung, s.probed, s.failed = time.Time{}, now, err
		case n.timeouts.Add(1) >= maxTimeouts || wasAway || s.probed.IsZero():
			s.hung, s.probed, s.failed = now.Add(seenFor()), now, err
		default: // the next probe is soon
			s.probed = now
		}
		if err == nil && waited {
			s.behind = now.Add(minBehind + min(now.Sub(s.good)/postponeShare, maxPostponed))
		}
		if err == nil {
			s.good = now
		}
		status.State, status.Err = s.state(now)
	})
	return status
}
