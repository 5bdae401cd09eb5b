package index

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Generation identifies the data that Redis holds: two that are read one after the
// other show whether data was lost between them.
type Generation struct {
	// Token is random, and gone with the data: after a FLUSHALL, a restart without
	// persistence, or [Index.Reset]. Empty: there is none, or it was not read.
	Token string `json:"token"`
	// Marks are numbers that [Ledger.RaiseGeneration] raises and nothing lowers. A
	// Redis that comes back with older data keeps its token but has lower marks.
	Marks []int64 `json:"marks,omitempty"`

	// What follows is set by RaiseGeneration only.

	Raised bool `json:"-"` // the marks were raised by the call that returned them
	// Server is the run of the server that answered, another one after each start.
	// Empty where it is not known, as for a cluster.
	Server string `json:"-"`
	// Changed says that another run of the server answers than the last one that any
	// process saw, and that this is the first to notice.
	Changed bool `json:"-"`
	// LostAt is when the last loss was noticed by any process, in unix milliseconds; 0:
	// never.
	LostAt int64 `json:"-"`
}

// Rewound reports whether what was written before is gone, where before is an earlier
// generation or the zero one: the server was emptied, or came back with older data.
// Marks that were raised are higher than before, or the call that raised them before
// was lost.
func (g Generation) Rewound(before Generation) bool {
	if before.Token != "" && g.Token != before.Token {
		return true
	}
	for i := range min(len(g.Marks), len(before.Marks)) {
		if g.Marks[i] < before.Marks[i] || g.Raised && g.Marks[i] == before.Marks[i] {
			return true
		}
	}
	return false
}

// Replaced reports whether another server answers than before, or the same one after a
// restart. It may have lost the last moments before.
func (g Generation) Replaced(before Generation) bool {
	return g.Changed || before.Server != "" && g.Server != "" && before.Server != g.Server
}

// Generation reads the token and the marks. It has no effect.
func (l *Ledger) Generation(ctx context.Context) (Generation, error) {
	pipe := l.client.Pipeline()
	token := getText(ctx, pipe, epochKey)
	var marks []*redis.StringCmd
	for _, key := range markKeys(l.client) {
		marks = append(marks, getText(ctx, pipe, key))
	}
	exec(ctx, pipe)
	g, err := Generation{Token: token.Val()}, token.Err()
	for _, mark := range marks {
		n, _ := strconv.ParseInt(mark.Val(), 10, 64) // what is no number, or missing, is below any
		g.Marks = append(g.Marks, n)
		err = errors.Join(err, mark.Err())
	}
	return g, translate(ctx, "read the generation", err)
}

// BeginGeneration makes sure that there is a token, and returns the generation.
func (l *Ledger) BeginGeneration(ctx context.Context) (Generation, error) {
	g, err := l.Generation(ctx)
	if err != nil || g.Token != "" {
		return g, err
	}
	if err := l.client.SetNX(ctx, epochKey, rand.Text(), 0).Err(); err != nil {
		return Generation{}, translate(ctx, "begin a generation", err)
	}
	return l.Generation(ctx)
}

// clusterMarks is how many marks a cluster has: enough for each node to have some, as
// long as the slots are spread evenly.
const clusterMarks = 64

// noteServerScript stores which run of the server answers. Another one than before is
// noted as a loss: it may have started with older data, and the process that would
// have noticed may have been restarted as well.
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

// noteLossScript raises the last loss.
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

// RaiseGeneration raises each mark by one and returns them, without the token. The run
// of the server is stored beside the marks, so that another run is noticed even by a
// process that was started after it.
func (l *Ledger) RaiseGeneration(ctx context.Context) (Generation, error) {
	keys := markKeys(l.client)
	pipe := l.client.Pipeline()
	marks := make([]*redis.IntCmd, len(keys))
	for i, key := range keys {
		marks[i] = pipe.Incr(ctx, key)
	}
	info := redis.NewStringResult("", nil)
	if len(keys) == 1 { // a cluster has many servers, and no one to ask
		info = pipe.Info(ctx, "server")
	}
	known, lost := getText(ctx, pipe, markServerKey), getText(ctx, pipe, markLostKey)
	exec(ctx, pipe)
	g := Generation{Raised: true, Server: runOf(info.Val())}
	for _, mark := range marks {
		if err := mark.Err(); err != nil {
			return Generation{}, translate(ctx, "raise the marks", err)
		}
		g.Marks = append(g.Marks, mark.Val())
	}
	g.LostAt, _ = lost.Int64() // none is 0, and so is what was never written here
	if g.Server == "" || g.Server == known.Val() {
		return g, nil
	}
	reply, err := noteServerScript.Run(ctx, l.client, []string{markServerKey, markLostKey}, g.Server, l.now().UnixMilli()).Int64Slice()
	if err == nil && len(reply) == 2 {
		g.LostAt, g.Changed = reply[0], reply[1] == 1
	}
	return g, translate(ctx, "note the server", err)
}

// NoteLoss stores that a loss was noticed, in unix milliseconds, for the other
// processes, whose RaiseGeneration returns it. A later one stays.
func (l *Ledger) NoteLoss(ctx context.Context, at int64) error {
	return translate(ctx, "note a loss", noteLossScript.Run(ctx, l.client, []string{markLostKey}, at).Err())
}

// runOf finds the id of the run in the reply of INFO.
func runOf(info string) string {
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(line, "run_id:"); ok {
			return strings.TrimSpace(id)
		}
	}
	return ""
}
