package main

import (
	"database/sql"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

// masses is a site with many members and no process of activityd. Each has the
// next three for contacts, and everybody uploaded.
type masses struct {
	n      int
	dsn    string
	url    string
	redis  *localserver.Redis
	client *redis.Client
	db     *sql.DB
}

func newMasses(t *testing.T, n int) *masses {
	t.Helper()
	return massesOn(t, n, servertest.MySQLDSN(t), servertest.Redis(t))
}

func massesOn(t *testing.T, n int, dsn string, server *localserver.Redis) *masses {
	t.Helper()
	db, err := mysql.Open(dsn)
	must(t, err)
	m := &masses{n: n, dsn: dsn, url: server.URL(), redis: server, db: db}
	m.client = redis.NewClient(&redis.Options{Network: "unix", Addr: server.Addr()})
	t.Cleanup(func() {
		_ = m.client.Close()
		_ = db.Close()
	})
	var members []site.Member
	var relations []site.Relation
	var photos []site.Photo
	for i := range n {
		id := member.ID(i + 1)
		members = append(members, site.Member{ID: id, Username: fmt.Sprint("member ", id)})
		photos = append(photos, site.Photo{Owner: id, Visibility: contacts.Public, DateUpload: uint64(1000 + i)})
		for next := range 3 {
			relations = append(relations, site.Relation{User: id, Contact: member.ID((i+1+next)%n + 1)})
		}
	}
	s := site.NewMySQL(db)
	must(t, s.LoadMembers(t.Context(), members))
	must(t, s.LoadContacts(t.Context(), relations))
	must(t, s.LoadPhotos(t.Context(), photos))
	return m
}

// args adds the servers to a command.
func (m *masses) args(args ...string) []string {
	return append(args, "--mysql-dsn="+m.dsn, "--redis-url="+m.url)
}

// run runs a command on the servers, in this process.
func (m *masses) run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return command(t, nil, m.args(args...)...)
}

// wantSets checks how many sets there are, and that each holds three members.
func (m *masses) wantSets(t *testing.T, want int) {
	t.Helper()
	keys, err := m.client.Keys(t.Context(), "user_*").Result()
	must(t, err)
	if len(keys) != want {
		t.Errorf("%d sets, want %d", len(keys), want)
	}
	for _, key := range keys {
		if n := m.client.ZCard(t.Context(), key).Val(); n != 3 {
			t.Errorf("%s holds %d members", key, n)
		}
	}
}

// spawn starts a command on the servers, as a process.
func (m *masses) spawn(t *testing.T, args ...string) *process {
	t.Helper()
	return spawn(t, nil, m.args(args...)...)
}

func TestParseRange(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]memberRange{
		"": allMembers, "7": {7, 7}, "7-9": {7, 9}, "7-18446744073709551615": {7, math.MaxUint64}, "7-": {7, math.MaxUint64}, "9-7": {}, "0-7": {}, "-7": {}, "7-8-9": {}, "ada": {},
	} {
		got, err := parseRange(strings.Fields(args))
		if got != want || (err == nil) != (want != memberRange{}) {
			t.Errorf("%q: %v, %v, want %v", args, got, err, want)
		}
		if again, _ := parseRange([]string{got.String()}); err == nil && again != got {
			t.Errorf("%q: is read as %v from %q", args, again, got.String())
		}
	}
}

// A refused login is reported at once, with its true cause.
func TestLongCommandsDoNotWaitForAnotherPassword(t *testing.T) {
	t.Parallel()
	m := newMasses(t, 3)
	_, err := m.db.ExecContext(t.Context(), "CREATE USER IF NOT EXISTS known@localhost IDENTIFIED BY 'right'")
	must(t, err)
	_, place, _ := strings.Cut(m.dsn, "@")
	m.dsn = "known:wrong@" + place
	for _, name := range []string{"backfill", "verify"} {
		code, out, errs := m.run(t, name)
		if code != exitFailed || out != "" || !strings.Contains(errs, "check user and password in the DSN") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit code %d: %s%s", name, code, out, errs)
		}
	}
}
