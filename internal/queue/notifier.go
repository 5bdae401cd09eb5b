package queue

import (
	"slices"
	"sync"
)

// Notifier wakes idle workers when tasks were enqueued. The zero Notifier is
// ready. It is safe for concurrent use.
//
// No notification is lost: each subscriber has a channel that holds one. Notify
// comes after the commit of what it is about, and leaves a value in the channel.
// A fetcher takes it only when it is about to claim: then the tasks are there. So
// between a claim that found nothing and the wait for the channel nothing slips
// through.
type Notifier struct {
	mu          sync.Mutex
	subscribers map[string][]chan struct{} // by queue
	forwards    []*func(queues []string)
}

// Notify says that there are new tasks in the queues. It wakes the fetchers of
// these queues in this process and calls the functions of [Notifier.Forward].
func (n *Notifier) Notify(queues ...string) {
	if len(queues) == 0 {
		return
	}
	n.NotifyLocal(queues...)
	n.mu.Lock()
	forwards := slices.Clone(n.forwards)
	n.mu.Unlock()
	for _, forward := range forwards {
		(*forward)(queues)
	}
}

// NotifyLocal is Notify within this process: for a notification of another process.
func (n *Notifier) NotifyLocal(queues ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, queue := range queues {
		notifyAll(n.subscribers[queue])
	}
}

// NotifyAllLocal is NotifyLocal for all queues: for when it is not known which
// notifications were missed.
func (n *Notifier) NotifyAllLocal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, subscribers := range n.subscribers {
		notifyAll(subscribers)
	}
}

func notifyAll(subscribers []chan struct{}) {
	for _, c := range subscribers {
		select {
		case c <- struct{}{}:
		default: // there is one already
		}
	}
}

// Forward makes every [Notifier.Notify] call do, until cancel is called. It must
// not block, and must not change or keep its argument.
func (n *Notifier) Forward(do func(queues []string)) (cancel func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forwards = append(n.forwards, &do)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.forwards = slices.DeleteFunc(n.forwards, func(f *func([]string)) bool { return f == &do })
	}
}

// subscribe returns a channel that gets a value when there are new tasks in the
// queue, until cancel is called.
func (n *Notifier) subscribe(queue string) (notified chan struct{}, cancel func()) {
	notified = make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.subscribers == nil {
		n.subscribers = make(map[string][]chan struct{})
	}
	n.subscribers[queue] = append(n.subscribers[queue], notified)
	return notified, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.subscribers[queue] = slices.DeleteFunc(n.subscribers[queue], func(c chan struct{}) bool { return c == notified })
	}
}
