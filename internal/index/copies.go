package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/redisnodes"
)

// Copy is what a copy of the broadcast set says: the broadcast members that uploaded last,
// contacts of the viewer or not.
type Copy struct {
	Of      member.ID // the copy
	Entries []Entry   // the most recent upload first, at most broadcastPage; read-only
	// Bound is at least the score of each member that is not among Entries; 0: there is none.
	Bound uint64
	// Err is why nothing is known of them: [ErrMissing] also where there are none.
	Err error
	// IsBehind says that the copy may lack what is not written yet, as [ErrBehind] says of a set.
	IsBehind bool
	// More returns those whose score is above one, but the first some hundreds, by a further round trip at most. Nil: it cannot.
	More func(ctx context.Context, above uint64) Copy
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

// NewCopy returns what a copy says that has these entries and no others, itself among them, the most recent upload first.
func NewCopy(of member.ID, entries []Entry, err error) Copy {
	return newCopied(of, entries, len(entries)+1).first(of, err)
}

// MoreOfCopy returns what a copy says whose entries above a score were read, one more than are wanted, the most recent upload first.
func MoreOfCopy(of member.ID, above uint64, entries []Entry, err error) Copy {
	b := Copy{Of: of, Entries: entries, Bound: above, Err: err}
	if len(entries) > deepPage {
		b.Entries, b.Bound = entries[:deepPage], entries[deepPage].Score
	}
	return b
}

// Each copy contains itself. Its score there is the version of the copy: a number below 0 that each writer changes, in the script that
// writes. So two reads of one version are of the same members and scores, and a read asks for the version and
// takes the members that were read with it, or after it, before. An older version does not come back: an addition lowers it by a random
// number, so that the same call, sent twice, gives two; an update, which is not done twice, gives the copy a random one; and the sets
// of a server that may have lost writes are not believed.

// ownScore is the score of a copy in itself for all but the scripts.
const ownScore = 1

// newVersion returns a version for the set of a user, and "" for one that has none.
func newVersion(user member.ID) any {
	if !user.IsCopy() {
		return ""
	}
	return -1 - rand.Int64N(1<<52)
}

// versionStep returns what an addition adds to the version of the set of a user, and "" for one that has none. It is more than what a
// score of any size rounds off.
func versionStep(user member.ID) any {
	if !user.IsCopy() {
		return ""
	}
	return -(1<<20 + rand.Int64N(1<<32))
}

// copies are what was read of each copy last.
type copies [len(member.Copies)]atomic.Pointer[copied]

// copied are the first entries of a copy, which are not changed.
type copied struct {
	version float64 // 0: it has none, and this is for one read
	missing bool    // there is no copy, and so no version
	entries []Entry // the most recent upload first, without the copy
	bound   uint64  // at least the score of each other entry; 0: there is none
}

func newCopied(of member.ID, entries []Entry, asked int) *copied {
	c := &copied{entries: slices.DeleteFunc(entries, func(e Entry) bool { return e.Contact == of })}
	if len(c.entries) == asked {
		c.bound = c.entries[asked-1].Score
	}
	return c
}

// first is what a read gets at first.
func (c *copied) first(of member.ID, err error) Copy {
	b := Copy{Of: of, Entries: c.entries, Bound: c.bound, Err: err}
	if len(c.entries) > broadcastPage {
		b.Entries, b.Bound = c.entries[:broadcastPage], c.entries[broadcastPage].Score
	}
	return b
}

// copyLook asks for a copy, or for its version where it was read before.
type copyLook struct {
	of       member.ID
	known    *copied
	version  *redis.FloatSliceCmd
	entries  *redis.ZSliceCmd
	asked    int
	commands []*redisnodes.Command
}

func (ix *Index) latest(of member.ID) *atomic.Pointer[copied] {
	return &ix.copies[slices.Index(member.Copies[:], of)]
}

// lookAt returns the look with which a read begins.
func (ix *Index) lookAt(ctx context.Context, of member.ID) copyLook {
	if known := ix.latest(of).Load(); known != nil {
		version := redis.NewFloatSliceCmd(ctx, "zmscore", UserKey(of), of.String())
		return copyLook{of: of, known: known, version: version, commands: []*redisnodes.Command{redisnodes.NewCommand(UserKey(of), version)}}
	}
	return newCopyLook(ctx, of, broadcastPage+1)
}

// newCopyLook asks for the version first: so the entries may be younger, and then no later look finds this version.
func newCopyLook(ctx context.Context, of member.ID, n int) copyLook {
	key := UserKey(of)
	l := copyLook{of: of, asked: n, version: redis.NewFloatSliceCmd(ctx, "zmscore", key, of.String())}
	l.entries = redis.NewZSliceCmd(ctx, "zrevrange", key, 0, n-1, "withscores")
	l.commands = []*redisnodes.Command{redisnodes.NewCommand(key, l.version), redisnodes.NewCommand(key, l.entries)}
	return l
}

// broadcastOf returns what a look found. Where the copy has changed since it was known, it is read, by a second round trip.
func (ix *Index) broadcastOf(ctx context.Context, l copyLook) Copy {
	c, err := ix.copied(ctx, l)
	if c == nil && err == nil {
		c, err = ix.readCopy(ctx, l.of, broadcastPage+1)
	}
	if err != nil {
		return Copy{Of: l.of, Err: err}
	}
	b := c.first(l.of, nil)
	b.More = func(ctx context.Context, above uint64) Copy { return ix.moreOfCopy(ctx, l.of, c, above) }
	return b
}

// readCopy reads the first n entries of a copy.
func (ix *Index) readCopy(ctx context.Context, of member.ID, n int) (*copied, error) {
	l := newCopyLook(ctx, of, n)
	ix.Read(ctx, l.commands, false)
	return ix.copied(ctx, l)
}

// copied returns the copy that was looked at; nil if it is another one than was known.
func (ix *Index) copied(ctx context.Context, l copyLook) (*copied, error) {
	const what = "broadcast members"
	if l.entries == nil {
		switch err := l.version.Err(); {
		case redis.HasErrorPrefix(err, "WRONGTYPE"):
			return nil, nil // reading it says so
		case err != nil:
			return nil, redisnodes.Translate(ctx, what, err)
		case l.version.Val()[0] != l.known.version:
			return nil, nil
		case l.known.missing:
			return nil, fmt.Errorf("%s: %w", what, ErrMissing)
		}
		return l.known, nil
	}
	entries, err := entriesOf(ctx, what, l.of, l.entries)
	if errors.Is(err, ErrMissing) {
		ix.latest(l.of).Store(&copied{missing: true})
		return nil, err
	}
	if err != nil {
		ix.latest(l.of).Store(nil)
		return nil, err
	}
	c := newCopied(l.of, entries, l.asked)
	if l.version.Err() == nil && l.version.Val()[0] < 0 {
		c.version = l.version.Val()[0]
		ix.latest(l.of).Store(c)
	}
	return c, nil
}

// moreOfCopy is [Copy.More], where c is what is known of the copy.
func (ix *Index) moreOfCopy(ctx context.Context, of member.ID, c *copied, above uint64) Copy {
	if c.bound > above && len(c.entries) <= deepPage {
		if state, err := ix.State(ctx, UserKey(of)); isBehind(state) || state == redisnodes.Away {
			return Copy{Of: of, Err: cmp.Or(err, ErrBehind)}
		}
		var err error
		if c, err = ix.readCopy(ctx, of, deepPage+1); err != nil {
			return Copy{Of: of, Err: err}
		}
	}
	end, _ := slices.BinarySearchFunc(c.entries, above, func(e Entry, above uint64) int {
		if e.Score > above {
			return -1
		}
		return 1
	})
	return MoreOfCopy(of, above, c.entries[:end], nil)
}
