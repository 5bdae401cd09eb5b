package once

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/retry"
)

// A fence is an epoch and a sequence number. The sequence number is counted in the marker
// of the bucket, in the script that acquires. The marker may be lost, or come back from an
// older snapshot or a replica that lagged; then it must not be counted from there. So a
// marker is valid only together with the server that it was made on:
//
//	server  the server's id, see serverID, when the marker was prepared
//	nonce   random, of one execution of prepareScript
//	epoch   once it is bound: server (of 40 characters), a space, and the epoch
//	seq     the last sequence number of the epoch
//	last    the highest epoch known of the markers before, 0 if none
//
// A server has another id after each start and each promotion. A master has another one,
// too, when its first replica connects, and when it has had none for an hour: that costs
// an epoch, and no more.
//
// A marker is valid if it has an epoch, a seq below maxSequence, and the id of the server
// that runs the script. The id stands beside the epoch once more so that acquireScript
// needs one field only: prepareScript, which alone writes server, begins with a marker
// without epoch, and bindScript, which alone writes epoch, repeats server. An epoch is begun in three steps:
//
//  1. prepareScript replaces a marker that is not valid by one without an epoch, and
//     returns its nonce. If there is such a marker already, it returns that one's.
//  2. A number is allocated that is higher than all that were allocated before.
//  3. bindScript stores the number in the marker if the marker still has the nonce and
//     the server's id, and no epoch.
//
// # Why no fence goes back
//
// Let X and Y be acquisitions of one bucket, each of which begins an attempt, where the
// script of X ran before that of Y.
//
//   - If both found the marker of the same execution P of prepareScript, then they ran on
//     the same server in one of its reigns (from its start, or its promotion, to its end
//     or its demotion), because its id is another one in the next reign. In one reign a
//     marker is changed by scripts only or is gone: what else brings data into a server, a
//     snapshot or a replication, begins another reign. An execution of prepareScript that
//     finds the marker valid leaves it, and one that does not find it makes another nonce,
//     which differs by the random number of the client, or, if the client sent the script
//     twice, by the time. So seq was counted up from X to Y, in one epoch, because
//     bindScript binds an epoch to a marker that has none.
//   - If Y found the marker of another execution P', then P' ran after X. In the same
//     reign it did because the marker that P' made was there at Y, and would not have been
//     replaced by another one and come back. In another reign it did because P' ran in the
//     reign of Y, which began after that of X had ended. (In a cluster a slot that moves
//     takes the marker along to a server with another id, where it is not valid; and it is
//     not valid when it comes back, unless no epoch was begun at the other place.) The epoch
//     that Y found was allocated for the nonce of P', by a client that knew it, so after P',
//     so after X, so after the epoch of X was allocated. So it is higher.
//
// Scripts that are late or sent twice do no harm: prepareScript either leaves the marker,
// or makes one whose nonce no number was allocated for, and bindScript fits only the nonce
// for which its number was allocated.
//
// Where two servers reign at a time, as after a failover that cut off a master with some
// clients, those clients go on with the lower epoch, and the resource refuses them as soon
// as it has seen the higher one: that is what fences are for.
//
// The proof needs that no old marker comes back into a server in one reign: it excludes
// RESTORE and COPY of a marker, SWAPDB, DEBUG RELOAD NOSAVE and DEBUG LOADAOF, and a virtual
// machine that is reverted together with its memory.

// noEpochHelp says what to do about [ErrNoEpoch] when there is no counter of epochs.
const noEpochHelp = "Redis is new to these locks, was restarted, or has lost data: see that no process works that has an old fence, and begin an epoch with \"activityd once begin-epoch\", or give a DSN, too, for a database that keeps the epochs"

// prepareScript replaces a marker that is not valid by one without an epoch.
//
//	KEYS[1] the marker
//	ARGV[1] random
//	returns the nonce of a marker without an epoch, or "" if it is valid; and the highest epoch that it knows of
var prepareScript = redis.NewScript(`
local server = ` + serverID + `
if not server then
	if string.find(redis.call('INFO', 'replication'), 'role:slave', 1, true) then
		return redis.error_reply('READONLY this server is a replica')
	end
	return redis.error_reply('ERR INFO replication shows no master_replid')
end
local m = redis.call('HMGET', KEYS[1], 'nonce', 'server', 'epoch', 'seq', 'last')
local epoch = string.match(m[3] or '', '^%x+ (%d+)$')
if m[1] and m[2] == server then
	if not m[3] then return {m[1], m[5]} end
	local seq = tonumber(m[4] or '')
	if epoch and seq and seq < ` + maxSequence + ` then return {'', epoch} end
end
local time = redis.call('TIME')
local nonce = ARGV[1] .. ' ' .. time[1] .. '.' .. time[2]
local last = epoch or m[5] or '0'
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'nonce', nonce, 'server', server, 'last', last)
return {nonce, last}
`)

// bindScript gives a marker its epoch.
//
//	KEYS[1] the marker
//	ARGV[1] nonce  ARGV[2] epoch
//	returns 1 if the marker has the epoch now, else 0
var bindScript = redis.NewScript(`
local m = redis.call('HMGET', KEYS[1], 'nonce', 'server', 'epoch')
if m[1] ~= ARGV[1] or m[2] ~= ` + serverID + ` then return 0 end
local epoch = m[2] .. ' ' .. ARGV[2]
if m[3] then return m[3] == epoch and 1 or 0 end
redis.call('HSET', KEYS[1], 'epoch', epoch, 'seq', 0)
return 1
`)

// BeginEpoch begins an epoch in each bucket without a valid one. It returns the epoch's number
// and those buckets, which may be none. It takes up to a second or two.
//
// Without a counter of epochs (see [NewRedis]) a person decides when to call it: no process
// with an older fence may be at work. The number is then this machine's clock, which must
// not be behind the clock of the last epoch.
func (r *Redis) BeginEpoch(ctx context.Context) (epoch uint64, begun []int, err error) {
	select {
	case r.beginning <- struct{}{}:
		defer func() { <-r.beginning }()
	case <-ctx.Done():
		return 0, nil, context.Cause(ctx)
	}
	return r.beginEpoch(ctx)
}

// beginEpoch is BeginEpoch in the one goroutine that begins an epoch. It begins one in the
// buckets that can be reached, and returns an error if that is not all of them.
func (r *Redis) beginEpoch(ctx context.Context) (epoch uint64, begun []int, err error) {
	nonces, last, prepareErr := r.prepare(ctx)
	if len(nonces) == 0 {
		return 0, nil, prepareErr
	}
	allocate := r.epochs
	if allocate == nil {
		allocate = func(ctx context.Context) (uint64, error) { return epochByClock(ctx, last) }
	}
	epoch, err = allocate(ctx)
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("%w: begin one: %w", ErrNoEpoch, err)
	case epoch == 0 || epoch > math.MaxUint32:
		return 0, nil, fmt.Errorf("%w: begin one: its number, %d, is out of bounds", ErrNoEpoch, epoch)
	case epoch <= last:
		return 0, nil, fmt.Errorf("%w: begin one: its number, %d, is not above %d, which was used before: was the counter restored, or is a clock wrong?", ErrNoEpoch, epoch, last)
	}
	begun, bindErr := r.bind(ctx, nonces, epoch)
	return epoch, begun, errors.Join(prepareErr, bindErr)
}

// prepare runs prepareScript on all buckets, and returns the nonces of those that have no
// epoch, and the highest epoch that is known.
func (r *Redis) prepare(ctx context.Context) (nonces map[int]string, last uint64, err error) {
	random := rand.Text()
	key := ""
	cmds := make([]*redis.Cmd, buckets)
	_, err = r.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for bucket := range cmds {
			cmds[bucket] = prepareScript.Eval(ctx, pipe, []string{markerKey(bucket)}, random)
		}
		return nil
	})
	nonces = make(map[int]string)
	for bucket, cmd := range cmds {
		reply, cmdErr := cmd.StringSlice()
		if cmdErr != nil || len(reply) != 2 { // without a connection err has the reason, and the command none
			if key == "" {
				key, err = markerKey(bucket), cmp.Or(err, cmdErr)
			}
			continue
		}
		if n, parseErr := strconv.ParseUint(reply[1], 10, 32); parseErr == nil {
			last = max(last, n)
		}
		if reply[0] != "" {
			nonces[bucket] = reply[0]
		}
	}
	return nonces, last, translate(ctx, key, err)
}

// bind runs bindScript on the prepared buckets, and returns those that have the epoch.
func (r *Redis) bind(ctx context.Context, nonces map[int]string, epoch uint64) (begun []int, err error) {
	cmds := make(map[int]*redis.Cmd)
	_, err = r.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for bucket, nonce := range nonces {
			cmds[bucket] = bindScript.Eval(ctx, pipe, []string{markerKey(bucket)}, nonce, epoch)
		}
		return nil
	})
	for bucket, cmd := range cmds {
		if n, _ := cmd.Int(); n == 1 {
			begun = append(begun, bucket)
		}
	}
	slices.Sort(begun)
	return begun, translate(ctx, "begin an epoch", err)
}

// maxAhead is how far an epoch may be ahead of the clock, for epochByClock to wait for it.
const maxAhead = 2 * time.Minute

// epochByClock returns an epoch above last, in unix seconds. It returns when they have
// passed, so that a later call, wherever it is, returns a higher one.
func epochByClock(ctx context.Context, last uint64) (uint64, error) {
	epoch := max(uint64(time.Now().Unix()), last+1)
	end := time.Unix(int64(epoch)+1, 0)
	if ahead := time.Until(end); ahead > maxAhead {
		return 0, fmt.Errorf("the last epoch, %d, is %v ahead of this machine's clock: set the clock, or wait", last, ahead)
	}
	for wait := time.Until(end); wait > 0; wait = time.Until(end) {
		if err := retry.Sleep(ctx, wait); err != nil {
			return 0, err
		}
	}
	return epoch, nil
}
