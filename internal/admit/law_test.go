package admit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/admit"
)

const ms = time.Millisecond

// TestTheLaw goes through rounds of reads that take a time, while others wait or not.
func TestTheLaw(t *testing.T) {
	t.Parallel()
	for name, rounds := range map[string][]struct {
		rounds, take int // ms
		wanted       bool
		limit        int // after them
	}{
		"nothing waits":             {{50, 1, false, 8}},
		"reads wait, and are quick": {{5, 1, true, 13}, {50, 1, true, 24}},
		"they become slow":          {{50, 1, true, 24}, {1, 13, true, 20}, {1, 13, true, 16}, {4, 13, true, 8}},
		"neither quick nor slow":    {{10, 2, true, 18}, {20, 20, true, 18}},
		"slow, and quick again":     {{50, 2, true, 24}, {6, 25, true, 8}, {5, 2, true, 13}},
		"slow because of others under way": {
			{50, 1, true, 24},
			{6, 50, true, 8},
			{1, 50, true, 16},
			{1, 100, true, 8}, // twice as many took twice as long
			{5, 50, true, 8},
		},
		"slow whatever is under way": {
			{50, 1, true, 24},
			{6, 50, true, 8},
			{1, 50, true, 16}, // a round with twice as many
			{1, 50, true, 16}, // it took as long, so this is what they take
			{20, 50, true, 24},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := admit.NewLaw(8, 24)
				for i, r := range rounds {
					for range r.rounds {
						l.Round(time.Duration(r.take)*ms, r.wanted)
					}
					if got := l.Limit(); got != r.limit {
						t.Errorf("after step %d the limit is %d, want %d", i, got, r.limit)
					}
				}
			})
		})
	}
}

// After a restart of Redis there are walks alone, which say nothing of the time of other reads.
func TestTheLimitRisesWhereOnlyWalksCome(t *testing.T) {
	t.Parallel()
	test(t, admit.Options{Least: 8, Most: 24}, func(t *testing.T, c *crowd) {
		for range 40 {
			var reads []*attempt
			for range 30 {
				a := c.enter()
				if a.isIn() {
					a.place.Walk()
				}
				reads = append(reads, a)
			}
			<-time.After(50 * ms)
			for _, a := range reads {
				if a.isIn() {
					a.place.Leave(false)
				}
			}
		}
		if got := c.l.Limit(); got != 24 {
			t.Errorf("the limit is %d", got)
		}
	})
}

func TestLateness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l admit.Lateness
		began := time.Now()
		now := func(want time.Duration) {
			t.Helper()
			if got := l.Now(); got != want {
				t.Errorf("it is late by %v now, want %v", got, want)
			}
		}
		is := func(what string, since time.Time, want time.Duration) {
			t.Helper()
			if got := l.Since(since); got != want {
				t.Errorf("%s: late by %v, want %v", what, got, want)
			}
		}
		<-time.After(time.Second)
		is("it does not run", began, 0)
		l.Note() // as Run does
		<-time.After(20 * ms)
		is("it is in time", began, 0)
		<-time.After(100 * ms)
		is("it is late now", began, 100*ms)
		now(100 * ms)
		l.Note()
		<-time.After(10 * ms)
		now(100 * ms)
		is("it was late", began, 100*ms)
		is("not since then", time.Now(), 0)
		<-time.After(40 * ms)
		l.Note()
		is("all of it", began, 130*ms)
		is("the last", time.Now().Add(-30*ms), 30*ms)
		now(30 * ms)
		<-time.After(60 * ms)
		is("it is late again", began, 170*ms)
		is("it has been late for no longer than that", time.Now().Add(-10*ms), 10*ms)
		l.Note()
		for range 600 {
			<-time.After(20 * ms)
			l.Note()
		}
		is("it forgets", began, 0)
	})
	synctest.Test(t, func(t *testing.T) {
		var l admit.Lateness
		go func() { _ = l.Run(t.Context()) }()
		began := time.Now()
		<-time.After(5*time.Second + 7*ms)
		if by := l.Since(began); by != 0 {
			t.Errorf("late by %v where time stands still", by)
		}
	})
}
