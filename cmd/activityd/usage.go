package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/settings"
)

// explainUsage has the errors of the command line say how to call it: the arguments by their names, the most similar
// flag, the form of a value.
func explainUsage(root *cobra.Command) {
	root.SetFlagErrorFunc(explainFlag)
	nameArguments(root)
}

func nameArguments(parent *cobra.Command) {
	for _, cmd := range parent.Commands() {
		if check := cmd.Args; check != nil {
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				err := check(cmd, args)
				if _, own := errors.AsType[*exitError](err); err == nil || own || strings.HasPrefix(err.Error(), "want ") {
					return err
				}
				return explainArguments(cmd, args, err)
			}
		}
		nameArguments(cmd)
	}
}

// explainArguments names the command that was meant, or the arguments that are wanted.
func explainArguments(cmd *cobra.Command, args []string, err error) error {
	if !cmd.HasSubCommands() {
		return fmt.Errorf("%w; want %s", err, strings.TrimSuffix(cmd.UseLine(), " [flags]"))
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	if near, edits := settings.Nearest(args[0], names); edits <= 2 {
		return fmt.Errorf("%w; did you mean %s %s?", err, cmd.CommandPath(), near)
	}
	return fmt.Errorf("%w; want one of %s", err, strings.Join(names, ", "))
}

// explainFlag is a [cobra.Command.SetFlagErrorFunc].
func explainFlag(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if settings.HasFlag(f) {
				names = append(names, f.Name)
			}
		})
		if near, edits := settings.Nearest(unknown.GetSpecifiedName(), names); near != "" && edits <= 2 {
			return fmt.Errorf("%w; did you mean --%s?", err, near)
		}
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok && invalid.GetFlag().Value.Type() == "stringToInt" {
		return fmt.Errorf("--%s: %q: want %s", invalid.GetFlag().Name, invalid.GetValue(), settings.Form(invalid.GetFlag()))
	}
	return err
}
