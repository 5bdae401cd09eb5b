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
	probed time.Time // when the last probe ended that says something; zero: there was none
	failed error     // why that probe does not believe the node, or could not read and write; nil: it could
	good   time.Time // when a probe last could read and write
	behind time.Time // until then tasks that waited for the node may not be done
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

// probed takes note of the end of a probe of the node, and returns the status that follows. The caller holds probing.
func (n *Node) probed(err error) NodeStatus {
	s, now := *n.seen.Load(), time.Now()
	before := cmp.Or(s.failed, n.state())
	switch {
	case errors.Is(err, context.Canceled): // it says nothing of the node
	case isTimeout(err) && !s.probed.IsZero(): // the second shows that it hangs, unless calls over other connections succeed
		n.timeouts.Add(1)
	default:
		n.timeouts.Store(0)
		s.probed, s.failed = now, err
	}
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
	} else if s.probed.IsZero() { // the first probe was cancelled
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

// belief is the server that is believed at an address. A value is not changed once it is stored.
type belief struct {
	run   string
	lacks bool // data there may lack writes of this process to a former server, until it deletes them
}

// accept decides whether a connection that was made is believed; it is go-redis' OnConnect.
func (n *Node) accept(ctx context.Context, c *redis.Conn) error {
	if _, _, err := n.judge(n.look(ctx, c), nil); err != nil {
		return fmt.Errorf("connect to %s: %w", n, err) // go-redis unwraps it once
	}
	return nil
}

// judge returns why the data of a server are not believed: all records have to be of its present run, and the server has
// to be that of the last probe. runs are those of all masters that answered, none for a connection: a record of another
// master's run came from there with its slot; but where no record is of the node's own run, the node may be a replica that
// took over. own is the record of its own run that is the latest.
func (n *Node) judge(f found, runs map[string]bool) (own string, moved bool, err error) {
	if f.err != nil {
		return "", false, f.err
	}
	b := n.belief.Load()
	isOld := b != nil && (b.run != f.run || b.lacks)
	for _, record := range f.records {
		switch _, run := parse(record); {
		case run == f.run:
			own = max(own, record)
		case run != "" && runs[run]:
			moved = true
		default:
			isOld = true
		}
	}
	if isOld || own == "" {
		return "", false, fmt.Errorf("%s: %w", n, ErrUnknown)
	}
	n.belief.CompareAndSwap(nil, &belief{run: f.run})
	return own, moved, nil
}

// sees takes note of the server that a probe found at the address; "": it is no master.
func (n *Node) sees(run string) {
	b := n.belief.Load()
	switch {
	case b == nil || b.run == run:
	case run == "":
		n.belief.Store(&belief{run: b.run, lacks: true})
	default:
		n.belief.Store(&belief{run: run, lacks: true})
		n.ns.reopen() // connections may lead to the former server
	}
}
