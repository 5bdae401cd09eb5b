// Package metrics serves the metrics of the process to Prometheus, on a listener of its own.
//
// A counter is declared beside the code that counts: in the file metrics.go of its package,
// as a variable on the default registry of package prometheus. How full the queues are is a
// fact of the database, the same for every process; a collector reads it during a scrape.
//
// # Labels
//
// A series exists until the process ends, so labels take few values: an unknown kind of
// task, queue or method becomes "other", a path becomes its route's template. The name of a
// token is a label for as long as there is the token; its series are deleted with it. Series
// of known values begin with 0, so that the first event is an increase and not a new series.
//
// The page docs/metrics.md is written from the code; ops/ has alerts and a dashboard, and
// docs/operate.md a section for each alert. Tests compare them. Ratios are PromQL there, because a ratio that a process computes
// cannot be added up over processes.
package metrics
