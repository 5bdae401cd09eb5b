package index

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// pipelineSize bounds the commands in one pipeline, so that one large batch
// neither fills the server's buffers nor delays other clients for long.
const pipelineSize = 1000

// call is one run of a script on one slot.
type call struct {
	keys []string
	args []any
}

// reply is what one call answered: a value, or an error of this call alone.
type reply struct {
	value any
	err   error
}

// evalAll runs script once for every call, pipelined, with the commands of
// before in front; replies come in the order of calls. A server that does not
// know the script is sent its text; it knows it then. The error is for what
// concerns all calls, such as a lost connection.
func (ix *Index) evalAll(ctx context.Context, script *redis.Script, calls []call, before func(redis.Pipeliner)) ([]reply, error) {
	replies := make([]reply, len(calls))
	for first := 0; first < len(calls); first += pipelineSize {
		last := min(first+pipelineSize, len(calls))
		if err := ix.evalSome(ctx, script, calls[first:last], replies[first:last], before); err != nil {
			return nil, err
		}
		before = nil
	}
	return replies, nil
}

func (ix *Index) evalSome(ctx context.Context, script *redis.Script, calls []call, replies []reply, before func(redis.Pipeliner)) error {
	pipe := ix.client.Pipeline()
	if before != nil {
		before(pipe)
	}
	cmds := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		cmds[i] = script.EvalSha(ctx, pipe, c.keys, c.args...)
	}
	exec(ctx, pipe)
	unknown, err := collect(cmds, replies)
	if err != nil || len(unknown) == 0 {
		return err
	}
	pipe = ix.client.Pipeline()
	for _, i := range unknown {
		cmds[i] = script.Eval(ctx, pipe, calls[i].keys, calls[i].args...)
	}
	exec(ctx, pipe)
	_, err = collect(cmds, replies)
	return err
}

// exec runs a pipeline of which each command's own error is looked at. Where no
// connection was to be had, because of a wrong password, say, the client returns
// the error of that here alone, and leaves the commands as if they had succeeded
// and found nothing: all get that error.
func exec(ctx context.Context, pipe redis.Pipeliner) {
	cmds, err := pipe.Exec(ctx)
	if err == nil || slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return
	}
	for _, c := range cmds {
		c.SetErr(err)
	}
}

// collect sorts the results: values and errors of single keys into replies, the
// calls whose script was unknown into unknown, and anything wrong with the
// server itself into err.
func collect(cmds []*redis.Cmd, replies []reply) (unknown []int, err error) {
	for i, cmd := range cmds {
		value, err := cmd.Result()
		switch {
		case err == nil:
			replies[i] = reply{value: value}
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			unknown = append(unknown, i)
		default:
			if passes, _ := isPassing(err); passes {
				return nil, err
			}
			replies[i] = reply{err: err}
		}
	}
	return unknown, nil
}
