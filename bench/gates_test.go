package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
	"github.com/activityd/activityd/queue"
)

// TestMain is a contender, too: the tests start this program again.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == bareCommand {
		main()
		return
	}
	servertest.Main(m)
}

// tiny is enough to count.
var tiny = func() size {
	s := quick
	s.reads, s.tasks, s.wakes, s.events, s.pairs, s.step = 5, 500, 1, 60, 60, s.step/4
	return s
}()

func start(t *testing.T, s size) *bench {
	t.Helper()
	b, err := newBench(t.Context(), s, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// counts are numbers of operations of the servers. They do not depend on how busy the machine
// is.
type counts struct {
	statements, rows float64 // of MySQL; rows and index entries that were read
	scripts, writes  float64 // of Redis: calls of scripts, and commands that wrote to sets
}

func (b *bench) counters(ctx context.Context) (c counts, err error) {
	rows, err := b.db.QueryContext(ctx, "SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Handler\\_read\\_%' OR Variable_name = 'Questions'")
	if err != nil {
		return c, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		var n float64
		if err := rows.Scan(&name, &n); err != nil {
			return c, err
		}
		if name == "Questions" {
			c.statements = n
		} else {
			c.rows += n
		}
	}
	info, err := b.client.InfoMap(ctx, "commandstats").Result()
	for command, n := range map[string]*float64{"evalsha": &c.scripts, "eval": &c.scripts, "zadd": &c.writes, "zremrangebyrank": &c.writes} {
		calls, _, _ := strings.Cut(strings.TrimPrefix(info["Commandstats"]["cmdstat_"+command], "calls="), ",")
		x, _ := strconv.ParseFloat(calls, 64)
		*n += x
	}
	return c, err
}

// count returns how much do adds to the counters, without the share of reading them.
func (b *bench) count(t *testing.T, do func(ctx context.Context) error) counts {
	t.Helper()
	between := func(do func(context.Context) error) counts {
		before, err := b.counters(t.Context())
		if err == nil {
			err = do(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		after, err := b.counters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return counts{after.statements - before.statements, after.rows - before.rows, after.scripts - before.scripts, after.writes - before.writes}
	}
	own := between(func(context.Context) error { return nil })
	c := between(do)
	return counts{c.statements - own.statements, c.rows - own.rows, c.scripts - own.scripts, c.writes - own.writes}
}

// TestCounts gates on the numbers of requests to the servers. Its parts run in turn: the
// counters belong to the servers, and count all connections.
func TestCounts(t *testing.T) {
	b := start(t, tiny)
	if err := b.makeSite(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Run("reads", b.testReads)
	t.Run("fan-out", b.testFanOut)
	t.Run("refill", b.testRefill)
	t.Run("queue", b.testQueue)
	t.Run("locks", b.testLocks)
	t.Run("push", b.testPush)
}

// serving starts activityd for a test.
func (b *bench) serving(t *testing.T, settings ...string) *conn {
	t.Helper()
	p, err := b.serve(append(settings, "ACTIVITYD_AUDIT_SWEEP_RATE=0")...)
	if err != nil {
		t.Fatal(err)
	}
	c, err := dial(t.Context(), p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// The first promise of activityd: for any number of contacts, and of private photos in the way, a read is a round trip to each
// server and the same few rows. The cheapest of some tries counts, as the process asks its servers other things, too.
func (b *bench) testReads(t *testing.T) {
	onMySQL, onRedis := newWire(t, b.mysql.Addr()), newWire(t, b.redis.Addr())
	c := b.serving(t, "ACTIVITYD_ROLE=api", "ACTIVITYD_MYSQL_DSN="+strings.Replace(b.mysql.DSN(database), b.mysql.Addr(), onMySQL.addr, 1),
		"ACTIVITYD_REDIS_URL=unix://"+onRedis.addr)
	const tries, mostRows = 10, 45 // of five classes, blocks both ways and the broadcast members
	for _, viewer := range append(b.size.viewers(), viewer{id: hidersViewer, name: "a contact who hides"}) {
		least, rows := [2]float64{1e9, 1e9}, make([]float64, 0, tries)
		for range tries {
			mysqlTrips, redisTrips := onMySQL.trips.Load(), onRedis.trips.Load()
			counted := b.count(t, func(context.Context) error {
				contact, source, err := c.read(viewer.id)
				if err == nil && (contact == 0 || source != "index") {
					err = fmt.Errorf("the contact is %d, from the %s", contact, source)
				}
				return err
			})
			least[0], least[1] = min(least[0], float64(onMySQL.trips.Load()-mysqlTrips)), min(least[1], float64(onRedis.trips.Load()-redisTrips))
			rows = append(rows, counted.rows)
		}
		slices.Sort(rows) // the median: a probe beside the read, or beside the count to subtract, moves a few
		median := rows[tries/2]
		if least[0] != 1 || least[1] != 1 || median < 1 || median > mostRows {
			t.Errorf("a viewer with %s: %v round trips to MySQL, %v to Redis, %v rows; want 1, 1, and at most %d", viewer.name, least[0], least[1], median, mostRows)
		}
	}
}

// A fan-out reads each follower once, and writes to its set by one command, in few calls.
func (b *bench) testFanOut(t *testing.T) {
	c, f, n := b.serving(t), &fanOut{bench: b, last: epoch + 10_000_000}, float64(b.size.readers)
	const commands = 1.0 // the probes write, too, and the test subtracts their writes of an equal time
	for range 2 {
		if err := f.upload(t.Context()); err != nil {
			t.Fatal(err)
		}
		counted := b.count(t, func(ctx context.Context) error { _, err := f.byTask(ctx, c); return err })
		t.Logf("%v followers: %+v", n, counted)
		if counted.writes < 0.98*commands*n || counted.writes > (commands+0.1)*n || counted.scripts > n/20 || counted.rows < n || counted.rows > 1.5*n || counted.statements > 250 {
			t.Errorf("%v followers: %+v, want about %v commands for each, few calls, each row once, and at most 250 statements", n, counted, commands)
		}
	}
}

// A backfill shares its statements among many members.
func (b *bench) testRefill(t *testing.T) {
	if err := b.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	counted := b.count(t, func(ctx context.Context) error { return b.command(ctx, "backfill") })
	n := float64(b.size.readers)
	t.Logf("%v members: %+v", n, counted)
	if counted.writes < n || counted.writes > 3*n || counted.statements > n/4 {
		t.Errorf("%v members: %+v, want at most three writes for each, and a statement for four", n, counted)
	}
}

// A task that is enqueued and claimed in a batch costs a part of a statement, and a few rows.
func (b *bench) testQueue(t *testing.T) {
	n := float64(b.size.tasks)
	counted := b.count(t, func(ctx context.Context) error {
		_, err := b.ours("tasks", 1000, 1, inBatches).contender(b).run(ctx)
		return err
	})
	const work = 4 // rows that the work itself reads, of two tables
	t.Logf("%v tasks: %+v", n, counted)
	if counted.statements > n/5 || counted.rows > (work+6)*n {
		t.Errorf("%v tasks: %+v, want a statement for five, and six rows for each", n, counted)
	}
	var left int
	if err := b.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM tasks WHERE type = ?", kind).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d tasks are left: %v", left, err)
	}
}

// Acquire and done are two round trips to Redis, and four to MySQL at most.
func (b *bench) testLocks(t *testing.T) {
	onMySQL, onRedis := newWire(t, b.mysql.Addr()), newWire(t, b.redis.Addr())
	db, err := queue.OpenDB(strings.Replace(b.mysql.DSN(database), b.mysql.Addr(), onMySQL.addr, 1))
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: onRedis.addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _, _ = db.Close(), client.Close() })
	store := once.NewMySQL(db)
	inRedis := once.NewRedis(client)
	for _, test := range []struct {
		name  string
		store once.Store
		wire  *wire
		most  int64
	}{{"Redis", inRedis, onRedis, 2}, {"MySQL", store, onMySQL, 4}} {
		least := int64(1e9)
		for i := range 5 { // the first pairs connect, and send scripts
			before := test.wire.trips.Load()
			if err := pairOn(test.store)(t.Context(), fmt.Sprintf("count:%d", i)); err != nil {
				t.Fatal(err)
			}
			least = min(least, test.wire.trips.Load()-before)
		}
		if least < 2 || least > test.most {
			t.Errorf("%s: %d round trips, want 2 to %d", test.name, least, test.most)
		}
	}
}

// However many devices, an event takes few statements, be it large or small.
func (b *bench) testPush(t *testing.T) {
	p, settings, err := b.startPush()
	if err != nil {
		t.Fatal(err)
	}
	c := b.serving(t, settings...)
	const large, small = 1000, 50
	if err := p.register(t.Context(), []*conn{c}, large); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		events, devices int
		most            float64 // statements for an event, with the statements of idle workers
	}{{1, large, 150}, {small, 1, 40}} {
		counted := b.count(t, func(ctx context.Context) error {
			for i := range test.events {
				before := p.apple.Stats()
				if err := post(c, p.event(i, test.devices)); err != nil {
					return err
				}
				if err := p.await(ctx, before, test.devices); err != nil {
					return err
				}
			}
			return nil
		})
		each := counted.statements / float64(test.events)
		t.Logf("%d events for %d devices: %v statements for each", test.events, test.devices, each)
		if each < 3 || each > test.most {
			t.Errorf("%d events for %d devices: %v statements for each, want 3 to %v", test.events, test.devices, each, test.most)
		}
	}
	if conns := p.apple.Stats().Conns; conns > 4 {
		t.Errorf("%d connections to the push service, want at most 4", conns)
	}
}

// A run fails by itself when an answer is wrong, a follower is missed, or a message.
func TestEachPartMeasures(t *testing.T) {
	b := start(t, tiny)
	for _, p := range parts {
		before := len(b.report.Figures)
		if err := b.measure(t.Context(), []string{p.name}); err != nil {
			t.Fatal(err)
		}
		if len(b.report.Figures) == before {
			t.Errorf("%s: no figure", p.name)
		}
		for _, f := range b.report.Figures[before:] {
			if f.Name == "" || f.Part == "" || f.Against != "" && f.Ratio.Median <= 0 {
				t.Errorf("%s: %+v", p.name, f)
			}
		}
	}
	var text bytes.Buffer
	b.report.write(&text)
	for _, want := range []string{"asynq", "redislock", "apns2", "SET NX", "contacts first", "times the capacity"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %s in\n%s", want, &text)
		}
	}
	file := filepath.Join(t.TempDir(), "figures.json")
	if err := b.report.writeJSON(file); err != nil {
		t.Fatal(err)
	}
	var read report
	if written, err := os.ReadFile(file); err != nil || json.Unmarshal(written, &read) != nil || len(read.Figures) != len(b.report.Figures) {
		t.Errorf("%d figures were written, want %d: %v", len(read.Figures), len(b.report.Figures), err)
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"": "no part", "coffee": "no part", "reads,coffee": "no part", "all more": "unexpected", "reads --rounds=x": "invalid value", "all --rounds=-1": "unexpected",
	} {
		if err := run(t.Context(), strings.Fields(args), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

func TestBoundsAreJudged(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		bound  bound
		median float64
		want   string
	}{
		{bound{}, 1, ""},
		{atLeast(2), 2, "≥ 2.00"},
		{atLeast(2), 1.99, "≥ 2.00: missed"},
		{atMost(550), 549, "≤ 550"},
		{atMost(550), 551, "≤ 550: missed"},
	} {
		if got := test.bound.of(test.median); got != test.want {
			t.Errorf("%+v of %v: %q, want %q", test.bound, test.median, got, test.want)
		}
	}
	if got := ratio([]float64{2, 9, 8}, []float64{1, 3, 2}); got != (spread{3, 2, 4}) {
		t.Errorf("the ratio is %+v, want 3, from 2 to 4", got)
	}
}

// The load counts the answers of the API.
func TestAnswersAreCounted(t *testing.T) {
	t.Parallel()
	var l load
	for _, status := range []int{http.StatusOK, http.StatusServiceUnavailable, http.StatusTooManyRequests, 0, http.StatusInternalServerError} {
		l.count(status, time.Now(), shownUploader, nil)
	}
	l.count(http.StatusOK, time.Now().Add(-2*patience), shownUploader, nil)
	l.count(http.StatusOK, time.Now(), []byte("{}"), nil)
	if len(l.goods) != 1 || l.refused != 2 || l.late != 2 || l.failed != 1 || l.wrong != 1 {
		t.Errorf("%+v, want 1 good, 2 refused, 2 late, 1 failed and 1 wrong", &l)
	}
}
