// Package oncehistory holds the proof that the stores of package once are what once.Step says,
// whatever happens around them. It has no code of its own.
//
// A history is what a few clients did to one name at the same time, and what they were
// answered: they acquire, extend, end and hand back, repeat what they are not sure of, and
// send late what was true long ago. Answers are lost, before or after the operation was
// applied; clients are goroutines or processes, which are stopped in the middle of an
// operation for longer than the lease and killed. The tester ages states, so that leases end and
// states are forgotten within milliseconds, forgets them, and takes from Redis what a Redis
// can lose: a key, everything, what came after its last snapshot; and restarts and kills
// the servers, and cuts connections.
//
// Each history is given to porcupine, which looks for an order of its operations, one
// after the other, that agrees with real time and with the model (model_test.go): the
// answers must be those of once.Step to the millisecond, and each acquisition that
// begins an attempt must have a higher fence than all before it. A second check,
// which shares nothing with the model, looks at the fences alone (fences_test.go). A
// third one has processes count in MySQL under the guard of the fence
// (counter_test.go).
//
// mutations_test.go and rewriting_test.go show that the proof can fail: they break one rule
// at a time, in a store in memory, in the scripts that reach Redis, in the statements that
// reach MySQL, and expect a history to notice.
//
// "make test" plays a few hundred histories, "make prove-once" a hundred thousand. What
// each client does comes from a seed; in memory its whole history does, on real servers
// the timing does not. A failure is printed with the longest order that was found.
package oncehistory
