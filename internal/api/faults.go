package api

import (
	"fmt"
	"strings"
)

// fault is one thing that is wrong with a request.
type fault struct {
	Field  string `json:"field"` // as in limit, user_id, tasks[3].contact_id
	Detail string `json:"detail"`
}

// faults collects what is wrong with a request, so that a client hears of all of
// it at once.
type faults []fault

// maxFaults bounds the answer to a request that is wrong throughout.
const maxFaults = 20

func (f *faults) addf(field, format string, args ...any) {
	if len(*f) < maxFaults {
		*f = append(*f, fault{clip(field), fmt.Sprintf(format, args...)})
	}
}

// clip keeps hostile input from filling answers and logs.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
