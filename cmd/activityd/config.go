package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
)

// config is what the flags and the environment say. Each command registers the
// groups of flags that it uses.
type config struct {
	mysqlDSN         string
	mysqlConnections int
	redisURL         string

	need, headroom, min int
	materialize         string
	setLife             time.Duration

	listen         string
	metricsListen  string
	tokenFile      string
	tokens         string
	tlsCert        string
	tlsKey         string
	role           string
	requestTimeout time.Duration
	maxBody        int64
	maxBatch       int
	walks          int
	walkWait       time.Duration
	indexWait      time.Duration

	workers    map[string]int
	lease      time.Duration
	taskLimit  time.Duration
	poll       time.Duration
	grace      time.Duration
	keepTasks  time.Duration
	maxWaiting int
	fanOutPart int

	auditShare     float64
	auditSweepRate int
	auditRepair    bool

	logLevel  string
	logFormat string
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

func (c *config) mysqlFlags(f *pflag.FlagSet) {
	f.StringVar(&c.mysqlDSN, "mysql-dsn", "", "the site's database, `user:password@tcp(host:3306)/name`; it must be the primary (required)")
	f.IntVar(&c.mysqlConnections, "mysql-connections", 32, "most connections to MySQL at once")
}

func (c *config) redisFlags(f *pflag.FlagSet) {
	f.StringVar(&c.redisURL, "redis-url", "redis://127.0.0.1:6379/0",
		"`URL` of the index's Redis: redis://, rediss:// (TLS), unix://, redis+sentinel://host:port/db?master_name=…&addr=…, or redis+cluster://host:port?addr=…")
}

func (c *config) indexFlags(f *pflag.FlagSet) {
	f.IntVar(&c.need, "need", 10, "candidates that a read wants; stored with the sets, as are headroom and min")
	f.IntVar(&c.headroom, "headroom", 20, "`percent` stored beyond need, rounded up")
	f.IntVar(&c.min, "min", 0, "members below which a set is refilled; 0 stands for need")
	f.Var(newChoice(&c.materialize, materializeAll, materializeActive), "materialize", "whose sets to keep: all members', or only those of the active ones, who read")
	f.DurationVar(&c.setLife, "set-life", 30*24*time.Hour, "with --materialize=active: how long a set is kept after its last read or refill")
}

func (c *config) serverFlags(f *pflag.FlagSet) {
	f.Var(newChoice(&c.role, roleAll, roleAPI, roleWorkers), "role", "what this process does")
	f.DurationVar(&c.requestTimeout, "request-timeout", api.DefaultRequestTimeout, "deadline of a request")
	f.Int64Var(&c.maxBody, "max-body", api.DefaultMaxBody, "most bytes in the body of a request")
	f.IntVar(&c.maxBatch, "max-batch", api.DefaultMaxBatch, "most tasks in one request")
	f.IntVar(&c.walks, "walks", recent.DefaultWalks, "most full walks through MySQL at once; beyond them reads that need one are answered 503")
	f.DurationVar(&c.walkWait, "walk-wait", recent.DefaultWalkWait, "how long a read waits for its turn to walk, before it is answered 503")
	f.DurationVar(&c.indexWait, "index-wait", recent.DefaultIndexWait, "how long a read waits for Redis before it does without")
	f.StringToIntVar(&c.workers, "workers", nil, "worker goroutines of each queue, as in `queue=number,…`; any number of queues of your own included; those of default, fan_out and refill that are not named keep theirs; a worker with nothing to do helps the other queues, but for the first one of each")
	c.workers, f.Lookup("workers").DefValue = defaultWorkers()
	f.DurationVar(&c.lease, "lease", queue.DefaultLease, "how long claimed tasks belong to a worker that is not heard of any more; a live one extends it")
	f.DurationVar(&c.taskLimit, "task-limit", queue.DefaultLimit, "how long a batch of tasks may run before it is cancelled and its tasks are tried again")
	f.DurationVar(&c.poll, "poll", queue.DefaultPoll, "how often an idle worker looks for tasks of which nobody told it")
	f.DurationVar(&c.grace, "grace", queue.DefaultGrace, "how long requests under way may take to finish at the stop, and then the tasks")
	f.DurationVar(&c.keepTasks, "keep-tasks", 0, "how long tasks that are done are kept to be looked at; 0: not at all")
	f.IntVar(&c.maxWaiting, "max-waiting", 1_000_000, "waiting tasks beyond which POST /v1/tasks is answered 429; 0: no limit")
	f.IntVar(&c.fanOutPart, "fan-out-part", tasks.DefaultPartSize, "followers that one task of a fan-out tells")
}

// defaultWorkers returns how many workers each queue has, also as text: in the order
// of [tasks.DefaultWorkers], which that of a map is not.
func defaultWorkers() (counts map[string]int, text string) {
	counts = make(map[string]int)
	var words []string
	for _, w := range tasks.DefaultWorkers() {
		counts[w.Queue] = w.Count
		words = append(words, fmt.Sprintf("%s=%d", w.Queue, w.Count))
	}
	return counts, strings.Join(words, ",")
}

func (c *config) listenFlag(f *pflag.FlagSet, usage string) {
	f.StringVar(&c.listen, "listen", "127.0.0.1:8080", usage)
}

func (c *config) logFlags(f *pflag.FlagSet) {
	f.Var(newChoice(&c.logLevel, "debug", "info", "warn", "error"), "log-level", "the least that is logged")
	f.Lookup("log-level").DefValue, c.logLevel = "info", "info"
	f.Var(newChoice(&c.logFormat, "text", "json"), "log-format", "form of the log")
}

// check returns an error for each value that cannot be, named by its flag. It
// looks only at the groups of flags that are registered.
func (c *config) check(f *pflag.FlagSet) error {
	var errs []error
	want := func(flag string, ok bool, format string, args ...any) {
		if f.Lookup(flag) != nil && !ok {
			errs = append(errs, fmt.Errorf("--%s (%s): %s", flag, environmentName(flag), fmt.Sprintf(format, args...)))
		}
	}
	want("mysql-dsn", c.mysqlDSN != "", "is required: user:password@tcp(host:3306)/database")
	want("mysql-connections", c.mysqlConnections >= 1, "is %d: want at least 1", c.mysqlConnections)
	want("listen", c.listen != "", "is empty: want an address, as in 127.0.0.1:8080")
	open := c.checkOpen(f)
	want("listen", open == nil, "%s: %v", c.listen, open)
	want("tokens", c.tokens == "" || c.tokenFile == "", "is given beside --token-file: want one of the two")
	want("tls-cert", c.tlsCert != "" || c.tlsKey == "", "is missing: --tls-key needs it")
	want("tls-key", c.tlsKey != "" || c.tlsCert == "", "is missing: --tls-cert needs it")
	flag, err := c.checkSettings()
	want(flag, err == nil, "%v", err)
	errs = append(errs, wrongChoices(f)...)
	for flag, d := range map[string]time.Duration{
		"set-life": c.setLife, "request-timeout": c.requestTimeout, "walk-wait": c.walkWait, "index-wait": c.indexWait,
		"poll": c.poll, "grace": c.grace, "task-limit": c.taskLimit,
	} {
		want(flag, d >= time.Millisecond, "is %v: want at least 1ms", d)
	}
	want("lease", c.lease >= time.Second && c.lease <= queue.MostLease, "is %v: want 1s to %v", c.lease, queue.MostLease)
	want("keep-tasks", c.keepTasks >= 0, "is %v: want 0 or more", c.keepTasks)
	want("max-waiting", c.maxWaiting >= 0, "is %d: want 0 or more", c.maxWaiting)
	want("max-body", c.maxBody >= 1, "is %d: want at least 1", c.maxBody)
	want("max-batch", c.maxBatch >= 1, "is %d: want at least 1", c.maxBatch)
	want("walks", c.walks >= 1, "is %d: want at least 1", c.walks)
	want("audit-share", c.auditShare >= 0 && c.auditShare <= 1, "is %g: want 0 to 1", c.auditShare)
	want("audit-sweep-rate", c.auditSweepRate >= 0 && c.auditSweepRate <= 100_000, "is %d: want 0 to 100000", c.auditSweepRate)
	want("fan-out-part", c.fanOutPart >= 1 && c.fanOutPart <= 100_000, "is %d: want 1 to 100000", c.fanOutPart)
	for _, name := range slices.Sorted(maps.Keys(c.workers)) {
		want("workers", name != "" && len(name) <= queue.MostQueueName, "queue %q: want a name of 1 to %d bytes", name, queue.MostQueueName)
		want("workers", c.workers[name] >= 0 && c.workers[name] <= 1000, "%s=%d: want 0 to 1000", name, c.workers[name])
	}
	total := 0
	for _, w := range c.poolOptions().Workers {
		total += w.Count
	}
	want("workers", total > 0 || c.role == roleAPI, "there is none: no task would ever be done; want --role=api for that")
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// checkSettings returns the flag that is to blame when the three numbers do not
// fit.
func (c *config) checkSettings() (flag string, err error) {
	for _, try := range []struct {
		flag          string
		headroom, min int
	}{{"need", 0, 0}, {"headroom", c.headroom, 0}, {"min", c.headroom, c.min}} {
		if _, err := index.NewSettings(c.need, try.headroom, try.min); err != nil {
			return try.flag, err
		}
	}
	return "need", nil
}

func (c *config) settings() (index.Settings, error) {
	return index.NewSettings(c.need, c.headroom, c.min)
}

func (c *config) indexOptions() (index.Options, error) {
	s, err := c.settings()
	o := index.Options{Settings: s, Materialize: c.materialize}
	if c.materialize == materializeActive {
		o.SetLife = c.setLife
	}
	return o, err
}

func (c *config) readerOptions(s index.Settings) recent.Options {
	return recent.Options{Min: s.Min, IndexWait: c.indexWait, Walks: c.walks, WalkWait: c.walkWait, WalkTimeout: c.requestTimeout}
}

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
	return queue.PoolOptions{Workers: workers, Lease: c.lease, Limit: c.taskLimit, Poll: c.poll, Grace: c.grace}
}

func (c *config) handlerOptions() tasks.HandlerOptions {
	return tasks.HandlerOptions{PartSize: c.fanOutPart, ActiveOnly: c.materialize == materializeActive}
}

func (c *config) level() slog.Level {
	var level slog.Level
	if level.UnmarshalText([]byte(c.logLevel)) != nil {
		return slog.LevelInfo // refused by check before
	}
	return level
}
