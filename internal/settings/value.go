package settings

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Group is a part of the settings, under a heading.
type Group struct {
	Title string
	Flags *pflag.FlagSet
}

// NewGroup returns a group of the settings that a function registers, in their order.
func NewGroup(title string, register func(*pflag.FlagSet)) Group {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	register(flags)
	return Group{title, flags}
}

// Each calls a function with each setting that operators know.
func (g Group) Each(visit func(f *pflag.Flag)) {
	g.Flags.VisitAll(func(f *pflag.Flag) {
		if _, hidden := f.Annotations[forTests]; !hidden {
			visit(f)
		}
	})
}

// Form returns the form of a setting's value, in words: "1 to 1000 sets/s", "all|api|workers",
// "file".
func Form(f *pflag.Flag) string {
	name, _ := pflag.UnquoteUsage(f)
	return cmp.Or(Bounds(f), name, f.Value.Type())
}

// Bounds returns the allowed values of a number or a choice; "": the setting is neither.
func Bounds(f *pflag.Flag) string {
	if v, ok := f.Value.(interface{ Bounds() string }); ok {
		return v.Bounds()
	}
	return ""
}

// Number is a whole number or a duration with bounds. Set ignores the bounds and [Number.Check]
// tests them, so that all wrong values can be told at once.
type Number[T int | time.Duration] struct {
	value       *T
	least, most T
	unit        string // of an int
}

// NewNumber returns a number with its default and its bounds.
func NewNumber[T int | time.Duration](p *T, value, least, most T, unit string) Number[T] {
	*p = value
	return Number[T]{p, least, most, unit}
}

func (n Number[T]) String() string { return fmt.Sprint(*n.value) }

// Type returns the text that the help shows for the value.
func (n Number[T]) Type() string {
	if _, ok := any(n.value).(*time.Duration); ok {
		return "duration"
	}
	return "number"
}

// Set implements [pflag.Value].
func (n Number[T]) Set(text string) (err error) {
	switch p := any(n.value).(type) {
	case *int:
		*p, err = strconv.Atoi(text)
	case *time.Duration:
		*p, err = time.ParseDuration(text)
	}
	if err != nil {
		return fmt.Errorf("want %s", n.Bounds())
	}
	return nil
}

// Bounds is as in "1 to 1000 sets/s", or "1ms to 1h".
func (n Number[T]) Bounds() string {
	text := fmt.Sprintf("%v to %v %s", n.least, n.most, n.unit)
	return strings.TrimSpace(strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(text))
}

// Check returns an error if the number is out of bounds.
func (n Number[T]) Check() error {
	if *n.value < n.least || *n.value > n.most {
		return fmt.Errorf("is %v: want %s", *n.value, n.Bounds())
	}
	return nil
}

// Choice is a value from a list of words.
type Choice struct {
	value *string
	Words []string
}

// NewChoice returns a choice of words, the first by default.
func NewChoice(p *string, words ...string) Choice {
	*p = words[0]
	return Choice{p, words}
}

func (c Choice) String() string { return *c.value }

// Type returns the text that the help shows for the value.
func (c Choice) Type() string { return c.Bounds() }

// Bounds is as in "all|api|workers".
func (c Choice) Bounds() string { return strings.Join(c.Words, "|") }

// Set implements [pflag.Value].
func (c Choice) Set(word string) error {
	if !slices.Contains(c.Words, word) {
		return fmt.Errorf("want %s", strings.Join(c.Words, ", "))
	}
	*c.value = word
	return nil
}
