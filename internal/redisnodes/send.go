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

// Pipelined sends the commands, pipelined, to their nodes side by side. Those to a node that cannot be used
// hold up no others: they fail at once if that is known, and otherwise within [CallTimeout]. Some may be sent twice.
func (ns *Nodes) Pipelined(ctx context.Context, commands []Command) {
	for page := range slices.Chunk(commands, PageSize) {
		groups := make(map[string][]Command) // of each node a pipeline: go-redis fails all that wait for the last
		for _, cmd := range page {
			node, state, err := ns.Usable(ctx, cmd.Key)
			if state == Away || state == Unknown && !errors.Is(err, ErrUnseen) || errors.Is(err, ErrStamp) {
				cmd.SetErr(err)
				continue
			}
			groups[node] = append(groups[node], cmd)
		}
		var sent sync.WaitGroup
		for _, group := range groups {
			if len(groups) == 1 {
				ns.send(ctx, group)
			} else {
				sent.Go(func() { ns.send(ctx, group) })
			}
		}
		sent.Wait()
	}
}

// send sends commands that are for one node, or for another one if their slots have moved.
func (ns *Nodes) send(ctx context.Context, commands []Command) {
	pipe := ns.client().Pipeline()
	for _, cmd := range commands {
		cmd.SetErr(nil)
		_ = pipe.Process(ctx, cmd.Cmder) // it is queued
	}
	bounded, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	_, err := pipe.Exec(bounded)
	if err == nil {
		return
	}
	// If the client got no connection, as with a wrong password, it may return the error here
	// alone and leave the commands as if they had succeeded and found nothing.
	isLost := !slices.ContainsFunc(commands, func(c Command) bool { return c.Err() != nil })
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

// Call is one run of a script.
type Call struct {
	Keys []string // in one slot, if there is a cluster
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

// Reply is what one call returned: a value, or an error of this call alone.
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
