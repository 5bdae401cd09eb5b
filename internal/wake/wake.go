package wake

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Channel is the Redis channel on which processes wake each other.
const Channel = "activityd_wake"

// Bell is what wakes the workers of this process: a *tasks.Bell.
type Bell interface {
	// Listen makes tell hear what is rung for in this process, until forget is
	// called.
	Listen(tell func(queues []string)) (forget func())
	// RingHere wakes a worker of this process for each of the queues.
	RingHere(queues ...string)
	// RingAllHere wakes one for every queue.
	RingAllHere()
}

// Wake publishes the rings of a bell, and rings it for those of other processes.
type Wake struct {
	client  redis.UniversalClient
	bell    Bell
	sender  string // tells own messages, which come back, from others'
	pending pending
	forget  func()
	outage  outage
}

// New returns a Wake that gathers the rings of bell from now on; [Wake.Run] does
// the rest. The client is the caller's to close, after Run.
func New(client redis.UniversalClient, bell Bell, log *slog.Logger) *Wake {
	w := &Wake{client: client, bell: bell, sender: senderMark + rand.Text()[:12], outage: outage{log: log}}
	w.pending.added = make(chan struct{}, 1)
	w.forget = bell.Listen(w.pending.add)
	return w
}

// Run publishes and subscribes until ctx ends, whose end is no error; what was
// rung for before is still published, unless Redis is away. Redis may come and go
// meanwhile: both its absence and its return are logged once. Run is to be called
// once.
func (w *Wake) Run(ctx context.Context) error {
	defer w.forget()
	var running sync.WaitGroup
	running.Go(func() { w.publish(ctx) })
	running.Go(func() { w.subscribe(ctx) })
	running.Wait()
	return nil
}
