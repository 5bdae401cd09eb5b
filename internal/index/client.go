package index

import (
	"context"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/redisreply"
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
// order of calls. after may add commands to the end of each pipeline; nil: none. The
// error is for what concerns all calls, such as a lost connection.
func (c client) evalAll(ctx context.Context, script *redis.Script, calls []call, after func(redis.Pipeliner)) ([]reply, error) {
	replies := make([]reply, len(calls))
	for first := 0; first < len(calls); first += pipelineSize {
		last := min(first+pipelineSize, len(calls))
		if err := c.evalPipeline(ctx, script, calls[first:last], replies[first:last], after); err != nil {
			return nil, err
		}
	}
	return replies, nil
}

// evalPipeline sends one pipeline, and a second one with the script's text for the calls
// that failed because the server did not know the script.
func (c client) evalPipeline(ctx context.Context, script *redis.Script, calls []call, replies []reply, after func(redis.Pipeliner)) error {
	cmds := make([]*redis.Cmd, len(calls))
	for _, eval := range []func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd{script.EvalSha, script.Eval} {
		pipe := c.Pipeline()
		for i, call := range calls {
			if cmds[i] == nil || redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
				cmds[i] = eval(ctx, pipe, call.keys, call.args...)
			}
		}
		if pipe.Len() == 0 {
			break
		}
		if after != nil {
			after(pipe)
		}
		exec(ctx, pipe)
	}
	for i, cmd := range cmds {
		value, err := cmd.Result()
		if passing, _ := redisreply.Passing(err); passing {
			return err
		}
		replies[i] = reply{value, err}
	}
	return nil
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

// maxTextBytes is how much is read of a string. What activityd writes is shorter; what
// another program wrote in its place may be of any size, and errors quote it.
const maxTextBytes = 100

// getText reads a string; "" when there is none.
func getText(ctx context.Context, c redis.Cmdable, key string) *redis.StringCmd {
	return c.GetRange(ctx, key, 0, maxTextBytes-1)
}
