// Package metrics serves the numbers of a process to Prometheus, with the
// probes, on a listener of its own.
//
// A counter is declared beside the code that counts: in the file metrics.go of
// its package, as a variable on the default registry of package prometheus. Each
// event is an addition in memory. How full the queues are is a fact of the
// database, the same for every process; a collector asks for it during a scrape.
//
// # Labels
//
// A series is not forgotten, so labels take few values: a type or a queue that
// is not known becomes "other", a path becomes its route's template, a method
// that HTTP does not have becomes "other". The name of a token is a label for as
// long as there is the token; its series vanish with it. Series of known values
// are there with 0 from the start, so that the first event is an increase and not
// a new series.
//
// docs/operations.md says what each metric means; ops/ has alerts and a
// dashboard. A test holds all three together. Ratios are PromQL there: a ratio
// computed in a process cannot be added up over processes.
package metrics
