// Package history holds the proof that the index is right at rest and private at every moment. It has no code of its own.
//
// A history is a small site and a sequence of steps: members, contacts, blocks and photos change; tasks are delivered
// late, twice and in any order; handlers and reads are paused before and after each call; processes crash; Redis fails
// and loses everything. A single scheduler chooses the steps by a number, the seed, which repeats the history.
//
// world_test.go and requests_test.go state the expectations, without the code that they judge:
//
//   - At rest, when all tasks have run: every set belongs to a member and keeps I1 to I3 of package index, and every
//     viewer gets the answer of the definition, with the index and without. No task is dead.
//   - At every step: no set holds more than Max members, and a set comes into being only by a refill (I4).
//   - Of every response: at some instant of its request it was the newest photos of a single contact that the viewer
//     could see then. A response without the index was the answer by the definition at some instant.
//
// Random histories (history_test.go) contain every kind of step. Enumerated histories (orders_test.go, enumerate_test.go)
// are the orders of 7 events over 2 viewers and 3 contacts, each again with a fault at every point of every handler and
// read. mutations_test.go leaves out one rule at a time, and expects a history to notice. A failure is printed with a
// seed that "make prove SEED=…" repeats.
package history
