package index_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/indextest"
)

// TestMemoryDoesWhatRedisDoes holds the scripts against their specification:
// after every step of a random history both have answered the same and hold the
// same sets.
func TestMemoryDoesWhatRedisDoes(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		rapid.Check(t, func(rt *rapid.T) {
			s, err := index.NewSettings(3, 20, 0)
			if err != nil {
				rt.Fatal(err)
			}
			if err := b.client.FlushDB(t.Context()).Err(); err != nil {
				rt.Fatal(err)
			}
			l := &lockstep{T: rt, real: bench{Index: index.New(b.client, index.Options{Settings: s}), client: b.client}, spec: indextest.NewMemory(s)}
			rt.Repeat(map[string]func(*rapid.T){
				"":             func(t *rapid.T) { l.compare(t) },
				"add":          l.add,
				"fan out":      l.fanOut,
				"begin":        l.begin,
				"apply":        l.apply,
				"lose a set":   l.loseSet,
				"lose a guard": l.loseGuard,
			})
		})
	})
}

// lockstep does the same to an index and to its specification.
type lockstep struct {
	*rapid.T
	real bench
	spec *indextest.Memory
	open []begun
}

// begun is an update that both have begun.
type begun struct{ real, spec index.Update }

var lockstepUsers = []member.ID{1, 2, 3}

// someEntry draws few contacts and scores, so that they meet. Some have two digits, because Redis
// orders equal scores by name.
func someEntry(t *rapid.T) index.Entry {
	return index.Entry{
		Contact: rapid.SampledFrom([]member.ID{2, 3, 7, 10, 11, 20, 31}).Draw(t, "contact"),
		Score:   rapid.Uint64Range(1, 9).Draw(t, "score"),
	}
}

func same(t *rapid.T, what string, got, want any) {
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Fatalf("%s: Redis says %s, the specification %s", what, g, w)
	}
}

func (l *lockstep) add(t *rapid.T) {
	var list []index.Addition
	for range rapid.IntRange(1, 3).Draw(t, "additions") {
		list = append(list, index.Addition{Member: rapid.SampledFrom(lockstepUsers).Draw(t, "user"), Entry: someEntry(t)})
	}
	l.addBoth(t, list)
}

// fanOut adds the same upload to several sets, to some of them twice, in one call of the script.
func (l *lockstep) fanOut(t *rapid.T) {
	e, list := someEntry(t), []index.Addition(nil)
	for _, user := range rapid.SliceOfN(rapid.SampledFrom(lockstepUsers), 2, 6).Draw(t, "followers") {
		list = append(list, index.Addition{Member: user, Entry: e})
	}
	l.addBoth(t, list)
}

func (l *lockstep) addBoth(t *rapid.T, list []index.Addition) {
	got, failed := l.real.Index.Add(l.Context(), list)
	want, specFailed := l.spec.Add(l.Context(), list)
	slices.Sort(got)
	slices.Sort(want)
	same(t, fmt.Sprint("add ", list), []any{got, failed}, []any{want, specFailed})
}

func (l *lockstep) begin(t *rapid.T) {
	users := rapid.SliceOfNDistinct(rapid.SampledFrom(lockstepUsers), 1, 2, rapid.ID).Draw(t, "users")
	got, want := l.real.Index.Begin(l.Context(), users), l.spec.Begin(l.Context(), users)
	for i := range users {
		l.open = append(l.open, begun{got[i], want[i]})
		got[i].Token, want[i].Token = "", ""
		same(t, "begin", got[i], want[i])
	}
}

// apply closes an open update, perhaps for the second time.
func (l *lockstep) apply(t *rapid.T) {
	if len(l.open) == 0 {
		t.Skip("nothing was begun")
	}
	u := rapid.SampledFrom(l.open).Draw(t, "update")
	c := index.Change{Update: u.real, WithRefill: rapid.Bool().Draw(t, "with refill")}
	for range rapid.IntRange(0, 2).Draw(t, "removals") {
		c.Remove = append(c.Remove, someEntry(t).Contact)
	}
	for range rapid.IntRange(0, 1).Draw(t, "adds") {
		c.Add = append(c.Add, someEntry(t))
	}
	if c.WithRefill {
		c.Refill = rapid.SliceOfNDistinct(rapid.Custom(someEntry), 0, 5, func(e index.Entry) member.ID { return e.Contact }).Draw(t, "refill")
		for _, e := range u.real.Members {
			if rapid.Bool().Draw(t, "correct") {
				c.Correct = append(c.Correct, index.Correction{Contact: e.Contact, Seen: e.Score, Score: rapid.Uint64Range(1, e.Score).Draw(t, "score")})
			}
		}
	}
	got := l.real.Index.Apply(l.Context(), []index.Change{c})
	c.Update = u.spec
	same(t, fmt.Sprintf("apply %+v", c), got, l.spec.Apply(l.Context(), []index.Change{c}))
}

func (l *lockstep) loseSet(t *rapid.T) {
	user := rapid.SampledFrom(lockstepUsers).Draw(t, "user")
	l.real.client.Del(l.Context(), index.UserKey(user))
	l.spec.Forget(user)
}

func (l *lockstep) loseGuard(t *rapid.T) {
	user := rapid.SampledFrom(lockstepUsers).Draw(t, "user")
	l.real.client.Del(l.Context(), "guard_{"+index.UserKey(user)+"}")
	l.spec.ForgetGuard(user)
}

func (l *lockstep) compare(t *rapid.T) {
	same(t, "the sets", l.real.Index.Look(l.Context(), lockstepUsers), l.spec.Look(l.Context(), lockstepUsers))
	for _, user := range lockstepUsers {
		got, err := l.real.Candidates(l.Context(), user)
		want, specErr := l.spec.Candidates(l.Context(), user)
		same(t, "candidates", []any{got, err}, []any{want, specErr})
	}
}

func TestLookSeesWhatWasNeverWritten(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(3))
		b.client.Do(t.Context(), "ZADD", "user_12345", 5, "bob")
		b.client.Set(t.Context(), "user_50", "no set", 0)
		for i := range 100 {
			b.client.Do(t.Context(), "ZADD", "user_60", 1000+i, 1000+i)
		}
		sets, err := b.Look(t.Context(), []member.ID{user, 50, 60, 70})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range sets {
			got = append(got, fmt.Sprint(s.Member, s.Known, len(s.Members), s.Size, s.Foreign))
		}
		want := []string{"12345 true 3 4 1", "50 true 0 1 1", "60 true 32 100 0", "70 false 0 0 0"}
		if !slices.Equal(got, want) {
			t.Errorf("got %s, want %s", strings.Join(got, "; "), strings.Join(want, "; "))
		}
	})
}

func TestEachStoredVisitsAllSets(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.client.MSet(t.Context(), "user_x", 1, "user_07", 1, "other", 1)
		want := map[member.ID]bool{}
		fill := b.client.Pipeline()
		for i := range member.ID(3000) {
			fill.Do(t.Context(), "ZADD", index.UserKey(i+1), 1, 1)
			want[i+1] = true
		}
		_, err := fill.Exec(t.Context())
		must(t, err)
		err = b.EachStored(t.Context(), func(_ context.Context, users []member.ID) error {
			for _, u := range users {
				delete(want, u)
				if u > 3000 || u == 0 {
					t.Errorf("%s has no set", u)
				}
			}
			return nil
		})
		if err != nil || len(want) > 0 {
			t.Errorf("%d sets were not visited, %v", len(want), err)
		}
	})
}
