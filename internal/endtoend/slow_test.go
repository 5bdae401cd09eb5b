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

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
)

const (
	slowReaders = 48 // more than may read at once
	slowReads   = 2  // of each, in each trouble
)

// slowGround is a site that does not change, and a program that answers for it through proxies.
type slowGround struct {
	*town

	program           *program
	server            *localserver.MySQL
	mysql, redisProxy *servertest.Proxy
	client            *http.Client
	truth             map[member.ID][]uint64 // the photos that each viewer is shown
	conn              *sql.Conn              // holds locks
}

// newSlowGround starts it on servers of its own.
func newSlowGround(t *testing.T) *slowGround {
	t.Helper()
	seed, server := seedFor(t), servertest.OwnMySQL(t)
	g := groundOn(t, needFor(seed), server.DSN(servertest.Database), servertest.Redis(t))
	s := &slowGround{
		town: newTown(t, g, seed, 0), server: server, mysql: servertest.NewProxy(t, server.Addr()), redisProxy: servertest.NewProxy(t, g.redis.Addr()),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: slowReaders}, Timeout: patience},
		truth:  make(map[member.ID][]uint64),
	}
	t.Cleanup(s.client.CloseIdleConnections)
	for _, viewer := range s.viewers() {
		s.truth[viewer] = plainly(t, g, viewer)
	}
	s.warm(t, s.viewers())
	s.program = serving(t, "slow", s.mysql.MySQLDSN(g.dsn), s.redisProxy.RedisURL(), fmt.Sprintf("--need=%d", needFor(seed))).mustStart(t)
	s.awaitAsBefore(t)
	return s
}

// TestSlowServers: a slow or hanging server is worse than a dead server. More clients than may read at once
// go on reading in each trouble. Each client gets the true answer, or an answer that says when to come back.
// /readyz is 503 only where MySQL does not answer. Afterwards all is as before.
func TestSlowServers(t *testing.T) {
	t.Parallel()
	s := newSlowGround(t)
	for _, trouble := range []struct {
		name       string
		isAway     bool // nothing can be answered, and /readyz may say so
		begin, end func() error
	}{
		{"MySQL takes 60 ms", false, delay(s.mysql, 30*time.Millisecond), delay(s.mysql, 0)}, // in each direction
		{"Redis takes 300 ms", false, delay(s.redisProxy, 150*time.Millisecond), delay(s.redisProxy, 0)},
		{"no commit ends, as on a disk that stalls", false, s.locks(t, "FLUSH TABLES WITH READ LOCK"), s.locks(t, "UNLOCK TABLES")},
		{"Redis hangs", false, s.redis.Pause, s.redis.Resume},
		{"MySQL hangs", true, s.server.Pause, s.server.Resume},
	} {
		must(t, trouble.begin())
		o := s.read(t)
		for began := time.Now(); o.good.Load() == 0 && !trouble.isAway && time.Since(began) < patience; {
			o = s.read(t) // a slow machine may refuse them all at first
		}
		must(t, trouble.end())
		t.Logf("%s: %d good, %d refused, %d of them early; /readyz: %d not ready", trouble.name, o.good.Load(), o.refused.Load(), o.early.Load(), o.unready.Load())
		if !trouble.isAway && (o.good.Load() == 0 || o.unready.Load() > 0) {
			t.Errorf("%s: %d reads were answered, /readyz was 503 %d times", trouble.name, o.good.Load(), o.unready.Load())
		}
		if trouble.isAway && o.early.Load() == 0 {
			t.Errorf("%s: no read was refused early", trouble.name)
		}
		s.awaitAsBefore(t)
	}
	s.program.finish(t)
}

func delay(p *servertest.Proxy, by time.Duration) func() error {
	return func() error {
		p.Delay(by)
		return nil
	}
}

// locks returns a function that runs a statement on a connection that the locks stay with.
func (s *slowGround) locks(t *testing.T, statement string) func() error {
	t.Helper()
	return func() error {
		if s.conn == nil {
			conn, err := s.db.Conn(t.Context())
			if err != nil {
				return err
			}
			s.conn = conn
			t.Cleanup(func() { _ = conn.Close() })
		}
		_, err := s.conn.ExecContext(t.Context(), statement)
		return err
	}
}

// slowOutcomes are counts of reads in a trouble.
type slowOutcomes struct{ good, refused, early, unready atomic.Int64 }

// read lets all readers read, and asks /readyz beside them.
func (s *slowGround) read(t *testing.T) *slowOutcomes {
	t.Helper()
	o, viewers := &slowOutcomes{}, s.viewers()
	group, ctx := errgroup.WithContext(t.Context())
	for i := range slowReaders {
		group.Go(func() error {
			for k := range slowReads {
				if err := s.readOnce(ctx, viewers[(i*slowReads+k)%len(viewers)], o); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		for range slowReads {
			var answer any
			if err := get(ctx, s.client, s.program, "/readyz", &answer); err != nil && !isRefused(err) {
				return err
			} else if err != nil {
				o.unready.Add(1)
			}
		}
		return nil
	})
	must(t, group.Wait())
	return o
}

// isRefused reports whether an answer says when to come back, or came too late.
func isRefused(err error) bool {
	status, answered := errors.AsType[*statusError](err)
	return answered && slices.Contains([]int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, status.code)
}

// readOnce reads, and fails unless the answer is true or a refusal.
func (s *slowGround) readOnce(ctx context.Context, viewer member.ID, o *slowOutcomes) error {
	began := time.Now()
	answer, err := ask(ctx, s.client, s.program, viewer, 10)
	switch {
	case isRefused(err):
		o.refused.Add(1)
		if time.Since(began) < time.Second {
			o.early.Add(1)
		}
	case err != nil:
		return err
	case !slices.Equal(answer.ids(), s.truth[viewer]):
		return fmt.Errorf("viewer %s is shown the photos %v, want %v", viewer, answer.ids(), s.truth[viewer])
	default:
		o.good.Add(1)
	}
	return nil
}

// awaitAsBefore waits until twenty reads in a row are answered.
func (s *slowGround) awaitAsBefore(t *testing.T) {
	t.Helper()
	row, viewers := 0, s.viewers()
	eventually(t, "20 reads in a row are answered", func() bool {
		o := &slowOutcomes{}
		must(t, s.readOnce(t.Context(), viewers[row], o))
		row = (row + 1) * int(o.good.Load())
		return row == 20
	})
}
