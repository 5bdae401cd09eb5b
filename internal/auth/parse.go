package auth

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxFaults bounds how many lines an error names.
const maxFaults = 5

var (
	errFields = errors.New("want: name scopes sha256:hash [rate=100/s] [burst=200]")
	errTwice  = errors.New("an option is given twice")
	errBurst  = errors.New("burst needs a rate, and is a number of requests from 1 to 1000000, as in rate=100/s burst=200")
)

// Parse reads tokens, one a line, in the form that package auth describes. Empty lines,
// and what follows a #, are skipped. Names and hashes must be different from each
// other. The error names the lines that are wrong, and quotes nothing of them, as there
// may be a secret where it does not belong. A text without tokens is no error.
func Parse(text string) (tokens []Token, err error) {
	names, hashes := make(map[string]int), make(map[Hash]int) // to the number of the line
	var faults []string
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		t, err := parseToken(fields)
		// A name is quoted: it stands in a line that is all right otherwise.
		if first := names[t.Name]; err == nil && first != 0 {
			err = fmt.Errorf("the name %s is that of line %d already: choose another", t.Name, first)
		}
		if first := hashes[t.Hash]; err == nil && first != 0 {
			err = fmt.Errorf("the secret is that of line %d already: give every client its own", first)
		}
		if err != nil {
			faults = append(faults, fmt.Sprintf("line %d: %v", number, err))
			continue
		}
		names[t.Name], hashes[t.Hash] = number, number
		tokens = append(tokens, t)
	}
	if len(faults) == 0 {
		return tokens, nil
	}
	if more := len(faults) - maxFaults; more > 0 {
		faults = append(faults[:maxFaults], fmt.Sprintf("and %d more", more))
	}
	return nil, errors.New(strings.Join(faults, "; "))
}

func parseToken(fields []string) (t Token, err error) {
	if len(fields) < 3 {
		return Token{}, errFields
	}
	t.Name = fields[0]
	if err := checkName(t.Name); err != nil {
		return Token{}, err
	}
	if t.Scopes, err = ParseScope(fields[1]); err != nil {
		return Token{}, err
	}
	if t.Hash, err = parseHash(fields[2]); err != nil {
		return Token{}, err
	}
	if len(fields) > 3 {
		t.Limit, err = parseOptions(fields[3:])
	}
	return t, err
}

func parseOptions(options []string) (Limit, error) {
	given := make(map[string]string)
	for _, o := range options {
		name, value, ok := strings.Cut(o, "=")
		if !ok || name != "rate" && name != "burst" {
			return Limit{}, errFields
		}
		if _, twice := given[name]; twice {
			return Limit{}, errTwice
		}
		given[name] = value
	}
	burst := 0
	if text, ok := given["burst"]; ok {
		var err error
		if burst, err = strconv.Atoi(text); err != nil || burst < 1 || given["rate"] == "" {
			return Limit{}, errBurst
		}
	}
	return ParseLimit(given["rate"], burst)
}
