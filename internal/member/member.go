// Package member defines the id of a member of the site, and its decimal form, as in URLs, in JSON
// and in Redis.
package member

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// ID identifies a member. Valid ids are 1 to 2^64-1; the zero ID stands for none.
type ID uint64

// ErrInvalid is wrapped by every error of [Parse].
var ErrInvalid = errors.New("not a member id")

// Parse reads an id in plain decimal, without sign, space or leading zero, so
// that every id has exactly one spelling. Its errors wrap [ErrInvalid].
func Parse(s string) (ID, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 || s[0] < '1' || s[0] > '9' {
		return 0, fmt.Errorf("%w: %q: want a decimal number from 1 to 18446744073709551615", ErrInvalid, clip(s))
	}
	return ID(n), nil
}

// String returns the decimal form.
func (id ID) String() string { return strconv.FormatUint(uint64(id), 10) }

// MarshalJSON writes the id as a JSON string, because 64-bit numbers lose
// digits in JavaScript.
func (id ID) MarshalJSON() ([]byte, error) { return []byte(`"` + id.String() + `"`), nil }

// UnmarshalJSON accepts a JSON string or a JSON number in the form of [Parse].
func (id *ID) UnmarshalJSON(data []byte) error {
	s := string(data)
	if len(data) > 0 && data[0] == '"' {
		if err := json.Unmarshal(data, &s); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	parsed, err := Parse(s)
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// clip shortens s to 40 bytes, so that input of any length can be quoted in errors.
func clip(s string) string {
	const maxBytes = 40
	if len(s) > maxBytes {
		return s[:maxBytes] + "…"
	}
	return s
}
