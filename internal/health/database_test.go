package health_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/health"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/logtest"
)

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

// serversOf returns servers whose database answers as ask does.
func serversOf(t *testing.T, log *slog.Logger, ask func(context.Context) error) health.Servers {
	t.Helper()
	return health.NewServers(ask, health.NewRedis(nil, log), log)
}

// A database that answered a moment ago, and is late, is busy; if it goes on to be late, it is away.
// A client is told the reason in a few words.
func TestADatabaseThatIsBusyOrAway(t *testing.T) {
	t.Parallel()
	denied := mysql.Translate(t.Context(), "x", &driver.MySQLError{Number: 1045, Message: "Access denied for user 'app'@'db1'"})
	const busy, away = "busy: requests may be late, or fail", "cannot be reached"
	for name, test := range map[string]struct {
		answer      func(context.Context) error
		soon, later string // Detail: within the five seconds after the last answer, and when it cannot be used
	}{
		"hangs":                      {hangs, busy, away},
		"has no connection to spare": {func(context.Context) error { return fmt.Errorf("x: %w", mysql.ErrBusy) }, busy, away},
		"refuses connections":        {func(context.Context) error { return fmt.Errorf("x: %w", mysql.ErrUnavailable) }, away, away},
		"knows no such user":         {func(context.Context) error { return denied }, "access denied: see the log", "access denied: see the log"},
		"lacks a table": {
			func(context.Context) error { return errors.New("no such table as secret") }, "cannot be used: see the log", "cannot be used: see the log",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, log := &answering{}, &logtest.Log{}
				s := serversOf(t, log.Logger(), a.ask)
				expect := func(usable bool, detail string) {
					t.Helper()
					if c := s.Health().MySQL; c.Usable != usable || c.Detail != detail {
						t.Errorf("%+v, want %q", c, detail)
					}
				}
				expect(false, "was not asked yet")
				ctx, stop := context.WithCancel(t.Context())
				go func() { _ = s.MySQL.Run(ctx) }()
				pass(500 * time.Millisecond)
				expect(true, "")
				a.set(test.answer)
				pass(2 * time.Second)
				expect(test.soon == busy, test.soon)
				pass(5 * time.Second)
				expect(false, test.later)
				a.fail(nil)
				pass(2 * time.Second)
				expect(true, "")
				if text := log.String(); strings.Count(text, "server cannot be used") != 1 || strings.Count(text, "server can be used again") != 1 {
					t.Errorf("log:\n%s", text)
				}
				stop()
				pass(6 * time.Second)
				expect(false, "has not answered a question for 5 s")
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
		a, log := &answering{}, &logtest.Log{}
		s := serversOf(t, log.Logger(), a.ask)
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

// The question of the start shares a connection with the question of each second. A MySQL that answers slowly can be
// used nevertheless.
func TestAwaitASlowMySQL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		connection := make(chan struct{}, 1)
		s := serversOf(t, slog.New(slog.DiscardHandler), func(ctx context.Context) error {
			select {
			case connection <- struct{}{}:
				defer func() { <-connection }()
			case <-ctx.Done():
				return mysql.ErrBusy
			}
			select {
			case <-time.After(700 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		go func() { _ = s.MySQL.Run(t.Context()) }()
		pass(100 * time.Millisecond)
		began := time.Now()
		err := s.Await(t.Context(), func(context.Context) error { return nil }, func(error) bool { return false })
		if took := time.Since(began); err != nil || took > 2*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}
