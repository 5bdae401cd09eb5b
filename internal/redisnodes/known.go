package redisnodes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/redisreply"
)

// knowledge is what was found out about the data of a node.
type knowledge struct {
	made int64  // connections of the node before it was found out
	run  string // of the server; "": it does not report it
	err  error  // nil: they can be believed
	at   time.Time
	// since is the first of those that were found one after the other, of one run and believed
	// all the time, at one address: a reply to what was sent under another one may be of other data.
	since *knowledge
}

// unknownFor is how long an [ErrUnknown] holds before it is checked again.
const unknownFor = time.Second

// holds reports whether k applies to replies that came when so many connections were made.
func (k *knowledge) holds(made int64, now time.Time) bool {
	return k != nil && k.made >= made && (k.err == nil || now.Sub(k.at) < unknownFor)
}

// learn stores what was found out. The caller holds knowing. Where another server is found behind a
// name, no connection to the former one is left.
func (n *Node) learn(k *knowledge) *knowledge {
	n.connsMu.Lock() // leadsTo changes what is known as well
	defer n.connsMu.Unlock()
	k.since = k
	before := n.seen.Load().known
	switch {
	case before == nil:
	case before.run != k.run && n.nodes.single == n:
		n.closeAll()
		n.same = nil
	case before.err == nil && before.run == k.run:
		k.since = before.since
	}
	if before != nil && before.run == k.run && k.run != "" && k.made == n.made.Load() { // no connection was made since
		if n.same == nil {
			n.same = make(map[string]bool)
		}
		n.same[n.remote] = true
	}
	n.see(func(s *seen) { s.known = k })
	return k
}

// compare finds out whether the data of the node can be believed, for replies that came when so many
// connections were made, unless another call does by then. The error is why it cannot be found out.
func (n *Node) compare(ctx context.Context, made int64) (*knowledge, error) {
	if err := n.lockKnown(ctx); err != nil {
		return nil, Translate(ctx, "ask for the run of "+n.addr, err)
	}
	defer func() { <-n.knowing }()
	ns, before := n.nodes, n.seen.Load().known
	if before.holds(made, ns.now()) {
		return before, nil
	}
	tags := ns.tags(ctx, n)
	if len(tags) == 0 { // as servers disagree after a failover
		return nil, fmt.Errorf("%s has no slots: %w", n.addr, ErrUnknown)
	}
	k := &knowledge{made: n.made.Load(), at: ns.now()}
	info := redis.NewStringCmd(ctx, "info", "server")
	commands := []*Command{NewCommand("", info)}
	var servers []*redis.StringCmd
	for _, tag := range tags {
		server := textOf(ctx, serverKey(tag))
		servers = append(servers, server)
		commands = append(commands, NewCommand(tag, server))
	}
	// A server that has become a replica may go on to answer reads. It refuses what would write,
	// even if there is nothing to write.
	writes := redis.NewBoolCmd(ctx, "pexpire", noneKey, 1)
	if ns.single == n {
		commands = append(commands, NewCommand("", writes))
	}
	n.exec(ctx, n.client.Pipeline(), commands, false)
	if !ns.watched.Load() {
		n.noteAnswer(ctx, info.Err())
	}
	var err error
	if k.run, err = runOf(info); err == nil && isReadOnly(writes.Err()) {
		err = writes.Err()
	}
	if err != nil {
		return nil, Translate(ctx, "ask for the run of "+n.addr, err)
	}
	if before == nil || before.run != k.run || before.err != nil {
		if err := k.compare(servers); err != nil {
			return nil, Translate(ctx, "ask for the run of the data of "+n.addr, err)
		}
		if k.err != nil {
			k.err = fmt.Errorf("%s: %w", n.addr, k.err)
		}
	}
	return n.learn(k), nil
}

// compare notes [ErrUnknown] if one of the runs that are stored beside the sets is another one than
// that of the server. It fails if one could not be read.
func (k *knowledge) compare(stored []*redis.StringCmd) error {
	for _, reply := range stored {
		switch run, err := reply.Result(); {
		case hasMoved(err): // it is not on this node any more
		case err != nil:
			return err
		case k.run != "" && run != "" && run != k.run:
			k.err = ErrUnknown
		}
	}
	return nil
}

// lockKnown waits for knowing. It fails if the node is silent by then.
func (n *Node) lockKnown(ctx context.Context) error {
	select {
	case n.knowing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if n.isSilent() {
		<-n.knowing
		return errSilent
	}
	return nil
}

// runOf returns the run of a server, "" if it does not report it.
func runOf(info *redis.StringCmd) (string, error) {
	if err := info.Err(); err != nil {
		passing, refused := redisreply.Passing(err)
		if IsUnreachable(err) || errors.Is(err, redis.Nil) || passing && !refused { // nil is of a Sentinel
			return "", err
		}
		return "", nil // it forbids the command, or does not have it
	}
	for line := range strings.Lines(info.Val()) {
		if id, ok := strings.CutPrefix(line, "run_id:"); ok {
			return strings.TrimSpace(id), nil
		}
	}
	return "", nil
}

// What stands for a run: unknownRun for that of a server that does not report it, rewoundRun
// for that of data which may be old.
const (
	unknownRun = "-"
	rewoundRun = "rewound"
)

// tagState is what is stored under a tag.
type tagState struct {
	tag, server string
	mark, lost  int64
	rewound     bool // its mark is not higher than it was, for a reason that no process noticed
}

// judge finds out whether the data of the nodes can be believed, after all were inspected. It
// begins to delete those that cannot, until background ends; nil: it leaves that to others. The
// caller holds probing.
func (ns *Nodes) judge(ctx, background context.Context, probed []*inspection) {
	runs := make(map[string]bool)
	for _, in := range probed {
		if !in.answered {
			continue
		}
		runs[in.run] = true
		for at := range in.tags {
			t := &in.tags[at]
			before := ns.marks[t.tag]
			t.rewound = t.mark <= before.mark && t.lost <= before.lost // otherwise another process noticed
			ns.marks[t.tag] = *t
		}
	}
	for _, in := range probed {
		if in.answered {
			ns.judgeNode(ctx, background, in, runs)
		}
	}
}

// judgeNode finds out whether the data of a node can be believed. runs are those of all nodes.
func (ns *Nodes) judgeNode(ctx, background context.Context, in *inspection, runs map[string]bool) {
	n := in.node
	select {
	case n.knowing <- struct{}{}:
	case <-ctx.Done():
		return // the next probe judges it
	}
	k, before := &knowledge{made: in.made, run: in.run, at: ns.now()}, n.seen.Load().known
	isLate := before != nil && before.made > in.made
	if isLate && before.run != in.run { // what was read is of a former server
		<-n.knowing
		return
	}
	unknown, emptied, moved := ns.judgeTags(ctx, in, runs)
	switch {
	case unknown:
		k.err = fmt.Errorf("%s: %w", n.addr, ErrUnknown)
		if isLate {
			k.made = before.made
		}
		n.learn(k)
	case !isLate && len(in.failed) == 0 && len(in.tags) > 0: // else not all was compared
		n.learn(k)
	}
	<-n.knowing
	switch {
	case unknown && background != nil:
		ns.purge(background, in)
	case unknown:
	case emptied:
		ns.settle(ctx, in, ns.now().UnixMilli())
	case moved:
		ns.settle(ctx, in, 0)
	}
}

// judgeTags finds out what the tags of a node say: that its data may be old, that some are
// gone, that some came from another node.
func (ns *Nodes) judgeTags(ctx context.Context, in *inspection, runs map[string]bool) (unknown, emptied, moved bool) {
	rewind := func(t *tagState) {
		if in.node.client.Set(ctx, serverKey(t.tag), rewoundRun, 0).Err() == nil {
			t.server = rewoundRun
		}
	}
	for i := range in.tags {
		t := &in.tags[i]
		ns.lostAt = max(ns.lostAt, t.lost)
		switch {
		case t.server == "": // nothing was written, or all of it is gone
			emptied = true
		case t.rewound && (t.server == in.run || t.server == unknownRun):
			unknown = true
			rewind(t) // for the other processes
		case in.run == "" && t.server != rewoundRun, t.server == in.run:
		case runs[t.server], t.server == unknownRun:
			moved = true
		default:
			unknown = true
			// The server whose run it is may come to have these data: a former master that
			// follows this one, and is a master again.
			if t.server != rewoundRun {
				rewind(t)
			}
		}
	}
	return unknown, emptied, moved
}

// settleScript stores the run of the server, and raises when data were lost last, unless
// another process has stored a run since.
//
//	KEYS[1] the run  KEYS[2] the last loss
//	ARGV[1] the run that was stored, "" for none  ARGV[2] the run  ARGV[3] the loss, 0 for none
//	returns the last loss
var settleScript = redis.NewScript(`
local lost = tonumber(redis.call('GET', KEYS[2]) or '0') or 0
if (redis.call('GETRANGE', KEYS[1], 0, 99)) ~= ARGV[1] then return lost end
redis.call('SET', KEYS[1], ARGV[2])
if ARGV[3] == '0' then return lost end
lost = math.max(lost + 1, tonumber(ARGV[3]))
redis.call('SET', KEYS[2], string.format('%.0f', lost))
return lost
`)

// settle stores that the data of the node are those of its present run. The caller holds
// probing.
func (ns *Nodes) settle(ctx context.Context, in *inspection, lost int64) {
	run := in.run
	if run == "" {
		run = unknownRun // so that it shows when all is gone
	}
	if lost != 0 { // one of another node may have been noted by a clock that is ahead
		lost = max(lost, ns.lostAt+1)
	}
	for _, t := range in.tags {
		if t.server == run {
			continue
		}
		reply := settleScript.Run(ctx, in.node.client, []string{serverKey(t.tag), lostKey(t.tag)}, t.server, run, lost)
		if lost, err := reply.Int64(); err == nil { // otherwise the next probe does it
			ns.lostAt = max(ns.lostAt, lost)
			seen := ns.marks[t.tag]
			seen.lost = lost
			ns.marks[t.tag] = seen
		}
	}
}
