package wake

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// subscribe stays subscribed until ctx ends.
func (w *Wake) subscribe(ctx context.Context) {
	for failed := 0; ctx.Err() == nil; {
		heard, err := w.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		w.outage.report(ctx, subscribing, err)
		if heard {
			failed = 0
		}
		failed++
		wait(ctx, backoff(failed))
	}
}

// pingEvery is how often a subscription is tried. One that hears nothing for
// three times as long is dead. It is a variable because tests have less time.
var pingEvery = 3 * time.Second

var errSilent = errors.New("redis does not answer")

// listen rings the bell for what others publish, until the subscription ends. It
// tells whether there was one, and why it ended.
func (w *Wake) listen(ctx context.Context) (subscribed bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	subscription := w.client.Subscribe(ctx, Channel)
	// Only the end of the connection ends the wait for a message.
	stop := context.AfterFunc(ctx, func() { _ = subscription.Close() })
	var watching sync.WaitGroup
	var latest atomic.Int64 // when something came last
	latest.Store(time.Now().UnixNano())
	watching.Go(func() { w.keepAlive(ctx, cancel, subscription, &latest) })
	defer func() {
		stop()
		cancel(nil)
		_ = subscription.Close() // once more, maybe
		watching.Wait()
	}()
	for {
		message, err := subscription.Receive(ctx)
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return subscribed, fmt.Errorf("subscription to %s: %w", Channel, err)
		}
		latest.Store(time.Now().UnixNano())
		subscribed = w.hear(ctx, message) || subscribed
	}
}

// hear does what a message asks for, and tells whether it was the answer to a
// subscription.
func (w *Wake) hear(ctx context.Context, message any) (subscribed bool) {
	switch m := message.(type) {
	case *redis.Subscription:
		w.outage.report(ctx, subscribing, nil)
		w.bell.RingAllHere() // for what was published while nobody listened here
		return true
	case *redis.Message:
		if queues, sender := decode(m.Payload); sender != w.sender {
			w.bell.RingHere(queues...)
		}
	}
	return false
}

// keepAlive pings, so that a connection which is dead without a word is noticed,
// and ends the subscription then.
func (w *Wake) keepAlive(ctx context.Context, end context.CancelCauseFunc, s *redis.PubSub, latest *atomic.Int64) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if silent := time.Since(time.Unix(0, latest.Load())); silent > 3*pingEvery {
			end(fmt.Errorf("%w for %v", errSilent, silent.Round(time.Millisecond)))
			return
		}
		_ = s.Ping(ctx) // if it cannot be sent, no answer will come
	}
}
