package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newRoot returns the command with its sub-commands. Every setting may also come
// from the environment, see [fromEnvironment].
func newRoot(environ []string, stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "activityd",
		Short: "The newest photos of the contact who was active last, at a cost that does not grow",
		Long: "activityd keeps, beside a photo site's MySQL, an index in Redis of each member's most\n" +
			"recently active contacts, and answers from both what the homepage shows.\n\n" +
			"Every setting can come from the environment instead: --mysql-dsn is ACTIVITYD_MYSQL_DSN,\n" +
			"and so on. A flag on the command line wins.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
		Args:          onlyCommands,
		RunE:          help,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return fromEnvironment(cmd.Flags(), environ)
		},
	}
	root.AddCommand(newServe(), newToken(), newDemo(), newSchema(), newEnqueue(), newTasks(), newShow(), newExplain(), newVerify(), newBackfill(), newReset(), newVersion())
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(misflagged)
	root.SetVersionTemplate("{{.Version}}\n")
	tellVariables(root)
	root.SetHelpCommand(newHelp())
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.InitDefaultCompletionCmd() // it keeps the output that is set now
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args, cmd.RunE = onlyCommands, help
		}
	}
	return root
}

// tellVariables adds to each flag's help the variable that sets it, and has a shell
// complete its values.
func tellVariables(parent *cobra.Command) {
	for _, cmd := range parent.Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !isDeed(f) {
				f.Usage += " [" + environmentName(f.Name) + "]"
			}
		})
		completeFlags(cmd)
		tellVariables(cmd)
	}
}

// deedAnnotation marks flags of one command that are deeds; see [isDeed].
const deedAnnotation = "activityd_deed"

// isDeed tells the flags that say what to do now from those that are settings.
// The environment, which outlives a command, must not say so.
func isDeed(f *pflag.Flag) bool {
	_, marked := f.Annotations[deedAnnotation]
	return marked || slices.Contains([]string{"yes", "apply", "help", "version"}, f.Name)
}

// asDeeds makes deeds of the named flags.
func asDeeds(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		f.Lookup(name).Annotations = map[string][]string{deedAnnotation: nil}
	}
}

const environmentPrefix = "ACTIVITYD_"

// environmentName is the variable that sets the flag of the given name.
func environmentName(flag string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets the flags that the command line left alone. Its errors
// name the variable but not the value, which may be a secret.
func fromEnvironment(flags *pflag.FlagSet, environ []string) error {
	values := make(map[string]string)
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok && strings.HasPrefix(name, environmentPrefix) {
			values[name] = value
		}
	}
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := values[environmentName(f.Name)]
		if !ok || f.Changed || isDeed(f) {
			return
		}
		if flags.Set(f.Name, value) != nil {
			errs = append(errs, fmt.Errorf("%s: cannot be read: want %s, as for --%s", environmentName(f.Name), inKind(f.Value.Type()), f.Name))
		}
	})
	return errors.Join(errs...)
}
