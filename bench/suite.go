package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
)

// suiteOptions say how much of the reads, the fan-out and what belongs to them is
// measured.
type suiteOptions struct {
	rounds    int
	site      siteSize
	reads     int           // of each viewer in each round
	plain     time.Duration // spent at most on the slowest alternative, for each viewer in each round
	requests  int           // of the endpoint in each run
	conns     int           // to the endpoint
	tasks     int           // contact changes in each run
	sets      int           // in the index that is saved
	pace      time.Duration // between two reads while it is saved
	quiet     time.Duration // how long such reads go on without a save
	instances int           // of Redis, beside one
	data      string
	json      string
	parts     []string
}

func fullSuite() suiteOptions {
	return suiteOptions{
		rounds: 5, site: fullSite(), reads: 1000, plain: time.Second, requests: 15_000, conns: 16, tasks: 5000,
		sets: 2_000_000, pace: 2 * time.Millisecond, quiet: 5 * time.Second, instances: 4,
	}
}

func quickSuite() suiteOptions {
	return suiteOptions{
		rounds: 1, site: quickSite(), reads: 50, plain: 50 * time.Millisecond, requests: 500, conns: 16, tasks: 300,
		sets: 20_000, pace: time.Millisecond, quiet: 200 * time.Millisecond, instances: 4,
	}
}

// suite is a run under way.
type suite struct {
	*ground
	options suiteOptions
	meter   *meter
	results *results
	log     io.Writer
	store   *contacts.MySQL
}

// suiteParts are the parts of the suite, in order.
func suiteParts() []string {
	return []string{"reads", "rows", "endpoint", "fanout", "refill", "memory", "batches", "save"}
}

func parseSuite(args []string, log io.Writer) (suiteOptions, error) {
	flags := flag.NewFlagSet("bench "+args[0], flag.ContinueOnError)
	flags.SetOutput(log)
	quick := flags.Bool("quick", false, "small numbers, to see that it works")
	rounds := flags.Int("rounds", 0, fmt.Sprintf("how often each is measured (default %d)", fullSuite().rounds))
	file := flags.String("json", "", "write the results to this file, too")
	data := flags.String("data", "", "keep the made-up site in this folder, and take it from there the next time")
	only := flags.String("only", "", "with all: measure these parts alone, as in reads,fanout; of "+strings.Join(suiteParts(), ", "))
	if err := flags.Parse(args[1:]); err != nil {
		return suiteOptions{}, err
	}
	o := fullSuite()
	if *quick {
		o = quickSuite()
	}
	if *rounds > 0 {
		o.rounds = *rounds
	}
	o.json, o.data, o.parts = *file, *data, []string{args[0]}
	if args[0] == "all" {
		o.parts = suiteParts()
	}
	if *only != "" {
		o.parts = strings.Split(*only, ",")
	}
	return o, o.check(flags.Args())
}

func (o suiteOptions) check(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected arguments %q", rest)
	}
	for _, part := range o.parts {
		if !slices.Contains(suiteParts(), part) {
			return fmt.Errorf("no part %q: want %s", part, strings.Join(suiteParts(), ", "))
		}
	}
	return nil
}

// wants tells whether one of parts is to be measured.
func (o suiteOptions) wants(parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(o.parts, part) })
}

// benchSuite measures what the options ask for.
func benchSuite(ctx context.Context, o suiteOptions, log io.Writer) (_ *results, err error) {
	s := &suite{options: o, log: log, results: &results{Site: o.site, Rounds: o.rounds}}
	if s.ground, err = newGroundWith(ctx, "no persistence"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.setUp(ctx); err != nil {
		return nil, err
	}
	return s.results, s.measure(ctx)
}

func (s *suite) setUp(ctx context.Context) (err error) {
	s.store = contacts.NewMySQL(s.db)
	if s.results.Machine, err = describe(ctx, s.ground); err != nil {
		return err
	}
	if s.options.wants("reads", "rows", "endpoint", "fanout", "refill") {
		if err := provideSite(ctx, s.ground, s.options.site, s.options.data, s.log); err != nil {
			return err
		}
	}
	s.meter, err = newMeter(ctx, s.ground)
	return err
}

func (s *suite) measure(ctx context.Context) error {
	parts := map[string]func(context.Context) error{
		"reads": s.benchReads, "rows": s.benchRows, "endpoint": s.benchEndpoint, "fanout": s.benchFanOut, "refill": s.benchRefill,
		"memory": s.benchMemory, "batches": s.benchBatches, "save": s.benchSave,
	}
	for _, part := range suiteParts() {
		if !s.options.wants(part) {
			continue
		}
		start := time.Now()
		if err := parts[part](ctx); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
		fmt.Fprintf(s.log, "%s took %.0f s\n", part, time.Since(start).Seconds())
	}
	return nil
}

// fill makes the sets of users as a service does.
func (s *suite) fill(ctx context.Context, users []member.ID) error {
	handler := &tasks.RefillHandler{Index: s.index, Store: s.store}
	return inChunks(ctx, 1, refillBatch, users, refillOf(handler))
}

// writeJSON writes the results, with every single run.
func (r *results) writeJSON(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600) //nolint:gosec // whoever runs it chooses the file
}
