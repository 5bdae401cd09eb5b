// Package wake carries the notifications of a queue to other processes, over Redis
// publish/subscribe, so that an idle worker of another process begins a task within
// milliseconds instead of at its next poll.
//
//	Notifier.Notify --> names of queues --> PUBLISH activityd_wake --> Notifier.NotifyLocal
//	 (a process)          (gathered)             (Redis)                  (all others)
//
// A message is a hint: names of queues, separated by commas. Workers look into MySQL.
// A site that inserts tasks by SQL of its own may, after its commit, say the same:
//
//	PUBLISH activityd_wake default
//
// A lost message costs the time until the next poll. Messages are lost in these cases,
// and this is done about each:
//
//   - A process is not subscribed while Redis or the network is away. It subscribes
//     again as soon as it can, and then wakes the workers of every queue.
//   - A message cannot be published. Its names are kept, and published when that
//     is possible again.
//   - A connection is dead without an error. A ping every few seconds finds out.
//
// A burst costs few messages: the first notification is published at once, those of
// the next few milliseconds together. Notify never waits for Redis.
package wake

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/retry"
)

// Channel is the Redis channel on which processes wake each other.
const Channel = "activityd_wake"

const (
	burst          = 5 * time.Millisecond   // notifications within it share a message
	publishTimeout = 2 * time.Second        // of one message
	lastTimeout    = 500 * time.Millisecond // of the last one, at the stop
	firstPause     = 50 * time.Millisecond  // after a failure; it doubles
	maxPause       = 2 * time.Second
	maxSilence     = 3 // pings without an answer until a connection is given up
)

// pingEvery is how often an idle subscription is tried. It is a variable because
// tests have less time.
var pingEvery = 3 * time.Second

// The bounds of a message. A queue that does not fit in is found by polls.
const (
	maxQueues  = 100
	maxName    = 64 // bytes
	maxPayload = 8 << 10
)

// senderPrefix begins the part of a message that names its sender. No name of a
// queue that is sent begins with it.
const senderPrefix = "@"

// Notifier is what wakes the workers of this process: a *notify.Notifier.
type Notifier interface {
	// Forward makes every notification of this process call do, until cancel is called.
	Forward(do func(queues []string)) (cancel func())
	// NotifyLocal wakes the workers of the queues.
	NotifyLocal(queues ...string)
	// NotifyAllLocal wakes the workers of every queue.
	NotifyAllLocal()
}

// Wake publishes the notifications of a process and receives those of others.
type Wake struct {
	client   redis.UniversalClient
	notifier Notifier
	sender   string // tells own messages, which come back, from others'
	cancel   func()
	log      *slog.Logger

	mu      sync.Mutex
	pending map[string]struct{} // queues that are to be published
	added   chan struct{}       // gets a value when there are any; holds one
	failing map[string]bool     // what fails: publish, subscribe
}

// New returns a Wake that gathers the notifications from now on; [Wake.Run] does
// the rest. The client is the caller's to close, after Run.
func New(client redis.UniversalClient, notifier Notifier, log *slog.Logger) *Wake {
	w := &Wake{
		client: client, notifier: notifier, sender: senderPrefix + crand.Text()[:12], log: log,
		pending: make(map[string]struct{}), added: make(chan struct{}, 1), failing: make(map[string]bool),
	}
	w.cancel = notifier.Forward(w.add)
	return w
}

// Run publishes and subscribes until ctx ends, whose end is no error; what is pending
// then is still published, unless Redis is away. Redis may come and go: its absence
// and its return are logged once each. Run is to be called once.
func (w *Wake) Run(ctx context.Context) error {
	defer w.cancel()
	var running sync.WaitGroup
	running.Go(func() { w.publish(ctx) })
	running.Go(func() { w.subscribe(ctx) })
	running.Wait()
	return nil
}

// add makes queues pending. It never blocks.
func (w *Wake) add(queues []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, queue := range queues {
		if len(w.pending) < maxQueues && valid(queue) {
			w.pending[queue] = struct{}{}
		}
	}
	if len(w.pending) == 0 {
		return
	}
	select {
	case w.added <- struct{}{}:
	default: // there is one already
	}
}

// publish publishes what is pending until ctx ends, and once more then.
func (w *Wake) publish(ctx context.Context) {
	var failed int
	for {
		select {
		case <-w.added:
		case <-ctx.Done():
			if failed == 0 {
				_ = w.publishOnce(context.WithoutCancel(ctx), lastTimeout) // there is no next try
			}
			return
		}
		err := w.publishOnce(ctx, publishTimeout)
		if ctx.Err() != nil {
			continue
		}
		w.report(ctx, "publish", err)
		if err == nil {
			failed = 0
			_ = retry.Sleep(ctx, burst)
			continue
		}
		failed++
		_ = retry.Sleep(ctx, retry.Backoff(failed, firstPause, maxPause))
	}
}

// publishOnce publishes all that is pending. What could not be published stays
// pending.
func (w *Wake) publishOnce(ctx context.Context, timeout time.Duration) error {
	var queues []string
	w.mu.Lock()
	for queue := range w.pending {
		queues = append(queues, queue)
	}
	clear(w.pending)
	w.mu.Unlock()
	if len(queues) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := w.client.Publish(ctx, Channel, encode(queues, w.sender)).Err()
	if err != nil {
		w.add(queues)
	}
	return err
}

// subscribe stays subscribed until ctx ends.
func (w *Wake) subscribe(ctx context.Context) {
	for failed := 0; ctx.Err() == nil; {
		subscribed, err := w.receive(ctx)
		if ctx.Err() != nil {
			return
		}
		w.report(ctx, "subscribe", err)
		if subscribed {
			failed = 0
		}
		failed++
		_ = retry.Sleep(ctx, retry.Backoff(failed, firstPause, maxPause))
	}
}

// receive passes on what others publish until the subscription ends. It reports
// whether there was one, and why it ended.
func (w *Wake) receive(ctx context.Context) (subscribed bool, err error) {
	subscription := w.client.Subscribe(ctx, Channel)
	defer func() { _ = subscription.Close() }()
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })() // ends Receive
	for silent := 0; ; {
		message, err := subscription.ReceiveTimeout(ctx, pingEvery)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() && silent < maxSilence {
			silent++
			err = subscription.Ping(ctx)
		} else if err == nil {
			silent = 0
		}
		if err != nil {
			return subscribed, fmt.Errorf("subscription to %s: %w", Channel, err)
		}
		switch m := message.(type) {
		case *redis.Subscription:
			subscribed = true
			w.report(ctx, "subscribe", nil)
			w.notifier.NotifyAllLocal() // for what was published before
		case *redis.Message:
			if queues, sender := decode(m.Payload); sender != w.sender {
				w.notifier.NotifyLocal(queues...)
			}
		}
	}
}

// report logs the beginning and the end of the time in which publishing or
// subscribing fails, once each.
func (w *Wake) report(ctx context.Context, what string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := len(w.failing)
	if err != nil {
		w.failing[what] = true
	} else {
		delete(w.failing, what)
	}
	switch {
	case before == 0 && err != nil:
		w.log.WarnContext(ctx, "Redis cannot wake workers; they poll until it can", "error", err)
	case before > 0 && len(w.failing) == 0:
		w.log.InfoContext(ctx, "Redis wakes workers again")
	}
}

// encode makes a message of names, which must be valid.
func encode(queues []string, sender string) string {
	return strings.Join(queues, ",") + "," + sender
}

// decode returns the names of queues in a message, and its sender, if it has one.
// What is no name is ignored.
func decode(payload string) (queues []string, sender string) {
	if len(payload) > maxPayload {
		return nil, ""
	}
	for name := range strings.SplitSeq(payload, ",") {
		switch name = strings.TrimSpace(name); {
		case strings.HasPrefix(name, senderPrefix):
			sender = name
		case valid(name) && len(queues) < maxQueues:
			queues = append(queues, name)
		}
	}
	return queues, sender
}

// valid reports whether a name comes out of a message as it went in.
func valid(queue string) bool {
	return queue != "" && len(queue) <= maxName && utf8.ValidString(queue) &&
		!strings.Contains(queue, ",") && !strings.HasPrefix(queue, senderPrefix) && strings.TrimSpace(queue) == queue
}
