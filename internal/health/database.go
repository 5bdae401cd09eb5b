package health

import (
	"context"
	"errors"
	"time"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/outage"
)

// Database is the database of the process. Its Log counts all calls but the calls of requests. It
// is safe for concurrent use.
type Database struct {
	*outage.Log

	ask func(context.Context) error
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

// askTimeout is how long an answer may take, except for /readyz.
const askTimeout = 5 * time.Second

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
