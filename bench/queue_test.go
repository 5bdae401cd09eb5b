package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// tiny is enough to see that everything is counted: no time is looked at.
func tiny() options {
	return options{
		rounds: 1, tasks: 60, samples: 2, idle: time.Millisecond, backlog: [2]int{100, 300}, repetitions: 1,
		members: 40, contacts: 5, producers: 2, concurrency: []int{4},
	}
}

// setup starts the servers and makes a small world.
func setup(t *testing.T) (*ground, world) {
	t.Helper()
	g, err := newGround(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	w := world{tiny().members, tiny().contacts}
	if err := makeWorld(t.Context(), g, w); err != nil {
		t.Fatal(err)
	}
	return g, w
}

// A run fails by itself when a task is lost or left.
func TestEveryPartMeasuresAll(t *testing.T) {
	t.Parallel()
	o := tiny()
	r, err := benchQueue(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	checkThroughput(t, r, o)
	for _, l := range r.Wake {
		if l.Samples != o.samples {
			t.Errorf("%s: %d samples, want %d", l.Name, l.Samples, o.samples)
		}
	}
	for _, g := range r.Backlog {
		if g.Few.Waiting != o.backlog[0] || g.Many.Waiting != o.backlog[1] {
			t.Errorf("%s: measured with %d and %d, want %v", g.Name, g.Few.Waiting, g.Many.Waiting, o.backlog)
		}
		if !slices.ContainsFunc(r.Plans, func(p plan) bool { return p.Operation == g.Name && len(p.Steps) > 0 }) {
			t.Errorf("%s: no statement was explained", g.Name)
		}
	}
	if len(r.Wake) != 4 || len(r.Backlog) != 9 || r.Machine.MySQL == "" || r.Machine.Redis == "" {
		t.Errorf("incomplete: %+v", r)
	}
	checkOutput(t, r)
}

func checkThroughput(t *testing.T, r *report, o options) {
	t.Helper()
	if len(r.Throughput) == 0 || len(r.Throughput)%len(phases()) != 0 {
		t.Errorf("%d results, want some for each of %d phases", len(r.Throughput), len(phases()))
	}
	for _, c := range r.Throughput {
		if len(c.Runs) != o.rounds || c.Runs[0].Tasks != o.tasks {
			t.Errorf("%s, %s: %+v, want %d runs of %d tasks", c.Phase, c.Name, c.Runs, o.rounds, o.tasks)
		}
	}
	var against []string
	for _, c := range r.Ratios {
		against = append(against, c.Over)
	}
	slices.Sort(against)
	want := []string{"asynq, activityd's handler", "asynq, appendfsync always", "asynq, change, then task", "asynq, concurrency 4"}
	if got := slices.Compact(against); !slices.Equal(got, want) {
		t.Errorf("compared with %q, want %q", got, want)
	}
}

func checkOutput(t *testing.T, r *report) {
	t.Helper()
	text := r.text()
	for _, c := range r.Throughput {
		if !strings.Contains(text, c.Name) {
			t.Errorf("%s is not in the text", c.Name)
		}
	}
	file := filepath.Join(t.TempDir(), "report.json")
	if err := r.writeJSON(file); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var again report
	if err := json.Unmarshal(written, &again); err != nil {
		t.Fatal(err)
	}
	if again.text() != text {
		t.Error("the JSON tells something else than the text")
	}
}

// Both sides do the same: contacts that are missing from the sets are there when
// their tasks are done.
func TestEveryContenderDoesTheWork(t *testing.T) {
	t.Parallel()
	g, w := setup(t)
	for _, c := range contenders(g, tiny()) {
		if c.changes {
			continue
		}
		pairs := removeFromSets(t, g, w)
		if err := c.enqueue(t.Context(), pairs); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		done := newCountdown(len(pairs))
		stop, err := c.side.work(t.Context(), done)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := done.wait(t.Context()); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := stop(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, p := range pairs {
			if err := g.client.ZScore(t.Context(), index.UserKey(p.User), p.Contact.String()).Err(); err != nil {
				t.Fatalf("%s: contact %s in the set of %s: %v", c.name, p.Contact, p.User, err)
			}
		}
	}
}

// removeFromSets takes from every set the contact that uploaded last.
func removeFromSets(t *testing.T, g *ground, w world) []contacts.Pair {
	t.Helper()
	var pairs []contacts.Pair
	for user := member.ID(1); user <= member.ID(w.members); user++ {
		popped, err := g.client.ZPopMax(t.Context(), index.UserKey(user)).Result()
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
	g, w := setup(t)
	store := contacts.NewMySQL(g.db)
	n := w.members * w.contacts
	for _, test := range []struct {
		name  string
		pairs []contacts.Pair
		want  int
	}{{"pairs", w.pairs(n, 1), n}, {"strangers", w.strangers(n, 1), 0}} {
		found, err := store.Relations(t.Context(), test.pairs)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != test.want {
			t.Errorf("%s: %d of %d are contacts, want %d", test.name, len(found), n, test.want)
		}
	}
}
