package redisnodes

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// State is what can be done with the data of a node.
type State int

// The states of a node. The first that applies, from the last one up, is its state.
const (
	// Usable: what it has can be read and written, and tasks that waited for it were done.
	Usable State = iota
	// Behind: it came back a moment ago with what it had. What waited for it may not be written yet.
	Behind
	// Unknown: its data may be old, and are being deleted; or no probe has looked at it lately.
	Unknown
	// Refusing: it answers, and takes no writes, or its data were made with other settings.
	Refusing
	// Away: it does not answer, or nothing that is of use.
	Away
)

// String returns the name of the state in lower case.
func (s State) String() string {
	return [...]string{"usable", "behind", "unknown", "refusing", "away"}[s]
}

// TakesWrites reports whether what is written to the node now counts. Data that may be old are no
// hindrance: what is written to them is deleted with them, and then missing.
func (s State) TakesWrites() bool { return s < Refusing }

const (
	// refusalTTL is how long a refusal counts. It is longer than a postponed task waits until it
	// is tried again, and longer than the time between two refusals of a server that is nearly full.
	refusalTTL = 5 * time.Second
	// behindFor is how long a node that is back is behind. By then the tasks that waited for it are
	// usually done.
	behindFor = 5 * time.Second
	// seenFor is how long a probe counts. It is longer than the time between two probes of
	// [Nodes.Watch], even while a node does not answer.
	seenFor = 4 * time.Second
	// silentFor is how long calls to a node that does not answer fail at once where there is no
	// Watch, whose probes find out when it does.
	silentFor = time.Second
)

// ErrUnseen says that no probe has looked at the node yet, or not lately.
var ErrUnseen = errors.New("no probe has looked at it lately")

// errSilent is the error of calls to a node that did not answer a moment ago.
var errSilent = fmt.Errorf("%w: it did not answer a moment ago", ErrUnavailable)

// seen is what was seen of a node. A value is not changed once it is stored.
type seen struct {
	silent    time.Time  // it did not answer: until then calls fail at once
	probed    time.Time  // when the last probe of it ended; zero: there was none
	failed    error      // why that probe could not read and write; nil: it could
	refused   error      // the last write that it refused
	refusedAt time.Time  // when
	back      time.Time  // when a probe found that it answers again, with what it had
	known     *knowledge // what its data were found to be; nil: they were not compared
}

// state returns the state of a node of which s was seen, and why it is neither usable nor behind.
func (s seen) state(now time.Time) (State, error) {
	isFresh := !s.probed.IsZero() && now.Sub(s.probed) < seenFor
	switch {
	case now.Before(s.silent):
		return Away, errSilent
	case isFresh && s.failed != nil && isAway(s.failed):
		return Away, s.failed
	case isFresh && s.failed != nil:
		return Refusing, s.failed
	case s.refused != nil && now.Sub(s.refusedAt) < refusalTTL:
		return Refusing, s.refused
	case s.known != nil && s.known.err != nil:
		return Unknown, s.known.err
	case !isFresh:
		return Unknown, ErrUnseen
	case now.Sub(s.back) < behindFor:
		return Behind, nil
	}
	return Usable, nil
}

// isAway reports whether a node that failed with err cannot even be read.
func isAway(err error) bool {
	return errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrRefused) || errors.Is(err, context.DeadlineExceeded)
}

// see changes what was seen of the node.
func (n *Node) see(change func(s *seen)) {
	n.seeing.Lock()
	defer n.seeing.Unlock()
	s := *n.seen.Load()
	change(&s)
	n.seen.Store(&s)
}

// probed takes note of how a probe of the node ended, and returns the state that follows.
func (n *Node) probed(err error) NodeStatus {
	status, now := NodeStatus{Node: n.name()}, n.nodes.now()
	n.see(func(s *seen) {
		wasAway := isAway(s.failed)
		if !errors.Is(err, context.Canceled) { // that says nothing of the node
			s.probed, s.failed = now, err
		}
		if errors.Is(err, ErrRefused) {
			s.refused, s.refusedAt = err, now
		}
		if status.State, status.Err = s.state(now); wasAway && status.State == Usable {
			s.back, status.State = now, Behind
		}
	})
	return status
}

// State returns the state of the node of a key, and why it is neither usable nor behind: the one
// answer to whether the data of the key can be used now. It sends nothing, but where nothing is
// known of a cluster yet, and relies on [Nodes.Watch].
func (ns *Nodes) State(ctx context.Context, key string) (State, error) {
	n, err := ns.Of(ctx, key)
	if err != nil {
		return Away, Translate(ctx, "find the node of "+key, err)
	}
	return n.seen.Load().state(ns.now())
}
