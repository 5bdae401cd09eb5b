package history_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// shrinker makes a failing history smaller, as long as it fails: it leaves out
// phases and acts, many at once and then fewer, and lowers choices.
type shrinker struct {
	fails func(tape) (played tape, failed bool)
	best  tape
	tries int // how often a history may still be played
}

// mostTries bounds how many histories a shrink plays.
const mostTries = 6000

func shrink(t tape, fails func(tape) (tape, bool)) tape {
	s := &shrinker{fails: fails, best: t, tries: mostTries}
	for smaller := true; smaller; { // an omission may allow further omissions
		smaller = s.dropPhases() || s.dropActs() || s.dropChoices() || s.lower()
	}
	return s.best
}

// try reports whether the history fails, changed like that, and is the smaller for
// it or at least the plainer.
func (s *shrinker) try(change func(*tape)) bool {
	if s.tries == 0 {
		return false
	}
	s.tries--
	t := s.best.clone()
	change(&t)
	played, failed := s.fails(t)
	if !failed {
		return false
	}
	played.tidy()
	if size := t.size(); size < played.size() {
		played = t
	}
	s.best = played
	return true
}

func (s *shrinker) dropPhases() (dropped bool) {
	for i := range slices.Backward(s.best.phases) {
		dropped = s.try(func(t *tape) { t.phases = slices.Delete(t.phases, i, i+1) }) || dropped
	}
	return dropped
}

func (s *shrinker) dropActs() (dropped bool) {
	for i := range s.best.lists() {
		for size := s.length(i); size > 0; size /= 2 {
			for from := 0; from < s.length(i); {
				end := min(from+size, s.length(i))
				if s.try(func(t *tape) { list := t.lists()[i]; *list = slices.Delete(*list, from, end) }) {
					dropped = true
				} else {
					from = end
				}
			}
		}
	}
	return dropped
}

// length returns the length of a list of the best tape. The tape may have lost a phase since the caller
// counted its lists.
func (s *shrinker) length(i int) int {
	if lists := s.best.lists(); i < len(lists) {
		return len(*lists[i])
	}
	return 0
}

func (s *shrinker) dropChoices() (dropped bool) {
	for i := range s.best.pages() {
		if len(s.page(i)) > 0 && s.try(func(t *tape) { *t.pages()[i] = nil }) {
			dropped = true
		}
	}
	return dropped
}

// page returns a page of the best tape. The tape may have become shorter since the caller counted its pages.
func (s *shrinker) page(i int) choices {
	if pages := s.best.pages(); i < len(pages) {
		return *pages[i]
	}
	return nil
}

func (s *shrinker) lower() (lowered bool) {
	for i := range s.best.pages() {
		for j := range s.page(i) {
			if j >= len(s.page(i)) {
				break
			}
			v := s.page(i)[j]
			for _, less := range slices.Compact([]int{0, v / 2, v - 1}) {
				if less >= 0 && less < v && s.try(func(t *tape) { (*t.pages()[i])[j] = less }) {
					lowered = true
					break
				}
			}
		}
	}
	return lowered
}

// smallest returns the smallest history found that fails, and how.
func (p player) smallest(ctx context.Context, t tape) (tape, error) {
	shrunk := shrink(t, func(t tape) (tape, bool) {
		c := replaying(t)
		_, err := p.play(ctx, c, nil)
		return c.tape, errors.Is(err, errViolated)
	})
	_, err := p.play(ctx, replaying(shrunk), nil)
	return shrunk, err
}

// long is a history that takes minutes to shrink, and more than mostTries.
const long = 2000

// failing returns the first seed, from first on, whose history fails twice, and the choices of the history.
func (p player) failing(t *testing.T, first uint64) (uint64, *chance) {
	t.Helper()
	seed, err := p.search(t.Context(), first, 20_000)
	if !errors.Is(err, errViolated) {
		t.Fatal(err)
	}
	c := seeded(seed)
	if _, err := p.play(t.Context(), c, nil); !errors.Is(err, errViolated) {
		t.Fatalf("the second time, seed %d says %v", seed, err)
	}
	return seed, c
}

// TestFailuresShrink: the shrunk history still fails, and is a small part of the whole.
func TestFailuresShrink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := player{open: leaving(addRaises), bubble: true}
		seed, c := p.failing(t, 5008) // a search found a short history there
		for c.tape.size() > long {
			seed, c = p.failing(t, seed+1)
		}
		small, err := p.smallest(t.Context(), c.tape)
		if before, after := c.tape.size(), small.size(); !errors.Is(err, errViolated) || after > before/4 {
			t.Errorf("of %d choices %d are left, and lead to: %v", before, after, err)
		}
		_, _ = p.play(t.Context(), replaying(small), t.Logf)
	})
}
