package redisnodes

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/redisreply"
)

// found is the result of a look at a server.
type found struct {
	node      *Node
	run       string // of the server: each start has another
	isReplica bool
	records   map[string]string // by tag; "" where none is stored
	err       error             // why nothing was found
	refused   error             // why it cannot be written
}

// A record is stored beside the data: "<stamp> run=<run of the server that they were written to> <unix nanoseconds>".
const runField = " run="

// recordOf returns a record. It is later in the order of strings than the records of before.
func recordOf(stamp, run string, nanoseconds int64) string {
	return stamp + runField + run + " " + strconv.FormatInt(nanoseconds, 10)
}

// parse returns the stamp and the run of a record. A record without a time is not of activityd, and has no run.
func parse(record string) (stamp, run string) {
	stamp, rest, _ := strings.Cut(record, runField)
	run, nanoseconds, _ := strings.Cut(rest, " ")
	if _, err := strconv.ParseInt(nanoseconds, 10, 64); err != nil {
		return stamp, ""
	}
	return stamp, run
}

// tagCount is how many tags a cluster has: a node with 900 slots has none of them once in a million.
const tagCount = 256

// maxRecord is how many bytes of a record are read. activityd writes fewer; another
// program may have written any number in their place, and errors quote them.
const maxRecord = 400

// key is the key of the record of a tag.
func (ns *Nodes) key(tag string) string { return ns.options.Name + tag }

// tags end the keys of the records: in a cluster, so many numbers in braces that each node
// has some of them in its slots.
func (ns *Nodes) tags() []string {
	if !ns.isCluster {
		return []string{""}
	}
	tags := make([]string, tagCount)
	for i := range tags {
		tags[i] = "_{" + strconv.Itoa(i) + "}"
	}
	return tags
}

// look asks the server at a node for its run, and for the records beside its data.
func (n *Node) look(ctx context.Context, c redis.Cmdable) (f found) {
	f = found{node: n, records: make(map[string]string)}
	pipe, records := c.Pipeline(), make(map[string]*redis.StringCmd)
	server, replication := pipe.Info(ctx, "server"), pipe.Info(ctx, "replication")
	for _, tag := range n.ns.tags() {
		records[tag] = pipe.GetRange(ctx, n.ns.key(tag), 0, maxRecord-1)
	}
	_, failed := pipe.Exec(ctx) // each has its own error, but with a wrong password
	if f.err = cmp.Or(server.Err(), replication.Err()); f.err != nil {
		if passing, refused := redisreply.Passing(f.err); isReply(f.err) && (refused || !passing) {
			f.err = fmt.Errorf("%w: %w", ErrHidden, f.err)
		}
		return f
	}
	role := field(replication.Val(), "role:")
	if f.run = field(server.Val(), "run_id:"); f.run == "" || role == "" {
		if f.err = ErrHidden; failed != nil && !hasMoved(failed) {
			f.err = failed
		}
		return f
	}
	f.isReplica = role != "master"
	for tag, record := range records {
		switch err := record.Err(); {
		case err == nil:
			f.records[tag] = record.Val()
		case !hasMoved(err): // else it is on another node
			f.err = err
		}
	}
	return f
}

// field returns the value of a line of INFO.
func field(info, name string) string {
	_, rest, _ := strings.Cut(info, "\n"+name)
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value)
}

// checkStamp compares the records with the stamp of this process. It is no error if there is none.
func (ns *Nodes) checkStamp(f found) error {
	want := ns.options.Stamp()
	if want == "" {
		return errNoStamp
	}
	for _, record := range f.records {
		if stamp, _ := parse(record); stamp != "" && stamp != want {
			return ns.options.Differ(stamp)
		}
	}
	return nil
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
	switch {
	case f.err != nil:
		return "", false, f.err
	case f.isReplica:
		return "", false, errReplica
	}
	if err := n.ns.checkStamp(f); err != nil {
		return "", false, err
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

// sees takes note of the server of a run at the address.
func (n *Node) sees(run string) {
	if b := n.belief.Load(); b != nil && b.run != run {
		n.belief.Store(&belief{run: run, lacks: true})
		n.ns.reopen() // connections may lead to the former server
	}
}

// forget ends the belief in a node that is no master.
func (n *Node) forget() {
	if b := n.belief.Load(); b != nil && !b.lacks {
		n.belief.Store(&belief{run: b.run, lacks: true})
	}
}
