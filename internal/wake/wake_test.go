package wake_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/wake"
)

func onSocket(path string) *redis.Options { return &redis.Options{Addr: path, Network: "unix"} }

// A notification arrives at all processes, once at its own.
func TestANotificationArrivesElsewhere(t *testing.T) {
	t.Parallel()
	o := onSocket(servertest.Redis(t).Addr())
	here, log := start(t, o)
	there, _ := start(t, o)
	yonder, _ := start(t, o)
	long := "once:" + strings.Repeat("x", 200)
	var notified []<-chan struct{}
	for _, p := range []*process{there, yonder} {
		for _, name := range []string{"default", "fan_out", long} {
			notified = append(notified, p.expect(t, name))
		}
	}
	own, back := here.expect(t, "default"), here.expect(t, "refill")
	here.Notify("default", "fan_out", long)
	<-own // of Notify itself
	for _, c := range notified {
		await(t, c)
	}
	there.Notify("refill")
	await(t, back)
	if len(own) != 0 { // its own message came before
		t.Error("its own message notified it")
	}
	if here.notifiedOfAll()+there.notifiedOfAll()+yonder.notifiedOfAll() != 3 { // once each, at the start
		t.Error("all names were notified")
	}
	if log.String() != "" {
		t.Errorf("log %s", log)
	}
}

// A site may publish by itself. Garbage is ignored, and a * is all names.
func TestASiteMayPublish(t *testing.T) {
	t.Parallel()
	o := onSocket(servertest.Redis(t).Addr())
	p, log := start(t, o)
	client := open(t, o)
	publish := func(payload string) { must(t, client.Publish(t.Context(), "activityd_wake", payload).Err()) }
	fanOut, def := p.expect(t, "fan_out"), p.expect(t, "default")
	for _, payload := range []string{"", "\x00\xff,,@,", strings.Repeat("*,", 100_000), "fan_out, default"} {
		publish(payload)
	}
	await(t, fanOut)
	await(t, def)
	if n := p.notifiedOfAll(); n != 1 {
		t.Errorf("all names were notified %d times", n)
	}
	publish("*")
	await(t, fanOut)
	await(t, def)
	if log.String() != "" {
		t.Errorf("log %s", log)
	}
}

// Ten thousand notifications are a handful of messages; the first leaves at once, and the
// last arrives, too.
func TestABurstIsFewMessages(t *testing.T) {
	t.Parallel()
	o := onSocket(servertest.Redis(t).Addr())
	here, _ := start(t, o)
	there, _ := start(t, o)
	last := there.expect(t, "last")
	listening := open(t, o).Subscribe(t.Context(), wake.Channel)
	t.Cleanup(func() { _ = listening.Close() })
	_, err := listening.Receive(t.Context())
	must(t, err)
	begin := time.Now()
	var notifying sync.WaitGroup
	for range 4 {
		notifying.Go(func() {
			for range 2500 {
				here.Notify("default")
			}
		})
	}
	notifying.Wait()
	here.Notify("last")
	await(t, last)
	most := 3 + int(time.Since(begin)/wake.Burst)
	must(t, open(t, o).Publish(t.Context(), wake.Channel, "end").Err())
	var messages []string
	for message := ""; message != "end"; {
		m, err := listening.ReceiveMessage(t.Context())
		must(t, err)
		message = m.Payload
		messages = append(messages, message)
	}
	if n := len(messages) - 1; n < 1 || n > most || n > 1000 {
		t.Errorf("%d messages for 10,000 notifications, want at most %d: %.200q", n, most, messages)
	}
}

// Names that no message can hold notify under all names, and no name is lost.
func TestAllNames(t *testing.T) {
	t.Parallel()
	var many []string // more than a message
	for i := range wake.MaxPayload / 10 {
		many = append(many, fmt.Sprintf("name%06d", i))
	}
	o := onSocket(servertest.Redis(t).Addr())
	here, _ := start(t, o)
	there, _ := start(t, o)
	for i, names := range [][]string{{"a,b"}, {"@c"}, {" d"}, {strings.Repeat("e", 257)}, many, many[1:]} {
		another := there.expect(t, "another")
		here.Notify(names...)
		await(t, another)
		eventually(t, "all names are notified", func() bool { return there.notifiedOfAll() == 2+i })
	}
	another, last := there.expect(t, "another"), there.expect(t, many[0])
	here.Notify(many[:wake.MaxPayload/20]...)
	await(t, last)
	if len(another) != 0 {
		t.Error("names that a message can hold notified under all")
	}
}

// Notifications before Run, and just before the stop, are published.
func TestNothingIsLostAtTheEnds(t *testing.T) {
	t.Parallel()
	o := onSocket(servertest.Redis(t).Addr())
	there, _ := start(t, o)
	early, late := there.expect(t, "early"), there.expect(t, "late")
	p := newProcess()
	w := wake.New(open(t, o), &p.Notifier, quiet())
	p.Notify("early")
	stop := run(t, w)
	await(t, early)
	p.Notify("late")
	stop()
	await(t, late)
}
