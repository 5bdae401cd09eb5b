package index

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/redisnodes"
)

type (
	// Slots is a set of slots of a cluster.
	Slots = redisnodes.Slots
	// Generation identifies the data that the nodes hold.
	Generation = redisnodes.Generation
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

// Index reads and writes the sets on some nodes. Its methods are safe for concurrent use.
type Index struct {
	*redisnodes.Nodes

	options Options
}

// New returns an index over c, a [redis.Client] or a [redis.ClusterClient], which the
// caller closes. It adds hooks to c, and does not connect.
func New(c redis.UniversalClient, o Options) *Index {
	o.GuardLife = cmp.Or(o.GuardLife, 30*time.Second)
	ix := &Index{options: o}
	ix.Nodes = redisnodes.New(c, redisnodes.Options{
		Now: o.Now, Stamp: o.Settings.stamp(), Pattern: "*" + userKeyPrefix + "*", Owns: isOwn,
		Script: probeScript, ScriptKeys: probeKeys, ScriptArgs: []any{probeTTL.Milliseconds()},
		Probed: func(began time.Time, err error) { ix.observe(opProbe, began, err) },
	})
	return ix
}

// Unprolonged returns an index of the same sets, by which no read prolongs the life of a set.
func (ix *Index) Unprolonged() *Index {
	o := ix.options
	o.SetLife = 0
	return &Index{ix.Nodes, o}
}

// Settings returns the settings of the index.
func (ix *Index) Settings() Settings { return ix.options.Settings }

// Broadcast is what a copy of the broadcast set says: the broadcast members that uploaded last,
// contacts of the viewer or not.
type Broadcast struct {
	Copy    member.ID
	Entries []Entry // the most recent upload first, at most broadcastPage
	// Bound is at least the score of each member that is not among Entries; 0: there is none.
	Bound uint64
	// Err is why nothing is known of them: [ErrMissing] also where there are none.
	Err error
	// IsBehind says that the copy may lack what is not written yet, as [ErrBehind] says of a set.
	IsBehind bool
	// More returns those whose score is above one, but the first some hundreds, by a further round trip. Nil: it cannot.
	More func(ctx context.Context, above uint64) Broadcast
}

// How many broadcast members a read gets, at first and when it needs more. Each may cost it a look at a row of
// contacts.
const (
	broadcastPage = 32
	deepPage      = 512
)

// CopyFor returns the copy of the broadcast set that reads of a member take: one that lies near the
// member's own set in a cluster.
func CopyFor(user member.ID) member.ID {
	return member.Copies[redisnodes.SlotOf(UserKey(user))*len(member.Copies)/redisnodes.SlotCount]
}

// Candidates returns the entries of a member's set, the most recent upload first, and the first
// broadcast members, in one round trip. It fails with [ErrMissing] when there is no set, and with [ErrUnknown]
// when the set may be old. With [ErrBehind] it returns entries as well.
//
// The copy is read before the set, so that a member that ceases to be a broadcast member is seen in one of the two.
func (ix *Index) Candidates(ctx context.Context, user member.ID) (_ []Entry, b Broadcast, err error) {
	defer func(start time.Time) { ix.observe(opCandidates, start, err) }(time.Now())
	b.Copy = CopyFor(user)
	key, copied, what := UserKey(user), UserKey(b.Copy), "candidates of "+user.String()
	state, err := ix.State(ctx, key)
	if state == redisnodes.Away {
		return nil, b, fmt.Errorf("%s: %w", what, err)
	}
	// A node that is away is not asked: it may answer a moment before it is known to be back, and lack what waited for it.
	ofCopy, pageErr := ix.State(ctx, copied)
	first := redis.NewZSliceCmd(ctx, "zrevrange", copied, 0, broadcastPage, "withscores")
	members := redis.NewZSliceCmd(ctx, "zrevrange", key, 0, ix.options.Settings.Max-1, "withscores")
	var commands []*redisnodes.Command
	if ofCopy != redisnodes.Away {
		commands = append(commands, redisnodes.NewCommand(copied, first))
	}
	commands = append(commands, redisnodes.NewCommand(key, members))
	if ix.options.SetLife > 0 {
		commands = append(commands, redisnodes.NewCommand(key, redis.NewBoolCmd(ctx, "pexpire", key, ix.options.SetLife.Milliseconds())))
	}
	ix.Read(ctx, commands, false)
	entries, err := entriesOf(ctx, what, members)
	if err != nil {
		return nil, b, err
	}
	var page []Entry
	if ofCopy != redisnodes.Away {
		page, pageErr = entriesOf(ctx, "broadcast members", first)
	}
	b = NewBroadcast(b.Copy, page, pageErr)
	b.IsBehind = isBehind(ofCopy)
	b.More = func(ctx context.Context, above uint64) Broadcast { return ix.moreBroadcasts(ctx, b.Copy, above) }
	if isBehind(state) {
		return entries, b, fmt.Errorf("%s: %w", what, ErrBehind)
	}
	return entries, b, nil
}

// isBehind reports whether a node may lack what is written to others.
func isBehind(s redisnodes.State) bool { return s == redisnodes.Behind || s == redisnodes.Refusing }

// moreBroadcasts is [Broadcast.More].
func (ix *Index) moreBroadcasts(ctx context.Context, of member.ID, above uint64) Broadcast {
	key := UserKey(of)
	if state, err := ix.State(ctx, key); isBehind(state) || state == redisnodes.Away {
		return Broadcast{Copy: of, Err: cmp.Or(err, ErrBehind)}
	}
	scored := redis.NewZSliceCmd(ctx, "zrevrangebyscore", key, "+inf", "("+strconv.FormatUint(above, 10), "withscores", "limit", 0, deepPage+1)
	ix.Read(ctx, []*redisnodes.Command{redisnodes.NewCommand(key, scored)}, false)
	entries, err := entriesOf(ctx, "broadcast members", scored)
	return MoreBroadcasts(of, above, entries, err)
}

// MoreBroadcasts returns what a copy says whose entries above a score were read, one more than are wanted, the most recent upload first.
func MoreBroadcasts(of member.ID, above uint64, entries []Entry, err error) Broadcast {
	b := Broadcast{Copy: of, Entries: entries, Bound: above, Err: err}
	if len(entries) > deepPage {
		b.Entries, b.Bound = entries[:deepPage], entries[deepPage].Score
	}
	return b
}

// NewBroadcast returns what a copy says whose first entries were read, one more than a page, the most
// recent upload first. The last member of a copy is the copy itself.
func NewBroadcast(of member.ID, entries []Entry, err error) Broadcast {
	b := Broadcast{Copy: of, Entries: entries, Err: err}
	if len(entries) > broadcastPage && entries[broadcastPage].Contact != of {
		b.Entries, b.Bound = entries[:broadcastPage], entries[broadcastPage].Score
	}
	b.Entries = slices.DeleteFunc(b.Entries, func(e Entry) bool { return e.Contact == of })
	return b
}

// entriesOf returns the entries that a command has read.
func entriesOf(ctx context.Context, what string, members *redis.ZSliceCmd) ([]Entry, error) {
	switch err := members.Err(); {
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return nil, fmt.Errorf("%s: %w: the key is no sorted set", what, ErrMalformed)
	case err != nil:
		return nil, redisnodes.Translate(ctx, what, err)
	case len(members.Val()) == 0:
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

// StateOf returns the state of the node that has the user's set; see [redisnodes.Nodes.State].
func (ix *Index) StateOf(ctx context.Context, user member.ID) (redisnodes.State, error) {
	return ix.State(ctx, UserKey(user))
}

// LostSince reports whether the user's set may have been lost later than at; see
// [redisnodes.Nodes.KeyLostSince].
func (ix *Index) LostSince(user member.ID, at int64) bool { return ix.KeyLostSince(UserKey(user), at) }

// SlotsOf returns the slots that cannot be used, judging by the errors of some users, such as
// those of [Index.Add]; see [redisnodes.Nodes.SlotsOut].
func (ix *Index) SlotsOf(ctx context.Context, failed map[member.ID]error) Slots {
	keys := make(map[string]error, len(failed))
	for user, err := range failed {
		keys[UserKey(user)] = err
	}
	return ix.SlotsOut(ctx, keys)
}

// SlotsOfUsers returns the slots in which the sets of users lie.
func SlotsOfUsers(users ...member.ID) Slots {
	keys := make([]string, len(users))
	for i, user := range users {
		keys[i] = UserKey(user)
	}
	return redisnodes.SlotsOfKeys(keys...)
}

// probeTTL is the life of the guard of a probe that was cut short.
const probeTTL = time.Second

// probeScript writes what an update writes, with the same commands, and deletes it
// in the same step. Its first write needs memory, because a full server refuses no write
// after the first one of a script. What an ACL may forbid comes before the set is made,
// so that none is left behind.
//
//	KEYS[1]  a set that does not exist
//	KEYS[2]  its guard
//	ARGV[1]  the TTL of the guard in milliseconds, should the script end early
//	returns  1
var probeScript = redisnodes.NewScript(`
redis.call('SET', KEYS[2], 'probe', 'PX', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[1], '1')
redis.call('ZREMRANGEBYRANK', KEYS[1], '0', '-1')
redis.call('ZADD', KEYS[1], '1', '1')
return redis.call('DEL', KEYS[1], KEYS[2])
`)
