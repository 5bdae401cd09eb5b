package redisnodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/redisreply"
)

// found is what a look at a server found.
type found struct {
	run       string // of the server: each start has another one
	isReplica bool
	stored    map[string]stored // by tag
}

// stored is what lies beside the data.
type stored struct {
	stamp string
	run   string // of the server that the data were written to
	token int64  // when it was stored, in unix nanoseconds, and later than the token of what was there before; 0: not by activityd
}

// tagCount is how many tags a cluster has: a node with 900 slots has none of them once in a million.
const tagCount = 256

// maxTextBytes is how much is read of what is stored. What activityd writes is shorter; what another
// program wrote in its place may be of any size, and errors quote it.
const maxTextBytes = 400

// String is the form in which it is stored.
func (s stored) String() string {
	return s.stamp + " run=" + s.run + " " + strconv.FormatInt(s.token, 10)
}

func parseStored(text string) stored {
	stamp, rest, _ := strings.Cut(text, " run=")
	run, text, _ := strings.Cut(rest, " ")
	token, _ := strconv.ParseInt(text, 10, 64)
	return stored{stamp, run, token}
}

// key is the key of what is stored under a tag.
func (ns *Nodes) key(tag string) string { return ns.options.Name + tag }

// tags are what ends the keys of what is stored: in a cluster, so many numbers in braces that each node
// has some of them in its slots. They move with their slots.
func (ns *Nodes) tags() []string {
	if ns.cluster == nil {
		return []string{""}
	}
	tags := make([]string, tagCount)
	for i := range tags {
		tags[i] = "_{" + strconv.Itoa(i) + "}"
	}
	return tags
}

// look asks a server for its run, and for what is stored beside its data.
func (ns *Nodes) look(ctx context.Context, c redis.Cmdable) (found, error) {
	f := found{stored: make(map[string]stored)}
	pipe, texts := c.Pipeline(), make(map[string]*redis.StringCmd)
	server, replication := pipe.Info(ctx, "server"), pipe.Info(ctx, "replication")
	for _, tag := range ns.tags() {
		texts[tag] = pipe.GetRange(ctx, ns.key(tag), 0, maxTextBytes-1)
	}
	_, failed := pipe.Exec(ctx) // each has its own error, but with a wrong password
	if err := cmp.Or(server.Err(), replication.Err()); err != nil {
		if passing, refused := redisreply.Passing(err); isReply(err) && (refused || !passing) {
			err = fmt.Errorf("%w: %w", ErrHidden, err)
		}
		return f, err
	}
	role := field(replication.Val(), "role:")
	switch f.run = field(server.Val(), "run_id:"); {
	case f.run != "" && role != "":
	case failed != nil && !hasMoved(failed):
		return f, failed
	default:
		return f, ErrHidden
	}
	f.isReplica = role != "master"
	for tag, text := range texts {
		switch {
		case hasMoved(text.Err()): // it is on another node
		case text.Err() != nil:
			return f, text.Err()
		default:
			f.stored[tag] = parseStored(text.Val())
		}
	}
	return f, nil
}

func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// field returns the value of a line of INFO.
func field(info, name string) string {
	_, rest, _ := strings.Cut(info, "\n"+name)
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value)
}

// checkStamp compares what is stored with the stamp of this process. Nothing stored is no error.
func (ns *Nodes) checkStamp(f found) error {
	want := ns.options.Stamp()
	if want == "" {
		return errNoStamp
	}
	for _, s := range f.stored {
		if s.stamp != "" && s.stamp != want {
			return ns.options.Differ(s.stamp)
		}
	}
	return nil
}

// accept decides whether a connection that was made is believed; it is go-redis' OnConnect.
func (n *Node) accept(ctx context.Context, c *redis.Conn) error {
	f, err := n.ns.look(ctx, c)
	if err == nil {
		err = n.believe(f)
	}
	if err != nil {
		n.ns.kick()
		return fmt.Errorf("connect to %s: %w", n.name(), refusal{err}) // go-redis unwraps it once
	}
	return nil
}

// refusal is an error of which [errors.Unwrap] returns nothing.
type refusal struct{ error }

// Is makes the error match what it is.
func (r refusal) Is(target error) bool { return errors.Is(r.error, target) }

// As is likewise.
func (r refusal) As(target any) bool { return errors.As(r.error, target) }

// believe returns why the data of a server are not believed: all that is stored beside them has to be
// of its present run, and that run the one which the last probe believed, if there was a probe.
func (n *Node) believe(f found) error {
	if f.isReplica {
		return errReplica
	}
	if err := n.ns.checkStamp(f); err != nil {
		return err
	}
	if run := n.run.Load(); len(f.stored) == 0 || run != nil && *run != f.run {
		return ErrUnknown
	}
	for _, s := range f.stored {
		if s.run != f.run {
			return ErrUnknown
		}
	}
	return nil
}

// distrust ends the belief in the node, until a probe finds reason for it: connections are refused, and no
// call is sent over those that are there, see [Nodes.Usable].
func (n *Node) distrust() {
	nobody := ""
	n.run.Store(&nobody)
}

// trust believes the server of a run. Where it is another one than before, the connections of one server may
// lead to the former one, and are closed.
func (n *Node) trust(run string) {
	n.run.Store(&run)
	if n.ns.cluster == nil && n.led != run {
		if n.led != "" {
			_ = n.ns.server.Swap(n.ns.open(*n.ns.given)).Close() // nothing depends on it
		}
		n.led = run
	}
}
