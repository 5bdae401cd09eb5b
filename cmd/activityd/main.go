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
			sayf(stderr, "activityd: %v: finishing what is under way; once more to stop at once", context.Cause(notified))
		})()
		ctx = notified
	}
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !errors.Is(err, errSilent) {
		sayf(stderr, "activityd: %v", err)
	}
	own, isOwn := errors.AsType[*exitError](err)
	switch {
	case err == nil:
		return exitOK
	case isOwn:
		return own.code
	case isWrapper(cmd):
		return exitOwn
	}
	return exitFailed
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

// newRoot returns the command with its sub-commands.
func newRoot(environ []string, stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "activityd",
		Short: "The newest photos of the contact who was active last, at a cost that does not grow",
		Long: "activityd keeps, beside a photo site's MySQL, an index in Redis of each member's most\n" +
			"recently active contacts, and answers from both what the homepage shows.\n" +
			"Settings come from flags, from the environment (--mysql-dsn is ACTIVITYD_MYSQL_DSN), or from the\n" +
			"file of --config, with lines such as ACTIVITYD_NEED='20'; a flag wins over the environment, and that\n" +
			"over the file. Some have no flag: docs/settings.md has all, and docs/commands.md the commands.",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version(),
	}
	all, file := allSettings(), ""
	root.PersistentFlags().StringVar(&file, "config", "", "`file` of settings, with lines ACTIVITYD_NAME='value' ["+settings.FileVariable+"]")
	loader := settings.Loader{Settings: all, Environ: environ, Others: onceVariables(), Warnings: stderr}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return loader.Load(cmd.Flags(), file) }
	root.AddCommand(newServe(), newToken(), newSchema(), newEnqueue(), newTasks(), newBroadcast(), newExplain(), newVerify(),
		newBackfill(), newReset(), newOnce(environ), newWatchdog(), newPush())
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(withUsage)
	finish(root, all)
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

// finish has the help of each setting name its variable, and the errors about arguments name those that are wanted.
func finish(cmd *cobra.Command, all *pflag.FlagSet) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error { return withUsage(cmd, check(cmd, args)) }
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if all.Lookup(f.Name) != nil {
			f.Usage += " [" + settings.Variable(f.Name) + "]"
		}
	})
	for _, sub := range cmd.Commands() {
		finish(sub, all)
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
