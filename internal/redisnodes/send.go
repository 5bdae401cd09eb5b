package redisnodes

import (
	"cmp"
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

// Send sends commands about a key, pipelined, and reports whether what they read may lack writes that wait. If the node cannot
// be used they fail at once if that is known, and otherwise within [CallTimeout]. Some may be sent twice.
func (ns *Nodes) Send(ctx context.Context, key string, commands ...redis.Cmder) (isLate bool) {
	_, state := ns.Usable(ctx, key)
	isLate = state != nil && takesCalls(state)
	if state == nil || isLate {
		ns.send(ctx, commands)
		return isLate
	}
	for _, cmd := range commands {
		cmd.SetErr(state)
	}
	return false
}

// Pipelined sends the commands as [Nodes.Send] does, to their nodes side by side. A node that cannot be used holds
// up its own commands only.
func (ns *Nodes) Pipelined(ctx context.Context, commands []Command) {
	for page := range slices.Chunk(commands, PageSize) {
		groups := make(map[*Node][]redis.Cmder) // of each node a pipeline: go-redis fails all that wait for the last
		for _, cmd := range page {
			if n, state := ns.Usable(ctx, cmd.Key); takesCalls(state) {
				groups[n] = append(groups[n], cmd.Cmder)
			} else {
				cmd.SetErr(state)
			}
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

// Eval runs a script once for every call, and returns the replies in the order of calls.
func (ns *Nodes) Eval(ctx context.Context, s *Script, calls []Call) []*redis.Cmd {
	replies := make([]*redis.Cmd, len(calls))
	run := func(name, script string, wants func(reply *redis.Cmd) bool) {
		var commands []Command
		for i, call := range calls {
			if !wants(replies[i]) {
				continue
			}
			args := append(make([]any, 0, 3+len(call.Keys)+len(call.Args)), name, script, len(call.Keys))
			for _, key := range call.Keys {
				args = append(args, key)
			}
			replies[i] = redis.NewCmd(ctx, append(args, call.Args...)...)
			commands = append(commands, Command{replies[i], cmp.Or(call.Keys...)})
		}
		ns.Pipelined(ctx, commands)
	}
	run("evalsha", s.Hash(), func(*redis.Cmd) bool { return true })
	run("eval", s.text, func(r *redis.Cmd) bool { return redis.HasErrorPrefix(r.Err(), "NOSCRIPT") }) // to servers that do not know it
	return replies
}
