// Package health knows of a process whether the servers it works with can be used, and how far
// behind its work is: for /readyz, for metrics, for the log, for the pool of workers, whose tasks wait for a
// server that is away, and for the start, as it waits for MySQL.
//
// A [Database] asks MySQL each second. [Redis] gets the result of each look at the nodes of Redis. [Load] looks at
// the queue. The results are kept, so that requests and tasks cost nothing but a look in memory; the log has a line
// when a server is away, and when it is back.
package health

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/retry"
)

// Servers are the servers of a process.
type Servers struct {
	MySQL *Database
	Redis *Redis
}

// NewServers returns the servers of a process. ask asks MySQL something small, best on a connection that
// no load takes away.
func NewServers(ask func(context.Context) error, redis *Redis, log *slog.Logger) Servers {
	return Servers{&Database{Log: outage.New(log, "MySQL"), ask: ask}, redis}
}

// Health returns the health of all servers, as of a second ago. Details of a failure go to the log and not to the
// client.
func (s Servers) Health() api.Health {
	return api.Health{MySQL: s.MySQL.component(), Redis: s.Redis.component()}
}

// Await returns once the tables are as check wants them, and MySQL answers; when ctx ends;
// or with an error of check that is wrong, so that no wait mends it.
func (s Servers) Await(ctx context.Context, check func(context.Context) error, wrong func(error) bool) error {
	for failures := 1; ctx.Err() == nil; failures++ {
		err := check(ctx)
		if err != nil && wrong(err) {
			return err
		}
		// Ask shares a connection with Run, and may be late where Run's question is not.
		if err == nil && (s.MySQL.component().Usable || s.MySQL.Ask(ctx) == nil) {
			return nil
		}
		_ = retry.Sleep(ctx, retry.Backoff(failures, 250*time.Millisecond, 2*time.Second)) // the loop looks at ctx
	}
	return nil
}

// Database is the database of the process. Its Log counts all calls but the calls of requests. It
// is safe for concurrent use.
type Database struct {
	*outage.Log

	ask  func(context.Context) error
	last atomic.Pointer[asked]
}

// asked is the result of a question.
type asked struct {
	at  time.Time
	err error
}

const (
	askEvery   = time.Second
	askTimeout = time.Second
	// busyFor is how long after its last answer a MySQL that is late, or has no connection to
	// spare, is taken to be busy, and not away.
	busyFor = 5 * time.Second
	// knownFor is how long the last result counts: a process that was stopped knows nothing until it asks.
	knownFor = 5 * time.Second
	notAsked = "was not asked yet"
	tooOld   = "has not answered a question for 5 s"
)

// Run asks each second until ctx ends, and returns nil.
func (d *Database) Run(ctx context.Context) error {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		_ = d.Ask(ctx) // it is kept
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Ask asks MySQL something small, and keeps the result. An answer that is late is [mysql.ErrBusy].
func (d *Database) Ask(ctx context.Context) error {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err := d.ask(bounded)
	if ctx.Err() != nil { // it says nothing about the server
		return err
	}
	d.Report(ctx, began, err)
	if err != nil && bounded.Err() != nil {
		err = mysql.ErrBusy
	}
	d.last.Store(&asked{time.Now(), err})
	return err
}

// component returns the health of MySQL by its last answer.
func (d *Database) component() api.Component {
	last := d.last.Load()
	switch {
	case last == nil:
		return api.Component{Detail: notAsked}
	case time.Since(last.at) > knownFor:
		return api.Component{Detail: tooOld}
	case last.err == nil:
		return api.Component{Usable: true}
	case errors.Is(last.err, mysql.ErrBusy) && time.Since(d.Answered()) < busyFor:
		return api.Component{Usable: true, Detail: "busy: requests may be late, or fail"}
	case errors.Is(last.err, mysql.ErrUnavailable):
		return api.Component{Detail: "cannot be reached"}
	case mysql.Refusal(last.err) != "":
		return api.Component{Detail: mysql.Refusal(last.err) + ": see the log"}
	}
	return api.Component{Detail: "cannot be used: see the log"}
}
