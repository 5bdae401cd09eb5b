package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/redisnodes"
)

// Entry is a member of a set: a contact and its score.
type Entry struct {
	Contact member.ID
	Score   uint64 // unix seconds of the contact's last upload
}

// Options configure an [Index]. The zero value of a duration stands for its default.
type Options struct {
	Settings Settings
	// Database returns the id of the database that the sets belong to, or "" while it is not known.
	// It is stored and compared with the settings. Nil: no other database uses this Redis.
	Database func() string
	// GuardLife is the TTL of a guard: an update that takes longer between Begin and
	// Apply conflicts and starts again. Default 30 s.
	GuardLife time.Duration
	// SetLife is the TTL of a set since its last read or refill; 0: no expiry.
	SetLife time.Duration
}

// Index reads and writes the sets on some nodes. Its methods are safe for concurrent use.
type Index struct {
	*redisnodes.Nodes

	options Options
}

// New returns an index over the servers of c, a [redis.Client] or a [redis.ClusterClient]. It makes
// connections of its own, see [redisnodes.Open], when it is used.
func New(c redis.UniversalClient, o Options) *Index {
	o.GuardLife = cmp.Or(o.GuardLife, 30*time.Second)
	ix := &Index{options: o}
	ix.Nodes = redisnodes.Open(c, redisnodes.Options{
		Name: settingsKey, Stamp: o.stamp, Differ: func(stored string) error { return differ(stored, o.stamp()) },
		Pattern: "*" + userKeyPrefix + "*", Owns: isOwn,
		Try: func(ctx context.Context, c redis.Scripter, tag string) error {
			return probeScript.Run(ctx, c, probeKeys(tag), probeTTL.Milliseconds()).Err()
		},
	})
	return ix
}

// Settings returns the settings of the index.
func (ix *Index) Settings() Settings { return ix.options.Settings }

// Candidates returns the entries of a member's set, the most recent upload first, in one round trip. It fails with
// [ErrMissing] when there is no set, and with [ErrUnknown] when the set may be old. With [ErrBehind] it returns entries as well.
func (ix *Index) Candidates(ctx context.Context, user member.ID) (_ []Entry, err error) {
	defer func(start time.Time) { ix.observe(opCandidates, start, err) }(time.Now())
	key := UserKey(user)
	members := redis.NewZSliceCmd(ctx, "zrevrange", key, 0, ix.options.Settings.Max-1, "withscores")
	commands := []redis.Cmder{members}
	if ix.options.SetLife > 0 {
		commands = append(commands, redis.NewBoolCmd(ctx, "pexpire", key, ix.options.SetLife.Milliseconds()))
	}
	isLate := ix.Send(ctx, key, commands...)
	entries, err := entriesOf(members)
	if err == nil && isLate {
		err = ErrBehind
	}
	if err != nil {
		err = redisnodes.Translate(ctx, "candidates of "+user.String(), err)
	}
	return entries, err
}

// entriesOf returns the entries of a set that a command has read.
func entriesOf(members *redis.ZSliceCmd) ([]Entry, error) {
	switch err := members.Err(); {
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return nil, fmt.Errorf("%w: the key is no sorted set", ErrMalformed)
	case err != nil:
		return nil, err
	case len(members.Val()) == 0:
		return nil, ErrMissing
	}
	entries := make([]Entry, 0, len(members.Val()))
	for _, z := range members.Val() {
		e, err := parseEntry(z)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// parseEntry accepts only entries that activityd writes: whole seconds. Beyond 2^53 a float64 would
// not be the number that was written.
func parseEntry(z redis.Z) (Entry, error) {
	name, _ := z.Member.(string)
	id, err := member.Parse(name)
	if err != nil {
		return Entry{}, fmt.Errorf("%w: member: %w", ErrMalformed, err)
	}
	if !(z.Score >= 0 && z.Score <= 1<<53) || z.Score != math.Trunc(z.Score) {
		return Entry{}, fmt.Errorf("%w: member %s has score %g", ErrMalformed, name, z.Score)
	}
	return Entry{Contact: id, Score: uint64(z.Score)}, nil
}

// NodeOf names the node of a user's set, and reports whether it can be written to now.
func (ix *Index) NodeOf(user member.ID) (node string, isUsable bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond) // as a rule it is not needed: the client knows the slots
	defer cancel()
	n, state := ix.Usable(ctx, UserKey(user))
	return n.String(), state == nil || errors.Is(state, ErrBehind)
}

// probeTTL is the life of the guard of a probe that was cut short.
const probeTTL = time.Second

// probeScript writes like an update, with the same commands, and deletes its keys in the same step.
// Its first write needs memory, because a full server refuses no write of a script after the first.
// The commands that an ACL may forbid come before the set is made, so that no set is left behind.
//
//	KEYS[1]  a set that does not exist
//	KEYS[2]  its guard
//	ARGV[1]  the TTL of the guard in milliseconds, should the script end early
//	returns  1
var probeScript = redis.NewScript(`
redis.call('SET', KEYS[2], 'probe', 'PX', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[1], '1')
redis.call('ZREMRANGEBYRANK', KEYS[1], '0', '-1')
redis.call('ZADD', KEYS[1], '1', '1')
return redis.call('DEL', KEYS[1], KEYS[2])
`)
