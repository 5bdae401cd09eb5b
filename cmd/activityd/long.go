package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/backfill"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/pace"
	"github.com/activityd/activityd/internal/sweep"
)

// longOptions are those of the commands that go over many members.
type longOptions struct {
	all      bool
	after    uint64
	resume   string
	parallel int
	rate     int
	progress string
}

func (o *longOptions) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.all, "all", false, "all members; so it is without USER or FROM-TO, too")
	f.Uint64Var(&o.after, "after", 0, "go on after this member")
	f.StringVar(&o.resume, "resume", "", "keep in this `file` how far it is, and go on there if it exists; it is removed in the end")
	asDeeds(f, "all", "after", "resume")
	f.IntVar(&o.parallel, "parallel", 4, "most batches at once; fewer while a server is slow")
	f.IntVar(&o.rate, "rate", 0, "most members a second; 0: no limit but what the servers can do")
	progressFlag(f, &o.progress)
}

func (o *longOptions) check(f *pflag.FlagSet) error {
	var errs []error
	if o.parallel < 1 || o.parallel > 64 {
		errs = append(errs, fmt.Errorf("--parallel (%s): is %d: want 1 to 64", environmentName("parallel"), o.parallel))
	}
	if o.rate < 0 {
		errs = append(errs, fmt.Errorf("--rate (%s): is %d: want 0 or more", environmentName("rate"), o.rate))
	}
	if o.resume != "" && f.Changed("after") {
		errs = append(errs, errors.New("--after stands beside --resume: want one of the two"))
	}
	return errors.Join(append(errs, checkProgress(o.progress))...)
}

// longBatch is how many members are one batch: enough that round trips do not
// matter, and few enough to be done in a second or so.
const longBatch = 128

// batch is smaller where few members a second are asked for.
func (o *longOptions) batch() int {
	if o.rate > 0 {
		return min(longBatch, max(1, o.rate/4))
	}
	return longBatch
}

// longRun is a command that goes over many members.
type longRun struct {
	*teller

	options *longOptions
	work    kept // what it is, for the file of --resume
	within  sweep.Range
	store   *contacts.MySQL
	db      *sql.DB
	index   *index.Index
	visit   sweep.Visit

	pacer  *pace.Pacer
	resume *resumeFile
}

// result is how far it came, in all its runs, and what it took.
type result struct {
	sweep.State

	took time.Duration
}

func (r result) rate(n int64) string {
	return fmt.Sprintf("%s, %.0f a second", r.took.Round(100*time.Millisecond), float64(n)/max(r.took.Seconds(), 0.001))
}

// run visits everybody, and then does what comes last, if there is something, which
// counts in what it does. With an error, the result is what was done.
func (l *longRun) run(cmd *cobra.Command, last func(context.Context, sweep.Gate, sweep.Counts) error) (result, error) {
	var from sweep.State
	var err error
	if l.resume, from, err = openResume(l.options.resume, l.work); err != nil {
		return result{}, err
	}
	from.Position = max(from.Position, member.ID(l.options.after))
	defer l.done()
	ctx, stop := context.WithCancel(cmd.Context())
	l.pacer = pace.New(pace.Options{
		Most: l.options.parallel, Changed: l.paced,
		Probes: []pace.Probe{{Name: "MySQL", Ask: l.readMySQL}, {Name: "Redis", Ask: l.reachRedis}},
	})
	ended := make(chan error, 1)
	go func() { ended <- l.pacer.Run(ctx) }()
	state, err := l.sweep(ctx, from)
	if err == nil && last != nil {
		more := sweep.Counts{}
		if err = last(ctx, l.gate(), more); err == nil {
			state.Counts.Add(more) // else all of it is done again
		}
	}
	stop()
	err = errors.Join(err, <-ended)
	if err == nil {
		err = l.resume.remove()
	} else {
		err = l.stopped(err, state)
	}
	return result{state, l.resume.elapsed()}, err
}

// readMySQL reads a row, if there is one.
func (l *longRun) readMySQL(ctx context.Context) error {
	_, err := l.store.Existing(ctx, []member.ID{1})
	return err
}

// reachRedis asks Redis. That its sets have other settings is an answer, too: the work
// finds out.
func (l *longRun) reachRedis(ctx context.Context) error {
	err := l.index.Check(ctx)
	if errors.Is(err, index.ErrSettings) {
		return nil
	}
	return err
}

// sweep waits for the servers, and visits everybody.
func (l *longRun) sweep(ctx context.Context, from sweep.State) (sweep.State, error) {
	total, err := l.expect(ctx, from)
	if err != nil {
		return from, err
	}
	l.begin(l.options.progress, total, "members")
	return sweep.Run(ctx, from, sweep.Options{
		Range: l.within, Source: l.store, Gate: l.gate(), Visit: l.visit, Passing: backfill.Passing,
		Batch: l.options.batch(), Moved: l.moved, Saved: l.resume.save, Trouble: l.trouble,
	})
}

// errNobody: a member was named who is none.
var errNobody = errors.New("no such member")

// expect counts those who are still to be visited, as soon as the servers are
// there. It refuses sets that were built with other settings.
func (l *longRun) expect(ctx context.Context, from sweep.State) (total int64, err error) {
	err = l.patiently(ctx, func(ctx context.Context) error {
		if err := l.index.Check(ctx); err != nil {
			return err
		}
		total, err = 0, nil
		if first := max(l.within.First, from.Position+1); first > from.Position { // else it ran over: there is nobody left
			total, err = l.store.CountMembers(ctx, first, l.within.Last)
		}
		return err
	})
	if err == nil && total == 0 && l.within.First == l.within.Last && from.Position < l.within.First {
		return 0, fmt.Errorf("%s: %w", rangeText(l.within), errNobody)
	}
	return total, err
}

// patiently does something again until no error comes that may pass. It sets no
// time limit: the pace tells of a server that hangs, and a signal ends it.
func (l *longRun) patiently(ctx context.Context, do func(context.Context) error) error {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := do(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return sweep.ErrStopped
		case !backfill.Passing(err):
			return err
		}
		l.trouble(err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return sweep.ErrStopped
		}
	}
}

// stopped keeps how far it came, and says how to go on.
func (l *longRun) stopped(err error, s sweep.State) error {
	if errors.Is(err, sweep.ErrStopped) {
		err = errSignalled
	}
	if keeping := l.resume.write(s); keeping != nil {
		return errors.Join(err, keeping)
	}
	switch {
	case s.Position == 0:
		return err
	case l.options.resume != "":
		return fmt.Errorf("%w\neverybody up to member %s is done; the same command goes on there", err, s.Position)
	}
	return fmt.Errorf("%w\neverybody up to member %s is done; go on with --after %s", err, s.Position, s.Position)
}

// openLong opens the servers for a long command, and returns what closes them.
func openLong(cmd *cobra.Command, c *config, l *longRun) (done func(), err error) {
	l.teller = &teller{w: cmd.ErrOrStderr()}
	newLogger(c, io.Discard) // silences the client
	client, err := openRedis(c.redisURL)
	if err != nil {
		return nil, err
	}
	if l.index, err = newIndex(c, client, nil); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	if l.db, err = openMySQL(c); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	l.store = contacts.NewMySQL(l.db)
	return func() { _ = errors.Join(l.db.Close(), client.Close()) }, nil // every statement's own error was looked at
}
