package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// choice is the value of a flag that takes one of some words. It accepts any, so
// that [wrongChoices] refuses those of all flags at once.
type choice struct {
	value *string
	words []string
}

func (c *choice) String() string { return *c.value }

func (c *choice) Set(word string) error {
	*c.value = word
	return nil
}

// Type is what the help shows for the value.
func (c *choice) Type() string { return strings.Join(c.words, "|") }

// newChoice returns the value of a flag that takes one of words, the first by default.
func newChoice(value *string, words ...string) *choice {
	*value = words[0]
	return &choice{value, words}
}

// wrongChoices returns an error for each flag that has another value than it takes.
func wrongChoices(f *pflag.FlagSet) (errs []error) {
	f.VisitAll(func(flag *pflag.Flag) {
		if c, ok := flag.Value.(*choice); ok && !slices.Contains(c.words, *c.value) {
			errs = append(errs, fmt.Errorf("--%s (%s): is %q: want %s", flag.Name, environmentName(flag.Name), *c.value, orList(c.words)))
		}
	})
	return errs
}

// orList returns words as in "dead, scheduled or done".
func orList[S ~string](words []S) string {
	var b strings.Builder
	for i, word := range words {
		switch i {
		case 0:
		case len(words) - 1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(string(word))
	}
	return b.String()
}

// completeFlags has a shell complete the values of a command's flags: the words of a
// [choice], and the names of files where the help says so.
func completeFlags(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if c, ok := flag.Value.(*choice); ok {
			mustRegister(cmd, flag.Name, cobra.FixedCompletions(c.words, cobra.ShellCompDirectiveNoFileComp))
		} else if kind, _ := pflag.UnquoteUsage(flag); kind == "file" {
			mustRegister(cmd, flag.Name, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault))
		}
	})
}

// completeList has a shell complete the words of a flag that takes several, with
// commas between them.
func completeList[S ~string](cmd *cobra.Command, flag string, words []S) {
	mustRegister(cmd, flag, func(_ *cobra.Command, _ []string, begun string) (list []cobra.Completion, _ cobra.ShellCompDirective) {
		before := begun[:strings.LastIndex(begun, ",")+1]
		for _, word := range words {
			list = append(list, before+string(word))
		}
		return list, cobra.ShellCompDirectiveNoFileComp
	})
}

func mustRegister(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // there is no such flag, or it was registered already
	}
}
