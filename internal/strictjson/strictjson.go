// Package strictjson reads JSON strictly: a misspelt field that is silently ignored is
// something that its sender meant and that is never done. So unknown, repeated and
// misplaced fields are refused, and all faults of an input are named at once, each with
// its place.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/activityd/activityd/internal/member"
)

// Parse returns text as a single JSON value, without surrounding space. Its errors wrap
// [ErrMalformed].
func Parse(text []byte) (json.RawMessage, error) {
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrMalformed)
	}
	var root json.RawMessage
	if err := json.Unmarshal(text, &root); err != nil {
		at := new(json.SyntaxError)
		errors.As(err, &at)
		return nil, fmt.Errorf("%w: not JSON: byte %d: %w", ErrMalformed, at.Offset, err)
	}
	return bytes.TrimSpace(root), nil
}

// Reader reads the values of an input, and collects their faults. Each value is valid JSON
// without surrounding space.
type Reader struct {
	Faults

	Root string // the name of the input as a whole, in messages
}

// Err returns an [InvalidError] if there are faults.
func (r *Reader) Err() error {
	if len(r.Faults) == 0 {
		return nil
	}
	return &InvalidError{r.Faults}
}

// At names a field by its place; with neither, it is the input as a whole.
func (r *Reader) At(place, name string) string {
	switch {
	case place == "" && name == "":
		return r.Root
	case place == "":
		return name
	case name == "":
		return place
	}
	return place + "." + name
}

// Array reads an array of least to most items; what names the items in messages.
func (r *Reader) Array(place string, value json.RawMessage, what string, least, most int) ([]json.RawMessage, bool) {
	if value[0] != '[' {
		r.Addf(r.At(place, ""), "want an array of %s, got %s", what, TypeName(value))
		return nil, false
	}
	var items []json.RawMessage
	if err := json.Unmarshal(value, &items); err != nil { // it was valid
		r.Addf(r.At(place, ""), "%v", err)
		return nil, false
	}
	switch {
	case len(items) < least:
		r.Addf(r.At(place, ""), "holds %d %s: want %d to %d", len(items), what, least, most)
		return nil, false
	case len(items) > most:
		r.Addf(r.At(place, ""), "holds %d %s: want at most %d", len(items), what, most)
		return nil, false
	}
	return items, true
}

// Item is the place of an item of the array at place.
func Item(place string, i int) string { return place + "[" + strconv.Itoa(i) + "]" }

// Object is a JSON object in the order of its text. If a name occurs several times,
// encoding/json would take the last value; it also ignores letter case. So it would accept text
// that means something else to its sender than to us.
type Object struct {
	Reader *Reader
	Place  string // its own
	fields []field
}

type field struct {
	name  string
	value json.RawMessage
}

// Object reads an object and adds a fault for each name that stands twice.
func (r *Reader) Object(place string, value json.RawMessage) (Object, bool) {
	o := Object{Reader: r, Place: place}
	if value[0] != '{' {
		r.Addf(r.At(place, ""), "want an object, got %s", TypeName(value))
		return o, false
	}
	seen, unique := map[string]bool{}, true
	for name, value := range members(value) {
		if seen[name] {
			r.Addf(r.At(place, name), "given more than once")
			unique = false
		}
		seen[name] = true
		o.fields = append(o.fields, field{name, value})
	}
	return o, unique
}

// Get returns the value of a field, if it is given.
func (o Object) Get(name string) (json.RawMessage, bool) {
	for _, f := range o.fields {
		if f.name == name {
			return f.value, true
		}
	}
	return nil, false
}

// All yields the fields in the order of the text.
func (o Object) All() iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		for _, f := range o.fields {
			if !yield(f.name, f.value) {
				return
			}
		}
	}
}

// Addf adds a fault of a field; of the object itself where name is "".
func (o Object) Addf(name, format string, args ...any) {
	o.Reader.Addf(o.Reader.At(o.Place, name), format, args...)
}

// Only adds a fault for each field with another name.
func (o Object) Only(names ...string) {
	for _, f := range o.fields {
		if !slices.Contains(names, f.name) {
			o.Addf(f.name, "unknown field: want %s", List(names, "and"))
		}
	}
}

// Need returns the value of a field, and adds a fault if it is missing.
func (o Object) Need(name, want string) (json.RawMessage, bool) {
	value, ok := o.Get(name)
	if !ok {
		o.Addf(name, "is missing: want %s", want)
	}
	return value, ok
}

// String reads a field that is a string, if it is given; want describes the string in words.
func (o Object) String(name, want string) (text string, ok bool) {
	value, ok := o.Get(name)
	if !ok {
		return "", false
	}
	if value[0] != '"' || json.Unmarshal(value, &text) != nil {
		o.Addf(name, "want %s, got %s", want, TypeName(value))
		return "", false
	}
	return text, true
}

// Bool reads a field that is a boolean, if it is given.
func (o Object) Bool(name string) (is, ok bool) {
	value, ok := o.Get(name)
	if !ok {
		return false, false
	}
	if json.Unmarshal(value, &is) != nil || value[0] == 'n' {
		o.Addf(name, "want true or false, got %s", TypeName(value))
		return false, false
	}
	return is, true
}

// Whole reads a field that is a whole number from least to most, if it is given.
func (o Object) Whole(name string, least, most int64) (n int64, ok bool) {
	value, ok := o.Get(name)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || n < least || n > most {
		shown := TypeName(value)
		if shown == "a number" {
			shown = Clip(string(value))
		}
		o.Addf(name, "want a whole number from %d to %d, got %s", least, most, shown)
		return 0, false
	}
	return n, true
}

// MemberID reads a field that is the id of a member; 0 where it is wrong, or neither given
// nor required.
func (o Object) MemberID(name string, required bool) member.ID {
	value, ok := o.Get(name)
	if !ok {
		if required {
			o.Addf(name, "is missing: want a member id")
		}
		return 0
	}
	return o.Reader.MemberID(o.Reader.At(o.Place, name), value)
}

// MemberID reads the id of a member, a string or a number; 0 where it is wrong.
func (r *Reader) MemberID(place string, value json.RawMessage) member.ID {
	if kind := value[0]; kind != '"' && kind != '-' && (kind < '0' || kind > '9') {
		r.Addf(place, "want a member id as a string or number, got %s", TypeName(value))
		return 0
	}
	var id member.ID
	if err := id.UnmarshalJSON(value); err != nil {
		r.Addf(place, "%v", err)
	}
	return id
}

// members yields the names and values of a JSON object that is known to be
// valid, and therefore has no errors to report.
func members(value json.RawMessage) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		d := json.NewDecoder(bytes.NewReader(value))
		if _, err := d.Token(); err != nil {
			return
		}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return
			}
			var v json.RawMessage
			if err := d.Decode(&v); err != nil {
				return
			}
			if name, ok := name.(string); !ok || !yield(name, v) {
				return
			}
		}
	}
}

// TypeName names the JSON type of a valid value, for messages.
func TypeName(value json.RawMessage) string {
	switch value[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// List returns "a, b or c", with the word before the last.
func List(list []string, word string) string {
	last := len(list) - 1
	if last < 1 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:last], ", ") + " " + word + " " + list[last]
}
