package redisnodes

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Stamp says what the data were made with. It is stored on each node beside them.
type Stamp struct {
	Name string // of the keys
	// Value returns the value, or "" while it is not known: then the data cannot be used. Nil: always
	// the same.
	Value func() string
	// Differ returns an [ErrStamp] for another value that was found.
	Differ func(stored string) error
}

// errNoStamp: it is not known yet whose data this process may use.
var errNoStamp = fmt.Errorf("%w: the id of the database is not known, as MySQL has not answered yet", ErrUnavailable)

// stampTrust is how long a stamp is trusted after it was compared, so that it need not be compared
// again. See index.Settings for the argument.
const stampTrust = 5 * time.Second

// Trusted reports whether the stamp of the node was compared not long ago.
func (n *Node) Trusted() bool {
	until := n.trusted.Load()
	return until != 0 && n.nodes.now().UnixNano() < until
}

// CheckStamp compares the stamps of the node with that of this process.
func (ns *Nodes) CheckStamp(ctx context.Context, n *Node) error {
	commands, check := ns.readStamp(ctx, n)
	n.send(ctx, commands, false)
	return check()
}

// readStamp returns commands that read all stamps of the node, and what compares them afterwards.
// That there is none is no error, as there are no data then. The node is then not trusted either,
// so that a stamp is stored before there are some.
func (ns *Nodes) readStamp(ctx context.Context, n *Node) (commands []*Command, check func() error) {
	tags := ns.tags(ctx, n)
	stored := make([]*redis.StringCmd, len(tags))
	for i, tag := range tags {
		key := tagged(ns.options.Stamp.Name, tag)
		stored[i] = textOf(ctx, key)
		commands = append(commands, NewCommand(key, stored[i]))
	}
	return commands, func() error { return ns.compareStamps(ctx, n, stored, false) }
}

// StoreStamp returns commands that store the stamp on the node unless there is one, and what
// compares it afterwards with what is stored then. For a node without a tag it is stored on another.
func (ns *Nodes) StoreStamp(ctx context.Context, n *Node) (commands []*Command, check func() error) {
	tags := ns.tags(ctx, n)
	if len(tags) == 0 {
		tags = ns.allTags()
	}
	key := tagged(ns.options.Stamp.Name, tags[0])
	stored := textOf(ctx, key)
	want := ns.options.Stamp.Value()
	if want == "" {
		return nil, func() error { return errNoStamp }
	}
	commands = []*Command{NewCommand(key, redis.NewBoolCmd(ctx, "setnx", key, want)), NewCommand(key, stored)}
	return commands, func() error { return ns.compareStamps(ctx, n, []*redis.StringCmd{stored}, true) }
}

// compareStamps compares what was read of a node with the stamp of this process. There must be a
// stamp if mustBe, after it was stored.
func (ns *Nodes) compareStamps(ctx context.Context, n *Node, stored []*redis.StringCmd, mustBe bool) error {
	until := int64(0)
	defer func() { n.trusted.Store(until) }()
	found, want := false, ns.options.Stamp.Value()
	if want == "" {
		return errNoStamp
	}
	for _, cmd := range stored {
		value := cmd.Val()
		switch {
		case hasMoved(cmd.Err()) && !mustBe: // it is on another node by now
		case cmd.Err() != nil:
			return Translate(ctx, "settings", cmd.Err())
		case value == "" && !mustBe:
		case value != want:
			if len(value) == MaxTextBytes {
				value = strings.ToValidUTF8(value, "") + "…"
			}
			return ns.options.Stamp.Differ(value)
		default:
			found = true
		}
	}
	if found {
		until = ns.now().Add(stampTrust).UnixNano()
	}
	return nil
}
