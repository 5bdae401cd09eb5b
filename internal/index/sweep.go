package index

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// holdScript makes somebody the one who sweeps.
//
//	KEYS[1] the lease  KEYS[2] the state
//	ARGV[1] the owner  ARGV[2] the lease's life in milliseconds
//	returns the state, "" when there is none; nil when another owner holds the lease
var holdScript = redis.NewScript(`
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return false end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return redis.call('GETRANGE', KEYS[2], 0, 4095)
`)

// saveScript keeps the state, and prolongs the lease.
//
//	KEYS[1] the lease  KEYS[2] the state
//	ARGV[1] the owner  ARGV[2] the lease's life in milliseconds  ARGV[3] the state
//	returns 1; 0 when the owner does not hold the lease, and nothing was written
var saveScript = redis.NewScript(`
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[2], ARGV[3])
return 1
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

// HoldSweep makes owner the one who goes over all sets, for life, and returns what
// [Index.SaveSweep] kept last, empty for nothing; unless another owner is, whose
// lease has not run out: then held is false. Nothing but effort depends on there
// being only one.
func (ix *Index) HoldSweep(ctx context.Context, owner string, life time.Duration) (state string, held bool, err error) {
	state, err = holdScript.Run(ctx, ix.client, []string{sweepLeaseKey, sweepStateKey}, owner, life.Milliseconds()).Text()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	return state, err == nil, translate(ctx, "hold the sweep", err)
}

// SaveSweep keeps state for whoever sweeps next, and prolongs the lease; unless it
// ran out or was lost: then held is false. Where the sweep is may have been lost
// with it, so that [Index.HoldSweep] comes first then.
func (ix *Index) SaveSweep(ctx context.Context, owner, state string, life time.Duration) (held bool, err error) {
	held, err = saveScript.Run(ctx, ix.client, []string{sweepLeaseKey, sweepStateKey}, owner, life.Milliseconds(), state).Bool()
	return held, translate(ctx, "save the sweep", err)
}

// LeaveSweep gives the lease up, if owner has it.
func (ix *Index) LeaveSweep(ctx context.Context, owner string) error {
	return translate(ctx, "leave the sweep", leaveScript.Run(ctx, ix.client, []string{sweepLeaseKey}, owner).Err())
}
