// Command activityd keeps, beside a photo site's MySQL, an index in Redis of
// each member's most recently active contacts, and answers from both what the
// newest photos of the contact are who was active last.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	_ "golang.org/x/crypto/x509roots/fallback" // the CAs of push services, where the host has none: in a container

	"github.com/activityd/activityd/internal/settings"
)

func main() {
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// sameSignal is how long after the first signal further signals count as the same: timeout(1) signals the process and
// its group.
const sameSignal = 100 * time.Millisecond

// run runs a command and returns the exit code of the process. The first SIGINT or SIGTERM ends the command's context;
// a second signal, after sameSignal, ends the process.
func run(args, environ []string, stdout, stderr io.Writer) int {
	stdout, stderr = escaper{stdout}, escaper{stderr}
	root := newRoot(environ, stdout, stderr)
	root.SetArgs(args)
	ctx := context.Background()
	if cmd, _, _ := root.Find(args); !isWrapper(cmd) {
		notified, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		defer context.AfterFunc(notified, func() {
			time.AfterFunc(sameSignal, stop) // the next signal has its default effect
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

// wrapper is the annotation of a command that runs a command of another program: it looks after signals itself, and its
// own failures, which are no [exitError], end with [exitOwn].
const wrapper = "wrapper"

func isWrapper(cmd *cobra.Command) bool {
	if cmd == nil {
		return false
	}
	_, is := cmd.Annotations[wrapper]
	return is
}

// The exit codes of the process. A command with further codes than the first two says so in its help.
const (
	exitOK     = 0
	exitFailed = 1 // it could not be done
	exitWrong  = 2 // it was done, and found something wrong
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

// exitCode returns the exit code of an error.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if own, ok := errors.AsType[*exitError](err); ok {
		return own.code
	}
	return exitFailed
}

// newRoot returns the command with its sub-commands.
func newRoot(environ []string, stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "activityd",
		Short: "The newest photos of the contact who was active last, at a cost that does not grow",
		Long: "activityd keeps, beside a photo site's MySQL, an index in Redis of each member's most\n" +
			"recently active contacts, and answers from both what the homepage shows.\n\n" +
			"Settings come from flags, from the environment, or from the file of --config, for all commands:\n" +
			"--mysql-dsn is ACTIVITYD_MYSQL_DSN, and so on. A flag wins over the environment, and that over the\n" +
			"file, which has lines such as ACTIVITYD_NEED='20'. Some settings have no flag: the page\n" +
			"settings.md of the documentation has all of them.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
	}
	all := allSettings()
	file := ""
	root.PersistentFlags().StringVar(&file, "config", "", "`file` of settings, with lines ACTIVITYD_NAME='value' ["+settings.FileVariable+"]")
	loader := settings.Loader{Settings: all, Environ: environ, Others: onceVariables(), Warnings: stderr}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return loader.Load(cmd.Flags(), file) }
	root.AddCommand(newServe(), newToken(), newSchema(), newEnqueue(), newTasks(), newBroadcast(), newShow(), newExplain(), newVerify(), newBackfill(), newReset(), newOnce(environ), newWatchdog(), newPush())
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	completeFile(root, "config")
	describeFlags(root, all)
	root.SetFlagErrorFunc(withUsage)
	explainArguments(root)
	return root
}

// newGroup returns a command that has commands, and does nothing itself but say so.
func newGroup(name, short, long, example string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: name, Short: short, Long: long, Example: example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(commands...)
	return cmd
}

// explainArguments has the errors about arguments name those that are wanted.
func explainArguments(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error { return withUsage(cmd, check(cmd, args)) }
	}
	for _, sub := range cmd.Commands() {
		explainArguments(sub)
	}
}

// withUsage adds the form of a command to an error of its command line.
func withUsage(cmd *cobra.Command, err error) error {
	switch _, own := errors.AsType[*exitError](err); {
	case err == nil, own:
		return err
	case cmd.HasAvailableSubCommands():
		return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
	}
	return fmt.Errorf("%w; want %s", err, cmd.UseLine())
}

// within returns an error for the value of a flag that is out of its bounds.
func within[T cmp.Ordered](flag string, value, least, most T) error {
	if value < least || value > most {
		return fmt.Errorf("--%s: is %v: want %v to %v", flag, value, least, most)
	}
	return nil
}

// describeFlags adds to the help of each setting the variable that sets it, and has
// shells complete words and the names of files.
func describeFlags(parent *cobra.Command, all *pflag.FlagSet) {
	for _, cmd := range parent.Commands() {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if all.Lookup(f.Name) != nil {
				f.Usage += " [" + settings.Variable(f.Name) + "]"
			}
			if c, ok := f.Value.(settings.Choice); ok {
				completeFlag(cmd, f.Name, c.Words)
			} else if kind, _ := pflag.UnquoteUsage(f); kind == "file" {
				completeFile(cmd, f.Name)
			}
		})
		describeFlags(cmd, all)
	}
}

// completeFile has shells complete the names of files for a flag.
func completeFile(cmd *cobra.Command, flag string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)) // there is this flag
}

// completeFlag has shells complete the words of a flag.
func completeFlag[S ~string](cmd *cobra.Command, flag string, words []S) {
	list := make([]cobra.Completion, len(words))
	for i, word := range words {
		list[i] = string(word)
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(list, cobra.ShellCompDirectiveNoFileComp)) // there is this flag
}
