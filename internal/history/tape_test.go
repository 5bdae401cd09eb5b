package history_test

import (
	"math/rand/v2"
	"slices"
)

// tape holds all the chance of a history: the choices of its preparation and of each act. Each act has its
// own choices, and remains the same when the shrinker leaves out other acts. A missing choice is 0, and 0 is
// always the choice without trouble.
type tape struct {
	setup  choices
	phases []phase
}

// phase is a part of a history at whose end everything comes to rest.
type phase struct {
	mood choices
	acts []choices // with changes
	rest []choices // until all tasks are done
	calm []choices // without changes
}

type choices []int

// kind is a kind of acts of a phase.
type kind func(*phase) *[]choices

func acts(p *phase) *[]choices { return &p.acts }
func rest(p *phase) *[]choices { return &p.rest }
func calm(p *phase) *[]choices { return &p.calm }

// chance makes choices and records them.
type chance struct {
	fresh  func(n int) int // 0 ≤ fresh(n) < n; nil: as the source has them
	source tape
	tape   tape // the choices so far

	page   *choices // of the tape, to be written
	given  choices  // of the source, to be read
	phases int      // begun so far
}

func freshly(fresh func(int) int) *chance {
	c := &chance{fresh: fresh}
	c.page = &c.tape.setup
	return c
}

func replaying(t tape) *chance {
	c := &chance{source: t, given: t.setup}
	c.page = &c.tape.setup
	return c
}

// seeded makes choices that depend on the seed alone.
func seeded(seed uint64) *chance { return freshly(rand.New(rand.NewPCG(seed, 0)).IntN) }

// choose returns a number from 0 to n-1.
func (c *chance) choose(n int) (v int) {
	switch {
	case c.fresh != nil:
		v = c.fresh(n)
	case len(c.given) > 0:
		v, c.given = min(c.given[0], n-1), c.given[1:]
	}
	*c.page = append(*c.page, v)
	return v
}

const mostPhases = 3

// nextPhase begins another phase, and with it its mood; or tells that there is
// none.
func (c *chance) nextPhase() bool {
	if c.fresh == nil && c.phases == len(c.source.phases) {
		return false
	}
	if c.fresh != nil && c.phases > 0 && (c.phases == mostPhases || c.fresh(3) == 0) {
		return false
	}
	c.phases++
	c.tape.phases = append(c.tape.phases, phase{})
	c.page = &c.tape.phases[c.phases-1].mood
	if c.fresh == nil {
		c.given = c.source.phases[c.phases-1].mood
	}
	return true
}

// each calls do for each act of a kind; when they are made up, up to most of them.
func (c *chance) each(k kind, most int, do func() error) error {
	var n int
	if c.fresh != nil {
		n = 1 + c.fresh(most)
	} else {
		n = len(*k(&c.source.phases[c.phases-1]))
	}
	for range n {
		c.next(k)
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// next begins the next act of a kind.
func (c *chance) next(k kind) {
	written := k(&c.tape.phases[c.phases-1])
	i := len(*written)
	*written = append(*written, nil)
	c.page, c.given = &(*written)[i], nil
	if c.fresh != nil {
		return
	}
	if list := *k(&c.source.phases[c.phases-1]); i < len(list) {
		c.given = list[i]
	}
}

// lists returns the acts of all kinds. The first lists make the most difference when they shrink.
func (t *tape) lists() (lists []*[]choices) {
	for _, k := range []kind{acts, calm, rest} {
		for i := range t.phases {
			lists = append(lists, k(&t.phases[i]))
		}
	}
	return lists
}

// pages returns all choices.
func (t *tape) pages() []*choices {
	pages := []*choices{&t.setup}
	for i := range t.phases {
		pages = append(pages, &t.phases[i].mood)
	}
	for _, list := range t.lists() {
		for i := range *list {
			pages = append(pages, &(*list)[i])
		}
	}
	return pages
}

func (t *tape) clone() tape {
	c := tape{setup: slices.Clone(t.setup), phases: slices.Clone(t.phases)}
	for i := range c.phases {
		c.phases[i].mood = slices.Clone(c.phases[i].mood)
	}
	for _, list := range c.lists() {
		*list = slices.Clone(*list)
		for i := range *list {
			(*list)[i] = slices.Clone((*list)[i])
		}
	}
	return c
}

// tidy removes choices and acts that would be the same if missing.
func (t *tape) tidy() {
	for _, page := range t.pages() {
		for len(*page) > 0 && (*page)[len(*page)-1] == 0 {
			*page = (*page)[:len(*page)-1]
		}
	}
	for i := range t.phases {
		rest := &t.phases[i].rest
		for len(*rest) > 0 && len((*rest)[len(*rest)-1]) == 0 {
			*rest = (*rest)[:len(*rest)-1]
		}
	}
}

// size is the number of acts and of choices.
func (t *tape) size() (n int) {
	for _, page := range t.pages() {
		n += 1 + len(*page)
	}
	return n
}
