package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
)

// TestEachRuleIsNeeded breaks one rule of package index at a time, by a double
// around the real one, and expects the schedules of the property test to notice.
// So that test can fail, and none of these rules is superfluous. Seeds are where
// a search found a case; when the code changes so that a seed plays another
// schedule, the following ones are tried.
func TestEachRuleIsNeeded(t *testing.T) {
	t.Parallel()
	for _, rule := range []struct {
		name       string
		activeOnly bool
		seed       uint64
		broken     mutation
	}{
		{"apply only under the token of begin", false, 16, over(withoutGuard)},
		{"begin shares the token that is there", false, 0, over(withStolenGuard)},
		{"an update with nothing to write is applied", false, 36, over(withoutEmptyUpdates)},
		{"an update with nothing to write to a missing set is applied", true, 346, over(withoutEmptyUpdates)},
		{"a removal carries its refill", false, 26, over(withoutRefillOfRemoval)},
		{"a refill adds and never replaces", false, 1315, over(withReplacement)},
		{"an add refuses what lies outside", false, 474, over(withoutRefusal)},
		{"an add only raises", false, 9, over(withLowering)},
		{"an add never creates", false, 5, over(withCreation)},
		{"an add that finds no set ends the updates under way", true, 140, over(withGuardKept)},
	} {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			client := privateRedis(t)
			for seed := rule.seed; seed < rule.seed+3000; seed++ {
				_, err := play(t.Context(), seeded(seed), nowhere, client, rule.activeOnly, rule.broken)
				switch {
				case errors.Is(err, errViolated):
					t.Logf("seed %d: %v", seed, err)
					return
				case err != nil:
					t.Fatal(err)
				}
			}
			t.Error("no schedule noticed")
		})
	}
}

func nowhere(string, ...any) {}

// brokenIndex is the real index but for the methods that are set.
type brokenIndex struct {
	tasks.Index
	client   *redis.Client
	settings index.Settings
	begin    func(x brokenIndex, ctx context.Context, users []member.ID) ([]index.Update, error)
	apply    func(x brokenIndex, ctx context.Context, c index.Change) (index.Outcome, error)
	add      func(x brokenIndex, ctx context.Context, a index.Addition) (missing bool, err error)
}

// over puts a broken index in the place of the real one.
func over(b brokenIndex) mutation {
	return func(ix tasks.Index, client *redis.Client, s index.Settings) tasks.Index {
		b.Index, b.client, b.settings = ix, client, s
		return b
	}
}

func (x brokenIndex) Begin(ctx context.Context, users []member.ID) ([]index.Update, error) {
	if x.begin != nil {
		return x.begin(x, ctx, users)
	}
	return x.Index.Begin(ctx, users)
}

func (x brokenIndex) Apply(ctx context.Context, changes []index.Change) ([]index.Outcome, error) {
	if x.apply == nil {
		return x.Index.Apply(ctx, changes)
	}
	var outcomes []index.Outcome
	for _, c := range changes {
		o, err := x.apply(x, ctx, c)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

func (x brokenIndex) Add(ctx context.Context, additions []index.Addition) (missing []member.ID, err error) {
	if x.add == nil {
		return x.Index.Add(ctx, additions)
	}
	for _, a := range additions {
		switch isMissing, err := x.add(x, ctx, a); {
		case err != nil:
			return nil, err
		case isMissing && !slices.Contains(missing, a.User):
			missing = append(missing, a.User)
		}
	}
	return missing, nil
}

// applyOne and addOne are the real thing, for one set.
func (x brokenIndex) applyOne(ctx context.Context, c index.Change) (index.Outcome, error) {
	outcomes, err := x.Index.Apply(ctx, []index.Change{c})
	if err != nil {
		return index.Conflict, err
	}
	return outcomes[0], nil
}

func (x brokenIndex) addOne(ctx context.Context, a index.Addition) (missing bool, err error) {
	list, err := x.Index.Add(ctx, []index.Addition{a})
	return len(list) > 0, err
}

func guardOf(user member.ID) string { return fmt.Sprintf("guard_{user_%d}", user) }

var withoutGuard = brokenIndex{apply: func(x brokenIndex, ctx context.Context, c index.Change) (index.Outcome, error) {
	now, err := x.Index.Begin(ctx, []member.ID{c.User})
	if err != nil {
		return index.Conflict, err
	}
	c.Token = now[0].Token
	return x.applyOne(ctx, c)
}}

var withStolenGuard = brokenIndex{begin: func(x brokenIndex, ctx context.Context, users []member.ID) ([]index.Update, error) {
	for _, user := range users {
		if err := x.client.Del(ctx, guardOf(user)).Err(); err != nil {
			return nil, err
		}
	}
	return x.Index.Begin(ctx, users)
}}

// writesNothing tells whether a change would leave the set as it was at Begin.
func writesNothing(c index.Change) bool {
	removes := slices.ContainsFunc(c.Remove, c.Has)
	adds := slices.ContainsFunc(c.Add, func(e index.Entry) bool { return c.Known && !slices.Contains(c.Members, e) })
	return !removes && !adds && len(c.Refill) == 0
}

var withoutEmptyUpdates = brokenIndex{apply: func(x brokenIndex, ctx context.Context, c index.Change) (index.Outcome, error) {
	if writesNothing(c) {
		return index.Applied, nil
	}
	return x.applyOne(ctx, c)
}}

var withoutRefillOfRemoval = brokenIndex{apply: func(x brokenIndex, ctx context.Context, c index.Change) (index.Outcome, error) {
	if !c.Known || !slices.ContainsFunc(c.Remove, c.Has) {
		return x.applyOne(ctx, c)
	}
	for _, contact := range c.Remove {
		if err := x.client.ZRem(ctx, index.UserKey(c.User), contact.String()).Err(); err != nil {
			return index.Conflict, err
		}
	}
	return index.Applied, x.client.Del(ctx, guardOf(c.User)).Err()
}}

var withReplacement = brokenIndex{apply: func(x brokenIndex, ctx context.Context, c index.Change) (index.Outcome, error) {
	outcome, err := x.applyOne(ctx, c)
	if err != nil || outcome == index.Conflict || !c.WithRefill || !c.Known {
		return outcome, err
	}
	pipe := x.client.TxPipeline()
	pipe.Del(ctx, index.UserKey(c.User))
	for _, e := range slices.Concat(c.Refill, c.Add) {
		pipe.ZAdd(ctx, index.UserKey(c.User), redis.Z{Score: float64(e.Score), Member: e.Contact.String()})
	}
	pipe.ZRemRangeByRank(ctx, index.UserKey(c.User), 0, int64(-x.settings.Max-1))
	_, err = pipe.Exec(ctx)
	return outcome, err
}}

// addPlainly adds to a set that exists, as flags say, and cuts it to max.
func (x brokenIndex) addPlainly(ctx context.Context, a index.Addition, flags redis.ZAddArgs) error {
	flags.Members = []redis.Z{{Score: float64(a.Score), Member: a.Contact.String()}}
	if err := x.client.ZAddArgs(ctx, index.UserKey(a.User), flags).Err(); err != nil {
		return err
	}
	return x.client.ZRemRangeByRank(ctx, index.UserKey(a.User), 0, int64(-x.settings.Max-1)).Err()
}

var withoutRefusal = brokenIndex{add: func(x brokenIndex, ctx context.Context, a index.Addition) (bool, error) {
	if x.client.Exists(ctx, index.UserKey(a.User)).Val() == 0 {
		return x.addOne(ctx, a)
	}
	return false, x.addPlainly(ctx, a, redis.ZAddArgs{GT: true})
}}

// withLowering keeps the refusal, but gives members whatever score comes.
var withLowering = brokenIndex{add: func(x brokenIndex, ctx context.Context, a index.Addition) (bool, error) {
	if missing, err := x.addOne(ctx, a); missing || err != nil {
		return missing, err
	}
	return false, x.addPlainly(ctx, a, redis.ZAddArgs{XX: true})
}}

var withCreation = brokenIndex{add: func(x brokenIndex, ctx context.Context, a index.Addition) (bool, error) {
	if x.client.Exists(ctx, index.UserKey(a.User)).Val() == 1 {
		return x.addOne(ctx, a)
	}
	return false, x.addPlainly(ctx, a, redis.ZAddArgs{})
}}

// withGuardKept puts the guard back that an add to a missing set takes away.
var withGuardKept = brokenIndex{add: func(x brokenIndex, ctx context.Context, a index.Addition) (bool, error) {
	token := x.client.Get(ctx, guardOf(a.User)).Val()
	missing, err := x.addOne(ctx, a)
	if missing && err == nil && token != "" {
		err = x.client.Set(ctx, guardOf(a.User), token, time.Hour).Err()
	}
	return missing, err
}}
