package history_test

import (
	"iter"
	"slices"
)

// first returns the script with its first events only.
func (sc script) first(n int) script {
	sc.events = sc.events[:min(n, len(sc.events))]
	return sc
}

// selected returns an order for each permutation of each choice of the events. Each event is delivered as
// soon as it has happened.
func (sc script) selected() iter.Seq[[]move] {
	return func(yield func([]move) bool) {
		for p := range selections(len(sc.events), 1) {
			if !yield(sc.atOnce(p)) {
				return
			}
		}
	}
}

// late returns two orders for each permutation of the events. All events are delivered when all have
// happened: in the same order, and in reverse.
func (sc script) late() iter.Seq[[]move] {
	return func(yield func([]move) bool) {
		for p := range selections(len(sc.events), len(sc.events)) {
			back := slices.Clone(p)
			slices.Reverse(back)
			happening := sc.moves(p, false)
			if !yield(slices.Concat(happening, sc.moves(p, true))) || !yield(slices.Concat(happening, sc.moves(back, true))) {
				return
			}
		}
	}
}

// deliveries returns each order of delivery of events that have happened in theirs.
func (sc script) deliveries() iter.Seq[[]move] {
	return func(yield func([]move) bool) {
		var inOrder []int
		for i := range sc.events {
			inOrder = append(inOrder, i)
		}
		for p := range selections(len(sc.events), len(sc.events)) {
			if !yield(slices.Concat(sc.moves(inOrder, false), sc.moves(p, true))) {
				return
			}
		}
	}
}

func (sc script) moves(events []int, deliver bool) (moves []move) {
	for _, e := range events {
		if sc.events[e].has(deliver) {
			moves = append(moves, move{e, deliver})
		}
	}
	return moves
}

func (sc script) atOnce(events []int) (moves []move) {
	for _, e := range events {
		moves = append(moves, sc.moves([]int{e}, false)...)
		moves = append(moves, sc.moves([]int{e}, true)...)
	}
	return moves
}

// interleavings returns each order in which the events can happen and be delivered.
func (sc script) interleavings() iter.Seq[[]move] {
	return func(yield func([]move) bool) {
		var moves []move
		state := make([]int, len(sc.events)) // 0: to happen; 1: to be delivered; 2: done
		for e := range state {
			if !sc.events[e].has(false) {
				state[e] = 1
			}
		}
		var next func() bool
		next = func() bool {
			done := true
			for e, at := range state {
				if at == 2 {
					continue
				}
				done = false
				before := len(moves)
				moves = append(moves, move{e, at == 1})
				state[e]++
				if sc.events[e].silent {
					state[e] = 2
				}
				more := next()
				moves, state[e] = moves[:before], at
				if !more {
					return false
				}
			}
			return !done || yield(slices.Clone(moves))
		}
		next()
	}
}

// selections returns the orders of some of the numbers below n, of at least so many.
func selections(n, least int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		var from func(chosen []int) bool
		from = func(chosen []int) bool {
			if len(chosen) >= least && !yield(slices.Clone(chosen)) {
				return false
			}
			for i := range n {
				if !slices.Contains(chosen, i) && !from(append(slices.Clone(chosen), i)) {
					return false
				}
			}
			return true
		}
		from(nil)
	}
}
