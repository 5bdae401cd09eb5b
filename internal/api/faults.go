package api

import "github.com/activityd/activityd/internal/taskjson"

// faults collects what is wrong with a request, whether with its parameters or
// with the tasks in its body, so that a client hears of all of it at once.
type faults []taskjson.Fault

func (f *faults) addf(field, format string, args ...any) {
	(*taskjson.Faults)(f).Addf(field, format, args...)
}

// clip keeps hostile input from filling answers and logs.
func clip(s string) string { return taskjson.Clip(s) }
