package main

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/sweep"
)

// rangeUse is how commands over many members say which ones.
const rangeUse = "[USER | FROM-TO | --all]"

var (
	errAllAnd     = errors.New("--all stands beside a member or a range: want one of the two")
	errEmptyRange = errors.New("the range ends before it begins")
)

// parseRange reads which members are meant: one, those from one to another, or
// with nothing said everybody.
func parseRange(args []string, all bool) (sweep.Range, error) {
	switch {
	case len(args) == 0:
		return sweep.All, nil
	case all:
		return sweep.Range{}, errAllAnd
	}
	from, to, isRange := strings.Cut(args[0], "-")
	first, err := member.Parse(from)
	if err != nil {
		return sweep.Range{}, fmt.Errorf("USER or FROM-TO: %w", err)
	}
	if !isRange {
		return sweep.Range{First: first, Last: first}, nil
	}
	last, err := member.Parse(to)
	if err != nil {
		return sweep.Range{}, fmt.Errorf("FROM-TO: %w", err)
	}
	if last < first {
		return sweep.Range{}, fmt.Errorf("FROM-TO: %s: %w", args[0], errEmptyRange)
	}
	return sweep.Range{First: first, Last: last}, nil
}

// rangeText names the range, to people and in the file of --resume.
func rangeText(r sweep.Range) string {
	switch {
	case r == sweep.All:
		return "all members"
	case r.First == r.Last:
		return "member " + r.First.String()
	case r.Last == math.MaxUint64:
		return "the members from " + r.First.String()
	}
	return fmt.Sprintf("members %s-%s", r.First, r.Last)
}
