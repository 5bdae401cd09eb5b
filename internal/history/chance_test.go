package history_test

import "math/rand/v2"

// chance makes the choices of a history. A choice of 0 is always the choice without trouble.
type chance struct {
	fresh  func(n int) int // 0 ≤ fresh(n) < n
	phases int             // begun so far
}

func freshly(fresh func(int) int) *chance { return &chance{fresh: fresh} }

// seeded makes choices that depend on the seed alone.
func seeded(seed uint64) *chance { return freshly(rand.New(rand.NewPCG(seed, 0)).IntN) }

// choose returns a number from 0 to n-1.
func (c *chance) choose(n int) int { return c.fresh(n) }

const mostPhases = 3

// nextPhase begins another phase, or reports that there is none. Everything comes to rest at the end of a phase.
func (c *chance) nextPhase() bool {
	if c.phases > 0 && (c.phases == mostPhases || c.fresh(3) == 0) {
		return false
	}
	c.phases++
	return true
}

// each calls do for some acts, up to most of them.
func (c *chance) each(most int, do func() error) error {
	for range 1 + c.fresh(most) {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}
