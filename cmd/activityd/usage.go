package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// explainUsage has the errors of the command line say what is wanted: the arguments by their
// names, the flag that was meant, the form of a value.
func explainUsage(root *cobra.Command) {
	root.SetFlagErrorFunc(explainFlag)
	nameArguments(root)
}

func nameArguments(parent *cobra.Command) {
	for _, cmd := range parent.Commands() {
		if check := cmd.Args; check != nil {
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				err := check(cmd, args)
				if _, own := errors.AsType[*exitError](err); err == nil || own {
					return err
				}
				return fmt.Errorf("%w; want %s", err, strings.TrimSuffix(cmd.UseLine(), " [flags]"))
			}
		}
		nameArguments(cmd)
	}
}

// explainFlag is a [cobra.Command.SetFlagErrorFunc].
func explainFlag(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if near := nearestFlag(cmd.Flags(), unknown.GetSpecifiedName()); near != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, near)
		}
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok && invalid.GetFlag().Value.Type() == "stringToInt" {
		return fmt.Errorf("--%s: %q: want %s", invalid.GetFlag().Name, invalid.GetValue(), wantedOf(invalid.GetFlag()))
	}
	return err
}

// wantedOf is the form of a flag's value, as its help names it.
func wantedOf(f *pflag.Flag) string {
	name, _ := pflag.UnquoteUsage(f)
	return cmp.Or(name, f.Value.Type())
}

// nearestFlag returns the flag that a name may stand for, by the rule by which cobra suggests
// commands; "" if there is none.
func nearestFlag(flags *pflag.FlagSet, name string) string {
	suggest := cobra.Command{SuggestionsMinimumDistance: 2}
	flags.VisitAll(func(f *pflag.Flag) {
		suggest.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	for _, near := range suggest.SuggestionsFor(name) {
		return near
	}
	return ""
}
