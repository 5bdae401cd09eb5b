package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
)

// bulkOptions are the flags that backfill and verify share.
type bulkOptions struct {
	all      bool
	after    uint64
	resume   string
	parallel int
	rate     int
	progress string
}

func (o *bulkOptions) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.all, "all", false, "all members, as without MEMBER or FROM-TO")
	f.Uint64Var(&o.after, "after", 0, "go on after this member")
	f.StringVar(&o.resume, "resume", "", "keep the position in this `file`, and go on there if it exists; it is removed in the end")
	f.IntVar(&o.parallel, "parallel", 4, "most batches at once; fewer while a server is slow")
	f.IntVar(&o.rate, "rate", 0, "most members a second; 0: no limit but what the servers can do")
	progressFlag(f, &o.progress)
}

func (o *bulkOptions) check(f *pflag.FlagSet) error {
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

// rangeUse is how the commands name the members.
const rangeUse = "[MEMBER | FROM-TO | --all]"

// parseRange parses a member, a range of members, or nothing for all.
func parseRange(args []string, all bool) (bulk.Range, error) {
	switch {
	case len(args) == 0:
		return bulk.All, nil
	case all:
		return bulk.Range{}, errors.New("--all stands beside a member or a range: want one of the two")
	}
	from, to, isRange := strings.Cut(args[0], "-")
	if !isRange {
		to = from
	}
	first, err := member.Parse(from)
	if err != nil {
		return bulk.Range{}, fmt.Errorf("MEMBER or FROM-TO: %w", err)
	}
	last, err := member.Parse(to)
	if err != nil {
		return bulk.Range{}, fmt.Errorf("FROM-TO: %w", err)
	}
	if last < first {
		return bulk.Range{}, fmt.Errorf("FROM-TO: %s: the range ends before it begins", args[0])
	}
	return bulk.Range{First: first, Last: last}, nil
}

// bulkCommand is a command under way that goes over many members.
type bulkCommand struct {
	*reporter

	job    bulk.Job
	store  *contacts.MySQL
	db     *sql.DB
	client redis.UniversalClient
	index  *index.Index
	ledger *index.Ledger
}

// openBulk opens the servers, and prepares a job to which its visit is to be added.
// writes says that it makes or repairs sets. It keeps the TTL of sets as it is, unless
// touches says that making a set is a use of it.
func openBulk(cmd *cobra.Command, c *config, o *bulkOptions, work bulk.Work, within bulk.Range, writes, touches bool) (_ *bulkCommand, err error) {
	newLogger(c, io.Discard) // silences the client
	place, err := mysql.Place(c.mysqlDSN)
	if err != nil {
		return nil, fmt.Errorf("--mysql-dsn (%s): %w", environmentName("mysql-dsn"), err)
	}
	sum := sha256.Sum256([]byte(place))
	work.Members, work.Site = within.String(), hex.EncodeToString(sum[:8])
	options, err := c.indexOptions()
	if err != nil {
		return nil, err
	}
	if !touches {
		options.SetLife = 0
	}
	b := &bulkCommand{reporter: &reporter{w: cmd.ErrOrStderr(), mode: o.progress}}
	if b.client, err = openRedis(c.redisURL); err != nil {
		return nil, err
	}
	if b.db, err = openMySQL(c); err != nil {
		return nil, errors.Join(err, b.client.Close())
	}
	b.store, b.index, b.ledger = contacts.NewMySQL(b.db), index.New(b.client, options), index.NewLedger(b.client)
	b.job = bulk.Job{
		Work: work, Range: within, File: o.resume, After: member.ID(o.after), Parallel: o.parallel, Rate: o.rate,
		Store: b.store, Generations: b.ledger, Writes: writes, Reporter: b.reporter,
		Schema:   b.checkSchema,
		Settings: func(ctx context.Context) error { return b.checkSettings(ctx, c.materialize, writes) },
	}
	return b, nil
}

func (b *bulkCommand) close() { _ = errors.Join(b.db.Close(), b.client.Close()) } // the errors of all calls were looked at

// checkSchema refuses tables that are wrong: sets would be built from them.
func (b *bulkCommand) checkSchema(ctx context.Context) error {
	_, err := checkSchema(ctx, b.db)
	if _, wrong := errors.AsType[*schemaError](err); wrong {
		return err
	}
	return bulk.Refused("MySQL", err)
}

// checkSettings refuses sets that were built with other settings. It compares
// --materialize with that of serve, too: where a mistake would build all sets, or miss
// some, it is an error.
func (b *bulkCommand) checkSettings(ctx context.Context, materialize string, writes bool) error {
	if err := b.index.Check(ctx); err != nil {
		return err
	}
	kept, err := b.ledger.Materialize(ctx)
	if err != nil || kept == "" || kept == materialize {
		return err
	}
	err = fmt.Errorf("--materialize (%s): is %s, but the sets in Redis are kept with --materialize=%s: want the same here, "+
		"or start serve with the other first", environmentName("materialize"), materialize, kept)
	if !writes {
		b.sayf("warning: %v", err)
		return nil
	}
	return err
}

// run runs the job, and says how to go on where it was stopped. Without counts in the
// result nothing was begun.
func (b *bulkCommand) run(ctx context.Context) (bulk.Result, error) {
	r, err := b.job.Run(ctx)
	b.done()
	if errors.Is(err, bulk.ErrStopped) {
		err = errSignalled
	}
	err = namedRedis(err)
	if err == nil || r.Counts == nil || r.Position == 0 || errors.Is(err, bulk.ErrLost) {
		return r, err
	}
	then := fmt.Sprintf("go on with --after %s", r.Position)
	if b.job.File != "" {
		then = "the same command goes on there"
	}
	return r, fmt.Errorf("%w\nall members up to %s are done; %s", err, r.Position, then)
}

// errGivenUp ends a run in which some members were given up; nil if none was.
func (b *bulkCommand) errGivenUp(counts bulk.Counts) error {
	n := counts[bulk.Failed]
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d members failed every time and were given up: %s; the reasons are told above, run it for them again", n, b.givenUp.first(n))
}

// rate describes how fast n were done.
func rate(r bulk.Result, n int64) string {
	return fmt.Sprintf("%s, %.0f a second", r.Took.Round(100*time.Millisecond), float64(n)/max(r.Took.Seconds(), 0.001))
}
