package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/localserver"
	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/queue/queuetest"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/site"
	"github.com/activityd/activityd/internal/tasks"
)

// apartServers are a site and its queue, each on a server of its own.
type apartServers struct {
	*running

	sites, queues *localserver.MySQL
	flags         []string // of all commands
	queue         *queue.MySQLQueue
	log           *safeLog
	pushed        *pushServices
}

func startApart(t *testing.T) *apartServers {
	t.Helper()
	a := &apartServers{log: &safeLog{}, pushed: startPushServices(t)}
	for _, m := range []struct {
		server **localserver.MySQL
		tables string
	}{{&a.sites, "the site's"}, {&a.queues, "the queue's"}} {
		*m.server = servertest.OwnMySQL(t)
		must(t, (*m.server).CreateDatabase(t.Context(), "own"))
	}
	redisServer := servertest.Redis(t)
	a.flags = []string{"--mysql-dsn=" + a.sites.DSN("own"), "--queue-dsn=" + a.queues.DSN("own")}
	if code, out, _ := command(t, nil, append([]string{"schema", "--check"}, a.flags...)...); code != exitWrong ||
		!strings.Contains(out, "wrong    --mysql-dsn users: there is no such table") || !strings.Contains(out, "wrong    --queue-dsn tasks: there is no such table") {
		t.Errorf("before: exit code %d:\n%s", code, out)
	}
	if out := succeed(t, append([]string{"schema", "--apply"}, a.flags...)...); out != "the 13 tables are there, and nothing is wrong with them\n" {
		t.Errorf("schema --apply: %s", out)
	}
	url := startObserved(t, a.log, a.sites.DSN("own"), redisServer.URL(), append(a.pushed.settings,
		a.flags[1], "--workers=default=5,fan_out=2,refill=2", "--fan-out-part=1", "ACTIVITYD_AUDIT_SWEEP_RATE=1000")...)
	a.flags = append(a.flags, "--redis-url="+redisServer.URL())
	a.running = &running{metrics: url, redis: redisServer, client: redis.NewClient(&redis.Options{Network: "unix", Addr: redisServer.Addr()})}
	t.Cleanup(func() { _ = a.client.Close() })
	eventually(t, "it listens", func() bool {
		for _, line := range a.log.lines("msg=listening ") {
			_, address, _ := strings.Cut(line, "address=")
			a.url = "http://" + strings.TrimSpace(address)
		}
		return a.url != ""
	})
	db, err := mysql.Open(a.sites.DSN("own"))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	queueDB, err := mysql.Open(a.queues.DSN("own"))
	must(t, err)
	t.Cleanup(func() { _ = queueDB.Close() })
	a.db, a.site, a.queue = db, site.NewMySQL(db), queue.NewMySQLQueue(queueDB, queue.Options{Kinds: tasks.Kinds()})
	return a
}

// kill ends a server without warning until back is called.
func kill(t *testing.T, server *localserver.MySQL) (back func()) {
	t.Helper()
	must(t, server.Kill())
	return func() {
		t.Helper()
		must(t, server.Restart(t.Context()))
	}
}

// change commits a change of the site's, and then enqueues its task, and repeats each until it
// succeeds. This is the order that docs/servers.md asks of a site.
func (a *apartServers) change(ctx context.Context, key, statement, path, body string) error {
	for ctx.Err() == nil {
		_, err := a.db.ExecContext(ctx, statement)
		if err == nil {
			break
		}
		_ = retry.Sleep(ctx, 20*time.Millisecond)
	}
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", key)
		if response, err := http.DefaultClient.Do(request); err == nil {
			text, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			switch response.StatusCode {
			case http.StatusAccepted:
				return nil
			case http.StatusServiceUnavailable:
			default:
				return fmt.Errorf("%s: %s: %s", body, response.Status, text)
			}
		}
		_ = retry.Sleep(ctx, 20*time.Millisecond)
	}
	return ctx.Err()
}

func (a *apartServers) shows(t *testing.T, metric string) {
	t.Helper()
	eventually(t, metric, func() bool {
		_, body := page(t, a.metrics+"/metrics")
		return strings.Contains(body, metric+"\n")
	})
}

func (a *apartServers) ready(t *testing.T, status int, words ...string) {
	t.Helper()
	eventually(t, "ready: "+strings.Join(words, " "), func() bool {
		is, body := page(t, a.url+"/readyz")
		for _, word := range words {
			if !strings.Contains(body, word) {
				return false
			}
		}
		return is == status
	})
}

func (a *apartServers) awaitIdle(t *testing.T) {
	t.Helper()
	eventually(t, "every task is done", func() bool {
		n, err := queuetest.Count(t.Context(), a.queue)
		return err == nil && n.Open() == 0
	})
	n, err := queuetest.Count(t.Context(), a.queue)
	must(t, err)
	if n.Dead > 0 {
		t.Errorf("%d tasks are dead", n.Dead)
	}
}

// logged waits for a line about a server.
func (a *apartServers) logged(t *testing.T, message, server string) {
	t.Helper()
	eventually(t, message+" "+server, func() bool { return len(a.log.lines(message, "server="+server+" ")) > 0 })
}

// The servers of the log.
const (
	sitesServer  = "MySQL"
	queuesServer = `"MySQL of the queue"`
)

// TestAQueueOfItsOwn: a site and its queue on two servers, each of which is killed in turn, at
// first with nothing else going on and then under changes, reads and events.
// ACTIVITYD_APART=5m makes the second go on.
func TestAQueueOfItsOwn(t *testing.T) {
	t.Parallel()
	a := startApart(t)
	a.makeSite(t, 14)
	add := func(i int) {
		t.Helper()
		must(t, a.change(t.Context(), fmt.Sprintf("add-%d", i), fmt.Sprintf("REPLACE INTO contacts (user_id, contact_id) VALUES (1, %d)", 100+i),
			"/v1/tasks", fmt.Sprintf(`{"type":"add_contact","user_id":"1","contact_id":"%d"}`, 100+i)))
	}
	for i := 1; i <= 12; i++ {
		add(i)
	}
	a.awaitIdle(t)
	if ids := a.set(t, 1); len(ids) != 12 || ids[0] != "112" {
		t.Fatalf("the set: %v", ids)
	}
	a.ready(t, 200, `"status":"ok"`, `"queue":{"status":"ok"}`)
	a.shows(t, "activityd_site_mysql_up 1")
	if out := succeed(t, append([]string{"enqueue", "refill", "1"}, a.flags...)...); strings.TrimSpace(out) == "" {
		t.Error("enqueue prints no id")
	}
	a.awaitIdle(t)
	a.pushed.register(t, a.running)
	must(t, a.change(t.Context(), "hello", "DO 0", "/v1/events", `{"events":[{"id":"hello","type":"fave","actor_id":"101","recipients":["1"],"title":"t","body":"b","collapse":"c"}]}`))
	accepted := func(events ...string) { // a server that is killed may make doubles of what was being sent
		t.Helper()
		eventually(t, fmt.Sprintf("%d events reach each device", len(events)), func() bool {
			all := a.pushed.accepted(t)
			for _, platform := range push.Platforms() {
				for _, id := range events {
					if !slices.Contains(all[platform], id) {
						return false
					}
				}
			}
			return true
		})
	}
	accepted("hello")
	a.awaitIdle(t)
	if out := succeed(t, append([]string{"push", "show", "hello"}, a.flags[:2]...)...); !strings.Contains(out, "3 accepted\n") {
		t.Errorf("push show:\n%s", out)
	}

	// Without the queue reads go on, and a change's task is accepted when it is back.
	back := kill(t, a.queues)
	a.ready(t, 200, `"status":"degraded"`, `"mysql":{"status":"ok"}`, `"queue":{"status":"unavailable"`)
	a.shows(t, "activityd_mysql_up 0")
	a.shows(t, "activityd_site_mysql_up 1")
	if r := a.read(t, 1); r.status != 200 || r.contact() != "112" {
		t.Errorf("without the queue: %+v", r)
	}
	if status := a.post(t, `{"type":"upload","user_id":"101"}`); status != 503 {
		t.Errorf("a task without the queue: status %d, want 503", status)
	}
	a.logged(t, "server cannot be used", queuesServer)
	back()
	add(13)
	a.awaitIdle(t)
	if r := a.read(t, 1); r.contact() != "113" || r.Source != "index" {
		t.Errorf("with the queue: %+v", r)
	}
	a.logged(t, "server can be used again", queuesServer)

	// Without the site's database nothing can be read, and tasks are accepted and wait.
	back = kill(t, a.sites)
	a.ready(t, 200, `"status":"degraded"`, `"mysql":{"status":"unavailable"`, `tasks are accepted and wait`, `"queue":{"status":"ok"}`)
	a.shows(t, "activityd_site_mysql_up 0")
	if status := a.post(t, `{"type":"refill","user_id":"1"}`); status != 202 {
		t.Errorf("a task without the site: status %d, want 202", status)
	}
	a.logged(t, "server cannot be used", sitesServer)
	back()
	a.awaitIdle(t)
	a.logged(t, "server can be used again", sitesServer)
	a.ready(t, 200, `"status":"ok"`)
	for _, line := range a.log.lines("server cannot be used") {
		if strings.Contains(line, "server="+sitesServer+" ") != (strings.Contains(line, "last uploads") || strings.Contains(line, "schema --mysql-dsn")) {
			t.Errorf("the wrong server is named: %s", line)
		}
	}

	accepted(a.underFire(t)...)
	var pending int
	must(t, a.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM push_receipts WHERE state = 'pending'").Scan(&pending))
	if pending > 0 {
		t.Errorf("%d receipts are pending, and nothing will deliver them", pending)
	}
	if out := succeed(t, append([]string{"verify", "--all"}, a.flags...)...); !strings.Contains(out, "; 0 wrong;") {
		t.Errorf("verify:\n%s", out)
	}
	// A task before its change: the worker finds nothing to do. It takes the audit to notice.
	if status := a.post(t, `{"type":"add_contact","user_id":"1","contact_id":"114"}`); status != 202 {
		t.Errorf("status %d, want 202", status)
	}
	a.awaitIdle(t)
	missing := func() (n int) {
		_, body := page(t, a.metrics+"/metrics")
		_, rest, _ := strings.Cut(body, `activityd_audit_findings_total{cause="missing_contact",class="error"} `)
		value, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.Atoi(value)
		must(t, err)
		return n
	}
	before := missing()
	_, err := a.db.ExecContext(t.Context(), "INSERT INTO contacts (user_id, contact_id) VALUES (1, 114)")
	must(t, err)
	eventually(t, "the audit repairs a change that was not reported", func() bool { return slices.Contains(a.set(t, 1), "114") })
	if missing() <= before {
		t.Error("the audit does not count it")
	}
	eventually(t, "one process sweeps, by the states of once in the site's database", func() bool {
		var n int
		must(t, a.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM once_keys WHERE name >= '!'").Scan(&n))
		return n > 0
	})
}

// underFire kills each server in turn while the site changes, is read and sends events. It
// returns the ids of the events.
func (a *apartServers) underFire(t *testing.T) (events []string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	changed := 0
	var mu sync.Mutex
	var failed error
	var producers sync.WaitGroup
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = errors.Join(failed, err)
		}
		changed++
	}
	whole := context.WithoutCancel(ctx) // a change that has begun is completed
	for p := range 3 {
		producers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				contact, statement, kind := 101+(n*3+p)%14, "REPLACE INTO contacts (user_id, contact_id) VALUES (%d, %d)", "add_contact"
				if n%3 == 2 {
					statement, kind = "DELETE FROM contacts WHERE user_id = %d AND contact_id = %d", "remove_contact"
				}
				viewer := 102 + p // of its own, so that its changes have one order
				note(a.change(whole, fmt.Sprintf("c-%d-%d", p, n), fmt.Sprintf(statement, viewer, contact), "/v1/tasks",
					fmt.Sprintf(`{"type":%q,"user_id":"%d","contact_id":"%d"}`, kind, viewer, contact)))
				if n%5 == 0 {
					owner := 101 + n%14
					upload := fmt.Sprintf("UPDATE users SET last_upload = last_upload + 1 WHERE id = %d", owner)
					note(a.change(whole, fmt.Sprintf("u-%d-%d", p, n), upload, "/v1/tasks", fmt.Sprintf(`{"type":"upload","user_id":"%d"}`, owner)))
				}
				_ = retry.Sleep(ctx, 5*time.Millisecond)
			}
		})
	}
	producers.Go(func() {
		for id := 1; ctx.Err() == nil; id++ {
			response, err := http.Get(fmt.Sprintf("%s/v1/users/%d/recent-contact-photos", a.url, 102+id%3))
			if err == nil {
				_ = response.Body.Close()
				if status := response.StatusCode; status != http.StatusOK && status != http.StatusServiceUnavailable {
					err = fmt.Errorf("a read: status %d", status)
				}
			}
			if err != nil {
				note(err)
			}
			_ = retry.Sleep(ctx, 10*time.Millisecond)
		}
	})
	producers.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			id := fmt.Sprintf("e-%d", n) // each is a burst of its own, so that it has receipts before it is sent
			events = append(events, id)
			note(a.change(whole, id, "DO 0", "/v1/events",
				fmt.Sprintf(`{"events":[{"id":%q,"type":"fave","actor_id":"101","recipients":["1"],"title":"t","body":"b","collapse":%q}]}`, id, id)))
			_ = retry.Sleep(ctx, 20*time.Millisecond)
		}
	})
	progress := func() {
		t.Helper()
		mu.Lock()
		from := changed
		mu.Unlock()
		eventually(t, "changes are made", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return changed >= from+30
		})
	}
	until := time.Now()
	if text := os.Getenv("ACTIVITYD_APART"); text != "" {
		length, err := time.ParseDuration(text)
		must(t, err)
		until = until.Add(length)
	}
	for {
		for _, server := range []*localserver.MySQL{a.queues, a.sites} {
			progress()
			kill(t, server)()
		}
		if !time.Now().Before(until) {
			break
		}
	}
	progress()
	stop()
	producers.Wait()
	must(t, failed)
	t.Logf("%d changes, and events", changed)
	a.awaitIdle(t)
	return events
}

// TestTheSchemaOfTwoDatabases on one server.
func TestTheSchemaOfTwoDatabases(t *testing.T) {
	t.Parallel()
	site, queues := "--mysql-dsn="+servertest.MySQLDSN(t), "--queue-dsn="+servertest.MySQLDSN(t)
	db, err := mysql.Open(strings.TrimPrefix(site, "--mysql-dsn="))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	says := func(want int, words []string, args ...string) {
		t.Helper()
		code, out, errs := command(t, nil, args...)
		for _, word := range words {
			if !strings.Contains(out+errs, word) {
				t.Errorf("%s: says\n%s%s, want %q", strings.Join(args, " "), out, errs, word)
			}
		}
		if code != want {
			t.Errorf("%s: exit code %d, want %d", strings.Join(args, " "), code, want)
		}
	}
	if _, out, errs := command(t, nil, "schema", "--check", site, "--queue-dsn="+strings.TrimPrefix(site, "--mysql-dsn=")); strings.Contains(out+errs, "DROP TABLE") {
		t.Errorf("it advises to drop the tables of the queue:\n%s%s", out, errs)
	}
	says(0, []string{"warning  --mysql-dsn tasks: is the queue of processes without --queue-dsn", "the 13 tables are there and can be used, with 1 warnings"}, "schema", "--check", site, queues)
	same := "--queue-dsn=" + strings.TrimPrefix(site, "--mysql-dsn=")
	for _, do := range []string{"--check", "--apply"} {
		says(exitWrong, []string{"--queue-dsn: is the database of --mysql-dsn", "leave --queue-dsn out"}, "schema", do, site, same)
	}
	_, err = db.ExecContext(t.Context(), "DROP TABLE tasks, paused_queues, task_keys")
	must(t, err)
	says(0, []string{"nothing is wrong"}, "schema", "--check", site, queues)
	says(exitFailed, []string{"tasks: there is no such table"}, "serve", site, "--listen=127.0.0.1:0", "--metrics-listen=")
	says(exitFailed, []string{"create the missing tables"}, "enqueue", "upload", "1", site)
	says(0, nil, "enqueue", "upload", "1", site, queues)
	says(0, []string{"upload"}, "tasks", "list", site, queues)

	place, err := mysql.Place(strings.TrimPrefix(queues, "--queue-dsn="))
	must(t, err)
	_, name, _ := strings.Cut(place, ")/")
	says(0, []string{"INSERT INTO `" + name + "`.tasks (type, subject, args)"}, "schema", "--triggers", queues)
	says(0, []string{"the 10 triggers are installed"}, "schema", "--triggers", "--apply", site, queues)
	says(0, []string{"nothing is wrong"}, "schema", "--check", site, queues)
}

// TestWithoutTheOptionThereIsOnePool of connections to MySQL.
func TestWithoutTheOptionThereIsOnePool(t *testing.T) {
	t.Parallel()
	c := configFor(t, servertest.MySQLDSN(t), "redis://127.0.0.1:1")
	for _, test := range []struct {
		dsn  string
		want bool
	}{{"", true}, {servertest.MySQLDSN(t), false}} {
		c.queueDSN = test.dsn
		db, queueDB, err := openMySQL(c)
		must(t, err)
		if one := db == queueDB; one != test.want || queueDB.Stats().MaxOpenConnections != 32 {
			t.Errorf("--queue-dsn=%q: one pool %t, want %t", test.dsn, one, test.want)
		}
		must(t, errors.Join(db.Close(), queueDB.Close()))
	}
}
