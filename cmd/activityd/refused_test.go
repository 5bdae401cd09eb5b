package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// refusing is a way in which Redis refuses to work for activityd.
type refusing struct {
	begin, end func(t *testing.T, admin *redis.Conn)
	reason     string // in /readyz
	code       string // in the errors of the tasks
	reads      bool   // it refuses writes alone
}

// do returns a function that sends commands.
func do(commands ...string) func(t *testing.T, admin *redis.Conn) {
	return func(t *testing.T, admin *redis.Conn) {
		t.Helper()
		for _, command := range commands {
			var args []any
			for word := range strings.FieldsSeq(command) {
				args = append(args, word)
			}
			if err := admin.Do(t.Context(), args...).Err(); err != nil {
				t.Fatalf("%s: %v", command, err)
			}
		}
	}
}

// The rights that docs/deploy.md calls enough.
const (
	appKeys   = "~user_* ~guard_* ~activityd_*"
	appRights = appKeys + " &activityd_* +@read +@write +@scripting +@connection +@pubsub +info"
)

func refusals() map[string]refusing {
	return map[string]refusing{
		"full":        {do("CONFIG SET maxmemory 1"), do("CONFIG SET maxmemory 0"), "its memory is full (OOM)", "OOM", true},
		"read-only":   {do("REPLICAOF 127.0.0.1 1"), do("REPLICAOF NO ONE"), "it is a replica", "it is a replica", false},
		"ACL, writes": {do("ACL SETUSER app -@write"), do("ACL SETUSER app +@write"), "its ACL forbids this user a command or a key (NOPERM)", "it refuses", true},
		"password": {
			do("ACL SETUSER app resetpass >other", "CLIENT KILL USER app"), do("ACL SETUSER app resetpass >right"),
			"the user name or the password is wrong or missing", "WRONGPASS", false,
		},
	}
}

// While Redis refuses, tasks wait and use up no attempt, reads are right, and it can
// be seen; afterwards all is done.
func TestRedisRefuses(t *testing.T) {
	t.Parallel()
	for name, refusal := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, admin, metrics := startAsApp(t)
			refusal.begin(t, admin)
			r.awaitReady(t, `"status":"degraded"`, refusal.reason)
			node := "{node=\"" + r.redis.Addr() + "\"} "
			awaitMetric(t, metrics, "activityd_redis_writable"+node+"0")
			awaitMetric(t, metrics, fmt.Sprintf("activityd_redis_up%s%d", node, map[bool]int{true: 1}[refusal.reads]))
			// A contact that is not in the set yet: a single command, without a script, could raise a member's score.
			_, err := r.site.Upload(t.Context(), site.Photo{Owner: 101, Visibility: contacts.Public, DateUpload: 999_999})
			must(t, err)
			must(t, r.site.SetContact(t.Context(), 1, 115, site.Grant{}))
			if a := r.read(t, 1); a.contact() != "101" || a.Source != "database" {
				t.Errorf("answer %+v", a)
			}
			eventually(t, "a task is postponed, and a page of the fan-out comes again", func() bool {
				open := r.open(t)
				return slices.ContainsFunc(open, func(r queue.Record) bool { return strings.Contains(r.LastError, refusal.code) && failures(r) == 0 }) &&
					slices.ContainsFunc(open, func(r queue.Record) bool { return r.Kind == tasks.FanOutAgain })
			})
			awaitMetric(t, metrics, `activityd_oldest_due_seconds{queue="default"} `, 0)
			refusal.end(t, admin)
			r.awaitReady(t, `"status":"ok"`)
			awaitMetric(t, metrics, "activityd_redis_writable"+node+"1")
			r.awaitTasks(t)
			eventually(t, "reads go by the set", func() bool {
				a := r.read(t, 1)
				if a.contact() != "101" {
					t.Fatalf("answer %+v", a)
				}
				return a.Source == "index"
			})
		})
	}
}

// startAsApp starts a reading and a working process, as the user app of their Redis, with a set in place, and returns
// the address of the second's metrics.
func startAsApp(t *testing.T) (r *running, admin *redis.Conn, metrics string) {
	t.Helper()
	server, mysqlDSN := servertest.Redis(t), servertest.MySQLDSN(t)
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	admin = client.Conn()
	do("ACL SETUSER app on >right "+appRights)(t, admin)
	url := strings.Replace(server.URL(), "unix://", "unix://app:right@", 1)
	r = start(t, configFor(t, mysqlDSN, url, "--role=api"))
	metrics = spawnServe(t, mysqlDSN, url, "--role=workers").metrics
	db, err := mysql.Open(mysqlDSN)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	r.db, r.site, r.redis = db, site.NewMySQL(db), server
	r.makeSite(t, 15)
	for i := 1; i <= 14; i++ {
		must(t, r.site.SetContact(t.Context(), 1, member.ID(100+i), site.Grant{}))
	}
	r.awaitTasks(t)
	if a := r.read(t, 1); a.contact() != "114" || a.Source != "index" {
		t.Fatalf("answer %+v", a)
	}
	return r, admin, metrics
}

// awaitReady waits until /readyz says all of the words, with status 200.
func (r *running) awaitReady(t *testing.T, words ...string) {
	t.Helper()
	var body string
	defer func() {
		if t.Failed() {
			t.Log(body)
		}
	}()
	eventually(t, fmt.Sprintf("/readyz says %q", words), func() bool {
		var status int
		status, body = page(t, r.url+"/readyz")
		for _, word := range words {
			if !strings.Contains(body, word) {
				return false
			}
		}
		return status == http.StatusOK
	})
}

// awaitMetric waits until the metrics have a line, or a line with that beginning and a value greater than above.
func awaitMetric(t *testing.T, url, line string, above ...float64) {
	t.Helper()
	eventually(t, line, func() bool {
		_, body := page(t, url+"/metrics")
		_, rest, found := strings.Cut(body, "\n"+line)
		if !found || len(above) == 0 {
			return found && strings.HasPrefix(rest, "\n")
		}
		var value float64
		_, err := fmt.Sscan(rest, &value)
		return err == nil && value > above[0]
	})
}

// open returns the unfinished tasks, dead tasks too.
func (r *running) open(t *testing.T) []queue.Record {
	t.Helper()
	list, err := queue.NewQueue(r.db, queue.Options{Kinds: tasks.Kinds()}).List(context.Background(), queue.Filter{}, 1<<20)
	must(t, err)
	return slices.DeleteFunc(list, func(r queue.Record) bool { return r.Kind == tasks.CheckRange }) // a check of a range always waits
}

// failures returns how many attempts of a task failed: the running attempt has not.
func failures(r queue.Record) int {
	if r.State == queue.Running {
		return r.Attempts - 1
	}
	return r.Attempts
}
