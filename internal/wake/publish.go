package wake

import (
	"context"
	"math/rand/v2"
	"time"
)

// The times of publishing.
const (
	burst       = 5 * time.Millisecond   // what is rung for within it shares a message
	publishWait = 2 * time.Second        // how long one may take
	lastWait    = 500 * time.Millisecond // how long the last one may take, at the stop
)

// publish publishes what is rung for until ctx ends, and once more then.
func (w *Wake) publish(ctx context.Context) {
	var failed int
	for {
		select {
		case <-w.pending.added:
		case <-ctx.Done():
			if failed == 0 {
				_ = w.publishOnce(context.WithoutCancel(ctx), lastWait) // nobody is left to try again
			}
			return
		}
		err := w.publishOnce(ctx, publishWait)
		if ctx.Err() != nil {
			continue
		}
		w.outage.report(ctx, publishing, err)
		if err == nil {
			failed = 0
			wait(ctx, burst)
			continue
		}
		failed++
		wait(ctx, backoff(failed))
	}
}

// publishOnce publishes all that is pending. What could not be published stays
// pending.
func (w *Wake) publishOnce(ctx context.Context, atMost time.Duration) error {
	queues := w.pending.take()
	if len(queues) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	err := w.client.Publish(ctx, Channel, encode(queues, w.sender)).Err()
	if err != nil {
		w.pending.add(queues)
	}
	return err
}

// wait waits for d or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// The pauses after trouble.
const (
	firstPause = 50 * time.Millisecond
	mostPause  = 2 * time.Second
)

// backoff returns the pause after the n-th failure in a row, n from 1.
func backoff(n int) time.Duration {
	d := min(firstPause<<min(n-1, 10), mostPause)
	return d/2 + rand.N(d/2)
}
