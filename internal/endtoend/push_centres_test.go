//go:build unix

package endtoend_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/localserver"
	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/stream"
)

// TestPushSurvivesTheLossOfACentre: there are two data centres, with an activityd and a Redis
// each; the primary of MySQL is in the first one, and a semi-synchronous replica in the second.
// All of the first is killed at once, the replica promoted, and the other activityd led to it:
// no acknowledged event is lost.
func TestPushSurvivesTheLossOfACentre(t *testing.T) {
	t.Parallel()
	c := newCentres(t, seedFor(t))
	const enough = 200 // messages
	rest := c.live(t.Context(), c.seed, c.http, func(rnd *rand.Rand) *program {
		return []*program{c.first, c.second}[rnd.IntN(2)]
	}, c.addToFirst)
	c.awaitMessages(t, enough)
	c.loseFirst(t)
	c.awaitMessages(t, c.apns.Stats().Accepted+enough)
	if err := rest(); err != nil {
		t.Fatalf("the site: %v", err)
	}
	c.awaitDelivered(t)
	j := newPushJudge(t, c.pushSite)
	j.checkNothingStuck()
	j.checkComplete()
	j.checkAllowed()
	t.Logf("%v; %d doubles", j, len(j.checkDoubles()))
	c.checkStreams(t, j)
	c.second.finish(t)
	c.second.checkLogs(t)
}

// centres are two data centres. What is called first is lost.
type centres struct {
	*pushSite
	seed             uint64
	primary, replica *replicated
	firstRedis       *localserver.Redis
	first, second    *program
	toPrimary        *servertest.Proxy // of the site and of both processes
	http             *http.Client
	toFirst          *pushProducer // adds to the stream of the first Redis
}

func newCentres(t *testing.T, seed uint64) *centres {
	t.Helper()
	c := &centres{seed: seed, http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}}
	t.Cleanup(c.http.CloseIdleConnections)
	c.primary, c.replica = newReplicated(t)
	c.toPrimary = servertest.NewProxy(t, c.primary.Addr())
	dsn := c.toPrimary.MySQLDSN(c.primary.DSN(servertest.Database))
	c.pushSite = newPushSite(t, groundOn(t, 10, dsn, servertest.Redis(t, localserver.AOF...)), seed)
	c.firstRedis = servertest.Redis(t, localserver.AOF...)
	c.toFirst = &pushProducer{
		pushSite: c.pushSite, way: byStream, prefix: "to-first", rnd: rand.New(rand.NewPCG(seed, 800)), redis: openRedis(t, c.firstRedis),
	}
	c.first = c.process(t, "first", dsn, c.firstRedis.URL())
	c.second = c.process(t, "second", dsn, c.redis.URL())
	c.first.mustStart(t)
	c.second.mustStart(t)
	return c
}

// addToFirst adds events to the stream of the first centre. There, it is not tried again.
func (c *centres) addToFirst(ctx context.Context) error {
	batch := []*sentEvent{c.toFirst.event(), c.toFirst.event()}
	_ = c.toFirst.begin(batch, func() error { return c.toFirst.add(ctx, batch) }) // those are not acknowledged then
	return ctx.Err()
}

// awaitMessages waits until phones have got so many.
func (c *centres) awaitMessages(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " messages are accepted"), func() bool { return c.apns.Stats().Accepted >= n })
}

// loseFirst kills all of the first centre, and promotes the replica.
func (c *centres) loseFirst(t *testing.T) {
	t.Helper()
	c.primary.checkSynchronous(t)
	var group errgroup.Group
	group.Go(c.first.kill)
	group.Go(c.firstRedis.Kill)
	group.Go(c.primary.Kill)
	must(t, group.Wait())
	c.replica.promote(t)
	c.toPrimary.Move(c.replica.Addr())
}

// checkStreams: what was added to the stream of the second centre is in the queue, and what was
// added to that of the first is there, or still in it.
func (c *centres) checkStreams(t *testing.T, j *pushJudge) {
	t.Helper()
	must(t, c.firstRedis.Restart(t.Context()))
	entries, err := c.toFirst.redis.XRange(t.Context(), stream.Key, "-", "+").Result()
	must(t, err)
	var left strings.Builder
	for _, e := range entries {
		fmt.Fprintln(&left, e.Values)
	}
	for id, e := range j.sent {
		if e.way == byStream && !e.acked.IsZero() && !j.notified[id] && !strings.Contains(left.String(), `"`+id+`"`) {
			j.wrongf("LOST: event %s was taken out of the stream, and is not in the queue", id)
		}
	}
}

// replicated is one of a pair of servers.
type replicated struct {
	*localserver.MySQL
	db    *sql.DB
	words replicationWords
}

// replicationWords are what MariaDB calls the roles, or MySQL.
type replicationWords struct{ source, replica, change, start, host, status string }

func wordsOf(version string) replicationWords {
	if strings.Contains(version, "MariaDB") {
		return replicationWords{"master", "slave", "CHANGE MASTER TO", "SLAVE", "MASTER", "SHOW SLAVE STATUS"}
	}
	return replicationWords{"source", "replica", "CHANGE REPLICATION SOURCE TO GET_SOURCE_PUBLIC_KEY = 1,", "REPLICA", "SOURCE", "SHOW REPLICA STATUS"}
}

// newReplicated starts a primary with the schema, and a replica of which it awaits the receipt
// of each transaction, before it commits.
func newReplicated(t *testing.T) (primary, replica *replicated) {
	t.Helper()
	const binlog, durable = "--log-bin=centre", "--innodb-flush-log-at-trx-commit=2" // outlives kill -9
	begin := func(m *localserver.MySQL) *replicated {
		return &replicated{m, openMySQL(t, m.DSN("mysql")), wordsOf(m.Version())}
	}
	primary = begin(servertest.OwnMySQL(t, binlog, durable, "--binlog-format=ROW", "--server-id=1"))
	server, err := localserver.StartMySQL(t.Context(), durable, "--server-id=2", "--read-only=1")
	must(t, err)
	t.Cleanup(func() { _ = server.Close() })
	replica = begin(server)
	host, port, err := net.SplitHostPort(servertest.NewProxy(t, primary.Addr()).Addr())
	must(t, err)
	w := primary.words
	primary.loadSemisync(t, w.source)
	replica.loadSemisync(t, w.replica)
	replica.do(t, "SET GLOBAL rpl_semi_sync_"+w.replica+"_enabled = 1")
	replica.do(t, fmt.Sprintf("%[1]s %[2]s_HOST = '%[3]s', %[2]s_PORT = %[4]s, %[2]s_USER = 'root', %[2]s_LOG_FILE = 'centre.000001', %[2]s_LOG_POS = 4",
		w.change, w.host, host, port))
	replica.do(t, "START "+w.start)
	for _, set := range []string{"timeout = 3600000", "wait_point = 'AFTER_SYNC'", "enabled = 1"} {
		primary.do(t, "SET GLOBAL rpl_semi_sync_"+w.source+"_"+set)
	}
	eventually(t, "the replica is there", func() bool { return primary.status(t, "clients") == "1" && primary.status(t, "status") == "ON" })
	return primary, replica
}

// loadSemisync loads what MariaDB has built in.
func (r *replicated) loadSemisync(t *testing.T, role string) {
	t.Helper()
	if role == "source" || role == "replica" {
		r.do(t, "INSTALL PLUGIN rpl_semi_sync_"+role+" SONAME 'semisync_"+role+".so'")
	}
}

func (r *replicated) do(t *testing.T, statement string) {
	t.Helper()
	if _, err := r.db.ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func (r *replicated) status(t *testing.T, name string) (value string) {
	t.Helper()
	must(t, r.db.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_"+r.words.source+"_"+name+"'").Scan(&name, &value))
	return value
}

// checkSynchronous: nothing was committed that the replica had not got.
func (r *replicated) checkSynchronous(t *testing.T) {
	t.Helper()
	if status := r.status(t, "status"); status != "ON" {
		t.Errorf("the replication is not semi-synchronous any more: %s", status)
	}
	if n := r.status(t, "yes_tx"); n == "0" {
		t.Error("no transaction was awaited by the replica")
	}
}

// promote makes the replica the primary, once it has done all that it got.
func (r *replicated) promote(t *testing.T) {
	t.Helper()
	r.do(t, "STOP "+r.words.start+" IO_THREAD")
	eventually(t, "the replica has done all that it got", func() bool {
		s := r.replicaStatus(t)
		if s["Last_SQL_Error"] != "" {
			t.Fatalf("the replica: %s", s["Last_SQL_Error"])
		}
		return s["Read_Position"] == s["Exec_Position"] && s["Read_File"] == s["Exec_File"]
	})
	r.do(t, "STOP "+r.words.start)
	r.do(t, "RESET "+r.words.start+" ALL")
	r.do(t, "SET GLOBAL read_only = 0")
}

// replicaStatus returns how far the replica is, by names that MariaDB and MySQL share.
func (r *replicated) replicaStatus(t *testing.T) map[string]string {
	t.Helper()
	rows, err := r.db.QueryContext(t.Context(), r.words.status)
	must(t, err)
	defer func() { _ = rows.Close() }() // rows.Err says what matters
	names, err := rows.Columns()
	must(t, err)
	values := make([]sql.NullString, len(names))
	into := make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	if !rows.Next() {
		t.Fatalf("it is no replica: %v", rows.Err())
	}
	must(t, rows.Scan(into...))
	word := map[string]string{
		"Last_SQL_Error":      "Last_SQL_Error",
		"Read_Master_Log_Pos": "Read_Position", "Exec_Master_Log_Pos": "Exec_Position", "Master_Log_File": "Read_File", "Relay_Master_Log_File": "Exec_File",
		"Read_Source_Log_Pos": "Read_Position", "Exec_Source_Log_Pos": "Exec_Position", "Source_Log_File": "Read_File", "Relay_Source_Log_File": "Exec_File",
	}
	status := make(map[string]string)
	for i, name := range names {
		if as := word[name]; as != "" {
			status[as] = values[i].String
		}
	}
	return status
}
