package index

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/redisnodes"
)

// Set is a member's set as it is stored.
type Set struct {
	Member  member.ID
	Err     error   // the reason why the set is not known; the other fields are empty then
	Known   bool    // the key exists, whatever it holds
	Members []Entry // lowest score first; the valid entries among the first Max + 20
	Size    int     // of the sorted set; 1 when the key holds something else
	Foreign int     // members that activityd never wrote, among the first Max + 20; 1 when the key holds something else
}

// lookBeyond is how many members above Max a look fetches.
const lookBeyond = 20

// Look returns the sets of users as they are stored, in the same order and in one
// round trip to each node. It changes nothing, not even the TTL. A set that cannot be read has
// an error: [ErrSettings] if it was made with other settings, [ErrUnknown] if it may be old.
func (ix *Index) Look(ctx context.Context, users []member.ID) []Set {
	start := time.Now()
	sets := make([]Set, len(users))
	members, sizes := make([]*redis.ZSliceCmd, len(users)), make([]*redis.IntCmd, len(users))
	reads := make([]redisnodes.Command, 0, 2*len(users))
	for i, user := range users {
		key := UserKey(user)
		members[i] = redis.NewZSliceCmd(ctx, "zrange", key, 0, ix.options.Settings.Max+lookBeyond-1, "withscores")
		sizes[i] = redis.NewIntCmd(ctx, "zcard", key)
		reads = append(reads, redisnodes.Command{Cmder: members[i], Key: key}, redisnodes.Command{Cmder: sizes[i], Key: key})
	}
	ix.Pipelined(ctx, reads)
	for i, user := range users {
		switch err := cmp.Or(members[i].Err(), sizes[i].Err()); {
		case redis.HasErrorPrefix(err, "WRONGTYPE"):
			sets[i] = Set{Member: user, Known: true, Size: 1, Foreign: 1}
		case err != nil:
			sets[i] = Set{Member: user, Err: redisnodes.Translate(ctx, fmt.Sprintf("look at the set of %s", user), err)}
		default:
			sets[i] = setOf(user, members[i].Val(), sizes[i].Val())
		}
	}
	ix.observe(opLook, start, firstErr(sets, func(s Set) error { return s.Err }))
	return sets
}

// setOf returns a set as it was read.
func setOf(user member.ID, members []redis.Z, size int64) Set {
	s := Set{Member: user, Known: size > 0, Size: int(size)}
	for _, z := range members {
		if e, err := parseEntry(z); err == nil {
			s.Members = append(s.Members, e)
		} else {
			s.Foreign++
		}
	}
	return s
}

// EachStored calls do with the owners of all stored sets, some at a time. An owner may come more
// than once, and a set that is made or deleted during the call may be left out. It ends with the
// first error of do. It leaves out the sets of an unreachable node, and returns the node's error
// after it has asked every node.
func (ix *Index) EachStored(ctx context.Context, do func(ctx context.Context, owners []member.ID) error) error {
	return ix.EachPage(ctx, func(keys []string) error {
		if owners := ownersOf(keys); len(owners) > 0 {
			return do(ctx, owners)
		}
		return nil
	})
}
