package api

import "github.com/activityd/activityd/internal/tasks"

// faults collects what is wrong with a request, whether with its parameters or
// with the tasks in its body, so that a client hears of all of it at once.
type faults []tasks.Fault

func (f *faults) addf(field, format string, args ...any) {
	(*tasks.Faults)(f).Addf(field, format, args...)
}

// clip keeps hostile input from filling answers and logs.
func clip(s string) string { return tasks.Clip(s) }
