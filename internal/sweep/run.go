package sweep

import (
	"context"
	"fmt"
	"time"
)

// mostOpen bounds the batches that have begun and are not behind the position:
// how far the others may run ahead of a slow one, and how much is done again
// after a crash.
const mostOpen = 64

// run is a sweep under way. What it holds belongs to the goroutine of Run; the
// feed and each batch have one of their own, and tell it by channels.
type run struct {
	options Options
	ledger  *ledger
	fed     chan feeding
	ended   chan *batch

	starting, visiting context.Context
	stop, cancel       context.CancelFunc // end what starts, and what is under way

	running  int   // batches
	failed   int64 // members who were given up
	complete bool  // there are no more members
	err      error
}

func newRun(ctx context.Context, from State, o Options) *run {
	r := &run{options: o, ledger: newLedger(from), fed: make(chan feeding), ended: make(chan *batch)}
	r.starting, r.stop = context.WithCancel(ctx)
	r.visiting, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return r
}

// run lets batches begin and end until there are no more.
func (r *run) run(ctx context.Context) error {
	defer r.cancel()
	defer r.stop()
	go r.feed() //nolint:contextcheck // it runs under r.starting
	stopped := ctx.Done()
	var over <-chan time.Time
	for open := true; open || r.running > 0; {
		fed := r.fed
		if !open || r.running > 0 && len(r.ledger.open) >= mostOpen {
			fed = nil // what is not settled when nothing runs any more was given up
		}
		select {
		case f, more := <-fed:
			open = more
			r.begin(f) //nolint:contextcheck // it goes on under r.visiting
		case b := <-r.ended:
			r.end(b)
		case <-stopped:
			stopped, over = nil, time.After(r.options.Grace)
		case <-over:
			r.cancel()
		}
	}
	switch {
	case r.err != nil:
		return r.err
	case !r.complete || len(r.ledger.open) > 0:
		return ErrStopped
	}
	return nil
}

// begin lets a batch begin that has entered.
func (r *run) begin(f feeding) {
	switch {
	case f.err != nil:
		r.fail(f.err)
	case f.complete:
		r.complete = true
	case f.users != nil && r.starting.Err() != nil:
		f.leave()
	case f.users != nil:
		r.running++
		b := r.ledger.begin(f.users)
		go func() {
			b.err = r.work(b, f.leave)
			r.ended <- b
		}()
	}
}

// end takes note of a batch that has ended, and tells of it.
func (r *run) end(b *batch) {
	r.running--
	if b.err != nil {
		if r.starting.Err() == nil { // else it was given up because of the stop
			r.fail(b.err)
		}
		return
	}
	b.done = true
	if r.failed += b.counts[Failed]; r.failed >= mostFailed {
		r.fail(fmt.Errorf("%w: %d", errTooMany, r.failed))
	}
	r.options.Moved(len(b.users))
	if r.ledger.settle() {
		if err := r.options.Saved(r.ledger.state.clone()); err != nil {
			r.fail(fmt.Errorf("keep the position: %w", err))
		}
	}
}

// fail ends the sweep at once, with the first of several errors.
func (r *run) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.stop()
	r.cancel()
}
