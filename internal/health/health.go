// Package health knows of a process whether the servers it works with can be used, and how far
// behind its work is: for /readyz, for the log, for the pool of workers, whose tasks wait for a
// server that is away, and for the start, as it waits for MySQL.
//
// A [Database] is asked whether it answers for each probe of /readyz. [Redis] is told the result of each
// look at the nodes of Redis. [Load] looks at the queue. The results are kept, so that requests and
// tasks cost nothing but a look in memory; the log has a line when a server is away, and when it
// is back.
package health

import (
	"context"
	"log/slog"
	"time"

	"github.com/activityd/activityd/internal/api"
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

// Check asks MySQL, and returns the health of all servers, as [api.Checker] says. Details of a failure
// go to the log and not to the client.
func (s Servers) Check(ctx context.Context) api.Health {
	return api.Health{MySQL: s.MySQL.component(ctx), Redis: componentOf(s.Redis.nodes.Status(ctx))}
}

// Await returns once the tables are as check wants them, and MySQL answers; when ctx ends;
// or with an error of check that is wrong, so that no wait mends it.
func (s Servers) Await(ctx context.Context, check func(context.Context) error, wrong func(error) bool) error {
	for failures := 1; ctx.Err() == nil; failures++ {
		err := check(ctx)
		if err != nil && wrong(err) {
			return err
		}
		if err == nil && s.answer(ctx) {
			return nil
		}
		_ = retry.Sleep(ctx, retry.Backoff(failures, 250*time.Millisecond, 2*time.Second)) // the loop looks at ctx
	}
	return nil
}

// answer reports whether MySQL answers.
func (s Servers) answer(ctx context.Context) bool {
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return s.MySQL.Ask(bounded) == nil
}
