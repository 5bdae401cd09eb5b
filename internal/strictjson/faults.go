package strictjson

import (
	"errors"
	"fmt"
	"strings"
)

// Fault is a fault of an input.
type Fault struct {
	Field  string `json:"field"` // as in limit, user_id, tasks[3].contact_id
	Detail string `json:"detail"`
}

// Faults collects the faults of an input, so that all of them are reported at once.
type Faults []Fault

// mostFaults bounds the answer to an input that is wrong throughout.
const mostFaults = 20

// Addf adds a fault, up to 20 of them.
func (f *Faults) Addf(field, format string, args ...any) {
	if len(*f) < mostFaults {
		*f = append(*f, Fault{Clip(field), fmt.Sprintf(format, args...)})
	}
}

// Clip keeps hostile input from filling answers and logs.
func Clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// ErrMalformed is wrapped by the errors for text that is not JSON.
var ErrMalformed = errors.New("malformed")

// InvalidError is the error for JSON that does not fit the request.
type InvalidError struct {
	Faults Faults // never empty
}

// Error names all faults.
func (e *InvalidError) Error() string {
	words := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		words[i] = f.Field + ": " + f.Detail
	}
	return strings.Join(words, "; ")
}
