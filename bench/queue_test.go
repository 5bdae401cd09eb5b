package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// checkThroughput checks that every phase of every variant ran all its tasks, and that
// activityd's were compared with a variant of each class.
func checkThroughput(t *testing.T, list []figure, o options) {
	t.Helper()
	phases := make(map[string]int)
	var against []string
	for _, f := range list {
		if f.Against != "" {
			against = append(against, f.Against)
			continue
		}
		phases[f.Name[strings.LastIndex(f.Name, ","):]]++
		if len(f.Samples) != o.rounds || f.Samples[0].Ops != o.tasks {
			t.Errorf("%s: %+v, want %d runs of %d tasks", f.Name, f.Samples, o.rounds, o.tasks)
		}
		if f.Each == nil || f.Each.Counts.Commands+f.Each.Counts.Statements == 0 {
			t.Errorf("%s: no costs", f.Name)
		}
	}
	if len(phases) != 3 || phases[endToEnd] != 7 || phases[enqueueOnly] != 7 || phases[workOff] != 7 {
		t.Errorf("%v, want 7 variants in each of 3 phases", phases)
	}
	slices.Sort(against)
	want := []string{"asynq, activityd's handler", "asynq, appendfsync always", "asynq, change, then task", "asynq, concurrency 4"}
	for i := range want {
		want[i] += endToEnd
	}
	if got := slices.Compact(against); !slices.Equal(got, want) {
		t.Errorf("compared with %q, want %q", got, want)
	}
}

// checkBacklog checks that each operation was measured with few and with many waiting
// tasks, and that its statements were explained.
func checkBacklog(t *testing.T, list []figure, plans []plan, o options) {
	t.Helper()
	operations := (&backlog{}).operations()
	if len(operations) != 9 || len(list) != 2*len(operations) {
		t.Errorf("%d figures of %d operations, want 2 of each of 9", len(list), len(operations))
	}
	for _, f := range list {
		if len(f.Samples) != o.repetitions || f.Each.Counts.Statements == 0 {
			t.Errorf("%s: %+v, want %d repetitions with statements", f.Name, f, o.repetitions)
		}
	}
	for _, op := range operations {
		if !slices.ContainsFunc(plans, func(p plan) bool { return p.Operation == op.name && len(p.Steps) > 0 }) {
			t.Errorf("%s: no statement was explained", op.name)
		}
	}
}

// All variants do the same: contacts that were missing from the sets are in them when
// their tasks are done.
func TestEveryVariantDoesTheWork(t *testing.T) {
	t.Parallel()
	s := setup(t, tiny())
	users := s.options.site.refilled()[:40]
	if err := s.fill(t.Context(), users); err != nil {
		t.Fatal(err)
	}
	list := s.variants()
	for _, v := range list {
		if v.changes {
			continue
		}
		pairs := removeFromSets(t, s, users)
		r, _ := s.endToEnd(v, len(pairs))
		r.pairs = pairs
		if _, err := r.all(t.Context()); err != nil {
			t.Fatalf("%s: %v", v.name, err)
		}
		if err := r.end(0)(t.Context()); err != nil {
			t.Errorf("%s: %v", v.name, err)
		}
		for _, p := range pairs {
			if err := s.client.ZScore(t.Context(), index.UserKey(p.User), p.Contact.String()).Err(); err != nil {
				t.Fatalf("%s: contact %s in the set of %s: %v", v.name, p.Contact, p.User, err)
			}
		}
	}
}

// removeFromSets removes the contact that uploaded last from every set.
func removeFromSets(t *testing.T, s *suite, users []member.ID) []contacts.Pair {
	t.Helper()
	var pairs []contacts.Pair
	for _, user := range users {
		popped, err := s.client.ZPopMax(t.Context(), index.UserKey(user)).Result()
		if err != nil || len(popped) != 1 {
			t.Fatalf("the set of %s: %v, %v", user, popped, err)
		}
		contact, err := member.Parse(popped[0].Member.(string))
		if err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, contacts.Pair{User: user, Contact: contact})
	}
	return pairs
}

func TestPairsAreContactsAndStrangersAreNot(t *testing.T) {
	t.Parallel()
	s := setup(t, tiny())
	const n = 1200
	for strangers, want := range map[bool]int{false: n, true: 0} {
		found, err := s.store.Relations(t.Context(), s.options.site.pairs(n, 1, strangers))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != want {
			t.Errorf("strangers %t: %d of %d are contacts, want %d", strangers, len(found), n, want)
		}
	}
}

// checkCost checks that beside a snapshot a task is looked at a few times only, and that it costs little redo log.
func checkCost(t *testing.T, list []figure) {
	t.Helper()
	const most = 5         // by the claim, by its DELETE, and for the lease
	const mostRedo = 900.0 // an INSERT and a DELETE of the row take 400 to 500, and the lease a share
	var windows samples
	redo := 0.0
	for _, f := range list {
		switch {
		case f.Bench == "snapshot":
			windows = append(windows, f.Samples...)
		case strings.HasSuffix(f.Part, "redo log") && f.Name == wholeCost:
			redo = f.Value.Median
		}
	}
	var all sample
	for _, w := range windows {
		all = all.plus(w)
	}
	if rows := all.Counts.RowsRead / float64(all.Ops); len(windows) != 6 || rows > most || rows < 1 {
		t.Errorf("%v rows read for a task in %d windows, want at most %d in 6", rows, len(windows), most)
	}
	if redo <= 0 || redo > mostRedo {
		t.Errorf("%v bytes of redo log for a task, want at most %v", redo, mostRedo)
	}
}
