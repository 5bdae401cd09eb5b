package bulk

import (
	"testing"
	"time"
)

// gets plays rounds of a second, and returns the number of batches at the end. rate is how many members a second some batches do.
func (k *knee) gets(now, most, rounds int, rate func(batches int) int) int {
	for range rounds {
		now = k.next(now, most, work{batches: kneeBatches, members: rate(now)}, time.Second)
	}
	return now
}

// Where members become heavier, all numbers of batches get less done than was measured before: that is no reason to have fewer.
func TestHeavierMembersAreNoReasonForFewerBatches(t *testing.T) {
	t.Parallel()
	var k knee
	light, heavy := func(n int) int { return 100 * n }, func(n int) int { return 50 * n }
	if n := k.gets(1, 4, 20, light); n != 4 {
		t.Fatalf("%d batches at once, where each gets more done", n)
	}
	if n := k.gets(4, 4, 20, heavy); n != 4 || k.isEnough(4) {
		t.Errorf("%d batches at once, where each of heavier members gets more done, too; enough: %v", n, k.isEnough(4))
	}
}

// That more than two batches get no more done is no reason to have one.
func TestAHoldIsThatOfItsNumber(t *testing.T) {
	t.Parallel()
	var k knee
	rate := func(n int) int { return 100 * min(n, 2) }
	if n := k.gets(1, 6, 60, rate); n != 2 || !k.isEnough(2) {
		t.Fatalf("%d batches at once, where two do all; enough: %v", n, k.isEnough(2))
	}
	if n := k.gets(1, 6, 4, rate); n != 2 {
		t.Errorf("%d batches at once, after one", n)
	}
}
