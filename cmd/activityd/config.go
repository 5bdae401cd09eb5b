package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// config is what the settings say. Each command registers the groups that it uses;
// docs/settings.md has those of serve, which are all. A setting has a flag if it is changed
// every day, or stands on a command line; see docs/decisions/0036-settings.md.
type config struct {
	mysqlDSN         string
	mysqlConnections int
	redisURL         string

	need, headroom int
	materialize    string
	setLife        time.Duration
	broadcastAt    int

	listen        string
	pprof         bool
	metricsListen string
	tokenFile     string
	tokens        string
	tlsCert       string
	tlsKey        string

	role    string
	workers map[string]int
	drain   time.Duration
	grace   time.Duration

	auditShare     float64
	auditSweepRate int

	viewers viewerConfig
	push    pushConfig

	logLevel  string
	logFormat string

	// See testFlags.
	lease, poll time.Duration
	fanOutPart  int
}

// The roles of a process.
const (
	roleAll     = "all"
	roleAPI     = "api"
	roleWorkers = "workers"
)

// The choices of --materialize.
const (
	materializeAll    = "all"
	materializeActive = "active"
)

// defaultSetLife is how long a set is kept after its last read or refill where only
// the active members have one. It is a setting of Redis' memory, which --materialize
// makes small already; a member that reads once a month is not active.
const defaultSetLife = 30 * 24 * time.Hour

// defaultBroadcastAt: a fan-out to so many takes some hundred milliseconds of a processor.
const (
	defaultBroadcastAt = 100_000
	minBroadcastAt     = 1000
)

// defaultDrain: load balancers ask every second or two, and take two or three failures for an answer.
const defaultDrain = 5 * time.Second

// defaultConnections is how many connections to MySQL a process has at most.
const defaultConnections = 32

// maxWaiting is the number of waiting tasks beyond which POST /v1/tasks is answered
// 429. It is far above any backlog that workers catch up with, and only keeps the table
// from growing without end.
const maxWaiting = 1_000_000

// auditShare is the share of the reads that are compared with MySQL, off their path:
// one comparison costs about a walk, so that the audit costs MySQL little at any rate
// of reads, and a thousand reads are soon made.
const auditShare = 0.001

// secretSettings are the flags of serve whose values are secrets, or have one in them. Files
// have names, which are none.
var secretSettings = []string{"mysql-dsn", "redis-url", "tokens"}

// withoutSecrets returns an environment without the variables of secretSettings.
func withoutSecrets(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.ContainsFunc(secretSettings, func(flag string) bool { return settings.Variable(flag) == name })
	})
}

// allSettings returns the settings of serve, which are all that there are.
func allSettings() *pflag.FlagSet {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(config).serveFlags(all)
	return all
}

// serveFlags registers all settings.
func (c *config) serveFlags(f *pflag.FlagSet) {
	for _, g := range c.groups() {
		f.AddFlagSet(g.Flags)
	}
	c.auditShare = auditShare
}

// groups returns all settings, as docs/settings.md has them.
func (c *config) groups() []settings.Group {
	return []settings.Group{
		settings.NewGroup("Servers", c.mysqlFlags, c.redisFlags),
		settings.NewGroup("The process", c.serverFlags),
		settings.NewGroup("The API", c.apiFlags),
		settings.NewGroup("Tokens of viewers", c.viewers.flags),
		settings.NewGroup("The index", c.indexFlags, c.auditFlags),
		settings.NewGroup("Push", c.push.flags),
		settings.NewGroup("The log", c.logFlags),
	}
}

func (c *config) mysqlFlags(f *pflag.FlagSet) {
	f.StringVar(&c.mysqlDSN, "mysql-dsn", "", "the site's database, `user:password@tcp(host:3306)/name`; it must be the primary (required)")
	f.Var(settings.NewNumber(&c.mysqlConnections, defaultConnections, 4, 100_000, "connections"), "mysql-connections",
		"max connections to MySQL; an eighth is for requests with tasks and devices, another eighth is kept free of reads")
}

func (c *config) redisFlags(f *pflag.FlagSet) {
	f.StringVar(&c.redisURL, "redis-url", "redis://127.0.0.1:6379/0",
		"`URL` of the index's Redis: redis://, rediss:// (TLS), unix://, redis+sentinel:// or redis+cluster://")
}

// notifyFlag is for commands that enqueue, and can do without Redis.
func (c *config) notifyFlag(f *pflag.FlagSet) {
	f.StringVar(&c.redisURL, "redis-url", "", "`URL` of the index's Redis, to notify idle workers; without it they find the tasks at their next poll")
}

func (c *config) indexFlags(f *pflag.FlagSet) {
	f.Var(settings.NewNumber(&c.need, 10, 1, 10_000, "candidates"), "need", "candidates that a read wants; stored with the sets, as is ACTIVITYD_HEADROOM")
	f.Var(settings.NewNumber(&c.headroom, 20, 0, 1000, "percent"), "headroom", "what sets hold beyond need, rounded up; stored with the sets")
	f.Var(settings.NewChoice(&c.materialize, materializeAll, materializeActive), "materialize", "which members have sets: all, or only the active ones, which read")
	settings.NoFlag(f, "headroom")
	f.Var(settings.NewNumber(&c.broadcastAt, defaultBroadcastAt, 0, 1_000_000_000, "followers"), "broadcast-followers",
		"with how many followers a member becomes a broadcast member, when it uploads, at least 1,000; with half as many it is none within a day; 0: only by `activityd broadcast`")
	settings.NoFlag(f, "broadcast-followers")
	c.setLife = defaultSetLife
}

func (c *config) serverFlags(f *pflag.FlagSet) {
	f.Var(settings.NewChoice(&c.role, roleAll, roleAPI, roleWorkers), "role", "what this process does")
	f.StringToIntVar(&c.workers, "workers", nil, "workers of each queue, `queue=number,…`, 0 to 1000; standard queues that are not named keep theirs")
	c.workers, f.Lookup("workers").DefValue = defaultWorkers()
	f.Var(settings.NewNumber(&c.grace, queue.DefaultGrace, time.Millisecond, time.Hour, ""), "grace", "how long requests may take to finish at the stop, and then tasks")
	f.Var(settings.NewNumber(&c.drain, defaultDrain, 0, time.Hour, ""), "drain", "how long requests are served on after SIGTERM, while /readyz is 503 and load balancers notice")
	settings.NoFlag(f, "drain")
	c.testFlags(f)
}

// testFlags registers what tests of crashes shorten to be quick. They are hidden: a
// shorter lease or poll only costs more statements, a larger part of a fan-out only
// holds its worker for longer.
func (c *config) testFlags(f *pflag.FlagSet) {
	f.Var(settings.NewNumber(&c.lease, queue.DefaultLease, time.Second, queue.MaxLease, ""), "task-lease", "lease of claimed tasks")
	f.Var(settings.NewNumber(&c.poll, queue.DefaultPoll, time.Millisecond, time.Hour, ""), "poll", "interval at which idle workers look for tasks")
	f.Var(settings.NewNumber(&c.fanOutPart, tasks.DefaultPartSize, 1, 20_000, ""), "fan-out-part", "followers that one task of a fan-out updates")
	for _, name := range []string{"task-lease", "poll", "fan-out-part"} {
		_ = f.MarkHidden(name) // there is this flag
	}
}

// defaultWorkers returns how many workers each queue has, also as text in the order
// of [tasks.DefaultWorkers].
func defaultWorkers() (counts map[string]int, text string) {
	counts = make(map[string]int)
	var words []string
	for _, w := range tasks.DefaultWorkers() {
		counts[w.Queue] = w.Count
		words = append(words, fmt.Sprintf("%s=%d", w.Queue, w.Count))
	}
	return counts, strings.Join(words, ",")
}

func (c *config) auditFlags(f *pflag.FlagSet) {
	f.Var(settings.NewNumber(&c.auditSweepRate, 50, 0, 100_000, "sets/s"), "audit-sweep-rate",
		"how fast the audit goes through all sets and compares them with MySQL, in one process with workers at a time; 0: not at all")
	settings.NoFlag(f, "audit-sweep-rate")
}

func (c *config) apiFlags(f *pflag.FlagSet) {
	f.StringVar(&c.listen, "listen", "127.0.0.1:8080", "`address` for HTTP, or HTTPS; without tokens it must be one of this machine alone")
	f.StringVar(&c.metricsListen, "metrics-listen", "127.0.0.1:9464",
		"`address` for metrics, probes and the console, in every role; empty for none; metrics need no token, so keep it off public networks")
	f.BoolVar(&c.pprof, "pprof", false, "serve profiles of the process, too, where metrics are served, below /debug/pprof/")
	f.StringVar(&c.tokenFile, "token-file", "", "`file` of the tokens that clients must show; read again when it changes, and at once on SIGHUP; activityd token makes its lines")
	f.StringVar(&c.tokens, "tokens", "", "the `lines` of such a file themselves, with semicolons between them; they change with a restart only")
	f.StringVar(&c.tlsCert, "tls-cert", "", "`file` of the certificate for TLS, and its chain, in PEM; read again when it changes")
	f.StringVar(&c.tlsKey, "tls-key", "", "`file` of the certificate's key, in PEM")
	settings.NoFlag(f, "tokens")
}

func (c *config) logFlags(f *pflag.FlagSet) {
	f.Var(settings.NewChoice(&c.logLevel, "debug", "info", "warn", "error"), "log-level", "the lowest level that is logged")
	f.Lookup("log-level").DefValue, c.logLevel = "info", "info"
	f.Var(settings.NewChoice(&c.logFormat, "text", "json"), "log-format", "form of the log, which goes to stderr")
}

// check returns an error for each value that cannot be, named by its setting. It
// looks only at the groups that are registered.
func (c *config) check(f *pflag.FlagSet) error {
	var errs []error
	want := func(flag string, ok bool, format string, args ...any) {
		if setting := f.Lookup(flag); setting != nil && !ok {
			errs = append(errs, fmt.Errorf("%s: %s", settings.Name(setting), fmt.Sprintf(format, args...)))
		}
	}
	f.VisitAll(func(setting *pflag.Flag) {
		if number, ok := setting.Value.(interface{ Check() error }); ok {
			err := number.Check()
			want(setting.Name, err == nil, "%v", err)
		}
	})
	want("mysql-dsn", c.mysqlDSN != "", "is required: user:password@tcp(host:3306)/database")
	want("broadcast-followers", c.broadcastAt == 0 || c.broadcastAt >= minBroadcastAt, "is %d: want 0, or %d and more, as each costs reads", c.broadcastAt, minBroadcastAt)
	want("listen", c.listen != "", "is empty: want an address, as in 127.0.0.1:8080")
	open := c.checkOpen()
	want("listen", open == nil, "%s: %v", c.listen, open)
	want("tokens", c.tokens == "" || c.tokenFile == "", "is given beside --token-file: want one of the two")
	want("tls-cert", c.tlsCert != "" || c.tlsKey == "", "is missing: --tls-key needs it")
	want("tls-key", c.tlsKey != "" || c.tlsCert == "", "is missing: --tls-cert needs it")
	c.viewers.check(want)
	c.push.check(want)
	for _, name := range slices.Sorted(maps.Keys(c.workers)) {
		want("workers", name != "" && len(name) <= queue.MaxQueueName, "queue %q: want a name of 1 to %d bytes", name, queue.MaxQueueName)
		want("workers", c.workers[name] >= 0 && c.workers[name] <= 1000, "%s=%d: want 0 to 1000", name, c.workers[name])
	}
	total := 0
	for _, w := range c.poolOptions().Workers {
		total += w.Count
	}
	want("workers", total > 0 || c.role == roleAPI, "there is none: no task would ever be done; want --role=api for that")
	return errors.Join(errs...)
}

func (c *config) indexOptions() (index.Options, error) {
	s, err := index.NewSettings(c.need, c.headroom, 0)
	o := index.Options{Settings: s}
	if c.materialize == materializeActive {
		o.SetLife = c.setLife
	}
	return o, err
}

func (c *config) readerOptions(s index.Settings) recent.Options {
	return recent.Options{Min: s.Min}
}

// shares divides the connections to MySQL, as docs/architecture.md has it: reads of viewers take so
// many at most, the API's other requests have their own, and tasks take all that is left.
func (c *config) shares() (reads, requests int) {
	requests = max(1, c.mysqlConnections/8)
	return c.mysqlConnections - 2*requests, requests
}

// limiter returns what bounds the reads of viewers.
func (c *config) limiter() *admit.Limiter {
	reads, _ := c.shares()
	return admit.New(reads)
}

// ownQueues are the queues that activityd works on, of which workers by HTTP get nothing.
func (c *config) ownQueues() (names []string) {
	for _, w := range c.poolOptions().Workers {
		names = append(names, w.Queue)
	}
	return names
}

// claimGap is the distance of claims that are not full: what a site does in that time is done together, for half of the
// statements.
const claimGap = 15 * time.Millisecond

func (c *config) poolOptions() queue.PoolOptions {
	workers := tasks.DefaultWorkers()
	named := maps.Clone(c.workers)
	for i := range workers {
		if count, ok := named[workers[i].Queue]; ok {
			workers[i].Count = count
			delete(named, workers[i].Queue)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		workers = append(workers, queue.Workers{Queue: name, Count: named[name], Batch: tasks.DefaultBatch})
	}
	return queue.PoolOptions{Kinds: tasks.Kinds(), Workers: workers, Lease: c.lease, Poll: c.poll, Grace: c.grace, Gap: claimGap}
}
