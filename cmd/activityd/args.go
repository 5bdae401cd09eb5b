package main

import (
	"errors"
	"fmt"
	"slices"
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
		case slices.Contains(args, ""): // as of a shell's variable that is not set
			return misused(cmd, fmt.Sprintf("argument %d is empty", slices.Index(args, "")+1))
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
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 && args[0] != "" {
		return fmt.Errorf("%q is no command of %s: is %s meant? %[2]s --help lists all", args[0], cmd.CommandPath(), orList(near))
	}
	var names []string
	for _, command := range cmd.Commands() {
		if command.IsAvailableCommand() {
			names = append(names, command.Name())
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("%q is no command: %s has none", args[0], cmd.CommandPath())
	}
	return fmt.Errorf("%q is no command of %s: want %s", args[0], cmd.CommandPath(), orList(names))
}

// help is what such a command does.
func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// newHelp is cobra's command, but for an error where there is nothing to tell about.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]...",
		Short: "Tell about a command, as its --help does",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, begun string) (list []cobra.Completion, _ cobra.ShellCompDirective) {
			if about, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, sub := range about.Commands() {
					if sub.IsAvailableCommand() && strings.HasPrefix(sub.Name(), begun) {
						list = append(list, cobra.CompletionWithDesc(sub.Name(), sub.Short))
					}
				}
			}
			return list, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err == nil {
				err = onlyCommands(about, rest)
			}
			if err != nil {
				return err
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		},
	}
}

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
	case "string":
		return "a text"
	case "stringToInt":
		return "names with numbers, as in a=1,b=2"
	}
	return kind
}
