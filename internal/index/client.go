package index

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// client is a client of one Redis server or of a cluster. Its methods are all that
// differs between the two.
type client struct {
	redis.UniversalClient

	cluster *redis.ClusterClient // nil for one server
}

func newClient(c redis.UniversalClient) client {
	cluster, _ := c.(*redis.ClusterClient)
	return client{c, cluster}
}

// setsPerCall is how many sets one run of a script may touch, where one may touch
// several: a run costs more than the commands for a set do. A hundred keep the server
// busy for about a quarter of a millisecond. In a cluster a script may touch one slot
// only, and so one set.
func (c client) setsPerCall() int {
	if c.cluster != nil {
		return 1
	}
	return 100
}

// spread is how many keys in different slots it takes for each server to have one: in
// a cluster enough for each master to have some, as long as the slots are spread evenly.
func (c client) spread() int {
	if c.cluster != nil {
		return 64
	}
	return 1
}

// eachServer calls do with the server, or with each master of the cluster, one after
// the other. It ends with the first error.
func (c client) eachServer(ctx context.Context, do func(context.Context, redis.UniversalClient) error) error {
	if c.cluster == nil {
		return do(ctx, c.UniversalClient)
	}
	var mu sync.Mutex // ForEachMaster calls concurrently
	var masters []*redis.Client
	err := c.cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters = append(masters, master)
		return nil
	})
	if err != nil {
		return translate(ctx, "list the masters", err)
	}
	for _, master := range masters {
		if err := do(ctx, master); err != nil {
			return err
		}
	}
	return nil
}

// pipelineSize bounds the commands in one pipeline, so that one large batch
// neither fills the server's buffers nor delays other clients for long.
const pipelineSize = 1000

// call is one run of a script.
type call struct {
	keys []string // in one slot, if there is a cluster
	args []any
}

// reply is what one call returned: a value, or an error of this call alone.
type reply struct {
	value any
	err   error
}

// evalAll runs script once for every call, pipelined, and returns the replies in the
// order of calls. before may add commands to the front of each pipeline; nil: none.
// The error is for what concerns all calls, such as a lost connection.
func (c client) evalAll(ctx context.Context, script *redis.Script, calls []call, before func(redis.Pipeliner)) ([]reply, error) {
	replies := make([]reply, len(calls))
	for first := 0; first < len(calls); first += pipelineSize {
		last := min(first+pipelineSize, len(calls))
		if err := c.evalPipeline(ctx, script, calls[first:last], replies[first:last], before); err != nil {
			return nil, err
		}
	}
	return replies, nil
}

// evalPipeline sends one pipeline, and a second one with the script's text where the
// server did not know the script.
func (c client) evalPipeline(ctx context.Context, script *redis.Script, calls []call, replies []reply, before func(redis.Pipeliner)) error {
	cmds := make([]*redis.Cmd, len(calls))
	pipe := c.Pipeline()
	if before != nil {
		before(pipe)
	}
	for i, call := range calls {
		cmds[i] = script.EvalSha(ctx, pipe, call.keys, call.args...)
	}
	exec(ctx, pipe)
	unknown, err := collect(cmds, replies)
	if err != nil || len(unknown) == 0 {
		return err
	}
	pipe = c.Pipeline()
	for _, i := range unknown {
		cmds[i] = script.Eval(ctx, pipe, calls[i].keys, calls[i].args...)
	}
	exec(ctx, pipe)
	_, err = collect(cmds, replies)
	return err
}

// exec sends a pipeline; each command has its own error. Where the client got no
// connection, as with a wrong password, it returns the error here alone and leaves the
// commands as if they had succeeded and found nothing: exec gives all of them the error.
func exec(ctx context.Context, pipe redis.Pipeliner) {
	cmds, err := pipe.Exec(ctx)
	if err == nil || slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return
	}
	for _, c := range cmds {
		c.SetErr(err)
	}
}

// collect writes values and errors of single calls to replies. It returns which calls
// the server did not know the script for, and an error that concerns the server itself.
func collect(cmds []*redis.Cmd, replies []reply) (unknown []int, err error) {
	for i, cmd := range cmds {
		value, err := cmd.Result()
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			unknown = append(unknown, i)
		} else if passes, _ := isPassing(err); passes {
			return nil, err
		}
		replies[i] = reply{value, err}
	}
	return unknown, nil
}

// maxTextBytes is how much is read of a string. What activityd writes is shorter; what
// another program wrote in its place may be of any size, and errors quote it.
const maxTextBytes = 100

// getText reads a string; "" when there is none.
func getText(ctx context.Context, c redis.Cmdable, key string) *redis.StringCmd {
	return c.GetRange(ctx, key, 0, maxTextBytes-1)
}
