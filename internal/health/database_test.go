package health_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/health"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/redisnodes"
)

// logged is a log that can be read while it is written.
type logged struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// pass lets time pass within a synctest bubble, and then all goroutines come to rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// answering is a database that answers as a test says.
type answering struct {
	answer atomic.Pointer[func(context.Context) error]
}

func (a *answering) set(answer func(context.Context) error) { a.answer.Store(&answer) }

func (a *answering) fail(err error) { a.set(func(context.Context) error { return err }) }

func (a *answering) ask(ctx context.Context) error {
	if answer := a.answer.Load(); answer != nil {
		return (*answer)(ctx)
	}
	return nil
}

func hangs(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func well(context.Context) error { return nil }

// wellNodes are nodes that can be used.
type wellNodes struct{ health.Nodes }

func (wellNodes) Status(context.Context) redisnodes.Status {
	return redisnodes.Status{Nodes: []redisnodes.NodeStatus{{Node: "a:1"}}}
}

// serversOf returns servers whose Redis is well; queue nil: it is in the site's database.
func serversOf(t *testing.T, log *slog.Logger, site, queue func(context.Context) error) health.Servers {
	t.Helper()
	apart := queue != nil
	if !apart {
		queue = well
	}
	r := health.NewRedis(nil, wellNodes{}, log)
	return health.NewServers(site, queue, apart, r, log)
}

// A database that answered a moment ago, and is late, is busy; one that goes on to be late is away.
// What is wrong with it, a client is told in a few words.
func TestADatabaseThatIsBusyOrAway(t *testing.T) {
	t.Parallel()
	denied := mysql.Translate(t.Context(), "x", &driver.MySQLError{Number: 1045, Message: "Access denied for user 'app'@'db1'"})
	for name, test := range map[string]struct {
		answer func(context.Context) error
		soon   api.Component // within the five seconds after the last answer
		later  string        // Detail, when it cannot be used
	}{
		"hangs": {hangs, api.Component{Usable: true, Detail: "busy: requests may be late, or fail"}, "cannot be reached"},
		"has no connection to spare": {
			answer: func(context.Context) error { return fmt.Errorf("x: %w", mysql.ErrBusy) },
			soon:   api.Component{Usable: true, Detail: "busy: requests may be late, or fail"},
			later:  "cannot be reached",
		},
		"refuses connections": {
			answer: func(context.Context) error { return fmt.Errorf("x: %w", mysql.ErrUnavailable) },
			soon:   api.Component{Detail: "cannot be reached"},
			later:  "cannot be reached",
		},
		"knows no such user": {
			answer: func(context.Context) error { return denied },
			soon:   api.Component{Detail: "access denied: see the log"},
			later:  "access denied: see the log",
		},
		"lacks a table": {
			answer: func(context.Context) error { return errors.New("no such table as secret") },
			soon:   api.Component{Detail: "cannot be used: see the log"},
			later:  "cannot be used: see the log",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, log := &answering{}, &logged{}
				s := serversOf(t, log.logger(), a.ask, nil)
				check := func() api.Component {
					ctx, cancel := context.WithTimeout(t.Context(), api.CheckTimeout)
					defer cancel()
					return s.Check(ctx).MySQL
				}
				if c := check(); !c.Usable || c.Detail != "" {
					t.Errorf("it answers: %+v", c)
				}
				pass(time.Second)
				a.set(test.answer)
				if c := check(); c.Usable != test.soon.Usable || c.Detail != test.soon.Detail {
					t.Errorf("soon: %+v, want %+v", c, test.soon)
				}
				pass(5 * time.Second)
				if c := check(); c.Usable || c.Detail != test.later {
					t.Errorf("later: %+v, want %q", c, test.later)
				}
				a.fail(nil)
				if c := check(); !c.Usable || c.Detail != "" {
					t.Errorf("it answers again: %+v", c)
				}
				if text := log.String(); strings.Count(text, "server cannot be used") != 1 || strings.Count(text, "server can be used again") != 1 {
					t.Errorf("log:\n%s", text)
				}
			})
		})
	}
}

// Where the queue has a database of its own, what each of the two being away means is said.
func TestTwoDatabases(t *testing.T) {
	t.Parallel()
	away := func(context.Context) error { return mysql.ErrUnavailable }
	quiet := slog.New(slog.DiscardHandler)
	for name, test := range map[string]struct {
		site, queue func(context.Context) error
		want        [2]string // the details
	}{
		"both answer":  {well, well, [2]string{}},
		"the queue's":  {well, away, [2]string{"", "cannot be reached: reads are answered, tasks are not accepted and wait"}},
		"the site's":   {away, well, [2]string{"cannot be reached: tasks are accepted and wait, reads fail", ""}},
		"both of them": {away, away, [2]string{"cannot be reached", "cannot be reached: reads are answered, tasks are not accepted and wait"}},
	} {
		h := serversOf(t, quiet, test.site, test.queue).Check(t.Context())
		if got := [2]string{h.MySQL.Detail, h.Queue.Detail}; got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if h := serversOf(t, quiet, away, nil).Check(t.Context()); h.Queue != nil || h.MySQL.Detail != "cannot be reached" {
		t.Errorf("of one database: %+v", h)
	}
}

// Tasks that wait for the site's database are brought forward when it is back.
func TestTheSiteIsWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &answering{}
		d := serversOf(t, slog.New(slog.DiscardHandler), a.ask, well).Site
		is := func(up, back bool) {
			t.Helper()
			usable, known := d.Usable("refill", 1)
			isBack := false
			select {
			case <-d.Back():
				isBack = true
			default:
			}
			if d.Up() != up || usable != up || !known || d.Partly() || isBack != back {
				t.Errorf("up %v, usable %v, back %v; want %v and %v", d.Up(), usable, isBack, up, back)
			}
		}
		is(false, false)
		go func() { _ = d.Run(t.Context()) }()
		synctest.Wait()
		is(true, true)
		pass(5 * time.Second)
		is(true, false)
		a.set(hangs)
		pass(7 * time.Second)
		is(false, false)
		a.fail(nil)
		pass(7 * time.Second)
		is(true, true)
	})
	d := serversOf(t, slog.New(slog.DiscardHandler), well, nil).Site
	if !d.Waits(fmt.Errorf("x: %w", mysql.ErrUnavailable)) || d.Waits(redisnodes.ErrUnavailable) {
		t.Error("it takes errors for its own that are not, or the other way round")
	}
}

// The start waits for the tables and for both databases, and not where waiting does not help.
func TestAwait(t *testing.T) {
	t.Parallel()
	errWrong := errors.New("a column is missing")
	isWrong := func(err error) bool { return errors.Is(err, errWrong) }
	synctest.Test(t, func(t *testing.T) {
		site, queue, log := &answering{}, &answering{}, &logged{}
		s := serversOf(t, log.logger(), site.ask, queue.ask)
		queue.fail(mysql.ErrUnavailable)
		checks, began := 0, time.Now()
		time.AfterFunc(10*time.Second, func() { queue.fail(nil) })
		err := s.Await(t.Context(), func(context.Context) error {
			checks++
			if time.Since(began) < 5*time.Second {
				return mysql.ErrUnavailable
			}
			return nil
		}, isWrong)
		if took := time.Since(began); err != nil || took < 10*time.Second || took > 13*time.Second || checks < 5 || checks > 20 {
			t.Errorf("%v after %v and %d checks", err, took, checks)
		}
		if text := log.String(); strings.Count(text, "\n") != 2 || strings.Contains(text, "server=MySQL") {
			t.Errorf("log:\n%s", text)
		}

		if err := s.Await(t.Context(), func(context.Context) error { return errWrong }, isWrong); !errors.Is(err, errWrong) {
			t.Errorf("the tables are wrong: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Await(ctx, hangs, isWrong); err != nil || ctx.Err() == nil {
			t.Errorf("at the stop: %v", err)
		}
	})
}
