// Package metrics counts what happens in the process and serves the numbers to
// Prometheus, on a listener of its own. It is the only package that knows
// Prometheus: the others declare what they have to tell as small interfaces
// ([tasks.Observer], [index.Observer], [recent.Observer], [audit.Observer],
// [auth.Observer], and that of package api), which [Tasks], [Index], [Reads],
// [Audit], [Access] and [HTTP] implement.
//
// # Two kinds of numbers
//
// What this process does is counted as it happens: each call of an observer is
// an addition in memory. How full the queues are is a fact of the database, the
// same for every process; [Metrics.Watch] asks for it every few seconds, one
// question at a time, and never because somebody scrapes. If it gets no answer,
// the last one is shown for three intervals more and then its series vanish:
// an old number that looks like a new one would hide an outage. That gathering
// fails is a number of its own, activityd_stats_success.
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
// dashboard. A test holds all three together.
package metrics
