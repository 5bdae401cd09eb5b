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

// Database is one that the process works with. Its Log counts all calls but those of requests. It
// is also what tasks wait for, as a [queue.Dependency], where nothing but [Database.Run] asks it. It
// is safe for concurrent use.
type Database struct {
	*outage.Log

	ask  func(context.Context) error
	up   atomic.Bool // it answered the last question of Run
	back chan struct{}
}

func newDatabase(log *slog.Logger, name string, ask func(context.Context) error) *Database {
	return &Database{Log: outage.New(log, name), ask: ask, back: make(chan struct{}, 1)}
}

// Ask asks it something small.
func (d *Database) Ask(ctx context.Context) error {
	began := time.Now()
	err := d.ask(ctx)
	if !errors.Is(ctx.Err(), context.Canceled) { // else it says nothing about the server
		d.Report(ctx, began, err)
	}
	return err
}

const (
	// askEvery is how often Run asks.
	askEvery = time.Second
	// askTimeout is how long an answer may take, but for those of /readyz.
	askTimeout = 5 * time.Second
)

// Run asks it once a second until ctx ends; it returns nil. It is needed where no queue in the same
// database shows whether that can be used.
func (d *Database) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, askTimeout)
		isUp := d.Ask(bounded) == nil
		cancel()
		if was := d.up.Swap(isUp); isUp && !was {
			notify(d.back)
		}
		_ = retry.Sleep(ctx, retry.Jitter(askEvery)) // the loop looks at ctx
	}
	return nil
}

// Up reports whether it answered the last question of [Database.Run].
func (d *Database) Up() bool { return d.up.Load() }

// Waits implements [queue.Dependency].
func (d *Database) Waits(err error) bool { return errors.Is(err, mysql.ErrUnavailable) }

// Usable implements [queue.Dependency].
func (d *Database) Usable(string, uint64) (usable, known bool) { return d.Up(), true }

// Partly implements [queue.Dependency].
func (d *Database) Partly() bool { return false }

// Back implements [queue.Dependency].
func (d *Database) Back() <-chan struct{} { return d.back }

// notify makes a channel that holds one value hold one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// busyFor is how long after its last answer a MySQL that is late, or has no connection to
// spare, is taken to be busy, and not away.
const busyFor = 5 * time.Second

// component asks it, and returns its health.
func (d *Database) component(ctx context.Context) api.Component {
	err := d.Ask(ctx)
	late := ctx.Err() != nil || errors.Is(err, mysql.ErrBusy)
	switch {
	case err == nil:
		return api.Component{Usable: true}
	case late && time.Since(d.Answered()) < busyFor:
		return api.Component{Usable: true, Detail: "busy: requests may be late, or fail"}
	case late, errors.Is(err, mysql.ErrUnavailable):
		return api.Component{Detail: "cannot be reached"}
	case mysql.Refusal(err) != "":
		return api.Component{Detail: mysql.Refusal(err) + ": see the log"}
	}
	return api.Component{Detail: "cannot be used: see the log"}
}
