package index

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
)

// Entry is a member of a set: a contact and its score.
type Entry struct {
	Contact member.ID
	Score   uint64 // unix seconds of the contact's last upload
}

// Options configure an [Index]. The zero value of a duration stands for its default.
type Options struct {
	Settings Settings
	// GuardLife is the TTL of a guard: an update that takes longer between Begin and
	// Apply conflicts and starts again. Default 30 s.
	GuardLife time.Duration
	// SetLife is the TTL of a set since its last read or refill; 0: no expiry.
	SetLife time.Duration
	// Now is the clock for the age of what is known of Redis; default time.Now.
	Now func() time.Time
}

// Index reads and writes the sets. Its methods are safe for concurrent use.
type Index struct {
	client  *client
	options Options
}

// New returns an index over c, a [redis.Client] or a [redis.ClusterClient], which the
// caller closes. It adds hooks to c, and does not connect.
func New(c redis.UniversalClient, o Options) *Index {
	o.GuardLife = cmp.Or(o.GuardLife, 30*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Index{client: newClient(c, o.Now), options: o}
}

// Settings returns the settings of the index.
func (ix *Index) Settings() Settings { return ix.options.Settings }

// Candidates returns the entries of a member's set, the most recent upload first,
// in one round trip. It fails with [ErrMissing] when there is no set, and with [ErrUnknown]
// when the set may be old.
func (ix *Index) Candidates(ctx context.Context, user member.ID) (_ []Entry, err error) {
	defer func(start time.Time) { ix.observe(opCandidates, start, err) }(time.Now())
	key, what := UserKey(user), "candidates of "+user.String()
	n, err := ix.client.nodeOf(ctx, key)
	if err != nil {
		return nil, translate(ctx, what, err)
	}
	members := redis.NewZSliceCmd(ctx, "zrevrange", key, 0, ix.options.Settings.Max-1, "withscores")
	read := newCommand(key, members)
	commands := []*command{read}
	if ix.options.SetLife > 0 {
		commands = append(commands, newCommand(key, redis.NewBoolCmd(ctx, "pexpire", key, ix.options.SetLife.Milliseconds())))
	}
	var stored []*redis.StringCmd
	if !ix.trusts(n) {
		var settings []*command
		settings, stored = ix.readSettings(ctx, n)
		commands = append(commands, settings...)
	}
	ix.client.send(ctx, commands)
	if stored != nil {
		if err := ix.compare(ctx, n, stored, false); err != nil {
			return nil, err
		}
	}
	switch err := members.Err(); {
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return nil, fmt.Errorf("%s: %w: the key is no sorted set", what, ErrMalformed)
	case err != nil:
		return nil, translate(ctx, what, err)
	}
	// Not before: only the reply shows which server answered.
	if err := ix.client.believes(ctx, read); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if len(members.Val()) == 0 {
		return nil, fmt.Errorf("%s: %w", what, ErrMissing)
	}
	entries := make([]Entry, 0, len(members.Val()))
	for _, z := range members.Val() {
		e, err := parseEntry(z)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// parseEntry accepts only what activityd writes: whole seconds. Beyond 2^53 a
// score would not be the number that was written.
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
