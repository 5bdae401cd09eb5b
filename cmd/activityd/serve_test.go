package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// running is a server in this process, on private servers.
type running struct {
	url     string
	metrics string // the URL of its metrics, if it listens for them
	config  *config
	redis   *localserver.Redis
	client  *redis.Client
	db      *sql.DB
	site    *site.MySQL
	stop    func() error // stops it and returns how it ended
}

// configFor returns the defaults of serve, on the given servers and a free port.
func configFor(t *testing.T, mysqlDSN, redisURL string, given ...string) *config {
	t.Helper()
	c, fs := parseServe(t, append([]string{"--mysql-dsn=" + mysqlDSN, "--redis-url=" + redisURL, "--listen=127.0.0.1:0", "--metrics-listen=", "--poll=20ms"}, given...)...)
	must(t, c.check(fs))
	return c
}

// parseServe reads settings of serve: flags or variables of the environment.
func parseServe(t *testing.T, given ...string) (*config, *pflag.FlagSet) {
	t.Helper()
	c, f := &config{}, pflag.NewFlagSet("serve", pflag.ContinueOnError)
	c.serveFlags(f)
	environ, flags := settingsOf(given)
	must(t, f.Parse(append([]string{dsn}, flags...)))
	must(t, settings.Loader{Settings: allSettings(), Environ: environ, Warnings: t.Output()}.Load(f, ""))
	return c, f
}

// start serves until the test ends.
func start(t *testing.T, c *config) *running {
	t.Helper()
	return startLogged(t, c, slog.New(slog.DiscardHandler))
}

func startLogged(t *testing.T, c *config, log *slog.Logger) *running {
	t.Helper()
	c.drain = 0 // no load balancer asks
	s, err := openService(c, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.listen(t.Context()); err != nil {
		t.Fatalf("the server did not start: %v", errors.Join(err, s.closers.close()))
	}
	r := &running{config: c, stop: sync.OnceValue(inBackground(s))}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	if address := s.api.Addr(); address != nil {
		r.url = "http://" + address.String()
	}
	if s.metricsServer != nil {
		r.metrics = "http://" + s.metricsServer.Addr().String()
	}
	return r
}

// inBackground runs a server that listens, and returns a function that stops and
// closes it and returns how that ended.
func inBackground(s *service) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx) }()
	return func() error {
		cancel()
		return errors.Join(<-ended, s.closers.close())
	}
}

// startAll starts private servers and a server on them.
func startAll(t *testing.T, flags ...string) *running {
	t.Helper()
	return startAllWith(t, func(*config) {}, flags...)
}

// startAllWith is startAll with settings that are no flags.
func startAllWith(t *testing.T, set func(*config), flags ...string) *running {
	t.Helper()
	redisServer, mysqlDSN := servertest.Redis(t), servertest.MySQLDSN(t)
	c := configFor(t, mysqlDSN, redisServer.URL(), flags...)
	set(c)
	r := start(t, c)
	r.redis = redisServer
	r.client = redis.NewClient(&redis.Options{Network: "unix", Addr: redisServer.Addr()})
	t.Cleanup(func() { _ = r.client.Close() })
	r.openSite(t, mysqlDSN)
	return r
}

// openSite opens the site's database.
func (r *running) openSite(t *testing.T, dsn string) {
	t.Helper()
	db, err := mysql.Open(dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	r.db, r.site = db, site.NewMySQL(db)
}

// answer is the answer of the endpoint.
type answer struct {
	Contact *struct{ ID string }  `json:"contact"`
	Photos  []struct{ ID string } `json:"photos"`
	Source  string                `json:"source"`
	status  int
}

func (a answer) contact() string {
	if a.Contact == nil {
		return ""
	}
	return a.Contact.ID
}

func (r *running) read(t *testing.T, viewer int) (a answer) {
	t.Helper()
	status, body := page(t, r.url+fmt.Sprintf("/v1/users/%d/recent-contact-photos", viewer))
	a.status = status
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return a
}

// set returns the ids in a user's set, newest upload first, as an operator sees
// them.
func (r *running) set(t *testing.T, user int) []string {
	t.Helper()
	ids, err := r.client.Do(t.Context(), "ZREVRANGE", fmt.Sprintf("user_%d", user), 0, -1).StringSlice()
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// awaitTasks waits until no task is open.
func (r *running) awaitTasks(t *testing.T) {
	t.Helper()
	var left []queue.Record
	defer func() {
		if t.Failed() {
			t.Logf("tasks left: %+v", left)
		}
	}()
	eventually(t, "all tasks are done", func() bool {
		left = r.open(t)
		return len(left) == 0
	})
}

// makeSite makes viewer 1 and members 101 to 100+n, each with a public photo of second 1000 times its number. No member
// has a contact.
func (r *running) makeSite(t *testing.T, n int) {
	t.Helper()
	members, photos := []site.Member{{ID: 1, Username: "viewer"}}, []site.Photo(nil)
	for i := 1; i <= n; i++ {
		id := uint64(100 + i)
		members = append(members, site.Member{ID: member.ID(100 + i), Username: fmt.Sprintf("member %d", id)})
		photos = append(photos, site.Photo{ID: 1000 * id, Owner: member.ID(100 + i), Visibility: contacts.Public, DateUpload: 1000 * id})
	}
	must(t, r.site.LoadMembers(t.Context(), members))
	must(t, r.site.LoadPhotos(t.Context(), photos))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTasksByHTTP(t *testing.T) {
	t.Parallel()
	r := startAll(t, "ACTIVITYD_AUDIT_SWEEP_RATE=0") // the sweep builds missing sets
	r.makeSite(t, 2)
	if _, err := r.db.ExecContext(t.Context(), "INSERT INTO contacts (user_id, contact_id) VALUES (1, 101), (1, 102)"); err != nil {
		t.Fatal(err)
	}
	post := func(body string) int {
		status, _ := r.request(t, http.MethodPost, "/v1/tasks", body)
		return status
	}
	if status := post(`{"tasks":[{"type":"add_contact","user_id":"1","contact_id":"101"},{"type":"add_contact","user_id":1,"contact_id":"x"}]}`); status != 400 {
		t.Errorf("half-bad batch: %d", status)
	}
	if ids := r.set(t, 1); len(ids) != 0 {
		t.Errorf("a half-bad batch changed something: %v", ids)
	}
	if status := post(`{"type":"add_contact","user_id":"1","contact_id":"101"}`); status != 202 {
		t.Errorf("good task: %d", status)
	}
	eventually(t, "the set is there", func() bool { return slices.Equal(r.set(t, 1), []string{"102", "101"}) })
}

// Nothing but time depends on Redis: it may be away at the start, come, and go.
func TestServeWithoutRedis(t *testing.T) {
	t.Parallel()
	redisServer := servertest.Redis(t)
	must(t, redisServer.Kill())
	mysqlDSN := servertest.MySQLDSN(t)
	r := start(t, configFor(t, mysqlDSN, redisServer.URL()))
	db, err := mysql.Open(mysqlDSN)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	r.db, r.site = db, site.NewMySQL(db)
	r.makeSite(t, 2)
	must(t, r.site.SetContact(t.Context(), 1, 102, site.Grant{}))
	if a := r.read(t, 1); a.contact() != "102" || a.Source != "database" {
		t.Fatalf("answer %+v", a)
	}
	r.awaitReady(t, `"status":"degraded"`)
	must(t, redisServer.Restart(t.Context()))
	eventually(t, "the task is done", func() bool { return r.read(t, 1).Source == "index" })
	r.awaitReady(t, `"status":"ok"`)
}

// A statement of the site's may hold a table that the check of the schema reads, while MySQL answers all else.
func TestTheLogSaysWhyServeStillWaits(t *testing.T) {
	t.Parallel()
	mysqlDSN := servertest.MySQLDSN(t)
	holder, err := queueOf(t, mysqlDSN).Conn(t.Context())
	must(t, err)
	defer func() { _ = holder.Close() }()
	_, err = holder.ExecContext(t.Context(), "LOCK TABLES photos WRITE")
	must(t, err)
	var log logtest.Log
	startLogged(t, configFor(t, mysqlDSN+"&lock_wait_timeout=1", servertest.Redis(t).URL()), log.Logger())
	eventually(t, "the log says why", func() bool {
		return strings.Contains(log.String(), `msg="call failed while the server answers others" server=MySQL error="check the schema: `)
	})
	_, err = holder.ExecContext(t.Context(), "UNLOCK TABLES")
	must(t, err)
	eventually(t, "it works", func() bool { return strings.Contains(log.String(), "msg=ready") })
}

// Two sites on one Redis: every command of the second refuses, and says why.
func TestAnotherDatabaseOfTheSameRedisIsRefused(t *testing.T) {
	t.Parallel()
	r := startAll(t)
	r.makeSite(t, 1)
	succeed(t, "backfill", "--mysql-dsn="+r.config.mysqlDSN, "--redis-url="+r.config.redisURL)
	otherDSN := servertest.MySQLDSN(t)
	servers := []string{"--mysql-dsn=" + otherDSN, "--redis-url=" + r.config.redisURL}
	commands := [][]string{{"serve", "--listen=127.0.0.1:0", "--metrics-listen="}, {"backfill"}, {"verify"}, {"explain", "1"}}
	isRefused := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), "the sets in Redis are those of another database") && strings.Contains(err.Error(), "activityd reset --yes")
	}
	for _, args := range commands {
		if said, err := refusedAtTheStart(t, isRefused, slices.Concat(args, servers)...); !isRefused(err) {
			t.Errorf("%q: %v: %s", args, err, said)
		}
	}
	must(t, r.stop())
	succeed(t, "reset", "--yes", servers[1])
	other := start(t, configFor(t, otherDSN, r.config.redisURL))
	other.openSite(t, otherDSN)
	other.makeSite(t, 1)
	must(t, other.site.SetContact(t.Context(), 1, 101, site.Grant{}))
	eventually(t, "the second has sets", func() bool { return other.read(t, 1).Source == "index" })
	refused, err := refusedAtTheStart(t, isRefused, "verify", "--mysql-dsn="+r.config.mysqlDSN, servers[1])
	if !isRefused(err) {
		t.Errorf("the first: %v: %s", err, refused)
	}
}
