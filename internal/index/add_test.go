package index_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestAddWritesNothingToAMissingSet(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		if !b.add(t, 7, 700) {
			t.Error("the set was not reported missing")
		}
		if n := b.client.Exists(t.Context(), "user_12345").Val(); n != 0 {
			t.Error("the set came into being without a refill")
		}
	})
}

func TestAddCapsAtExactlyMax(t *testing.T) {
	t.Parallel()
	for _, size := range []uint64{11, 12, 13} {
		onBoth(t, func(t *testing.T, b bench) {
			b.refill(t, ladder(1))
			for _, e := range ladder(size)[1:] {
				if b.add(t, e.Contact, e.Score) {
					t.Fatal("the set went missing")
				}
			}
			all := ladder(size)
			b.holds(t, all[len(all)-min(len(all), 12):])
		})
	}
}

func TestAddRefusesBelowASetThatMayBeCutOff(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(10)) // min members: more contacts may lie behind 100
		b.add(t, 99, 99)
		b.holds(t, ladder(10))
		b.add(t, 98, 100) // equal to the lowest leaves no hole
		b.holds(t, slices.Concat(entries(1, 100, 98, 100), ladder(10)[1:]))
	})
}

func TestAddTakesAnybodyBelowMin(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(9)) // fewer than min: everyone there is
		b.add(t, 99, 5)
		b.holds(t, slices.Concat(entries(99, 5), ladder(9)))
	})
}

func TestAddOnlyRaisesScores(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(3))
		b.add(t, 2, 150) // a late delivery of an old upload
		b.holds(t, ladder(3))
		b.add(t, 2, 250)
		b.add(t, 2, 250)
		b.holds(t, entries(1, 100, 2, 250, 3, 300))
		b.add(t, 1, 900) // a member may rise from the lowest rank
		b.holds(t, entries(2, 250, 3, 300, 1, 900))
	})
}

func TestAddReportsEachMissingSetOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(2))
		b.client.Set(t.Context(), "user_50", "not a set", 0)
		e := index.Entry{Contact: 3, Score: 300}
		missing, err := b.Add(t.Context(), []index.Addition{{30, e}, {user, e}, {40, e}, {30, e}, {50, e}})
		slices.Sort(missing)
		if err != nil || !slices.Equal(missing, []member.ID{30, 40, 50}) {
			t.Fatalf("missing %v, %v", missing, err)
		}
		b.holds(t, ladder(3))
	})
}

// A thousand sets and more need several pipelines.
func TestAddToManySets(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		var users []member.ID
		for i := range member.ID(1100) {
			users = append(users, 1_000_000+i)
		}
		b.fill(t, users, ladder(1))
		if missing, err := b.Add(t.Context(), toAll(users, index.Entry{Contact: 2, Score: 200})); err != nil || len(missing) > 0 {
			t.Fatalf("missing %d, %v", len(missing), err)
		}
		for _, id := range []member.ID{users[0], users[999], users[1000], users[1099]} {
			if n := b.client.ZCard(t.Context(), index.UserKey(id)).Val(); n != 2 {
				t.Errorf("set of %s has %d members, want 2", id, n)
			}
		}
	})
}

// Consecutive equal additions go into calls of many sets. Each has its own
// outcome.
func TestAddToNeighboursAtOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		var users, there []member.ID
		for i := range member.ID(250) {
			users = append(users, i+1)
			if i%3 == 0 {
				there = append(there, i+1)
			}
		}
		b.fill(t, there, ladder(3))
		missing, err := b.Add(t.Context(), toAll(users, index.Entry{Contact: 77, Score: 7700}))
		slices.Sort(missing)
		want := slices.DeleteFunc(slices.Clone(users), func(id member.ID) bool { return slices.Contains(there, id) })
		if err != nil || !slices.Equal(missing, want) {
			t.Fatalf("missing %v, %v, want %v", missing, err, want)
		}
		for _, id := range there {
			list, err := b.Candidates(t.Context(), id)
			if err != nil || list[0] != (index.Entry{Contact: 77, Score: 7700}) || len(list) != 4 {
				t.Fatalf("the set of %s: %v, %v", id, list, err)
			}
		}
	})
}

// Something else under the name of a set keeps no news from the other sets of the call, be it the
// first name or a later one.
func TestAddGoesRoundWhatIsNoSet(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		for _, wrong := range []member.ID{1, 4} {
			b.client.FlushDB(t.Context())
			_ = b.Probe(t.Context())
			users := []member.ID{1, 2, 3, 4, 5}
			b.fill(t, users, ladder(3))
			b.client.Set(t.Context(), index.UserKey(wrong), "not a set", 0)
			missing, err := b.Add(t.Context(), toAll(users, index.Entry{Contact: 3, Score: 900}))
			if err != nil || !slices.Equal(missing, []member.ID{wrong}) {
				t.Fatalf("missing %v, %v, want %d", missing, err, wrong)
			}
			for _, id := range users {
				if score := b.client.ZScore(t.Context(), index.UserKey(id), "3").Val(); id != wrong && score != 900 {
					t.Errorf("the set of %s has score %v", id, score)
				}
			}
		}
	})
}

// Redis without memory left cannot be used now: no set is taken for missing, and the news come
// again.
func TestAddToARedisWithoutMemory(t *testing.T) {
	t.Parallel()
	b := newBench(t, &redis.Options{Addr: servertest.Redis(t).Addr(), Network: "unix"}, index.Options{})
	users := []member.ID{1, 2, 3}
	b.fill(t, users, ladder(3))
	news := toAll(users, index.Entry{Contact: 3, Score: 900})
	b.client.ConfigSet(t.Context(), "maxmemory", "1")
	if missing, err := b.Add(t.Context(), news); !errors.Is(err, index.ErrUnavailable) || len(missing) > 0 {
		t.Fatalf("missing %v, %v, want %v", missing, err, index.ErrUnavailable)
	}
	b.client.ConfigSet(t.Context(), "maxmemory", "0")
	if missing, err := b.Add(t.Context(), news); err != nil || len(missing) > 0 {
		t.Fatalf("missing %v, %v", missing, err)
	}
}

// fill makes a set with the same members for each of users.
func (b bench) fill(t *testing.T, users []member.ID, list []index.Entry) {
	t.Helper()
	updates, err := b.Begin(t.Context(), users)
	if err != nil {
		t.Fatal(err)
	}
	changes := make([]index.Change, len(updates))
	for i, u := range updates {
		changes[i] = index.Change{Update: u, WithRefill: true, Refill: list}
	}
	if outcomes, err := b.Apply(t.Context(), changes); err != nil || slices.Contains(outcomes, index.Conflict) {
		t.Fatalf("outcomes %v, %v", outcomes, err)
	}
}

// toAll adds the same to the sets of all users.
func toAll(users []member.ID, e index.Entry) (list []index.Addition) {
	for _, id := range users {
		list = append(list, index.Addition{Member: id, Entry: e})
	}
	return list
}
