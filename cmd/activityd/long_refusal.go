package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/activityd/activityd/internal/backfill"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/pace"
	"github.com/activityd/activityd/internal/sweep"
)

// refusal is an answer of a server to which no waiting makes a difference: that the
// password is wrong, say.
type refusal struct {
	server string
	err    error
}

func (r *refusal) Error() string {
	if errors.Is(r.err, index.ErrNoDatabase) {
		return namedRedis(r.err).Error()
	}
	return fmt.Sprintf("%s refuses: %v", r.server, r.err)
}

func (r *refusal) Unwrap() error { return r.err }

// endedBy makes a probe end the work when the server refuses. A server that does not
// answer is waited for, and nobody let in meanwhile, so that nobody else would find
// out.
func endedBy(end context.CancelCauseFunc, p pace.Probe) pace.Probe {
	ask := p.Ask
	p.Ask = func(ctx context.Context) error {
		err := ask(ctx)
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) && backfill.Judge(err) == sweep.Fatal {
			end(&refusal{p.Name, err})
		}
		return err
	}
	return p
}
