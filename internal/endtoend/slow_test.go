//go:build unix

package endtoend_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

// slowGround is a site that does not change, and a program that answers for it through proxies.
type slowGround struct {
	*town

	program           *program
	mysqlServer       *localserver.MySQL
	redisServer       *localserver.Redis
	mysql, redisProxy *servertest.Proxy
	client            *http.Client
	truth             map[member.ID][]uint64 // the photos that each viewer is shown
	all               []member.ID
}

// newSlowGround starts it on servers of its own.
func newSlowGround(t *testing.T) *slowGround {
	t.Helper()
	seed := seedFor(t)
	mysqlServer, redisServer := servertest.OwnMySQL(t), servertest.Redis(t)
	g := groundOn(t, needFor(seed), mysqlServer.DSN(servertest.Database), redisServer)
	s := &slowGround{
		town: newTown(t, g, seed, 0), mysqlServer: mysqlServer, redisServer: redisServer,
		mysql: servertest.NewProxy(t, mysqlServer.Addr()), redisProxy: servertest.NewProxy(t, redisServer.Addr()),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: slowReaders}, Timeout: patience},
		truth:  make(map[member.ID][]uint64),
	}
	t.Cleanup(s.client.CloseIdleConnections)
	s.askForTruth(t)
	s.warm(t, s.viewers())
	s.program = serving(t, "slow", s.mysql.MySQLDSN(g.dsn), s.redisProxy.RedisURL(), fmt.Sprintf("--need=%d", needFor(seed))).mustStart(t)
	s.awaitAsBefore(t)
	return s
}

// trouble is something that befalls the servers while members read.
type trouble struct {
	name   string
	isAway bool // nothing can be answered, and /readyz may say so
	spell
}

// goThrough lets members read in each trouble. A read gets the true answer where the servers allow it, or a
// refusal. Afterwards all is as before.
func (s *slowGround) goThrough(t *testing.T, troubles []trouble) {
	t.Helper()
	for _, trouble := range troubles {
		must(t, trouble.begin())
		o := s.read(t)
		for began := time.Now(); o.good.Load() == 0 && !trouble.isAway && time.Since(began) < patience; {
			o = s.read(t) // a slow machine may refuse them all at first
		}
		must(t, trouble.end())
		t.Logf("%s: %d good, %d refused, %d late; /readyz: %d not ready", trouble.name, o.good.Load(), o.refused.Load(), o.late.Load(), o.unready.Load())
		if o.good.Load() == 0 && !trouble.isAway {
			t.Errorf("%s: nothing was answered", trouble.name)
		}
		if o.unready.Load() > 0 && !trouble.isAway {
			t.Errorf("%s: /readyz was 503 %d times", trouble.name, o.unready.Load())
		}
		s.awaitAsBefore(t)
	}
}

// TestSlowServers: a slow or hanging server is worse than a dead server. More clients than may read at once
// go on reading in each trouble. Each client gets the true answer, or an answer that says when to come back.
// /readyz is 503 only where MySQL does not answer. Afterwards all is as before.
func TestSlowServers(t *testing.T) {
	t.Parallel()
	s := newSlowGround(t)
	idle, walks := s.metric(t, "go_goroutines"), s.walks(t, withoutRedis...)
	// First, while nothing else has made a walk necessary: a process that is late takes no walk for that.
	s.goThrough(t, []trouble{{"the process runs for a tenth of the time", false, turns(s.program.freeze, s.program.thaw, 100*time.Millisecond)}})
	// Some reads may walk on a busy machine, because Redis is late, too. Nearly all walk if the process gives
	// up a node.
	if n := s.walks(t, withoutRedis...) - walks; n > slowReaders*slowReads/3 {
		t.Errorf("%d reads walked because the process was late", n)
	}
	s.goThrough(t, []trouble{
		{"MySQL ten times slower", false, turns(s.mysqlServer.Pause, s.mysqlServer.Resume, 3*time.Millisecond)},
		{"Redis takes 300 ms", false, delayed(s.redisProxy, 150*time.Millisecond)}, // in each direction
		{"packets lost", false, losing(s.mysql, s.redisProxy)},
		{"no commit ends, as on a disk that stalls", false, s.holding(t, "FLUSH TABLES WITH READ LOCK", "UNLOCK TABLES")},
		{"hot rows locked", false, s.holding(t, "SELECT COUNT(*) FROM users JOIN contacts ON contacts.user_id = users.id WHERE users.id < 20 FOR UPDATE", "ROLLBACK")},
		{"Redis hangs", false, spell{s.redisServer.Pause, s.redisServer.Resume}},
		{"MySQL hangs", true, spell{s.mysqlServer.Pause, s.mysqlServer.Resume}},
	})
	// A goroutine that a trouble left behind would still be there: at least one for each reader.
	s.client.CloseIdleConnections()
	eventually(t, "there are as many goroutines as before", func() bool { return s.metric(t, "go_goroutines") < idle+slowReaders })
	s.program.finish(t)
}

// The reasons of walks while Redis does not answer, or is not believed.
var withoutRedis = []recent.Reason{recent.RedisUnavailable, recent.SetUnknown, recent.WritesRefused}

func (s *slowGround) walks(t *testing.T, reasons ...recent.Reason) (n int) {
	t.Helper()
	for _, reason := range reasons {
		n += s.metric(t, fmt.Sprintf("activityd_read_walks_total{reason=%q}", reason))
	}
	return n
}

const (
	slowReaders = 48 // more than may read at once
	slowReads   = 3  // of each, in each trouble
)

// slowOutcomes are counts of reads in a trouble.
type slowOutcomes struct{ good, refused, late, unready atomic.Int64 }

// askForTruth asks plain SQL.
func (s *slowGround) askForTruth(t *testing.T) {
	t.Helper()
	for _, viewer := range s.viewers() {
		album, err := site.AskPlainly(t.Context(), s.db, site.ContactsFirst, contacts.Viewer{ID: viewer}, 10)
		must(t, err)
		s.all, s.truth[viewer] = append(s.all, viewer), nil
		for _, p := range album.Photos {
			s.truth[viewer] = append(s.truth[viewer], p.ID)
		}
	}
}

// read lets all readers read, and asks /readyz beside them.
func (s *slowGround) read(t *testing.T) *slowOutcomes {
	t.Helper()
	o := &slowOutcomes{}
	group, ctx := errgroup.WithContext(t.Context())
	for i := range slowReaders {
		group.Go(func() error {
			for k := range slowReads {
				if err := s.readOnce(ctx, s.all[(i*slowReads+k)%len(s.all)], o); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		for range slowReads {
			code, err := s.status(ctx, "/readyz", nil)
			if err != nil {
				return err
			}
			if code == http.StatusServiceUnavailable {
				o.unready.Add(1)
			}
		}
		return nil
	})
	must(t, group.Wait())
	return o
}

// readOnce reads, and fails unless the answer is true or says when to come back.
func (s *slowGround) readOnce(ctx context.Context, viewer member.ID, o *slowOutcomes) error {
	var answer shown
	code, err := s.status(ctx, fmt.Sprintf("/v1/users/%s/recent-contact-photos", viewer), &answer)
	switch {
	case err != nil:
		return err
	case code == http.StatusServiceUnavailable, code == http.StatusTooManyRequests:
		o.refused.Add(1)
	case code == http.StatusGatewayTimeout:
		o.late.Add(1)
	default:
		var got []uint64
		for _, p := range answer.Photos {
			got = append(got, p.ID)
		}
		if !slices.Equal(got, s.truth[viewer]) {
			return fmt.Errorf("viewer %s is shown the photos %v, want %v", viewer, got, s.truth[viewer])
		}
		o.good.Add(1)
	}
	return nil
}

// status asks once. It fails if the status is not 200, 429, 503 or 504.
func (s *slowGround) status(ctx context.Context, path string, into any) (int, error) {
	address, err := s.program.address()
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	err = exchange(s.client, request, http.StatusOK, &into)
	failed, isStatus := errors.AsType[*statusError](err)
	switch {
	case err == nil:
		return http.StatusOK, nil
	case isStatus && slices.Contains([]int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, failed.code):
		return failed.code, nil
	}
	return 0, fmt.Errorf("%s: %w", path, err)
}

// awaitAsBefore waits until twenty reads in a row are answered.
func (s *slowGround) awaitAsBefore(t *testing.T) {
	t.Helper()
	row, i := 0, 0
	eventually(t, "20 reads in a row are answered", func() bool {
		o := &slowOutcomes{}
		must(t, s.readOnce(t.Context(), s.all[i%len(s.all)], o))
		i++
		row++
		if o.good.Load() == 0 {
			row = 0
		}
		return row == 20
	})
}

// metric is the sum of a metric of the program.
func (s *slowGround) metric(t *testing.T, name string) int {
	t.Helper()
	line, found, err := s.program.latest().findLine("listening for metrics")
	if err != nil || !found {
		t.Fatalf("no listener for metrics: %v", err)
	}
	text, err := scrape(t.Context(), s.client, line.Address)
	must(t, err)
	return int(sumOf(text, name))
}

// spell makes servers slow for a time.
type spell struct{ begin, end func() error }

func delayed(p *servertest.Proxy, by time.Duration) spell {
	set := func(by time.Duration) func() error {
		return func() error {
			p.Delay(by)
			return nil
		}
	}
	return spell{set(by), set(0)}
}

// losing loses each tenth packet.
func losing(proxies ...*servertest.Proxy) spell {
	set := func(in int) func() error {
		return func() error {
			for _, p := range proxies {
				p.Resend(in)
			}
			return nil
		}
	}
	return spell{set(10), set(0)}
}

// turns lets a process run in one turn of ten. turn is the length of a turn.
func turns(pause, resume func() error, turn time.Duration) spell {
	stop, stopped := make(chan struct{}), make(chan error, 1)
	return spell{func() error {
		go func() {
			tick := time.NewTicker(turn)
			defer tick.Stop()
			for i := 0; ; i++ {
				var err error
				switch i % 10 {
				case 0:
					err = pause()
				case 9:
					err = resume()
				}
				select {
				case <-tick.C:
				case <-stop:
					stopped <- errors.Join(err, resume())
					return
				}
			}
		}()
		return nil
	}, func() error {
		close(stop)
		return <-stopped
	}}
}

// holding holds the locks of a statement.
func (s *slowGround) holding(t *testing.T, lock, release string) spell {
	t.Helper()
	var conn *sql.Conn
	return spell{func() (err error) {
		if conn, err = s.db.Conn(t.Context()); err != nil {
			return err
		}
		if _, err = conn.ExecContext(t.Context(), "BEGIN"); err == nil {
			_, err = conn.ExecContext(t.Context(), lock)
		}
		return err
	}, func() error {
		_, err := conn.ExecContext(t.Context(), release)
		return errors.Join(err, conn.Close())
	}}
}
