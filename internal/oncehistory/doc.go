// Package oncehistory holds the proof that the stores of package once are what once.Step says,
// whatever happens around them. It has no code of its own.
//
// A history is what a few clients did to one name at the same time, and what they were
// answered: they acquire, extend, end and hand back, repeat what they are not sure of, and
// send late what was true long ago. Answers are lost, before or after the operation was
// applied. The tester ages states, so that leases end and states are forgotten within
// milliseconds, forgets them, kills the servers, and cuts connections.
//
// Each history is given to porcupine, which looks for an order of its operations, one
// after the other, that agrees with real time and with the model (model_test.go): the
// answers must be those of once.Step to the millisecond, and each acquisition that
// begins an attempt must have a higher fence than all before it. A second check,
// which shares nothing with the model, looks at the fences alone (fences_test.go).
//
// mutations_test.go shows that the proof can fail: it breaks one rule at a time, in a store in
// memory, and expects a history to notice.
//
// "make test" plays a few hundred histories, "make prove-once" a hundred thousand. What
// each client does comes from a seed; in memory its whole history does, on real servers
// the timing does not. A failure is printed with the longest order that was found.
package oncehistory
