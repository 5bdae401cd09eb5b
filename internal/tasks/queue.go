package tasks

import (
	"context"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// Queue is a durable queue of tasks. [MySQLQueue] is the one for production;
// [MemoryQueue] is its executable specification. Both pass one conformance
// suite, and are safe for concurrent use.
//
// A task is waiting, scheduled for later, running under a lease, or dead; a
// task that is done is deleted. It is claimed at least once: a lease that ran
// out gives it to another worker.
type Queue interface {
	// Enqueue adds a batch, whole or not at all, and returns an id for each
	// task in order, after the commit. A task whose dedupe key is that of a
	// task which has not been started is absorbed: it gets that one's id.
	Enqueue(ctx context.Context, batch []New) (ids []uint64, err error)
	// Claim leases up to n due tasks of a queue, by priority, then in order of
	// arrival. Whatever happens to the claimer, they are free again after the
	// lease and a [Queue.Sweep].
	Claim(ctx context.Context, queue string, n int, lease time.Duration) ([]Task, error)
	// Finish records results. Those whose lease was lost to another worker are
	// without effect and counted in lost.
	Finish(ctx context.Context, results []Result) (lost int, err error)
	// Sweep makes scheduled tasks waiting when they are due, and frees tasks
	// whose lease ran out, or buries them when their attempts are used up.
	Sweep(ctx context.Context) (Swept, error)
	// FanningOut returns those of the users who have parts of a fan-out that
	// wait or run. A part that failed and is scheduled for later does not count,
	// so that it holds up nobody.
	FanningOut(ctx context.Context, users []member.ID) (map[member.ID]bool, error)
	// Absorb deletes the tasks that are of the type and about the subject of a
	// held one and have not been started, and returns how many they were. The
	// caller does their work, and reads what is true only afterwards. A task
	// whose lease is lost absorbs nothing: if its holder fails now, nobody would
	// do that work.
	Absorb(ctx context.Context, held []Task) (absorbed int, err error)
	// Count returns how many tasks there are by state.
	Count(ctx context.Context) (Counts, error)
}

// Swept counts what a sweep did.
type Swept struct {
	Due     int  // scheduled tasks that are waiting now
	Expired int  // leases that ran out
	More    bool // there may be more: sweep again at once
}

// Counts is the number of tasks in each state.
type Counts struct {
	Waiting, Scheduled, Running, Dead int
}

// Open is the number of tasks that are not finished.
func (c Counts) Open() int { return c.Waiting + c.Scheduled + c.Running }

// Bell wakes idle workers of this process when something was enqueued through
// it. The zero Bell is ready. It is safe for concurrent use.
type Bell struct {
	mu   sync.Mutex
	rung chan struct{}
}

// Ring wakes everyone who waits now.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}

// Heard returns a channel that the next Ring closes. Ask for it before looking
// whether there is work, or a ring in between goes unheard.
func (b *Bell) Heard() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	return b.rung
}
