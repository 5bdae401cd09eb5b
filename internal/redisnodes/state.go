package redisnodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxTimeouts in a row show that a node hangs.
	maxTimeouts = 2

	// A node that is back is behind for minBehind, and for as much longer as a task that waited for it may be postponed: an
	// eighth of the outage, maxPostponed at most. By then the tasks are usually done.
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

// state returns why the data of a node cannot be used, or not as usual; nil if no probe has looked at it yet, as each
// connection is looked at.
func (n *Node) state() error {
	s, now := n.seen.Load(), time.Now()
	switch hangs := n.Allow(); {
	case hangs != nil:
		return hangs
	case s.probed.IsZero():
		return nil
	case now.Sub(s.probed) >= seenFor():
		return errStale
	case s.failed == nil && now.Before(s.behind):
		return ErrBehind
	}
	return s.failed
}

// takesCalls reports whether calls are sent to a node of a state.
func takesCalls(state error) bool { return state == nil || IsLate(state) }

// probed takes note of the end of a probe of the node, and returns the status that follows. The caller holds probing.
func (n *Node) probed(err error) NodeStatus {
	s, now := *n.seen.Load(), time.Now()
	before := cmp.Or(s.failed, n.state())
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
		if before != nil && !errors.Is(before, ErrBehind) && !errors.Is(before, ErrUnknown) && !errors.Is(before, ErrStamp) { // tasks waited for it
			s.behind = now.Add(minBehind + min(now.Sub(s.good)/postponeShare, maxPostponed))
		}
		s.good = now
	}
	n.seen.Store(&s)
	status := NodeStatus{Node: n.String(), Err: n.state()}
	if errors.Is(status.Err, ErrBehind) {
		status.Err = nil
	}
	if s.probed.IsZero() { // the first probe was cancelled
		status.Err = fmt.Errorf("%w: %w", errStale, err)
	}
	return status
}

var _ redis.Limiter = (*Node)(nil)

// Allow implements [redis.Limiter]: calls to a node that hangs fail at once.
func (n *Node) Allow() error {
	if n.timeouts.Load() >= maxTimeouts {
		return errHangs
	}
	return nil
}

// ReportResult implements [redis.Limiter]. A call that had less time than most counts as well: the next probe
// finds a node that answers.
func (n *Node) ReportResult(err error) {
	switch {
	case isTimeout(err):
		n.timeouts.Add(1)
	case (err == nil || isReply(err)) && n.timeouts.Load() != 0:
		n.timeouts.Store(0)
	}
}
