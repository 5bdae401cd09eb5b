package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/backfill"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
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
	return errors.Join(errs...)
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
	// changes says that it makes or repairs sets, so that a wrong materialize does
	// harm; prolongs, that it lets those sets expire that nobody uses.
	changes, prolongs bool
	materialize       string

	pacer    *pace.Pacer
	resume   *resumeFile
	epoch    *epochWatch
	failures firstMembers // who were given up
}

// result is how far it came, in all its runs, and what it took.
type result struct {
	sweep.State

	took time.Duration
}

func (r result) rate(n int64) string {
	return fmt.Sprintf("%s, %.0f a second", r.took.Round(100*time.Millisecond), float64(n)/max(r.took.Seconds(), 0.001))
}

// lastStep is what comes after everybody was visited. It counts what it does.
type lastStep func(context.Context, sweep.Gate, sweep.Counts) error

// run visits everybody, and then does what comes last, if there is something. With
// an error, the result is what was done; without counts if it did not begin.
func (l *longRun) run(cmd *cobra.Command, last lastStep) (r result, err error) {
	var from sweep.State
	if l.resume, from, err = openResume(l.options.resume, l.work); err != nil {
		return result{}, err
	}
	defer func() { err = errors.Join(err, l.resume.close()) }()
	from.Position = max(from.Position, member.ID(l.options.after))
	defer l.done()
	// Before anything else asks: other errors would tell less.
	if err := l.patiently(cmd.Context(), l.checkSchema); err != nil {
		return result{}, err
	}
	state, begun, err := l.watched(cmd.Context(), from, last)
	switch {
	case !begun:
		return result{}, err
	case err == nil, errors.Is(err, errLost): // going on would leave a part out
		err = errors.Join(err, l.resume.remove())
	default:
		err = l.stopped(err, state)
	}
	return result{state, l.resume.elapsed()}, err
}

// watched does the work while the servers are watched.
func (l *longRun) watched(ctx context.Context, from sweep.State, last lastStep) (state sweep.State, begun bool, err error) {
	ctx, end := context.WithCancelCause(ctx)
	stop := func() { end(nil) }
	defer stop()
	l.epoch = &epochWatch{index: l.index, lose: stop}
	l.pacer = pace.New(pace.Options{
		Most: l.options.parallel, Changed: l.paced,
		Probes: []pace.Probe{
			endedBy(end, pace.Probe{Name: "MySQL", Ask: l.readMySQL}),
			endedBy(end, pace.Probe{Name: "Redis", Ask: l.epoch.look, Floor: redisFloor}),
		},
	})
	ended := make(chan error, 1)
	go func() { ended <- l.pacer.Run(ctx) }()
	total, err := l.expect(ctx, from)
	if begun = err == nil; begun {
		state, err = l.visitAll(ctx, from, total, last)
	}
	if _, lost := l.epoch.state(); lost && (err == nil || errors.Is(err, sweep.ErrStopped)) {
		err = errLost
	}
	if refused, ok := errors.AsType[*refusal](context.Cause(ctx)); ok && errors.Is(err, sweep.ErrStopped) {
		err = refused
	}
	stop()
	return state, begun, errors.Join(err, <-ended)
}

// redisFloor is the time below which Redis is not slow: a fifth of what it is for
// others, for it answers in less than one of MySQL's.
const redisFloor = 2 * time.Millisecond

// checkSchema refuses tables that are wrong: sets would be built from them.
func (l *longRun) checkSchema(ctx context.Context) error {
	_, err := checkSchema(ctx, l.db)
	if _, wrong := errors.AsType[*schemaError](err); err != nil && !wrong && backfill.Judge(err) == sweep.Fatal {
		return &refusal{"MySQL", err}
	}
	return err
}

// readMySQL reads a row, if there is one.
func (l *longRun) readMySQL(ctx context.Context) error {
	_, err := l.store.Existing(ctx, []member.ID{1})
	return err
}

// visitAll visits everybody, does what comes last, and makes sure that nothing was
// lost meanwhile.
func (l *longRun) visitAll(ctx context.Context, from sweep.State, total int64, last lastStep) (sweep.State, error) {
	l.begin(l.options.progress, total, "members")
	l.resume.tell(l.teller)
	state, err := sweep.Run(ctx, from, sweep.Options{
		Range: l.within, Source: l.store, Gate: l.gate(), Visit: l.visit, Judge: backfill.Judge,
		Batch: l.options.batch(), Moved: l.moved, Saved: l.saved, Trouble: l.trouble, GaveUp: l.gaveUp,
	})
	if err == nil && last != nil {
		more := sweep.Counts{}
		if err = last(ctx, l.gate(), more); err == nil {
			state.Counts.Add(more) // else all of it is done again
		}
	}
	if err == nil {
		err = l.patiently(ctx, l.epoch.look)
	}
	return state, err
}

// saved keeps a state.
func (l *longRun) saved(s sweep.State) error {
	l.resume.run.Epoch, _ = l.epoch.state()
	return l.resume.save(s)
}

// errNobody: a member was named who is none.
var errNobody = errors.New("no such member")

// expect waits until the servers are there, and counts those who are still to be
// visited; -1 when MySQL cannot count them in time. It refuses sets that were built
// with other settings, or lost since the file of --resume was written.
func (l *longRun) expect(ctx context.Context, from sweep.State) (total int64, err error) {
	if err := l.patiently(ctx, func(ctx context.Context) error { return l.checkSets(ctx, from) }); err != nil {
		return 0, err
	}
	err = l.patiently(ctx, func(ctx context.Context) error {
		total, err = 0, nil
		if first := max(l.within.First, from.Position+1); first > from.Position { // else it ran over: there is nobody left
			total, err = l.store.CountMembers(ctx, first, l.within.Last)
		}
		if mysql.IsTooSlow(err) {
			total, err = -1, nil
		}
		return err
	})
	if err == nil && total == 0 && l.within.First == l.within.Last && from.Position < l.within.First {
		return 0, fmt.Errorf("%s: %w", rangeText(l.within), errNobody)
	}
	return total, err
}

// checkSets refuses sets on which nothing can be built, and begins to watch them.
func (l *longRun) checkSets(ctx context.Context, from sweep.State) error {
	if err := l.index.Check(ctx); err != nil {
		return namedRedis(err)
	}
	if err := l.checkKept(ctx); err != nil {
		return err
	}
	token := l.changes || l.options.resume != "" // else it has no effect on Redis
	continues, err := l.epoch.begin(ctx, l.resume.before.Epoch, token)
	if err == nil && !continues && from.Position > 0 {
		return fmt.Errorf("--resume: the sets were lost since %s was written: delete it to begin anew", l.options.resume)
	}
	return err
}

// patientTries is how often an error is borne that is not due to a server that is
// away.
const patientTries = 10

// patiently does something again until no error comes that may pass. It sets no
// time limit: the pace tells of a server that hangs, and a signal ends it.
func (l *longRun) patiently(ctx context.Context, do func(context.Context) error) error {
	tries := 0
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := do(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return sweep.ErrStopped
		}
		fault := backfill.Judge(err)
		if fault == sweep.Own {
			tries++
		}
		if fault == sweep.Fatal || tries == patientTries {
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
	l.resume.run.Epoch, _ = l.epoch.state()
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
	if err := l.identify(c); err != nil {
		return nil, err
	}
	client, err := openRedis(c.redisURL)
	if err != nil {
		return nil, err
	}
	if l.index, err = l.newIndex(c, client); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	if l.db, err = openMySQL(c); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	l.store = contacts.NewMySQL(l.db)
	return func() { _ = errors.Join(l.db.Close(), client.Close()) }, nil // every statement's own error was looked at
}

// identify notes on what site it works.
func (l *longRun) identify(c *config) error {
	place, err := mysql.Place(c.mysqlDSN)
	if err != nil {
		return fmt.Errorf("--mysql-dsn (%s): %w", environmentName("mysql-dsn"), err)
	}
	sum := sha256.Sum256([]byte(place))
	l.work.Site = hex.EncodeToString(sum[:8])
	l.materialize = c.materialize
	return nil
}

// newIndex makes the index.
func (l *longRun) newIndex(c *config, client redis.UniversalClient) (*index.Index, error) {
	o, err := c.indexOptions()
	if err != nil {
		return nil, err
	}
	if !l.prolongs {
		o.SetLife = 0 // looking at a set is no use of it
	}
	return index.New(client, o), nil
}
