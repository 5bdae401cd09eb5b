package index

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
)

// Entry is a member of a set: a contact and its score.
type Entry struct {
	Contact member.ID
	Score   uint64 // unix seconds of the contact's last upload
}

// Options say how an [Index] works. The zero value of a duration stands for its
// default.
type Options struct {
	Settings Settings
	// GuardLife bounds how long an update may take between Begin and Apply;
	// after it the update conflicts and starts again. Default 30 s.
	GuardLife time.Duration
	// SetLife lets a set expire when it was neither read nor refilled for so
	// long; 0 keeps sets for ever.
	SetLife time.Duration
	// Materialize says in a word whose sets are kept, so that other programs can
	// compare; it is stored beside the settings, and decides about nothing here.
	// Empty: nothing is stored.
	Materialize string
	// SettingsTrust is how long one look at the stored settings is good for.
	// Default 5 s.
	SettingsTrust time.Duration
	// Now is the clock for SettingsTrust and [Index.Refused]; default time.Now.
	Now func() time.Time
}

// Index reads and writes the sets. Its methods are safe for concurrent use.
type Index struct {
	client   redis.UniversalClient
	options  Options
	verified atomic.Int64 // unix nanoseconds until which the stored settings are trusted
	refusal  atomic.Pointer[refusal]
}

// New returns an index over client, which the caller closes. It does not
// connect: a Redis that is down shows in the methods' errors.
func New(client redis.UniversalClient, o Options) *Index {
	o.GuardLife = cmp.Or(o.GuardLife, 30*time.Second)
	o.SettingsTrust = cmp.Or(o.SettingsTrust, 5*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Index{client: client, options: o}
}

// Settings returns what the index was made with.
func (ix *Index) Settings() Settings { return ix.options.Settings }

// Candidates returns the members of a user's set, the most recent upload first,
// in one round trip. It fails with [ErrMissing] when there is no set.
func (ix *Index) Candidates(ctx context.Context, user member.ID) (_ []Entry, err error) {
	defer func(start time.Time) { ix.observe(opCandidates, start, err) }(time.Now())
	pipe := ix.client.Pipeline()
	entries := pipe.ZRevRangeWithScores(ctx, UserKey(user), 0, int64(ix.options.Settings.Max)-1)
	if ix.options.SetLife > 0 {
		pipe.PExpire(ctx, UserKey(user), ix.options.SetLife)
	}
	var stored *redis.StringCmd
	if !ix.settingsTrusted() {
		stored = getText(ctx, pipe, settingsKey)
	}
	exec(ctx, pipe)
	if stored != nil {
		if err := ix.verify(ctx, stored); err != nil {
			return nil, err
		}
	}
	if err := entries.Err(); redis.HasErrorPrefix(err, "WRONGTYPE") {
		return nil, fmt.Errorf("candidates of %s: %w: the key is no sorted set", user, ErrMalformed)
	} else if err != nil {
		return nil, translate(ctx, fmt.Sprintf("candidates of %s", user), err)
	}
	if len(entries.Val()) == 0 {
		return nil, fmt.Errorf("candidates of %s: %w", user, ErrMissing)
	}
	return fromReply(user, entries.Val())
}

func fromReply(user member.ID, reply []redis.Z) ([]Entry, error) {
	entries := make([]Entry, 0, len(reply))
	for _, z := range reply {
		name, _ := z.Member.(string)
		e, err := parseEntry(name, z.Score)
		if err != nil {
			return nil, fmt.Errorf("candidates of %s: %w", user, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// parseEntry accepts only what activityd writes: whole seconds. Beyond 2^53 a
// score would not be the number that was written.
func parseEntry(name string, score float64) (Entry, error) {
	id, err := member.Parse(name)
	if err != nil {
		return Entry{}, fmt.Errorf("%w: member: %w", ErrMalformed, err)
	}
	if !(score >= 0 && score <= 1<<53) || score != math.Trunc(score) {
		return Entry{}, fmt.Errorf("%w: member %s has score %g", ErrMalformed, name, score)
	}
	return Entry{Contact: id, Score: uint64(score)}, nil
}

// Check tells whether the index can be used now: nil, or an error that matches
// [ErrUnavailable], which [ErrNoDatabase] does, or [ErrSettings].
func (ix *Index) Check(ctx context.Context) (err error) {
	defer func(start time.Time) { ix.observe(opCheck, start, err) }(time.Now())
	stored := getText(ctx, ix.client, settingsKey)
	return ix.verify(ctx, stored)
}

// mostText is how many bytes are fetched of a string. What activityd writes is
// shorter; what another program wrote in its place may be of any size, and errors
// repeat it.
const mostText = 100

// getText asks for what a string key holds: "" when there is no such key.
func getText(ctx context.Context, c redis.Cmdable, key string) *redis.StringCmd {
	return c.GetRange(ctx, key, 0, mostText-1)
}

// settingsTrusted tells whether the settings were verified not long ago.
func (ix *Index) settingsTrusted() bool {
	return ix.options.Now().UnixNano() < ix.verified.Load()
}

// verify compares what Redis holds with the own settings. None stored is fine:
// there are no sets then, and [Index.Begin] stores them before the first one.
func (ix *Index) verify(ctx context.Context, stored *redis.StringCmd) error {
	own := ix.options.Settings
	switch value, err := stored.Result(); {
	case err == nil && (value == "" || value == own.String()):
		ix.verified.Store(ix.options.Now().Add(ix.options.SettingsTrust).UnixNano())
		return nil
	case err != nil:
		ix.verified.Store(0)
		return translate(ctx, "settings", err)
	default:
		ix.verified.Store(0)
		if len(value) == mostText {
			value = strings.ToValidUTF8(value, "") + "…"
		}
		return &SettingsError{Stored: value, Own: own}
	}
}
