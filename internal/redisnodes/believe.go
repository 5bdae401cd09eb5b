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
	run       string // of the server: each start has another
	isReplica bool
	records   map[string]string // by tag; "" where none is stored
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

// look asks a server for its run, and for the records beside its data.
func (ns *Nodes) look(ctx context.Context, c redis.Cmdable) (found, error) {
	f := found{records: make(map[string]string)}
	pipe, records := c.Pipeline(), make(map[string]*redis.StringCmd)
	server, replication := pipe.Info(ctx, "server"), pipe.Info(ctx, "replication")
	for _, tag := range ns.tags() {
		records[tag] = pipe.GetRange(ctx, ns.key(tag), 0, maxRecord-1)
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
	for tag, record := range records {
		switch {
		case hasMoved(record.Err()): // it is on another node
		case record.Err() != nil:
			return f, record.Err()
		default:
			f.records[tag] = record.Val()
		}
	}
	return f, nil
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
	f, err := n.ns.look(ctx, c)
	if err == nil {
		err = n.believe(f)
	}
	if err != nil {
		return fmt.Errorf("connect to %s: %w", n, err) // go-redis unwraps it once
	}
	return nil
}

// believe returns why the data of a server are not believed: all records have to be
// of its present run, and the server has to be that of the last probe.
func (n *Node) believe(f found) error {
	if f.isReplica {
		return errReplica
	}
	if err := n.ns.checkStamp(f); err != nil {
		return err
	}
	if b := n.belief.Load(); len(f.records) == 0 || b != nil && (b.run != f.run || b.lacks) {
		return ErrUnknown
	}
	for _, record := range f.records {
		if _, run := parse(record); run != f.run {
			return ErrUnknown
		}
	}
	n.belief.CompareAndSwap(nil, &belief{run: f.run})
	return nil
}

// sees takes note of the server of a run at the address, and reports whether its data may lack writes of this process.
func (n *Node) sees(run string) (lacks bool) {
	b := n.belief.Load()
	if b != nil && b.run != run {
		b = &belief{run: run, lacks: true}
		n.belief.Store(b)
		n.ns.reopen() // connections may lead to the former server
	}
	return b != nil && b.lacks
}

// emptied takes note that this process deleted all data of the server of a run, unless another server was seen since.
func (n *Node) emptied(since *belief, run string) {
	if since != nil && since.run == run {
		n.belief.CompareAndSwap(since, &belief{run: run})
	}
}

// forget ends the belief in a node that is no master.
func (n *Node) forget() {
	if b := n.belief.Load(); b != nil && !b.lacks {
		n.belief.Store(&belief{run: b.run, lacks: true})
	}
}
