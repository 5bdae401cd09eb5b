package notify_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/activityd/activityd/notify"
)

// A notification between two receives is kept, and a cancelled subscription gets none.
func TestSubscribe(t *testing.T) {
	t.Parallel()
	var notifier notify.Notifier
	a, cancelA := notifier.Subscribe("x")
	b, cancelB := notifier.Subscribe("x")
	other, cancelOther := notifier.Subscribe("y")
	defer cancelOther()
	notifier.Notify("x")
	notifier.Notify("x", "z")
	for name, c := range map[string]<-chan struct{}{"a": a, "b": b} {
		select {
		case <-c:
		default:
			t.Errorf("%s was not notified", name)
		}
	}
	cancelA()
	cancelA()
	notifier.NotifyAllLocal()
	if len(a) != 0 || len(b) != 1 || len(other) != 1 {
		t.Errorf("%d, %d and %d notifications, want 0, 1 and 1", len(a), len(b), len(other))
	}
	cancelB()
}

// Forward passes on the notifications of this process, and no notification from other processes.
func TestForward(t *testing.T) {
	t.Parallel()
	var notifier notify.Notifier
	var got []string
	forward := func(name string) (cancel func()) {
		return notifier.Forward(func(queues []string) { got = append(got, fmt.Sprint(name, queues)) })
	}
	cancelA := forward("a")
	notifier.Notify("x", "y")
	cancelB := forward("b")
	notifier.NotifyLocal("x")
	notifier.NotifyAllLocal()
	notifier.Notify()
	notifier.Notify("z")
	cancelA()
	cancelA()
	notifier.Notify("x")
	cancelB()
	notifier.Notify("x")
	if want := []string{"a[x y]", "a[z]", "b[z]", "b[x]"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
