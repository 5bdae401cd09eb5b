package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/oncerun"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/wake"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/once"
)

// The exit codes of once, beside those of its command. They are below 128: higher codes mean signals. The last three
// are the codes of timeout(1) and env(1).
const (
	exitFree      = 121 // of once show: nothing runs, and it is not done
	exitBusy      = 122 // another process works, and --no-wait or --wait
	exitExhausted = 123 // all attempts failed, the last elsewhere or before
	exitLost      = 124 // the command was ended: the lease was lost, or --timeout has passed
	exitOwn       = 125 // a failure of activityd itself
	exitCannotRun = 126 // the command is there, and cannot be run
	exitNotFound  = 127 // the command is not found; from here on the number of a signal is added
)

// onceVariables are no settings: a nested activityd knows them.
func onceVariables() []string {
	return []string{oncerun.AttemptVariable, oncerun.LastAttemptVariable, oncerun.FenceVariable}
}

const onceExample = `  activityd once --attempts 3 import/2026-07 -- ./import --month 2026-07
  activityd once show digest || echo "not done: $?"
  7 4 * * *  deploy  activityd once --config /etc/activityd/environment --quiet --keep 12h digest -- send-digest --all   # of cron, on all hosts`

// The choices of --store.
const (
	storeMySQL = "mysql"
	storeRedis = "redis"
)

// onceConfig are the flags of once that say where the states are.
type onceConfig struct {
	config
	store string
}

func (c *onceConfig) flags(f *pflag.FlagSet) {
	f.Var(settings.NewChoice(&c.store, storeMySQL, storeRedis), "store", "where the states are; without it: mysql if there is a DSN, else redis")
	f.Lookup("store").DefValue, c.store = "", ""
	f.StringVar(&c.mysqlDSN, "mysql-dsn", "", "the database, `user:password@tcp(host:3306)/name`; it must be the primary")
	f.StringVar(&c.redisURL, "redis-url", "", "`URL` of a Redis; with --store=mysql it only tells waiters of what happened")
}

// choose completes and checks the flags. Nothing has a default that another host may not share: two stores would be two
// locks.
func (c *onceConfig) choose() error {
	switch {
	case c.store == "" && c.mysqlDSN != "":
		c.store = storeMySQL
	case c.store == "" && c.redisURL != "":
		c.store = storeRedis
	case c.store == "":
		return fmt.Errorf("where are the states? want --mysql-dsn (%s) or --redis-url (%s)", settings.Variable("mysql-dsn"), settings.Variable("redis-url"))
	case c.store == storeMySQL && c.mysqlDSN == "":
		return fmt.Errorf("--store=mysql: want --mysql-dsn (%s)", settings.Variable("mysql-dsn"))
	case c.store == storeRedis && c.redisURL == "":
		return fmt.Errorf("--store=redis: want --redis-url (%s)", settings.Variable("redis-url"))
	}
	return nil
}

// onceFlags are the flags of once itself.
type onceFlags struct {
	key         once.Key
	timeout     time.Duration // of an attempt; 0: none
	exitDone    int
	quiet       bool
	passSecrets bool
}

func (o *onceFlags) register(f *pflag.FlagSet) {
	f.IntVar(&o.key.Attempts, "attempts", once.DefaultAttempts, "max attempts, on all hosts together")
	f.DurationVar(&o.key.Lease, "lease", once.DefaultLease, "how long the others wait for a host that died")
	f.DurationVar(&o.key.Keep, "keep", once.DefaultKeep, "how long it is known that the command has succeeded, or failed for good")
	f.DurationVar(&o.timeout, "timeout", 0, "how long an attempt may take until the command is ended, and has failed; 0: as long as it takes")
	f.DurationVar(&o.key.Wait, "wait", 0, "how long to wait while another host runs it; 0: as long as it takes")
	f.BoolVar(&o.key.NoWait, "no-wait", false, "end at once while another host runs it")
	f.IntVar(&o.exitDone, "exit-code-done", exitOK, "exit `code` when it has succeeded elsewhere")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not say that it has succeeded elsewhere")
	f.BoolVar(&o.passSecrets, "pass-secrets", false, "leave the secrets among activityd's settings in the environment of the command")
}

// check returns an error for a value that cannot be, named by its flag.
func (o *onceFlags) check() error {
	k := o.key
	errs := []error{
		within("attempts", k.Attempts, 1, once.MaxAttempts), within("lease", k.Lease, once.MinLease, once.MaxLease),
		within("keep", k.Keep, once.MinKeep, once.MaxKeep), within("timeout", o.timeout, 0, once.MaxKeep), within("wait", k.Wait, 0, once.MaxKeep),
		within("exit-code-done", o.exitDone, 0, 255),
	}
	if k.Wait > 0 && k.NoWait {
		errs = append(errs, errors.New("--wait and --no-wait: want one of them"))
	}
	if err := once.CheckName(k.Name); err != nil {
		errs = append(errs, fmt.Errorf("NAME: %w", err))
	}
	if strings.HasPrefix(k.Name, ownNames) {
		errs = append(errs, fmt.Errorf("NAME: %s: names that begin with %s are activityd's own", k.Name, ownNames))
	}
	return errors.Join(errs...)
}

// ownNames begins the names of activityd's own work: a user's name that is done would keep activityd's sweep from
// running.
const ownNames = "activityd/"

// newOnce returns the command once. environ is the environment of the command that it runs.
func newOnce(environ []string) *cobra.Command {
	c, o := &onceConfig{}, &onceFlags{}
	cmd := &cobra.Command{
		Use:   "once [flags] NAME -- COMMAND [ARG...]",
		Short: "Run a command on one of many hosts, again if it fails, and not again when it is done",
		Long: "Run a command on one of any number of hosts that call this at the same time, like flock(1) for a fleet. When\n" +
			"it fails, or its host dies, one of those that wait runs it again, at most --attempts times in all. When it has\n" +
			"succeeded, all the others end, and for --keep none runs it again. All hosts need the same store. NAME is 1 to\n" +
			"200 of the characters A-Z a-z 0-9 . _ : / @ + = -. The page docs/once.md has the exit codes, and all that the\n" +
			"command is given: variables, signals, a process group of its own, and a watchdog.",
		Example:     onceExample,
		Annotations: map[string]string{wrapper: ""},
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return errors.New("want NAME -- COMMAND [ARG...], as in: activityd once digest -- send-digest --all")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.key.Name = args[0]
			if err := o.check(); err != nil {
				return err
			}
			path, err := findCommand(args[1])
			if err != nil {
				return err
			}
			environ := environ
			if !o.passSecrets {
				environ = withoutSecrets(environ)
			}
			r := oncerun.New(cmd.Context(), oncerun.Options{
				Key: o.key, Timeout: o.timeout, Watchdog: []string{"activityd", watchdogCommand}, Errs: cmd.ErrOrStderr(),
				Command: &exec.Cmd{Path: path, Args: args[1:], Env: environ, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr},
			})
			defer r.PassSignals()()
			store, err := c.open(r.Context())
			if err != nil {
				return o.failed(err)
			}
			defer store.close()
			return o.runOnce(r, store, cmd.ErrOrStderr())
		},
	}
	o.register(cmd.Flags())
	c.flags(cmd.Flags())
	cmd.AddCommand(newOnceShow(), newOnceForget())
	return cmd
}

// watchdogCommand is the hidden command that calls [oncerun.Watch].
const watchdogCommand = "watchdog"

func newWatchdog() *cobra.Command {
	return &cobra.Command{
		Use:         watchdogCommand + " NAME",
		Short:       "Kill what once runs when once itself is stopped or killed; for once alone",
		Hidden:      true,
		Annotations: map[string]string{wrapper: ""},
		Args:        cobra.ExactArgs(1),
		RunE:        func(cmd *cobra.Command, args []string) error { return oncerun.Watch(args[0], cmd.ErrOrStderr()) },
	}
}

// findCommand returns the path of a command, or the error that a shell would have.
func findCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return "", &exitError{exitNotFound, fmt.Errorf("COMMAND: %w", err)}
	}
	return "", &exitError{exitCannotRun, fmt.Errorf("COMMAND: %w", err)}
}

// onceStore is a store that is open.
type onceStore struct {
	once.Store

	notifier *notify.Notifier
	closers  closers
}

func (s *onceStore) close() { _ = s.closers.close() } // each operation's own error was looked at

const (
	onceConnections = 4                // to the database: an operation is a few statements
	openTimeout     = 10 * time.Second // how long the database may take to tell its version

	relayTimeout = 700 * time.Millisecond // of the end of the relay: longer than its last message may take
)

// open opens the store, and has notifications carried by Redis, if there is one. That this
// Redis is away is no error for a store in MySQL.
func (c *onceConfig) open(ctx context.Context) (_ *onceStore, err error) {
	if err := c.choose(); err != nil {
		return nil, err
	}
	redis.SetLogger(silent{}) // errors come back from methods
	s := &onceStore{notifier: &notify.Notifier{}}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if c.store == storeMySQL {
		db, err := openMySQL(&c.config, onceConnections)
		if err != nil {
			return nil, err
		}
		s.closers.push(db.Close)
		s.Store = once.NewMySQL(db)
		bounded, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		if err := schema.Compatible(bounded, db); err != nil {
			return nil, err
		}
	}
	if c.redisURL == "" {
		return s, nil
	}
	client, err := openRedis(c.redisURL)
	if err != nil {
		return nil, err
	}
	s.closers.push(client.Close)
	if c.store == storeRedis {
		s.Store = once.NewRedis(client)
	}
	stop := runWake(ctx, wake.New(client, s.notifier, slog.New(slog.DiscardHandler)), io.Discard)
	s.closers.push(func() error { oncerun.Within(relayTimeout, stop); return nil })
	return s, nil
}

// runOnce runs the command in the attempts that fall to this process.
func (o *onceFlags) runOnce(r *oncerun.Run, s *onceStore, errs io.Writer) error {
	did, err := r.Do(s, s.notifier)
	if err != nil {
		return o.failed(err)
	}
	if !did && !o.quiet { // standard error may block
		oncerun.Within(time.Second, func() { sayf(errs, "activityd: %s: done elsewhere, by %s", o.key.Name, inspect.OneLine(r.Owner())) })
	}
	if !did && o.exitDone != exitOK {
		return &exitError{o.exitDone, errSilent}
	}
	return nil
}

// failed returns an error with the exit code that it stands for.
func (o *onceFlags) failed(err error) error {
	start, isStart := errors.AsType[*oncerun.StartError](err)
	failure, isCommand := errors.AsType[*oncerun.CommandError](err)
	stop, isStop := errors.AsType[*oncerun.SignalError](err)
	code, own := exitOwn, exitLost // own is that of the last attempt, if this process made it
	if isCommand && !failure.Ended() {
		own = failure.Code
	}
	switch {
	case errors.Is(err, once.ErrBusy):
		code = exitBusy
	case errors.Is(err, once.ErrExhausted) && !isCommand:
		code = exitExhausted
	case errors.Is(err, once.ErrExhausted):
		code = own
	case errors.Is(err, once.ErrLost):
		code = exitLost
	case isStart:
		code, err = exitCannotRun, start
		if errors.Is(err, fs.ErrNotExist) {
			code = exitNotFound
		}
	case isCommand:
		code, err = own, fmt.Errorf("%s: handed back: %w", o.key.Name, failure)
	case isStop:
		code, err = oncerun.SignalCode(stop.Signal), fmt.Errorf("%s: %w", o.key.Name, stop)
	}
	return &exitError{code, err}
}
