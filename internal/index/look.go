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

// Set is a user's set as it is stored, for those who judge it.
type Set struct {
	User    member.ID
	Known   bool    // something is stored, be it what it may
	Members []Entry // lowest score first
	Size    int     // all members, more than Members when there are far too many or foreign ones
	Foreign int     // members among the first that activityd never wrote; the size when the key is no sorted set
}

// lookBeyond is how many members above Max a look fetches.
const lookBeyond = 20

// Look returns the sets of users as they are stored, in the same order and in one
// round trip. It has no effect: it neither prolongs a set's life nor trusts what
// it finds. It fails with [ErrSettings] where the sets have another meaning.
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
	if err := ix.verify(ctx, stored); err != nil {
		return nil, err
	}
	sets := make([]Set, len(users))
	for i, user := range users {
		err := errors.Join(members[i].Err(), sizes[i].Err())
		switch {
		case redis.HasErrorPrefix(members[i].Err(), "WRONGTYPE"):
			sets[i] = Set{User: user, Known: true, Size: 1, Foreign: 1}
		case err != nil:
			return nil, translate(ctx, fmt.Sprintf("look at the set of %s", user), err)
		default:
			sets[i] = newSet(user, members[i].Val(), int(sizes[i].Val()))
		}
	}
	return sets, nil
}

func newSet(user member.ID, stored []redis.Z, size int) Set {
	s := Set{User: user, Known: size > 0, Size: size}
	for _, z := range stored {
		name, _ := z.Member.(string)
		if e, err := parseEntry(name, z.Score); err == nil {
			s.Members = append(s.Members, e)
		} else {
			s.Foreign++
		}
	}
	return s
}

// EachStored calls do with the users of all stored sets, some at a time; one may
// come more than once, and one whose set comes or goes meanwhile may be left out.
// It ends with the first error.
func (ix *Index) EachStored(ctx context.Context, do func(ctx context.Context, users []member.ID) error) error {
	each := func(ctx context.Context, node redis.UniversalClient) error { return eachStored(ctx, node, do) }
	if cluster, ok := ix.client.(*redis.ClusterClient); ok {
		nodes, err := masters(ctx, cluster)
		if err != nil {
			return err
		}
		for _, node := range nodes {
			if err := each(ctx, node); err != nil {
				return err
			}
		}
		return nil
	}
	return each(ctx, ix.client)
}

// masters lists them, so that they can be visited one after the other.
func masters(ctx context.Context, cluster *redis.ClusterClient) ([]*redis.Client, error) {
	found := make(chan *redis.Client, 1<<14) // as many as there are slots
	err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		found <- node
		return nil
	})
	close(found)
	var nodes []*redis.Client
	for node := range found {
		nodes = append(nodes, node)
	}
	return nodes, translate(ctx, "list the masters", err)
}

func eachStored(ctx context.Context, node redis.UniversalClient, do func(context.Context, []member.ID) error) error {
	var cursor uint64
	for {
		keys, next, err := node.Scan(ctx, cursor, userKeyPrefix+"*", pipelineSize).Result()
		if err != nil {
			return translate(ctx, "scan the sets", err)
		}
		var users []member.ID
		for _, key := range keys {
			if id, err := member.Parse(strings.TrimPrefix(key, userKeyPrefix)); err == nil {
				users = append(users, id)
			}
		}
		if len(users) > 0 {
			if err := do(ctx, users); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}
