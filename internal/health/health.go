// Package health knows of a process whether the servers it works with can be used, and how far
// behind its work is: for /readyz, for the log, for the pool of workers, whose tasks wait for a
// server that is away, and for the start, which waits for MySQL.
//
// A [Database] is asked whether it answers: for each probe of /readyz, and once a second where
// nothing else asks it often. [Redis] is told what each look at the nodes of Redis found. [Load]
// looks at the queue. What is found is kept, so that requests and tasks cost nothing but a look in
// memory; the log has a line when a server is away, and one when it is back.
package health

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/retry"
)

// Servers are those of a process.
type Servers struct {
	// Site is the site's database, and Queue that of the queue, which may be the same.
	Site, Queue *Database
	Redis       *Redis
}

// NewServers returns the servers of a process. The functions ask the databases something small, best
// on connections of their own, which no load takes away; the queue is apart if it has a database of
// its own.
func NewServers(askSite, askQueue func(context.Context) error, apart bool, redis *Redis, log *slog.Logger) Servers {
	if apart {
		return Servers{newDatabase(log, "MySQL", askSite), newDatabase(log, "MySQL of the queue", askQueue), redis}
	}
	one := newDatabase(log, "MySQL", func(ctx context.Context) error {
		if err := askSite(ctx); err != nil {
			return err
		}
		return askQueue(ctx)
	})
	return Servers{one, one, redis}
}

// Check asks the databases, and returns the health of all servers, as [api.Checker] says. Details
// of a failure go to the log and not to the client.
func (s Servers) Check(ctx context.Context) (h api.Health) {
	if s.Queue == s.Site {
		h.MySQL = s.Site.component(ctx)
	} else {
		var queue api.Component
		var both sync.WaitGroup
		both.Go(func() { queue = s.Queue.component(ctx) })
		h.MySQL = s.Site.component(ctx)
		both.Wait()
		if !queue.Usable {
			queue.Detail += ": reads are answered, tasks are not accepted and wait"
		}
		if !h.MySQL.Usable && queue.Usable {
			h.MySQL.Detail += ": tasks are accepted and wait, reads fail"
		}
		h.Queue = &queue
	}
	h.Redis = componentOf(s.Redis.nodes.Status(ctx))
	return h
}

// Await returns once the tables are as check wants them, and the databases answer; when ctx ends;
// or with an error of check that is wrong, which waiting does not mend.
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

// answer reports whether both databases answer.
func (s Servers) answer(ctx context.Context) bool {
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return s.Site.Ask(bounded) == nil && (s.Queue == s.Site || s.Queue.Ask(bounded) == nil)
}
