package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// atMost returns a check for the arguments of a command that needs those that are
// named, and takes most at the most. Its errors say which one is missing or too
// many, and how the command is called.
func atMost(most int, needed ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(needed):
			return misused(cmd, needed[len(args)]+" is missing")
		case len(args) > most && most == 0:
			return misused(cmd, fmt.Sprintf("takes no arguments, and %q is one", args[0]))
		case len(args) > most:
			return misused(cmd, fmt.Sprintf("%q is one argument too many", args[most]))
		}
		return nil
	}
}

// exactly is [atMost] for a command that takes what it needs and no more.
func exactly(needed ...string) cobra.PositionalArgs { return atMost(len(needed), needed...) }

// misused is the error of a command that is called in a way that cannot be.
func misused(cmd *cobra.Command, what string) error {
	return fmt.Errorf("%s: %s: want %s; %s --help tells more", below(cmd), what, cmd.UseLine(), cmd.CommandPath())
}

// below is the command as it is called after the name of the program.
func below(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// onlyCommands is for what has commands, and does nothing but help by itself.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2 // letters
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("%q is no command of %s: is %s meant? %[2]s --help lists all", args[0], cmd.CommandPath(), strings.Join(near, " or "))
	}
	return fmt.Errorf("%q is no command of %s: %[2]s --help lists them", args[0], cmd.CommandPath())
}

// help is what such a command does.
func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// misflagged says of a flag that cannot be read to which command it was given.
func misflagged(cmd *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f := wrong.GetFlag()
		err = fmt.Errorf("--%s: is %q: want %s", f.Name, wrong.GetValue(), inKind(f.Value.Type()))
	}
	where := ""
	if cmd.HasParent() {
		where = below(cmd) + ": "
	}
	return fmt.Errorf("%s%w; %s --help lists the flags", where, err, cmd.CommandPath())
}

// inKind tells people what kind of value a flag takes.
func inKind(kind string) string {
	switch kind {
	case "int", "int64", "uint64":
		return "a whole number"
	case "float64":
		return "a number"
	case "duration":
		return "a duration, as in 1m30s"
	case "bool":
		return "true or false"
	case "stringToInt":
		return "names with numbers, as in a=1,b=2"
	}
	return kind
}
