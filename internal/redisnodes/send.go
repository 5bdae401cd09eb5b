package redisnodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Command is a command and the key by which its node is found. It has its own error after it was sent.
type Command struct {
	redis.Cmder

	Key string
}

// Send sends commands about a key, pipelined, and returns the state of the node before. If the node cannot be used they fail
// at once if that is known, and otherwise within [CallTimeout]. Some may be sent twice.
func (ns *Nodes) Send(ctx context.Context, key string, commands ...redis.Cmder) State {
	_, state, err := ns.Usable(ctx, key)
	if state.takesCalls() {
		ns.send(ctx, commands)
		return state
	}
	for _, cmd := range commands {
		cmd.SetErr(err)
	}
	return state
}

// Pipelined sends the commands as [Nodes.Send] does, to their nodes side by side. A node that cannot be used holds
// up its own commands only.
func (ns *Nodes) Pipelined(ctx context.Context, commands []Command) {
	for page := range slices.Chunk(commands, PageSize) {
		groups := make(map[*Node][]redis.Cmder) // of each node a pipeline: go-redis fails all that wait for the last
		for _, cmd := range page {
			n, state, err := ns.Usable(ctx, cmd.Key)
			if !state.takesCalls() {
				cmd.SetErr(err)
				continue
			}
			groups[n] = append(groups[n], cmd.Cmder)
		}
		var sent sync.WaitGroup
		for _, group := range groups {
			sent.Go(func() { ns.send(ctx, group) })
		}
		sent.Wait()
	}
}

// send sends commands for a node. go-redis follows slots that have moved.
func (ns *Nodes) send(ctx context.Context, commands []redis.Cmder) {
	bounded, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	var err error
	if len(commands) == 1 {
		err = ns.client().Process(bounded, commands[0])
	} else {
		pipe := ns.client().Pipeline()
		_ = pipe.BatchProcess(bounded, commands...) // they are queued
		_, err = pipe.Exec(bounded)
	}
	if err == nil {
		return
	}
	// If the client got no connection, as with a wrong password, it may return the error here
	// alone and leave the commands as if they had succeeded and found nothing.
	isLost := !slices.ContainsFunc(commands, func(c redis.Cmder) bool { return c.Err() != nil })
	for _, cmd := range commands {
		if isLost {
			cmd.SetErr(err)
		}
		if ctx.Err() == nil && errors.Is(cmd.Err(), context.DeadlineExceeded) { // that of the node
			cmd.SetErr(fmt.Errorf("%w: %w", ErrUnavailable, cmd.Err()))
		}
	}
}

// Script is a script and its text.
type Script struct {
	*redis.Script

	text string
}

// NewScript returns a script.
func NewScript(text string) *Script { return &Script{redis.NewScript(text), text} }

// Call is a run of a script.
type Call struct {
	Keys []string // in a single slot, if there is a cluster
	Args []any
}

// command returns the call as a command: EVALSHA with the hash of the script, or EVAL with its text.
func (c Call) command(ctx context.Context, name, script string) Command {
	args := make([]any, 0, 3+len(c.Keys)+len(c.Args))
	args = append(args, name, script, len(c.Keys))
	for _, key := range c.Keys {
		args = append(args, key)
	}
	key := ""
	if len(c.Keys) > 0 {
		key = c.Keys[0]
	}
	return Command{redis.NewCmd(ctx, append(args, c.Args...)...), key}
}

// Reply is the reply to a call: a value, or an error of this call alone.
type Reply struct {
	Value any
	Err   error
}

// Eval runs a script once for every call, and returns the replies in the order of calls.
func (ns *Nodes) Eval(ctx context.Context, s *Script, calls []Call) []Reply {
	commands := make([]Command, len(calls))
	for i, call := range calls {
		commands[i] = call.command(ctx, "evalsha", s.Hash())
	}
	ns.Pipelined(ctx, commands)
	var again []Command // to servers that do not know the script
	for i, call := range calls {
		if redis.HasErrorPrefix(commands[i].Err(), "NOSCRIPT") {
			commands[i] = call.command(ctx, "eval", s.text)
			again = append(again, commands[i])
		}
	}
	ns.Pipelined(ctx, again)
	replies := make([]Reply, len(calls))
	for i, cmd := range commands {
		if replies[i].Err = cmd.Err(); replies[i].Err == nil {
			replies[i].Value = cmd.Cmder.(*redis.Cmd).Val() //nolint:forcetypeassert // it was made above
		}
	}
	return replies
}
