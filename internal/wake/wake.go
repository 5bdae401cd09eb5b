// Package wake carries notifications between processes, over Redis publish/subscribe, so
// that an idle worker begins a new task within milliseconds, and a process that stands by gets its lock.
//
//	Notifier.Notify --> names --> PUBLISH activityd_wake --> Notifier.NotifyLocal
//	 (a process)      (gathered)        (Redis)                  (elsewhere)
//
// A message is a hint: names, separated by commas. The name of a queue is that of its
// tasks; package once has names of its own. A * stands for all names. A
// process that is notified looks for itself. A site that inserts tasks by SQL of its own may, after its
// commit, say the same:
//
//	PUBLISH activityd_wake default
//
// A lost message costs time: workers look by themselves, too, only later. Messages are lost in four cases:
//
//   - A process is not subscribed while Redis or the network is away. It subscribes
//     again as soon as it can, and then notifies under every name.
//   - A message cannot be published. Its names are kept, and published when that
//     is possible again.
//   - A message cannot hold all names. It is a * then.
//   - A connection is dead without an error. A ping every few seconds finds out.
//
// A burst costs few messages: the first notification is published at once, and the rest of
// the next few milliseconds together. Notify never waits for Redis.
package wake

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/notify"
)

// Channel is the Redis channel of the notifications.
const Channel = "activityd_wake"

const (
	burst          = 5 * time.Millisecond  // notifications within it share a message
	publishTimeout = 2 * time.Second       // of one message
	firstPause     = 50 * time.Millisecond // after a failure; it doubles
	maxPause       = 2 * time.Second
	maxSilence     = 3 // pings without an answer until a connection is given up
)

// Variables, because tests have other times.
var (
	pingEvery   = 3 * time.Second        // how often an idle subscription is tried
	lastTimeout = 500 * time.Millisecond // of the last message, at the stop
)

// The bounds of a message, in bytes.
const (
	maxName    = 256
	maxPayload = 8 << 10
)

// The parts of a message that are no names.
const (
	all          = "*" // all names
	senderPrefix = "@" // of the part that names the sender
)

// Wake publishes the notifications of its process and receives the notifications of all processes.
type Wake struct {
	client   redis.UniversalClient
	notifier *notify.Notifier
	sender   string // of its messages, which come back
	cancel   func()
	redis    *outage.Log // of publishing and subscribing

	mu      sync.Mutex
	pending map[string]struct{} // names that are to be published; all alone, if they are too many
	size    int                 // of their message
	added   chan struct{}       // gets a value when there are any; holds one
}

// New returns a Wake that gathers the notifications from now on; [Wake.Run] does
// the rest. The client is the caller's to close, after Run.
func New(client redis.UniversalClient, notifier *notify.Notifier, log *slog.Logger) *Wake {
	w := &Wake{
		client: client, notifier: notifier, sender: senderPrefix + crand.Text()[:12],
		redis:   outage.Of(log, "Redis does not pass on notifications", "Redis passes on notifications again"),
		pending: make(map[string]struct{}), added: make(chan struct{}, 1),
	}
	w.cancel = notifier.Forward(w.add)
	return w
}

// Run publishes and subscribes until ctx ends, whose end is no error; pending names
// are still published then, unless Redis is away. Redis may come and go: its absence
// and its return are logged once each. Run is to be called once.
func (w *Wake) Run(ctx context.Context) error {
	defer w.cancel()
	var running sync.WaitGroup
	running.Go(func() { w.publish(ctx) })
	running.Go(func() { w.subscribe(ctx) })
	running.Wait()
	return nil
}

// add makes names pending. It never blocks.
func (w *Wake) add(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range names {
		if _, ok := w.pending[all]; ok {
			break
		}
		if _, ok := w.pending[name]; ok {
			continue
		}
		w.size += len(name) + len(",")
		if w.size > maxPayload-len(w.sender) || !valid(name) {
			clear(w.pending)
			name = all
		}
		w.pending[name] = struct{}{}
	}
	if len(w.pending) == 0 {
		return
	}
	select {
	case w.added <- struct{}{}:
	default: // there is one already
	}
}

// publish publishes pending names until ctx ends, and once more then.
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
		began := time.Now()
		err := w.publishOnce(ctx, publishTimeout)
		if ctx.Err() != nil {
			continue
		}
		w.redis.Report(ctx, began, err)
		if err == nil {
			failed = 0
			_ = retry.Sleep(ctx, burst)
			continue
		}
		failed++
		_ = retry.Sleep(ctx, retry.Backoff(failed, firstPause, maxPause))
	}
}

// publishOnce publishes all pending names. After an error they stay pending.
func (w *Wake) publishOnce(ctx context.Context, timeout time.Duration) error {
	w.mu.Lock()
	names := slices.Collect(maps.Keys(w.pending))
	clear(w.pending)
	w.size = 0
	w.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := w.client.Publish(ctx, Channel, encode(names, w.sender)).Err()
	if err != nil {
		w.add(names)
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
		w.redis.Report(ctx, time.Now(), err)
		if subscribed {
			failed = 0
		}
		failed++
		_ = retry.Sleep(ctx, retry.Backoff(failed, firstPause, maxPause))
	}
}

// receive passes messages on until the subscription ends. It reports
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
		if subscribed && errors.Is(err, net.ErrClosed) {
			return true, nil // this process closed it, as the address may lead to another server now
		}
		if err != nil {
			return subscribed, fmt.Errorf("subscription to %s: %w", Channel, err)
		}
		switch m := message.(type) {
		case *redis.Subscription:
			subscribed = true
			w.redis.Report(ctx, time.Now(), nil)
			w.notifier.NotifyAllLocal() // for earlier messages
		case *redis.Message:
			switch names, sender := decode(m.Payload); {
			case sender == w.sender:
			case slices.Contains(names, all):
				w.notifier.NotifyAllLocal()
			default:
				w.notifier.NotifyLocal(names...)
			}
		}
	}
}

// encode makes a message of valid names, or of all.
func encode(names []string, sender string) string {
	return strings.Join(names, ",") + "," + sender
}

// decode returns the names in a message, all among them, and its sender, if it has one.
// It ignores all else.
func decode(payload string) (names []string, sender string) {
	if len(payload) > maxPayload {
		return nil, ""
	}
	for name := range strings.SplitSeq(payload, ",") {
		switch name = strings.TrimSpace(name); {
		case strings.HasPrefix(name, senderPrefix):
			sender = name
		case name == all || valid(name):
			names = append(names, name)
		}
	}
	return names, sender
}

// valid reports whether a name comes out of a message as it went in.
func valid(name string) bool {
	return name != "" && name != all && len(name) <= maxName && utf8.ValidString(name) &&
		!strings.Contains(name, ",") && !strings.HasPrefix(name, senderPrefix) && strings.TrimSpace(name) == name
}
