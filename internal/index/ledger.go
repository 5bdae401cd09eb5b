package index

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/redisnodes"
)

// Ledger keeps in Redis, beside the sets, what work over all of them has to know:
// whose sets are kept, and the position of the audit's sweep. Its errors are those of
// [Index]. It is safe for concurrent use.
type Ledger struct {
	client redis.UniversalClient
}

// NewLedger returns a ledger over client, which the caller closes.
func NewLedger(client redis.UniversalClient) *Ledger { return &Ledger{client} }

// sweepFenceTTL is how long a fence is kept after the last save. It bounds how long the
// sweep stands still when its fences have gone back, after a restore of MySQL.
const sweepFenceTTL = time.Hour

// beginSweepScript stores the fence of a sweep, unless a higher one is stored. Fences are
// decimal strings: the numbers of Lua are exact below 2^53 only.
//
//	KEYS[1] the fence  KEYS[2] the state
//	ARGV[1] the fence of the sweep  ARGV[2] the TTL of the fence in milliseconds
//	returns the state, "" when there is none; nil when the fence is too low
var beginSweepScript = redis.NewScript(`
local stored, fence = redis.call('GET', KEYS[1]), ARGV[1]
local known = stored and #stored < 21 and string.find(stored, '^%d+$') -- else another program wrote it
if known and (#stored > #fence or #stored == #fence and stored > fence) then return false end
redis.call('SET', KEYS[1], fence, 'PX', ARGV[2])
return redis.call('GETRANGE', KEYS[2], 0, 4095)
`)

// saveSweepScript stores the state of a sweep, if no other sweep has begun.
//
//	KEYS[1] the fence  KEYS[2] the state
//	ARGV[1] the fence of the sweep  ARGV[2] the TTL of the fence in milliseconds  ARGV[3] the state
//	returns 1 if it was stored, else 0
var saveSweepScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[3])
return 1
`)

// BeginSweep returns the state of the sweep that was saved last, empty for none, and lets
// the process with this fence save it. begun is false, and nothing has changed, when a
// process with a higher fence has begun.
func (l *Ledger) BeginSweep(ctx context.Context, fence uint64) (state string, begun bool, err error) {
	state, err = beginSweepScript.Run(ctx, l.client, []string{sweepFenceKey, sweepStateKey}, fence, sweepFenceTTL.Milliseconds()).Text()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	return state, err == nil, redisnodes.Translate(ctx, "begin the sweep", err)
}

// SaveSweep keeps the state of the sweep for the next BeginSweep. saved is false, and
// nothing is kept, when another process has begun since, or Redis has lost that this one
// began: then the state may be lost as well.
func (l *Ledger) SaveSweep(ctx context.Context, fence uint64, state string) (saved bool, err error) {
	saved, err = saveSweepScript.Run(ctx, l.client, []string{sweepFenceKey, sweepStateKey}, fence, sweepFenceTTL.Milliseconds(), state).Bool()
	return saved, redisnodes.Translate(ctx, "save the sweep", err)
}

// Materialize returns whose sets are kept, as stored by StoreMaterialize or by
// [Index.Begin]; empty when nothing is stored.
func (l *Ledger) Materialize(ctx context.Context) (string, error) {
	text, err := l.client.GetRange(ctx, materializeKey, 0, redisnodes.MaxTextBytes-1).Result()
	return text, redisnodes.Translate(ctx, "read whose sets are kept", err)
}

// KeepMaterialize stores whose sets are kept where nothing is stored, such as after a
// loss.
func (l *Ledger) KeepMaterialize(ctx context.Context, whose string) error {
	return redisnodes.Translate(ctx, "keep whose sets are kept", l.client.SetNX(ctx, materializeKey, whose, 0).Err())
}

// StoreMaterialize stores whose sets are kept, for other programs to compare.
func (l *Ledger) StoreMaterialize(ctx context.Context, whose string) error {
	return redisnodes.Translate(ctx, "store whose sets are kept", l.client.Set(ctx, materializeKey, whose, 0).Err())
}
