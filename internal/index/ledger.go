package index

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Ledger keeps in Redis, beside the sets, what work over all of them has to know: the
// generation of the data, whose sets are kept, and the lease and the position of the
// audit's sweep. Its errors are those of [Index]. It is safe for concurrent use.
type Ledger struct {
	client redis.UniversalClient
	now    func() time.Time
}

// NewLedger returns a ledger over client, which the caller closes.
func NewLedger(client redis.UniversalClient) *Ledger { return &Ledger{client, time.Now} }

// holdScript takes or extends the sweep's lease. With a state it only extends it, and
// keeps the state.
//
//	KEYS[1] the lease  KEYS[2] the state
//	ARGV[1] the owner  ARGV[2] the lease's TTL in milliseconds  ARGV[3] a state, or absent
//	returns the state, "" when there is none; nil when the owner has no lease
var holdScript = redis.NewScript(`
local owner = redis.call('GET', KEYS[1])
if owner ~= ARGV[1] and (owner or ARGV[3]) then return false end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if ARGV[3] then redis.call('SET', KEYS[2], ARGV[3]) end
return redis.call('GETRANGE', KEYS[2], 0, 4095)
`)

// leaveScript gives the lease up.
//
//	KEYS[1] the lease
//	ARGV[1] the owner
//	returns how many leases there were: 1 or 0
var leaveScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
`)

func (l *Ledger) hold(ctx context.Context, args ...any) (state string, held bool, err error) {
	state, err = holdScript.Run(ctx, l.client, []string{sweepLeaseKey, sweepStateKey}, args...).Text()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	return state, err == nil, translate(ctx, "hold the sweep", err)
}

// HoldSweep gives owner the lease of the sweep for ttl, or extends it, and returns the
// state that was saved last, empty for none; held is false while another owner has the
// lease. Nothing but effort depends on there being one owner.
func (l *Ledger) HoldSweep(ctx context.Context, owner string, ttl time.Duration) (state string, held bool, err error) {
	return l.hold(ctx, owner, ttl.Milliseconds())
}

// SaveSweep keeps the state for the next owner, and extends the lease. If owner has no
// lease, held is false and nothing is kept: the state may be lost as well, so that
// HoldSweep comes first.
func (l *Ledger) SaveSweep(ctx context.Context, owner, state string, ttl time.Duration) (held bool, err error) {
	_, held, err = l.hold(ctx, owner, ttl.Milliseconds(), state)
	return held, err
}

// LeaveSweep gives the lease up, if owner has it.
func (l *Ledger) LeaveSweep(ctx context.Context, owner string) error {
	return translate(ctx, "leave the sweep", leaveScript.Run(ctx, l.client, []string{sweepLeaseKey}, owner).Err())
}

// Materialize returns whose sets are kept, as stored by StoreMaterialize or by
// [Index.Begin]; empty when nothing is stored.
func (l *Ledger) Materialize(ctx context.Context) (string, error) {
	text, err := getText(ctx, l.client, materializeKey).Result()
	return text, translate(ctx, "read whose sets are kept", err)
}

// KeepMaterialize stores whose sets are kept where nothing is stored, such as after a
// loss.
func (l *Ledger) KeepMaterialize(ctx context.Context, whose string) error {
	return translate(ctx, "keep whose sets are kept", l.client.SetNX(ctx, materializeKey, whose, 0).Err())
}

// StoreMaterialize stores whose sets are kept, for other programs to compare.
func (l *Ledger) StoreMaterialize(ctx context.Context, whose string) error {
	return translate(ctx, "store whose sets are kept", l.client.Set(ctx, materializeKey, whose, 0).Err())
}
