// Package oncehistory holds the proof that the stores of package once behave as once.Step says,
// whatever happens around them. It has no code of its own.
//
// A history records the operations of a few clients on a single name at the same time, and their
// answers. The clients repeat operations whose fate they do not know, and send operations of an attempt that has
// long ended. Answers are lost, before or after the operation was applied. The tester ages and forgets states, kills
// Redis, and cuts connections.
//
// Porcupine then looks for an order of the operations that agrees with real time and with the model (model_test.go).
// Each answer must be the answer of once.Step to the millisecond. A second check, which shares nothing with the model,
// looks at the fences alone (fences_test.go). mutations_test.go shows that the proof can fail: it breaks a single rule
// at a time, and expects a history to notice.
//
// "make test" plays a few hundred histories, "make prove-once" a hundred thousand. A seed decides the operations of each
// client; in memory it decides the whole history, on real servers it does not decide the timing.
package oncehistory
