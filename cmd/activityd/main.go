// Command activityd keeps, beside a photo site's MySQL, an index in Redis of
// each member's most recently active contacts, and answers from both what the
// newest photos of the contact are who was active last.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	_ "golang.org/x/crypto/x509roots/fallback" // the CAs of push services, where the host has none: in a container
)

func main() {
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run runs one command and returns the exit code of the process. The first SIGINT or
// SIGTERM ends the command's context; a second one ends the process.
func run(args, environ []string, stdout, stderr io.Writer) int {
	stdout, stderr = escaper{stdout}, escaper{stderr}
	root := newRoot(environ, stdout, stderr)
	root.SetArgs(args)
	ctx := context.Background()
	if cmd, _, _ := root.Find(args); !isWrapper(cmd) {
		notified, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		defer context.AfterFunc(notified, func() {
			stop() // the next signal has its default effect
			_, _ = fmt.Fprintf(stderr, "activityd: %v: finishing what is under way; once more to stop at once\n", context.Cause(notified))
		})()
		ctx = notified
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !errors.Is(err, errSilent) {
		_, _ = fmt.Fprintf(stderr, "activityd: %v\n", err)
	}
	if _, ok := errors.AsType[*exitError](err); err != nil && !ok && isWrapper(cmd) {
		return exitOwn
	}
	return exitCode(err)
}

// wrapper is the annotation of a command that runs one of another program: it looks after
// signals itself, and its own failures, which are no [exitError], end with [exitOwn].
const wrapper = "wrapper"

func isWrapper(cmd *cobra.Command) bool {
	if cmd == nil {
		return false
	}
	_, is := cmd.Annotations[wrapper]
	return is
}

// The exit codes of the process. A command with others than the first two says so in
// its help.
const (
	exitOK     = 0
	exitFailed = 1 // it could not be done
	exitWrong  = 2 // it was done, and what it found is wrong
)

// exitError is an error that ends the process with a code of its own.
type exitError struct {
	code int
	err  error
}

// errSilent is an error with an exit code that says all.
var errSilent = errors.New("nothing to say")

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// exitCode returns the code with which an error ends the process.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if own, ok := errors.AsType[*exitError](err); ok {
		return own.code
	}
	return exitFailed
}

// newRoot returns the command with its sub-commands. The settings, which are the
// flags of serve, may also come from the environment; see [fromEnvironment].
func newRoot(environ []string, stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "activityd",
		Short: "The newest photos of the contact who was active last, at a cost that does not grow",
		Long: "activityd keeps, beside a photo site's MySQL, an index in Redis of each member's most\n" +
			"recently active contacts, and answers from both what the homepage shows.\n\n" +
			"Every flag of serve can come from the environment instead, for all commands: --mysql-dsn is\n" +
			"ACTIVITYD_MYSQL_DSN, and so on. A flag on the command line wins.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
	}
	serve := newServe()
	settings := serve.Flags()
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		return fromEnvironment(cmd.Flags(), settings, environ, cmd.ErrOrStderr())
	}
	root.AddCommand(serve, newToken(), newDemo(), newSchema(), newEnqueue(), newTasks(), newShow(), newExplain(), newVerify(), newBackfill(), newReset(), newOnce(environ), newWatchdog(), newPush(), newVersion(), newReference(settings))
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	describeFlags(root, settings)
	explainUsage(root)
	return root
}

// describeFlags adds to the help of each setting the variable that sets it, and has
// shells complete words and the names of files.
func describeFlags(parent *cobra.Command, settings *pflag.FlagSet) {
	for _, cmd := range parent.Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if settings.Lookup(f.Name) != nil {
				f.Usage += " [" + environmentName(f.Name) + "]"
			}
			if c, ok := f.Value.(choice); ok {
				completeFlag(cmd, f.Name, c.words)
			} else if kind, _ := pflag.UnquoteUsage(f); kind == "file" {
				_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)) // there is this flag
			}
		})
		describeFlags(cmd, settings)
	}
}

// completeFlag has shells complete the words of a flag.
func completeFlag[S ~string](cmd *cobra.Command, flag string, words []S) {
	list := make([]cobra.Completion, len(words))
	for i, word := range words {
		list[i] = string(word)
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)) // there is this flag
}

// choice is a flag that takes one of some words.
type choice struct {
	value *string
	words []string
}

// newChoice returns a flag that takes one of words, the first by default.
func newChoice(value *string, words ...string) choice {
	*value = words[0]
	return choice{value, words}
}

func (c choice) String() string { return *c.value }

// Type is what the help shows for the value.
func (c choice) Type() string { return strings.Join(c.words, "|") }

func (c choice) Set(word string) error {
	if !slices.Contains(c.words, word) {
		return fmt.Errorf("want %s", strings.Join(c.words, ", "))
	}
	*c.value = word
	return nil
}

// environmentPrefix begins the names of the variables that are settings, and
// testPrefix those of the tests.
const (
	environmentPrefix = "ACTIVITYD_"
	testPrefix        = "ACTIVITYD_TEST_"
)

// environmentName is the variable that sets the flag of the given name.
func environmentName(flag string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets those of the flags that are settings and that the command line
// left alone. Its errors name the variable but not the value, which may be a secret.
// It warns of variables that are no settings, such as those of an older version; it
// does not refuse them, because other programs use the prefix, too: Kubernetes does
// for a service of this name.
func fromEnvironment(flags, settings *pflag.FlagSet, environ []string, warnings io.Writer) error {
	values := make(map[string]string)
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok && strings.HasPrefix(name, environmentPrefix) && !strings.HasPrefix(name, testPrefix) {
			values[name] = value
		}
	}
	for _, name := range onceVariables() {
		delete(values, name)
	}
	var errs []error
	settings.VisitAll(func(setting *pflag.Flag) {
		name := environmentName(setting.Name)
		value, ok := values[name]
		delete(values, name)
		f := flags.Lookup(setting.Name)
		if ok && f != nil && !f.Changed && flags.Set(f.Name, value) != nil {
			errs = append(errs, fmt.Errorf("%s: cannot be read: want %s, as for --%s", name, wantedOf(f), f.Name))
		}
	})
	for _, name := range slices.Sorted(maps.Keys(values)) {
		_, _ = fmt.Fprintf(warnings, "activityd: %s has no effect: there is no such setting\n", name)
	}
	return errors.Join(errs...)
}
