package index

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/member"
)

// Set is a member's set as it is stored.
type Set struct {
	Member  member.ID
	Known   bool    // the key exists, whatever it holds
	Members []Entry // lowest score first; those that activityd wrote, among the first Max + 20
	Size    int     // of the sorted set; 1 when the key holds something else
	Foreign int     // members that activityd never wrote, among the first Max + 20; 1 when the key holds something else
}

// lookBeyond is how many members above Max a look fetches.
const lookBeyond = 20

// Look returns the sets of users as they are stored, in the same order and in one
// round trip. It has no effect, also on the TTL. It fails with [ErrSettings] where the
// sets have another meaning.
func (ix *Index) Look(ctx context.Context, users []member.ID) (_ []Set, err error) {
	if len(users) == 0 {
		return nil, nil
	}
	defer func(start time.Time) { ix.observe(opLook, start, err) }(time.Now())
	pipe := ix.client.Pipeline()
	stored := getText(ctx, pipe, settingsKey)
	members, sizes := make([]*redis.ZSliceCmd, len(users)), make([]*redis.IntCmd, len(users))
	for i, user := range users {
		members[i] = pipe.ZRangeWithScores(ctx, UserKey(user), 0, int64(ix.options.Settings.Max+lookBeyond)-1)
		sizes[i] = pipe.ZCard(ctx, UserKey(user))
	}
	exec(ctx, pipe)
	if err := ix.compare(ctx, stored); err != nil {
		return nil, err
	}
	sets := make([]Set, len(users))
	for i, user := range users {
		err := errors.Join(members[i].Err(), sizes[i].Err())
		switch {
		case redis.HasErrorPrefix(members[i].Err(), "WRONGTYPE"):
			sets[i] = Set{Member: user, Known: true, Size: 1, Foreign: 1}
		case err != nil:
			return nil, translate(ctx, fmt.Sprintf("look at the set of %s", user), err)
		default:
			s := Set{Member: user, Known: sizes[i].Val() > 0, Size: int(sizes[i].Val())}
			for _, z := range members[i].Val() {
				if e, err := parseEntry(z); err == nil {
					s.Members = append(s.Members, e)
				} else {
					s.Foreign++
				}
			}
			sets[i] = s
		}
	}
	return sets, nil
}

// EachStored calls do with the owners of all stored sets, some at a time. One may come
// more than once, and a set that is made or deleted during the call may be left out. It
// ends with the first error.
func (ix *Index) EachStored(ctx context.Context, do func(ctx context.Context, owners []member.ID) error) error {
	return ix.client.eachServer(ctx, func(ctx context.Context, server redis.UniversalClient) error {
		for cursor := uint64(0); ; {
			keys, next, err := server.Scan(ctx, cursor, userKeyPrefix+"*", pipelineSize).Result()
			if err != nil {
				return translate(ctx, "scan the sets", err)
			}
			if owners := ownersOf(keys); len(owners) > 0 {
				if err := do(ctx, owners); err != nil {
					return err
				}
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	})
}

// ownersOf returns the owners of the sets with these keys; the keys of probes have none.
func ownersOf(keys []string) (owners []member.ID) {
	for _, key := range keys {
		if id, err := member.Parse(strings.TrimPrefix(key, userKeyPrefix)); err == nil {
			owners = append(owners, id)
		}
	}
	return owners
}
