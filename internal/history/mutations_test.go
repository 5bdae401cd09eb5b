package history_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// TestEachRuleIsNeeded leaves out one rule at a time, and expects the histories to notice. The proof can
// therefore fail, and no rule is superfluous. A search found the seeds. When a change of the code makes a
// seed play another history, the test tries the seeds that follow.
func TestEachRuleIsNeeded(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		rule    string
		without rule
		alter   func(*stage)
		seed    uint64
		script  string // whose orders notice; "": a random history does
	}{
		{"apply only under the token of begin", applyUnderToken, nil, 5320, ""},
		{"begin shares the token that is there", beginShares, nil, 0, ""},
		{"apply conflicts when the set is gone", goneIsConflict, nil, 0, "sets of active members"},
		{"an update with nothing to write is applied", emptyApplies, nil, 0, "contacts come and go"},
		{"a removal and its refill are one", removalWithRefill, nil, 101, ""},
		{"a refill adds and never replaces", refillAdds, nil, 0, "uploads of the past"},
		{"a set is cut to max", cutToMax, nil, 0, ""},
		{"a refill lowers only what is unchanged since begin", correctUnchanged, nil, 0, "scores that are too high"},
		{"an add refuses what lies outside", addRefuses, nil, 1933, ""},
		{"an add only raises", addRaises, nil, 292, ""},
		{"an add never creates", addNeverCreates, nil, 13, ""},
		{"an add that finds no set ends the updates under way", missingEndsUpdates, nil, 0, "sets of active members"},
		{"an add that is refused ends the updates under way", outsideEndsUpdates, nil, 0, "uploads of the past"},
		{"an add that cuts ends the updates under way", trimmedEndsUpdates, nil, 0, "uploads that push others out"},
		{"an add below the score ends the updates under way", belowEndsUpdates, nil, 0, "scores that are too high"},
		{"an add of the very score ends the updates under way", unchangedEndsUpdates, nil, 0, "scores that are too high"},
		{"a removal of who came in or rose since begin conflicts", removeUnchanged, nil, 0, "members come and go"},
		{"a refill of nobody deletes the set", emptyRefillDeletes, nil, 0, "viewers come and go"},
		{"the truth is read after begin", noRule, readEarly, 29, ""},
		{"a read reports ghosts", noRule, func(s *stage) { s.deaf = true }, 3302, ""},
		{"the first must be newer than the second's score", noRule, func(s *stage) { s.propose = lenientSecond }, 130, ""},
		{"the best must be newer than the lowest score", noRule, func(s *stage) { s.propose = lenientLowest }, 649, ""},
		{"a block by the viewer hides, too", noRule, func(s *stage) { s.oneWay = true }, 7, ""},
		{"photos are not cached", noRule, cachePhotos, 42, ""},
		{"a task that has begun absorbs no other", noRule, func(s *stage) { s.absorbStarted = true }, 328, ""},
		{"a photo that is shown is an event", noRule, func(s *stage) { s.forgetsEvent = true }, 504, ""},
		{"a photo that is shown raises last_upload", noRule, func(s *stage) { s.forgetsBoth = true }, 71, ""},
		{"a task that crashed is done again", noRule, func(s *stage) { s.careless = true }, 168, ""},
	} {
		t.Run(m.rule, func(t *testing.T) {
			t.Parallel()
			if m.script != "" {
				mustNotice(t, ordersOf(t, m.script, leaving(m.without)))
				return
			}
			synctest.Test(t, func(t *testing.T) {
				seed, err := player{open: leaving(m.without), alter: m.alter, bubble: true}.search(t.Context(), m.seed, 20_000)
				t.Logf("seed %d", seed)
				mustNotice(t, err)
			})
		})
	}
}

// TestAllRulesAreEnough: without a mutation, no history of the index of the mutations fails.
func TestAllRulesAreEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		if seed, err := (player{open: leaving(noRule), bubble: true}).search(t.Context(), 0, 200); !errors.Is(err, errUnnoticed) {
			t.Fatal(story(seed, err))
		}
	})
}

// TestHistoriesWithBroadcastMembers plays the histories of the mutations below, without a mutation.
func TestHistoriesWithBroadcastMembers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := player{open: inMemory, broadcasts: true, bubble: true}
		var total tally
		for seed := range uint64(100) {
			counted, err := p.play(t.Context(), seeded(seed), nil)
			if err != nil {
				t.Fatal(story(seed, err))
			}
			total = total.plus(counted)
		}
		t.Logf("%s", total)
		if total.broadcasts < 100 || total.fromRow < 5 {
			t.Errorf("%d changes of rows, %d answers that only a row led to: too few", total.broadcasts, total.fromRow)
		}
	})
}

// TestEachRuleOfBroadcastMembersIsNeeded does the same for their rules.
func TestEachRuleOfBroadcastMembersIsNeeded(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		rule  string
		alter func(*stage)
		seed  uint64
	}{
		{"a read sees the broadcast contacts above the set", func(s *stage) { s.forgetsAbove = true }, 2},
		{"a read sees the newest broadcast upload below its first", func(s *stage) { s.forgetsBelow = true }, 6502},
		{"an upload by a broadcast member is written to its row", func(s *stage) { s.forgetsRows = true }, 0},
		{"a member that leaves is fanned out first", func(s *stage) { s.leavesAtOnce = true }, 132},
	} {
		t.Run(m.rule, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				seed, err := player{open: inMemory, alter: m.alter, broadcasts: true, bubble: true}.search(t.Context(), m.seed, 20_000)
				t.Logf("seed %d", seed)
				mustNotice(t, err)
			})
		})
	}
}

// TestPagesComeAgain does not leave the page of failed followers to another task: their updates are lost, and
// a history notices.
func TestPagesComeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := player{open: inMemory, alter: func(s *stage) { s.forgetsPages = true }, outages: true, bubble: true}
		seed, err := p.search(t.Context(), 30, 20_000)
		t.Logf("seed %d", seed)
		mustNotice(t, err)
	})
}

func mustNotice(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, errViolated) {
		t.Fatal(err)
	}
	t.Log(err)
}

// ordersOf plays all orders of the first events of a script, until an order fails.
func ordersOf(t *testing.T, name string, open opener) error {
	t.Helper()
	at := slices.IndexFunc(scripts, func(sc script) bool { return sc.name == name })
	sc := scripts[at].first(4)
	for order := range sc.selected() {
		if _, err := sc.tryAll(t.Context(), open, order); err != nil {
			return err
		}
	}
	return errUnnoticed
}

var errUnnoticed = errors.New("no history noticed")

// search plays the histories of some seeds until a history fails.
func (p player) search(ctx context.Context, first, count uint64) (seed uint64, err error) {
	for seed := range count {
		if _, err := p.play(ctx, seeded(first+seed), nil); err != nil {
			return first + seed, err
		}
	}
	return 0, errUnnoticed
}
