package redisnodes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/redisreply"
	"github.com/activityd/activityd/internal/retry"
)

// Command is a command and the key whose node it goes to. It has its own error after it
// was sent.
type Command struct {
	redis.Cmder

	key   string
	to    *Node      // the only one that it is sent to; nil: that of its key
	on    *Node      // that it was sent to last; nil: none
	since *knowledge // what was known of that node when it was sent, see knowledge.since
}

// NewCommand returns a command for the node of key.
func NewCommand(key string, cmd redis.Cmder) *Command { return &Command{Cmder: cmd, key: key} }

const (
	// PageSize bounds the commands in one pipeline, and the keys of one SCAN, so that one large
	// batch neither fills the server's buffers nor delays other clients for long.
	PageSize = 1000
	// findAgainTimeout is FindTimeout where the servers have said so before: what they said
	// then is used.
	findAgainTimeout = 300 * time.Millisecond
	// lateAfter is how long a call waits for the nodes of a cluster before [Nodes.Watch] looks at
	// them. It is a little shorter than a read waits before it goes on without the index.
	lateAfter = 200 * time.Millisecond
)

// Variables, because tests set longer ones: their machine may be busy.
var (
	// RepeatFor is how long commands are repeated that come to a slot that is moving, or to
	// a server that is no master any more. It bounds how long they hold up the others of
	// their batch.
	RepeatFor = 500 * time.Millisecond
	// FindTimeout is how long the servers of a cluster may take to say which slots are where.
	FindTimeout = time.Second
	// ProbeTimeout is how long a probe of one node may take.
	ProbeTimeout = 2 * time.Second
)

// Send sends the commands, pipelined, to their nodes side by side. Commands to a node that
// cannot be used do not hold up the others, but for the time that it takes to find out.
func (ns *Nodes) Send(ctx context.Context, commands []*Command) {
	if ns.single != nil {
		ns.single.send(ctx, commands, false)
		return
	}
	began := time.Now()
	for try := 1; ; try++ {
		ns.sendOnce(ctx, commands)
		commands = slices.DeleteFunc(slices.Clone(commands), func(cmd *Command) bool {
			return cmd.to != nil || !isMoving(cmd.Err())
		})
		if len(commands) == 0 || time.Since(began) >= RepeatFor {
			return
		}
		_, _ = ns.Masters(ctx) // reads the cluster's slots again; without them, the next try fails as well
		if try > 1 && retry.Sleep(ctx, retry.Jitter(min(time.Duration(try)*5*time.Millisecond, 50*time.Millisecond))) != nil {
			return
		}
	}
}

// sendOnce sends the commands to the nodes of a cluster once, and once more those that a node
// said are elsewhere for now.
func (ns *Nodes) sendOnce(ctx context.Context, commands []*Command) {
	defer time.AfterFunc(lateAfter, ns.look).Stop()
	var nodes sync.WaitGroup
	defer nodes.Wait()
	groups := make(map[*Node][]*Command)
	for _, cmd := range commands {
		n, err := cmd.to, error(nil)
		if n == nil {
			n, err = ns.Of(ctx, cmd.key)
		}
		if err != nil {
			cmd.SetErr(err)
			continue
		}
		groups[n] = append(groups[n], cmd)
	}
	for n, group := range groups {
		nodes.Go(func() {
			n.send(ctx, group, false)
			ns.ask(ctx, group)
			if err := group[0].Err(); err != nil && IsUnreachable(err) {
				ns.cluster.ReloadState(ctx) // in the background, for later calls: another master may be in its place
			}
		})
	}
}

// look makes [Nodes.Watch] probe now, as a call waits for a node, and with it all that it is
// for: the probe gives up a node that does not answer.
func (ns *Nodes) look() {
	select {
	case ns.late <- struct{}{}:
	default: // it will
	}
}

// ask sends the commands to the nodes that the error replies ASK name: those to which the
// slot is being moved.
func (ns *Nodes) ask(ctx context.Context, commands []*Command) {
	elsewhere := make(map[string][]*Command)
	for _, cmd := range commands {
		if cmd.to == nil && redis.HasErrorPrefix(cmd.Err(), "ASK ") { // ASK 3999 127.0.0.1:6381
			addr := cmd.Err().Error()
			addr = addr[strings.LastIndexByte(addr, ' ')+1:]
			elsewhere[addr] = append(elsewhere[addr], cmd)
		}
	}
	if len(elsewhere) == 0 {
		return
	}
	masters, _ := ns.Masters(ctx) // without them, all are sent by the client
	for addr, some := range elsewhere {
		at := slices.IndexFunc(masters, func(n *Node) bool { return n.addr == addr })
		if at >= 0 {
			masters[at].send(ctx, some, true)
			continue
		}
		// A node that has no slot yet gets its first one. What lies there comes from the node
		// that was asked first, and what is known of that holds of it.
		some[0].on.exec(ctx, ns.cluster.Pipeline(), some, false)
	}
}

// send sends the commands to the node, pipelined, each after ASKING if asking; or to none
// while it is silent. Its data are compared first if they never were, so that the replies need
// not be left because of that.
func (n *Node) send(ctx context.Context, commands []*Command, asking bool) {
	if n.seen.Load().known == nil {
		_, _ = n.compare(ctx, 0) // else after the replies
	}
	for some := range slices.Chunk(commands, PageSize) {
		if n.isSilent() {
			for _, cmd := range some {
				cmd.on = n
				cmd.SetErr(errSilent)
			}
			continue
		}
		n.exec(ctx, n.client.Pipeline(), some, asking)
		if !n.nodes.watched.Load() {
			n.noteAnswer(ctx, some[0].Err())
		}
	}
}

// exec sends the commands to the node in one pipeline; each has its own error.
func (n *Node) exec(ctx context.Context, pipe redis.Pipeliner, commands []*Command, asking bool) {
	known := n.seen.Load().known
	for _, cmd := range commands {
		cmd.on, cmd.since = n, nil
		if known != nil {
			cmd.since = known.since
		}
		cmd.SetErr(nil)
		if asking {
			pipe.Do(ctx, "asking")
		}
		_ = pipe.Process(ctx, cmd.Cmder) // it is queued
	}
	if cmds, err := pipe.Exec(ctx); err != nil {
		// Where the client got no connection, as with a wrong password, it returns the error here
		// alone and leaves the commands as if they had succeeded and found nothing.
		if !slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
			for _, c := range cmds {
				c.SetErr(err)
			}
		}
		for _, cmd := range commands {
			n.noteReply(ctx, cmd.Err())
		}
	}
}

// noteReply takes note of what a reply says of the node. A refusal by an ACL may be about a single
// key: the probe finds out whether it is about all. A single server that is read-only is no primary
// any more: the next connections go to where the address leads now.
func (n *Node) noteReply(ctx context.Context, err error) {
	if err == nil {
		return
	}
	if _, refused := redisreply.Passing(err); refused && !redisreply.Denied(err) {
		n.see(func(s *seen) { s.refused, s.refusedAt = Translate(ctx, "write", err), n.nodes.now() })
	}
	if n.nodes.single == n && isReadOnly(err) {
		n.closeConnections()
	}
}

// Read sends commands that read. A reply that is not to be believed is an error: [ErrUnknown]
// where it may be old, [ErrStamp] where the data were made with other settings. These are
// compared unless that was done lately, or always.
func (ns *Nodes) Read(ctx context.Context, commands []*Command, always bool) {
	all, stamps := commands, make(map[*Node]func() error)
	for _, cmd := range commands {
		n, err := ns.Of(ctx, cmd.key)
		if err != nil || stamps[n] != nil || !always && n.Trusted() {
			continue
		}
		var more []*Command
		more, stamps[n] = ns.readStamp(ctx, n)
		all = append(all, more...)
	}
	ns.Send(ctx, all)
	verdicts := make(map[*Node]*knowledge)
	for _, cmd := range commands {
		if err := cmd.Err(); cmd.on == nil || err != nil && !isReply(err) {
			continue
		}
		k := verdicts[cmd.on]
		if k == nil { // not before: only the reply shows which server answered
			k = cmd.on.judged(ctx, stamps[cmd.on])
			verdicts[cmd.on] = k
		}
		switch {
		case k.err != nil:
			cmd.SetErr(k.err)
		case k.since != cmd.since:
			cmd.SetErr(fmt.Errorf("%s: it answered before its data were known: %w", cmd.on.addr, ErrUnknown))
		}
	}
}

// isReply reports whether a command with this error was done, or refused for what it is.
func isReply(err error) bool {
	passing, _ := redisreply.Passing(err)
	return !passing && !IsUnreachable(err)
}

// judged returns what is known of a node that has replied, with the error of its stamp, if that was
// read, or why nothing is known.
func (n *Node) judged(ctx context.Context, stamp func() error) *knowledge {
	var err error
	if stamp != nil {
		err = stamp()
	}
	k, made := n.seen.Load().known, n.made.Load()
	if err == nil && !k.holds(made, n.nodes.now()) {
		k, err = n.compare(ctx, made)
	}
	if err != nil {
		return &knowledge{err: err}
	}
	return k
}

// Script is a script and its text.
type Script struct {
	*redis.Script

	text string
}

// NewScript returns a script.
func NewScript(text string) *Script { return &Script{redis.NewScript(text), text} }

// Call is one run of a script.
type Call struct {
	On   *Node    // nil: that of its keys
	Keys []string // in one slot, if there is a cluster; there may be none if On is set
	Args []any
}

// command returns the call as a command: EVALSHA with the hash of the script, or EVAL with
// its text.
func (c Call) command(ctx context.Context, name, script string) (*Command, *redis.Cmd) {
	args := make([]any, 0, 3+len(c.Keys)+len(c.Args))
	args = append(args, name, script, len(c.Keys))
	for _, key := range c.Keys {
		args = append(args, key)
	}
	cmd := redis.NewCmd(ctx, append(args, c.Args...)...)
	key := ""
	if len(c.Keys) > 0 {
		key = c.Keys[0]
	}
	return &Command{Cmder: cmd, key: key, to: c.On}, cmd
}

// Reply is what one call returned: a value, or an error of this call alone.
type Reply struct {
	Value any
	Err   error
}

// Eval runs a script once for every call, and returns the replies in the order of calls.
// It sends more after those of the same node; nil: nothing.
func (ns *Nodes) Eval(ctx context.Context, s *Script, calls []Call, more []*Command) []Reply {
	commands, cmds := make([]*Command, len(calls), len(calls)+len(more)), make([]*redis.Cmd, len(calls))
	for i, call := range calls {
		commands[i], cmds[i] = call.command(ctx, "evalsha", s.Hash())
	}
	ns.Send(ctx, append(commands, more...))
	var unknown []*Command // to their servers
	for i, call := range calls {
		if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
			again, reply := call.command(ctx, "eval", s.text)
			cmds[i], unknown = reply, append(unknown, again)
		}
	}
	if len(unknown) > 0 {
		ns.Send(ctx, append(unknown, more...))
	}
	replies := make([]Reply, len(calls))
	for i, cmd := range cmds {
		replies[i].Value, replies[i].Err = cmd.Result()
	}
	return replies
}
