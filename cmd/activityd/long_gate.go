package main

import (
	"context"
	"time"

	"github.com/activityd/activityd/internal/sweep"
)

// gate lets batches in, as the pace and --rate have it.
func (l *longRun) gate() sweep.Gate {
	if l.options.rate == 0 {
		return l.pacer
	}
	each := time.Duration(float64(l.options.batch()) / float64(l.options.rate) * float64(time.Second))
	return &meteredGate{Gate: l.pacer, each: each, turn: make(chan struct{}, 1)}
}

// meteredGate lets a batch in not before its time.
type meteredGate struct {
	sweep.Gate

	each time.Duration
	turn chan struct{} // held by who changes next
	next time.Time
}

// Enter implements [sweep.Gate].
func (g *meteredGate) Enter(ctx context.Context) (leave func(), err error) {
	if err := g.await(ctx); err != nil {
		return nil, err
	}
	return g.Gate.Enter(ctx)
}

func (g *meteredGate) await(ctx context.Context) error {
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	timer := time.NewTimer(time.Until(g.next))
	defer timer.Stop()
	select {
	case <-timer.C:
		g.next = time.Now().Add(g.each)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
