// Package taskjson reads tasks from JSON: the body of a request, or a line of a
// file. It is strict: a misspelt field that is silently ignored is a task that
// never does what its sender meant. So unknown, repeated and misplaced fields are
// refused, and all faults are named at once.
package taskjson
