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

// wellNodes are nodes that can be used.
type wellNodes struct{ health.Nodes }

func (wellNodes) Status(context.Context) redisnodes.Status {
	return redisnodes.Status{Nodes: []redisnodes.NodeStatus{{Node: "a:1"}}}
}

// serversOf returns servers whose Redis is well.
func serversOf(t *testing.T, log *slog.Logger, ask func(context.Context) error) health.Servers {
	t.Helper()
	return health.NewServers(ask, health.NewRedis(nil, wellNodes{}, log), log)
}

// A database that answered a moment ago, and is late, is busy; if it goes on to be late, it is away.
// A client is told the reason in a few words.
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
				s := serversOf(t, log.logger(), a.ask)
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

// The start waits for the tables and for MySQL, and not where waiting does not help.
func TestAwait(t *testing.T) {
	t.Parallel()
	errWrong := errors.New("a column is missing")
	isWrong := func(err error) bool { return errors.Is(err, errWrong) }
	synctest.Test(t, func(t *testing.T) {
		a, log := &answering{}, &logged{}
		s := serversOf(t, log.logger(), a.ask)
		a.fail(mysql.ErrUnavailable)
		checks, began := 0, time.Now()
		time.AfterFunc(10*time.Second, func() { a.fail(nil) })
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
		if text := log.String(); strings.Count(text, "\n") != 2 {
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
