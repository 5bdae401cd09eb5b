package index

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Marks are numbers in Redis that only ever rise, as long as nothing is lost.
type Marks struct {
	Counts []int64
	// Server names the run of the server that answered: another one after each
	// start. Empty where it is not known, as for a cluster.
	Server string
}

// clusterMarks is how many marks a cluster has: enough for each node to have
// some, as long as the slots are spread evenly.
const clusterMarks = 64

// Tick raises each mark by one and returns them. Whoever gets a number that is not
// higher than one it got before knows that writes of between were lost: the
// server was emptied, or came back with older data.
func (ix *Index) Tick(ctx context.Context) (Marks, error) {
	keys := ix.markKeys()
	pipe := ix.client.Pipeline()
	counts := make([]*redis.IntCmd, len(keys))
	for i, key := range keys {
		counts[i] = pipe.Incr(ctx, key)
	}
	info := redis.NewStringResult("", nil)
	if len(keys) == 1 { // a cluster has many servers, and no one to ask
		info = pipe.Info(ctx, "server")
	}
	_, _ = pipe.Exec(ctx) // each command's own error is looked at
	m := Marks{Counts: make([]int64, len(keys)), Server: runOf(info.Val())}
	for i, cmd := range counts {
		n, err := cmd.Result()
		if err != nil {
			return Marks{}, translate(ctx, "raise the marks", err)
		}
		m.Counts[i] = n
	}
	return m, nil
}

// markKeys are the keys of all marks.
func (ix *Index) markKeys() []string {
	if _, isCluster := ix.client.(*redis.ClusterClient); !isCluster {
		return []string{markKey}
	}
	keys := make([]string, clusterMarks)
	for i := range keys {
		keys[i] = markKeyOf(i)
	}
	return keys
}

// runOf finds the id of the run in what INFO says.
func runOf(info string) string {
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(line, "run_id:"); ok {
			return strings.TrimSpace(id)
		}
	}
	return ""
}
