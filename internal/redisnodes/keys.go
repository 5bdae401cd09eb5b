package redisnodes

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// The keys that lie on each node beside its data: one of each kind on a single server; in a
// cluster one for each tag, a number in braces that ends the name. See [Nodes.tags].

// markKey is the key of a number that only ever rises, serverKey that of the run of the server to
// which the data were written, lostKey that of the time at which data were last found to be lost,
// in unix milliseconds, and purgeKey that of the lock of the process that deletes old data. There
// is never a key noneKey.
func markKey(tag string) string   { return tagged("activityd_mark", tag) }
func serverKey(tag string) string { return tagged("activityd_server", tag) }
func lostKey(tag string) string   { return tagged("activityd_lost", tag) }
func purgeKey(tag string) string  { return tagged("activityd_purge", tag) }

const noneKey = "activityd_none"

func tagged(name, tag string) string {
	if tag == "" {
		return name
	}
	return name + "_" + tag
}

// ownKeys are the keys that lie beside the data.
func (ns *Nodes) ownKeys() (keys []string) {
	for _, tag := range ns.allTags() {
		keys = append(keys, tagged(ns.options.Stamp.Name, tag), markKey(tag), serverKey(tag), lostKey(tag), purgeKey(tag))
	}
	return keys
}

// MaxTextBytes is how much is read of a string. What activityd writes is shorter; what
// another program wrote in its place may be of any size, and errors quote it.
const MaxTextBytes = 100

// textOf reads a string; "" when there is none.
func textOf(ctx context.Context, key string) *redis.StringCmd {
	return redis.NewStringCmd(ctx, "getrange", key, 0, MaxTextBytes-1)
}

// number reads a decimal; 0 for anything else.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
