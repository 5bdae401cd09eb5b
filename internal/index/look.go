package index

import (
	"cmp"
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
	Err     error   // why nothing is known of it; the other fields are empty then
	Known   bool    // the key exists, whatever it holds
	Members []Entry // lowest score first; those that activityd wrote, among the first Max + 20
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
	reads := make([]*command, 0, 2*len(users))
	for i, user := range users {
		key := UserKey(user)
		members[i] = redis.NewZSliceCmd(ctx, "zrange", key, 0, ix.options.Settings.Max+lookBeyond-1, "withscores")
		sizes[i] = redis.NewIntCmd(ctx, "zcard", key)
		reads = append(reads, newCommand(key, members[i]), newCommand(key, sizes[i]))
	}
	nodes, failed := ix.byNode(ctx, users)
	commands, stored := reads, make(map[*node][]*redis.StringCmd)
	for n := range nodes {
		var settings []*command
		settings, stored[n] = ix.readSettings(ctx, n)
		commands = append(commands, settings...)
	}
	ix.client.send(ctx, commands)
	wrong, unknown := make(map[*node]error), make(map[*node]error)
	for n := range nodes {
		wrong[n] = ix.compare(ctx, n, stored[n], false)
	}
	for i, user := range users {
		err := errors.Join(members[i].Err(), sizes[i].Err())
		isNoSet := redis.HasErrorPrefix(members[i].Err(), "WRONGTYPE")
		if n := reads[2*i].on; n != nil && (err == nil || isNoSet) {
			if _, asked := unknown[n]; !asked {
				unknown[n] = ix.client.knows(ctx, n)
			}
			err = cmp.Or(wrong[n], unknown[n], reads[2*i].outdated(), reads[2*i+1].outdated(), err)
		}
		switch {
		case isNoSet && redis.HasErrorPrefix(err, "WRONGTYPE"):
			sets[i] = Set{Member: user, Known: true, Size: 1, Foreign: 1}
		case err != nil:
			err = cmp.Or(failed[i], err)
			sets[i] = Set{Member: user, Err: translate(ctx, fmt.Sprintf("look at the set of %s", user), err)}
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

// EachStored calls do with the owners of all stored sets, some at a time. One may come
// more than once, and a set that is made or deleted during the call may be left out. It
// ends with the first error of do; the sets of a node that cannot be reached are left out,
// and its error is returned after those of the others.
func (ix *Index) EachStored(ctx context.Context, do func(ctx context.Context, owners []member.ID) error) error {
	nodes, err := ix.client.masters(ctx)
	if err != nil {
		return translate(ctx, "find the nodes", err)
	}
	var away error
	for _, n := range nodes {
		var ended error
		err := eachPage(ctx, n.Client, func(keys []string) error {
			if owners := ownersOf(keys); len(owners) > 0 {
				ended = do(ctx, owners)
			}
			return ended
		})
		if ended != nil {
			return ended
		}
		away = cmp.Or(away, translate(ctx, "scan the sets", err))
	}
	return away
}

// ownersOf returns the owners of the sets among these keys.
func ownersOf(keys []string) (owners []member.ID) {
	for _, key := range keys {
		if id, ok := ownerOf(key); ok {
			owners = append(owners, id)
		}
	}
	return owners
}

// ownerOf returns the owner of the set with this key. The keys of probes have none.
func ownerOf(key string) (member.ID, bool) {
	id, err := member.Parse(strings.TrimPrefix(key, userKeyPrefix))
	return id, err == nil && strings.HasPrefix(key, userKeyPrefix)
}
