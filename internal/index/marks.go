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
	// Replaced says that another run of the server answers than the last one that
	// any process saw, and that this is the first to tell.
	Replaced bool
	// Lost is what [Index.NoteLoss] noted last, or when another run of the server
	// was first seen, whichever is later; 0: neither ever was.
	Lost int64
}

// noteServerScript remembers which run of the server answers. Another one than
// before is noted as a loss: it may have started with older data, and the process
// that would have noticed may have been started anew as well.
//
//	KEYS[1] the run  KEYS[2] the last loss
//	ARGV[1] the run that answers  ARGV[2] now, in unix milliseconds
//	returns the last loss, and 1 if this was one, else 0
var noteServerScript = redis.NewScript(`
local known = redis.call('GET', KEYS[1])
local lost = tonumber(redis.call('GET', KEYS[2]) or '0') or 0
if known == ARGV[1] then return {lost, 0} end
redis.call('SET', KEYS[1], ARGV[1])
if not known then return {lost, 0} end
lost = math.max(lost + 1, tonumber(ARGV[2]))
redis.call('SET', KEYS[2], string.format('%.0f', lost))
return {lost, 1}
`)

// noteLossScript lets the last loss only rise.
//
//	KEYS[1] the last loss
//	ARGV[1] the loss
//	returns 1 if it is the last one now, else 0
var noteLossScript = redis.NewScript(`
local lost = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
if lost >= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1
`)

// Tick raises each mark by one and returns them. Whoever gets a number that is not
// higher than one it got before knows that writes of between were lost: the
// server was emptied, or came back with older data. The name of the server's run
// lies beside the marks, so that another run is noticed even by a process that
// was started after it.
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
	known, lost := getText(ctx, pipe, markServerKey), getText(ctx, pipe, markLostKey)
	exec(ctx, pipe)
	m := Marks{Counts: make([]int64, len(keys)), Server: runOf(info.Val())}
	for i, cmd := range counts {
		n, err := cmd.Result()
		if err != nil {
			return Marks{}, translate(ctx, "raise the marks", err)
		}
		m.Counts[i] = n
	}
	m.Lost, _ = lost.Int64() // none is 0, and so is what was never written here
	if m.Server == "" || m.Server == known.Val() {
		return m, nil
	}
	err := ix.noteServer(ctx, &m)
	return m, err
}

// noteServer notes in Redis, and in m, that another run of the server answers.
func (ix *Index) noteServer(ctx context.Context, m *Marks) error {
	now := ix.options.Now().UnixMilli()
	reply, err := noteServerScript.Run(ctx, ix.client, []string{markServerKey, markLostKey}, m.Server, now).Int64Slice()
	if err == nil && len(reply) == 2 {
		m.Lost, m.Replaced = reply[0], reply[1] == 1
	}
	return translate(ctx, "note the server", err)
}

// NoteLoss notes that data was found to be lost at a time, in unix milliseconds,
// for the other processes, whose [Index.Tick] returns it. A later one stays.
func (ix *Index) NoteLoss(ctx context.Context, at int64) error {
	return translate(ctx, "note a loss", noteLossScript.Run(ctx, ix.client, []string{markLostKey}, at).Err())
}

// markKeys are the keys of all marks.
func (ix *Index) markKeys() []string {
	n := ix.client.spread()
	if n == 1 {
		return []string{markKey}
	}
	keys := make([]string, n)
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
