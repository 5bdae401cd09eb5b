package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/notify"
	"github.com/activityd/activityd/internal/once"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/wake"
)

// The exit codes of once, beside those of its command. They are below 128, from which on
// they mean signals; the last three are those of timeout(1) and env(1).
const (
	exitFree      = 121 // of once status: nothing runs, and it is not done
	exitBusy      = 122 // another process works, and --no-wait or --wait
	exitExhausted = 123 // all attempts failed, the last one elsewhere or before
	exitLost      = 124 // the command was ended: the lease was lost, or --timeout has passed
	exitOwn       = 125 // a failure of activityd itself
	exitCannotRun = 126 // the command is there, and cannot be run
	exitNotFound  = 127 // there is no such command
	exitSignal    = 128 // and the number of the signal
)

// The variables that the command of once finds.
const (
	attemptVariable     = environmentPrefix + "ATTEMPT"
	lastAttemptVariable = environmentPrefix + "LAST_ATTEMPT"
	fenceVariable       = environmentPrefix + "FENCE"
)

// onceVariables are no settings: a nested activityd knows them.
func onceVariables() []string {
	return []string{attemptVariable, lastAttemptVariable, fenceVariable}
}

const onceHelp = `Run a command on one of any number of hosts that call this at the same time, like flock(1) for a
fleet. One host runs it at a time. When it fails, or its host dies, one of those that wait runs it
again, at most --attempts times in all; how often it may fail is counted for the NAME, not for the
host. When it has succeeded, all the others end, and for --keep none runs it again: choose a --keep
that is longer than the clocks and starts of the hosts may differ, and shorter than the interval.

NAME is 1 to 200 of the characters A-Z a-z 0-9 . _ : / @ + = -
The command is looked up before anything else. It inherits standard input, output and error, and finds
  ACTIVITYD_ATTEMPT       the number of the attempt, from 1 on
  ACTIVITYD_LAST_ATTEMPT  1 in the last attempt, else 0
  ACTIVITYD_FENCE         a number that is higher in every attempt: let what the command writes to
                          refuse a lower one than it has seen, and no paused process does harm
It does not find ACTIVITYD_MYSQL_DSN, ACTIVITYD_REDIS_URL and the other settings of activityd that have
a secret in them, unless --pass-secrets is given, as for a command that is activityd itself.

The lease is how long the others wait for a host that died; it is extended for as long as the command
runs. When it is lost (the store is away), the command's process group is sent TERM a third of the lease
before its end, and KILL before its end; if it is another's already (activityd was paused, the name was
forgotten), both at once. If activityd itself is stopped (SIGSTOP), a second process of it, its watchdog,
kills the group before the end of the lease. After --timeout the group is sent TERM, too, and KILL a quarter
of a lease later, at most 30 s; the attempt has failed then. The command has a process group of its own. INT, TERM, HUP, QUIT, USR1, USR2
and WINCH are passed on to it, every time. After one of the first four there is no further attempt here,
and the one that was under way does not count, unless the command succeeds: another host may go on.

An attempt is over when its process group is empty: what a command that has failed, or got one of these
four, leaves in the background is sent TERM, and KILL some seconds later (half a minute after a signal).
Only what a command that succeeds leaves there is left alone. If activityd itself is killed with KILL, its
watchdog kills the group. Use KillMode=mixed in units, so that systemd ends what has left the group.

With --store=mysql the state survives what the database survives, and --redis-url may be added to
begin the next attempt within milliseconds; without it, those that wait look once a second. With
--store=redis it survives what that Redis survives: work that must not repeat belongs into MySQL.
A fence never goes back in either, also after the store was restored or failed over: in MySQL as long as
the database's clock is not set back. A Redis that is new or has lost data asks the database of
--mysql-dsn for that; without one, nothing runs until "activityd once begin-epoch". All hosts need the
same store. One that is away at the start is asked for 5 s and is 125 then: let systemd try again
(Restart=on-failure).

Exit codes:
  0         the command has succeeded, here or on another host
  N         it has succeeded elsewhere, with --exit-code-done=N
  122       another host runs it, with --no-wait, or still after --wait
  123       all attempts failed, the last one on another host, or before
  124       the command was ended: the lease was lost, or --timeout has passed in the last attempt
  125       activityd failed: bad flags, a store that is away, a success that could not be recorded
  126, 127  the command cannot be run; there is no such command
  128+n     signal n ended the waiting, or the command
  else      that of the command, which failed in the last attempt, or after such a signal`

const onceExample = `  activityd once --attempts 3 import/2026-07 -- ./import --month 2026-07
  activityd once list
  activityd once show digest
  activityd once status digest || echo "not done: $?"
  activityd once forget digest

  A line of /etc/cron.d/digest, the same on every host. /etc/activityd/environment has the settings,
  in quotes: ACTIVITYD_MYSQL_DSN='user:password@tcp(host:3306)/name' and, to begin the next attempt at once,
  ACTIVITYD_REDIS_URL='redis://host:6379/0'; only deploy may read it.

    7 4 * * *  deploy  set -a; . /etc/activityd/environment; /usr/local/bin/activityd once --quiet --keep 12h digest -- /usr/local/bin/send-digest --all

  The same as a systemd timer:

    # /etc/systemd/system/digest.service
    [Unit]
    Description=The nightly digest, on one of the hosts
    After=network-online.target
    Wants=network-online.target

    [Service]
    Type=oneshot
    User=deploy
    EnvironmentFile=/etc/activityd/environment
    ExecStart=/usr/local/bin/activityd once --quiet --keep 12h digest -- /usr/local/bin/send-digest --all
    # TERM is for activityd, which passes it on; what is left after the timeout gets KILL.
    KillMode=mixed
    TimeoutStopSec=60
    # Try again when the store was away, but not when all attempts failed, or there is no command.
    Restart=on-failure
    RestartSec=30
    RestartPreventExitStatus=123 126 127

    # /etc/systemd/system/digest.timer
    [Unit]
    Description=The nightly digest

    [Timer]
    OnCalendar=*-*-* 04:07:00

    [Install]
    WantedBy=timers.target`

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
	f.Var(newChoice(&c.store, storeMySQL, storeRedis), "store", "where the states are; without it: mysql if there is a DSN, else redis")
	f.Lookup("store").DefValue, c.store = "", ""
	f.StringVar(&c.mysqlDSN, "mysql-dsn", "", "the database, `user:password@tcp(host:3306)/name`; it must be the primary")
	f.StringVar(&c.redisURL, "redis-url", "", "`URL` of a Redis; with --store=mysql it only tells waiters of what happened")
}

// choose completes and checks what the flags say. Nothing has a default that another host
// may not share: two stores would be two locks.
func (c *onceConfig) choose() error {
	switch {
	case c.store == "" && c.mysqlDSN != "":
		c.store = storeMySQL
	case c.store == "" && c.redisURL != "":
		c.store = storeRedis
	case c.store == "":
		return fmt.Errorf("where are the states? want --mysql-dsn (%s) or --redis-url (%s)", environmentName("mysql-dsn"), environmentName("redis-url"))
	case c.store == storeMySQL && c.mysqlDSN == "":
		return fmt.Errorf("--store=mysql: want --mysql-dsn (%s)", environmentName("mysql-dsn"))
	case c.store == storeRedis && c.redisURL == "":
		return fmt.Errorf("--store=redis: want --redis-url (%s)", environmentName("redis-url"))
	}
	return nil
}

// onceFlags are those of once itself.
type onceFlags struct {
	key         once.Key
	timeout     time.Duration // of one attempt; 0: none
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
	switch {
	case k.Attempts < 1 || k.Attempts > once.MaxAttempts:
		return fmt.Errorf("--attempts: is %d: want 1 to %d", k.Attempts, once.MaxAttempts)
	case k.Lease < once.MinLease || k.Lease > once.MaxLease:
		return fmt.Errorf("--lease: is %v: want %v to %v", k.Lease, once.MinLease, once.MaxLease)
	case k.Keep < once.MinKeep || k.Keep > once.MaxKeep:
		return fmt.Errorf("--keep: is %v: want %v to %v", k.Keep, once.MinKeep, once.MaxKeep)
	case o.timeout < 0:
		return fmt.Errorf("--timeout: is %v: want 0 or more", o.timeout)
	case k.Wait < 0:
		return fmt.Errorf("--wait: is %v: want 0 or more", k.Wait)
	case k.Wait > 0 && k.NoWait:
		return errors.New("--wait and --no-wait: want one of them")
	case o.exitDone < 0 || o.exitDone > 255:
		return fmt.Errorf("--exit-code-done: is %d: want 0 to 255", o.exitDone)
	}
	if err := once.CheckName(k.Name); err != nil {
		return fmt.Errorf("NAME: %w", err)
	}
	if strings.HasPrefix(k.Name, ownNames) {
		return fmt.Errorf("NAME: %s: names that begin with %s are activityd's own", k.Name, ownNames)
	}
	return nil
}

// ownNames begins the names under which activityd itself works: one that is done would keep
// its sweep from running.
const ownNames = "activityd/"

// newOnce returns the command once. environ is the environment of what it runs.
func newOnce(environ []string) *cobra.Command {
	c, o := &onceConfig{}, &onceFlags{}
	cmd := &cobra.Command{
		Use:         "once [flags] NAME -- COMMAND [ARG...]",
		Short:       "Run a command on one of many hosts, again if it fails, and not again when it is done",
		Long:        onceHelp,
		Example:     onceExample,
		Annotations: map[string]string{wrapper: ""},
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return errors.New("want NAME -- COMMAND [ARG...], as in: activityd once digest -- send-digest --all")
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault // the command and its arguments
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
			r := newOnceRun(cmd.Context(), o, &exec.Cmd{
				Path: path, Args: args[1:], Env: environ, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
			}, cmd.ErrOrStderr())
			defer r.passSignals()()
			store, err := c.open(r.ctx)
			if err != nil {
				return r.failed(err)
			}
			defer store.close()
			return r.run(store)
		},
	}
	o.register(cmd.Flags())
	c.flags(cmd.Flags())
	cmd.AddCommand(newOnceList(), newOnceShow(), newOnceStatus(), newOnceForget(), newOnceBeginEpoch())
	return cmd
}

// watchdogCommand is the hidden command that is a [watchdog].
const watchdogCommand = "watchdog"

func newWatchdog() *cobra.Command {
	return &cobra.Command{
		Use:         watchdogCommand + " NAME",
		Short:       "Kill what once runs when once itself is stopped or killed; for once alone",
		Hidden:      true,
		Annotations: map[string]string{wrapper: ""},
		Args:        cobra.ExactArgs(1),
		RunE:        func(cmd *cobra.Command, args []string) error { return watch(args[0], cmd.ErrOrStderr()) },
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

	relayTimeout   = 700 * time.Millisecond // of the end of the relay: longer than its last message may take
	messageTimeout = time.Second            // of the messages that are left at the end
	maxMessages    = 16                     // that wait until they are written
)

// within calls a function, and waits for it no longer than the limit: the process ends
// soon.
func within(limit time.Duration, call func()) {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		call()
	}()
	select {
	case <-returned:
	case <-time.After(limit):
	}
}

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
	var epochs func(context.Context) (uint64, error)
	if c.mysqlDSN != "" {
		c.mysqlConnections = onceConnections
		db, _, err := openMySQL(&c.config)
		if err != nil {
			return nil, err
		}
		s.closers.push(db.Close)
		inMySQL := once.NewMySQL(db)
		s.Store, epochs = inMySQL, inMySQL.NextEpoch
		if c.store == storeMySQL {
			bounded, cancel := context.WithTimeout(ctx, openTimeout)
			defer cancel()
			if err := schema.Compatible(bounded, db); err != nil {
				return nil, err
			}
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
		s.Store = once.NewRedis(client, epochs)
	}
	stop := runWake(ctx, wake.New(client, s.notifier, slog.New(slog.DiscardHandler)), io.Discard)
	s.closers.push(func() error { within(relayTimeout, stop); return nil })
	return s, nil
}

// onceRun runs one command under a name.
type onceRun struct {
	*onceFlags

	ctx     context.Context // ends by a signal, while no child runs
	cancel  context.CancelCauseFunc
	command *exec.Cmd // what is to be started in each attempt
	errs    io.Writer
	said    string      // the last error of the store that was said
	owner   string      // of the state that the store has answered last, without its random part
	lines   chan string // that are to be written to errs
	// stopGrace is how long what is left of a command that a signal has ended has before it
	// is sent KILL.
	stopGrace time.Duration

	watchdog *watchdog

	mu      sync.Mutex
	child   *childGroup // nil: none
	stopped os.Signal   // the first one that was to end the command
}

func newOnceRun(ctx context.Context, o *onceFlags, command *exec.Cmd, errs io.Writer) *onceRun {
	r := &onceRun{onceFlags: o, command: command, errs: errs, stopGrace: 30 * time.Second}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.watchdog = &watchdog{name: o.key.Name, errs: command.Stderr}
	o.key.Margin = o.key.Lease / 3
	return r
}

// watchedStore is a store that has the watchdog know of each lease that it grants.
type watchedStore struct {
	once.Store

	run *onceRun
}

// Apply implements [once.Store]. The lease at the store begins no earlier than the operation
// is sent. The watchdog kills when this process would, were it not stopped: see killAt.
func (s watchedStore) Apply(ctx context.Context, name string, op once.Operation) (once.Reply, error) {
	sent := bootTime()
	reply, err := s.Store.Apply(ctx, name, op)
	if err == nil && reply.Outcome == once.OK && (op.Action == once.Acquire || op.Action == once.Extend) {
		s.run.watchdog.extend(sent + s.run.key.Lease - s.run.key.Margin/4)
	}
	return reply, err
}

// signalError is the cause with which a signal ends a command that runs nothing.
type signalError struct{ signal os.Signal }

func (e *signalError) Error() string { return "stopped: " + e.signal.String() }

// childError is how a command failed.
type childError struct {
	code int
	err  error
	last bool // it was the last attempt
}

func (e *childError) Error() string { return e.err.Error() }
func (e *childError) Unwrap() error { return e.err }

// startError is that the command could not be started. It is no attempt.
type startError struct{ err error }

func (e *startError) Error() string { return "COMMAND: " + e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// run runs the command in the attempts that fall to this process.
func (r *onceRun) run(s *onceStore) error {
	defer r.cancel(nil)
	defer r.writeMessages()()
	o := once.New(watchedStore{s, r}, once.Options{Notifier: s.notifier, Hooks: once.Hooks{
		Error:  r.sayError,
		Status: func(_ string, s once.State) { r.setSaid(""); r.setOwner(s.Owner) },
	}})
	did, err := o.Do(r.ctx, r.key, r.attempt)
	if err == nil && !did && !r.quiet {
		r.say(fmt.Sprintf("%s: done elsewhere, by %s", r.key.Name, r.owner))
	}
	if err == nil && !did && r.exitDone != exitOK {
		return &exitError{r.exitDone, errSilent}
	}
	return r.failed(err)
}

// failed returns an error with the exit code that it stands for.
func (r *onceRun) failed(err error) error {
	if err == nil {
		return nil
	}
	code := exitOwn
	start, isStart := errors.AsType[*startError](err)
	failure, isChild := errors.AsType[*childError](err)
	stop, isStop := errors.AsType[*signalError](err)
	switch {
	case errors.Is(err, once.ErrBusy):
		code = exitBusy
	case errors.Is(err, once.ErrExhausted) && isChild:
		code = failure.code // of the last attempt, which was that of this process
	case errors.Is(err, once.ErrExhausted):
		code = exitExhausted
	case errors.Is(err, once.ErrLost):
		code = exitLost
	case isStart:
		code, err = exitCannotRun, start
		if errors.Is(err, fs.ErrNotExist) {
			code = exitNotFound
		}
	case isChild:
		code, err = failure.code, fmt.Errorf("%s: handed back: %w", r.key.Name, failure)
	case isStop:
		code, err = signalCode(stop.signal), fmt.Errorf("%s: %w", r.key.Name, stop)
	}
	return &exitError{code, err}
}

// sayError says what does not end the command: an attempt that failed, and a store that
// could not be asked, once until it answers.
func (r *onceRun) sayError(name string, err error) {
	text := err.Error()
	if failure, ok := errors.AsType[*childError](err); !ok {
		if r.setSaid(text) == text {
			return
		}
	} else if text = name + ": " + text; failure.last || errors.Is(err, once.ErrLost) {
		return // run returns it
	}
	r.say(text)
}

// say has a line written to standard error.
func (r *onceRun) say(text string) {
	select {
	case r.lines <- "activityd: " + text + "\n":
	default: // standard error takes none, and there are enough
	}
}

// writeMessages writes what sayError says until the function that it returns is called,
// which writes the rest. Standard error may block, and what says something also extends
// the lease.
func (r *onceRun) writeMessages() (stop func()) {
	r.lines = make(chan string, maxMessages)
	var writing sync.WaitGroup
	writing.Go(func() {
		for line := range r.lines {
			_, _ = io.WriteString(r.errs, line)
		}
	})
	return func() {
		close(r.lines)
		within(messageTimeout, writing.Wait)
	}
}

// setSaid returns what was said before.
func (r *onceRun) setSaid(text string) (before string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.said = r.said, text
	return before
}

func (r *onceRun) setOwner(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owner = oneLine(owner[:max(0, strings.LastIndexByte(owner, '/'))])
}

// killAfter is how long what a command that failed has left, and that was sent TERM, has
// before it is sent KILL.
func (r *onceRun) killAfter() time.Duration {
	return min(r.key.Margin*3/4, 30*time.Second)
}

// killAt is when the group of a command whose lease is lost is sent KILL: a quarter of the
// margin before the end of the lease, for the delays of a busy machine. It is in the past
// if another one holds the lease already.
func (r *onceRun) killAt(ctx context.Context) (at time.Time) {
	if lost, ok := errors.AsType[*once.LostError](context.Cause(ctx)); ok && !lost.Ends.IsZero() {
		return lost.Ends.Add(-r.key.Margin / 4)
	}
	return at
}

// attempt is the work: it runs the command, and its whole group ends before ctx's lease.
func (r *onceRun) attempt(ctx context.Context, a once.Attempt) error {
	last := "0"
	if a.Last {
		last = "1"
	}
	env := append(slices.Clip(r.command.Env), fmt.Sprintf("%s=%d", attemptVariable, a.Number), lastAttemptVariable+"="+last, fenceVariable+"="+a.Fence.String())
	err := r.runChild(ctx, env)
	code := exitLost
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && !errors.Is(err, errTimedOut) {
		code = stateCode(exit.ProcessState)
	} else if !errors.Is(err, errEnded) && !errors.Is(err, errTimedOut) {
		return err
	}
	return &childError{code: code, last: a.Last, err: fmt.Errorf("attempt %d of %d: %w", a.Number, r.key.Attempts, err)}
}

// errEnded is that a command was told to end when its lease was lost, and says that it has
// succeeded: it may have left its work undone.
var errEnded = errors.New("it was ended, with exit status 0")

// errTimedOut is that a command was ended because an attempt took too long.
var errTimedOut = errors.New("it took longer than --timeout")

// runChild runs the command once, and returns when all of its group has ended; after a
// success without a signal that was to end it, what it left in the background is left
// alone. The error is an [exec.ExitError] if it has failed.
func (r *onceRun) runChild(ctx context.Context, env []string) (err error) {
	defer keepThread()()
	p, err := r.start(env)
	if err != nil {
		return err
	}
	defer r.ended()
	var late <-chan time.Time
	if r.timeout > 0 {
		timer := time.NewTimer(r.timeout)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case err = <-p.exited:
			r.awaitLoss(ctx, err)
		case <-p.stops:
			r.pass(stopSignal)
			continue
		case <-ctx.Done(): // the lease is lost: nothing else ends it while there is a child
			select {
			case err = <-p.exited: // by itself, just now
			default:
				return cmp.Or(r.endGroup(ctx, p, false), errEnded)
			}
		case <-late:
			return fmt.Errorf("%w=%v: %w", errTimedOut, r.timeout, cmp.Or(r.endGroup(ctx, p, false), errEnded))
		}
		if stopped := r.exited(p, err); stopped || err != nil {
			_ = r.endGroup(ctx, p, true) // Wait has returned err
		}
		return err
	}
}

// awaitLoss waits until it is known that the lease is lost, if a command has failed when it
// was: the watchdog has killed it, and this process goes on only now.
func (r *onceRun) awaitLoss(ctx context.Context, err error) {
	if err != nil && r.watchdog.isDue() {
		within(maxKill, func() { <-ctx.Done() })
	}
}

// maxKill is how long what was sent KILL may take to end. What takes longer hangs in the
// kernel, or is a zombie whose parent does not wait for it.
const maxKill = 5 * time.Second

// endGroup ends the group of a command, or what is left of it if the command has exited:
// with TERM, and if that is not enough, with KILL. It returns when the group is empty, with
// what Wait returned. Until then the lease is extended, unless it is lost.
func (r *onceRun) endGroup(ctx context.Context, p *childGroup, exited bool) (err error) {
	lost, killAt := ctx.Done(), time.Now().Add(r.terminate(p))
	if !exited && ctx.Err() != nil {
		lost, killAt = nil, r.killAt(ctx)
	}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for killed := (time.Time{}); !exited || !p.isEmpty(); {
		switch now := time.Now(); {
		case killed.IsZero() && !now.Before(killAt):
			p.kill()
			killed = now
		case exited && !killed.IsZero() && now.Sub(killed) > maxKill:
			return err
		}
		select {
		case err = <-p.exited:
			exited = true
			r.exited(p, err)
		case <-lost:
			lost = nil
			if at := r.killAt(ctx); at.Before(killAt) {
				killAt = at
			}
		case <-look.C:
		}
	}
	return err
}

// terminate sends TERM to what is left of a group, unless that has just been done. It
// returns how long the group has until KILL: longer if it was a signal that ended the
// command.
func (r *onceRun) terminate(p *childGroup) (patience time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(p.terminated) > r.stopGrace {
		p.terminate()
	}
	if r.stopped != nil {
		return r.stopGrace
	}
	return r.killAfter()
}

// exited takes the terminal back from a command that has exited, and reports whether a
// signal was to end it: one that was passed on, or one from the terminal, which was meant
// for both.
func (r *onceRun) exited(p *childGroup, err error) (stopped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := p.interrupted(err); r.stopped == nil {
		r.stopped = s
	}
	return r.stopped != nil
}

// start starts the command, unless a signal came before.
func (r *onceRun) start(env []string) (*childGroup, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return nil, context.Cause(r.ctx)
	}
	if err := r.watchdog.start(); err != nil {
		r.say(fmt.Sprintf("%s: the watchdog cannot be started: %v: if activityd is stopped, the command runs on", r.key.Name, err))
	}
	p, err := startGroup(&exec.Cmd{
		Path: r.command.Path, Args: r.command.Args, Env: env, Stdin: r.command.Stdin, Stdout: r.command.Stdout, Stderr: r.command.Stderr,
	})
	if err != nil {
		err = &startError{err}
		r.cancel(err) // so that the attempt is handed back
		r.watchdog.end()
		return nil, err
	}
	r.watchdog.guard(p.group)
	r.child = p
	return p, nil
}

// ended says that there is no child any more.
func (r *onceRun) ended() {
	r.watchdog.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.child = nil
	if r.stopped != nil {
		r.cancel(&signalError{r.stopped})
	}
}

// passSignals passes signals on until the function that it returns is called. Those that
// are ignored, as by nohup(1), stay so.
func (r *onceRun) passSignals() (stop func()) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, slices.DeleteFunc(slices.Concat(endSignals, otherSignals), signal.Ignored)...)
	var passing sync.WaitGroup
	passing.Go(func() {
		for s := range signals {
			r.pass(s)
		}
	})
	return func() {
		signal.Stop(signals)
		close(signals)
		passing.Wait()
	}
}

// pass passes a signal on to the child. If there is none, a signal that ends processes
// ends the waiting.
func (r *onceRun) pass(s os.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ends := slices.Contains(endSignals, s)
	if ends && r.stopped == nil {
		r.stopped = s
	}
	if r.child != nil {
		r.child.signal(s)
		return
	}
	if s == stopSignal {
		stopSelf()
	}
	if ends {
		r.cancel(&signalError{s})
		signal.Reset(endSignals...) // the next one has its default effect
	}
}
