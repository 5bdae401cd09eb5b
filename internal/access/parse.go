package access

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// mostFaults bounds what is said about a file that is something else.
const mostFaults = 5

var (
	errFields = errors.New("want: name scopes sha256:hash [rate=100/s] [burst=200]")
	errTwice  = errors.New("an option is given twice")
	errBurst  = errors.New("burst needs a rate, and is a number of requests from 1 to 1000000, as in rate=100/s burst=200")
)

// Parse reads tokens, one a line, in the form that package access describes.
// Empty lines, and what follows a #, are skipped. Names and hashes must be
// different from each other. The error names the lines that are wrong, and quotes
// nothing of them, as there may be a secret where it does not belong. A text
// without tokens is no error.
func Parse(text string) ([]Token, error) {
	p := parser{names: make(map[string]int), hashes: make(map[Hash]int)}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		if fields := strings.Fields(line); len(fields) > 0 {
			p.add(number, fields)
		}
	}
	return p.result()
}

// parser remembers the lines of names and hashes.
type parser struct {
	tokens []Token
	names  map[string]int
	hashes map[Hash]int
	faults []string
}

func (p *parser) add(number int, fields []string) {
	token, err := parseToken(fields)
	if err == nil {
		err = p.unique(number, token)
	}
	if err != nil {
		p.faults = append(p.faults, fmt.Sprintf("line %d: %v", number, err))
		return
	}
	p.tokens = append(p.tokens, token)
}

// unique quotes the name: it stands in a line that is all right otherwise.
func (p *parser) unique(number int, t Token) error {
	if first, taken := p.names[t.Name]; taken {
		return fmt.Errorf("the name %s is that of line %d already: choose another", t.Name, first)
	}
	if first, taken := p.hashes[t.Hash]; taken {
		return fmt.Errorf("the secret is that of line %d already: give every client its own", first)
	}
	p.names[t.Name], p.hashes[t.Hash] = number, number
	return nil
}

func (p *parser) result() ([]Token, error) {
	if len(p.faults) == 0 {
		return p.tokens, nil
	}
	shown := p.faults[:min(len(p.faults), mostFaults)]
	text := strings.Join(shown, "; ")
	if more := len(p.faults) - len(shown); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return nil, errors.New(text)
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
