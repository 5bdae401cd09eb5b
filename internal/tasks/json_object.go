package tasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"
)

// An object is a JSON object in the order of its text. encoding/json would take
// the last of several equal names and ignore letter case, and so accept tasks
// that mean one thing to their sender and another to us.
type object []entry

type entry struct {
	name  string
	value json.RawMessage
}

func (o object) get(name string) (json.RawMessage, bool) {
	for _, m := range o {
		if m.name == name {
			return m.value, true
		}
	}
	return nil, false
}

// parse returns the one JSON value that text is.
func parse(text []byte) (json.RawMessage, error) {
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

// object reads an object and reports names that stand twice. The value is valid
// JSON without surrounding space.
func (p *parser) object(place string, value json.RawMessage) (object, bool) {
	if value[0] != '{' {
		p.Addf(p.at(place, ""), "want an object, got %s", typeName(value))
		return nil, false
	}
	var o object
	seen, unique := map[string]bool{}, true
	for name, value := range members(value) {
		if seen[name] {
			p.Addf(p.at(place, name), "given more than once")
			unique = false
		}
		seen[name] = true
		o = append(o, entry{name, value})
	}
	return o, unique
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

// typeName names the JSON type of a valid value, for messages.
func typeName(value json.RawMessage) string {
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
