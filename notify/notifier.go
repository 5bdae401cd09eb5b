// Package notify tells goroutines that wait for something by name that it has changed, so
// that they need not poll. A notification is a hint: the waiter looks for itself.
package notify

import (
	"slices"
	"sync"
)

// Notifier passes on notifications: of a queue, that it has new tasks; of a lock, that an attempt
// has ended. The zero Notifier is ready. It is safe for concurrent use.
//
// No notification is lost: each subscriber has a channel that holds one value. Notify comes after
// the commit of the change, and leaves a value in the channel. A subscriber takes the value only
// when it is about to look: then the change is there. So no change slips through between a look
// that found nothing and the wait for the channel.
type Notifier struct {
	mu          sync.Mutex
	subscribers map[string][]chan struct{} // by name
	forwards    []*func(names []string)
}

// Notify says that something changed under the names. It wakes their subscribers in
// this process and calls the functions of [Notifier.Forward].
func (n *Notifier) Notify(names ...string) {
	if len(names) == 0 {
		return
	}
	n.NotifyLocal(names...)
	n.mu.Lock()
	forwards := slices.Clone(n.forwards)
	n.mu.Unlock()
	for _, forward := range forwards {
		(*forward)(names)
	}
}

// NotifyLocal is Notify within this process: for a notification of another process.
func (n *Notifier) NotifyLocal(names ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range names {
		notifyAll(n.subscribers[name])
	}
}

// NotifyAllLocal is NotifyLocal for all names, for a caller that may have missed notifications.
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
		default: // the channel holds a value already
		}
	}
}

// Forward makes every [Notifier.Notify] call do, until cancel is called. It must
// not block, and must not change or keep its argument.
func (n *Notifier) Forward(do func(names []string)) (cancel func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.forwards = append(n.forwards, &do)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.forwards = slices.DeleteFunc(n.forwards, func(f *func([]string)) bool { return f == &do })
	}
}

// Subscribe returns a channel that gets a value when something changes under the name, until cancel
// is called. After a notification since the last receive, the channel holds a value already.
func (n *Notifier) Subscribe(name string) (notified <-chan struct{}, cancel func()) {
	c := make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.subscribers == nil {
		n.subscribers = make(map[string][]chan struct{})
	}
	n.subscribers[name] = append(n.subscribers[name], c)
	return c, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		left := slices.DeleteFunc(n.subscribers[name], func(one chan struct{}) bool { return one == c })
		if n.subscribers[name] = left; len(left) == 0 {
			delete(n.subscribers, name)
		}
	}
}
