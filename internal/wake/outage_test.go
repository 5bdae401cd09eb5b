package wake_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/wake"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

const (
	awayLine = "Redis does not pass on notifications"
	backLine = "Redis passes on notifications again"
)

// expectOutage expects one outage in the log, begun and ended, and no further line.
func expectOutage(t *testing.T, log *logtest.Log) {
	t.Helper()
	eventually(t, "the outage is over", func() bool { return strings.Contains(log.String(), backLine) })
	text := log.String()
	if away, back := strings.Count(text, awayLine), strings.Count(text, backLine); away != 1 || back != 1 || strings.Count(text, "\n") != 2 {
		t.Errorf("want one outage: %s", text)
	}
}

// A Redis that dies costs notifications as long as it is away. When it is back, every
// process is notified under all names, and is subscribed again; and pending names are
// published after all.
func TestARedisThatDiesComesBack(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	here, log := start(t, onSocket(server.Addr()))
	there, otherLog := start(t, onSocket(server.Addr()))
	for outages := 1; outages <= 2; outages++ {
		must(t, server.Kill())
		eventually(t, "both know", func() bool { // they log it once: the second outage soon follows the first
			return strings.Contains(log.String(), awayLine) && strings.Contains(otherLog.String(), awayLine)
		})
		begin := time.Now()
		for range 10_000 {
			here.Notify("outage")
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("10,000 notifications took %v", took)
		}
		must(t, server.Restart(t.Context()))
		for _, p := range []*process{here, there} {
			eventually(t, "it is notified under all names", func() bool { return p.notifiedOfAll() == 1+outages })
		}
		expectOutage(t, log)
		expectOutage(t, otherLog)
		after := there.expect(t, "after")
		here.Notify("after")
		await(t, after)
	}
}

// Notifications that could not be published are not forgotten, also if the receiver never
// lost its connection.
func TestNotificationsOutliveAnOutage(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server.Addr())
	here, log := start(t, &redis.Options{Addr: proxy.Addr()})
	there, _ := start(t, onSocket(server.Addr()))
	notified := there.expect(t, "outage")
	proxy.Refuse(true)
	proxy.Cut()
	eventually(t, "it knows", func() bool { return strings.Contains(log.String(), awayLine) })
	here.Notify("outage")
	proxy.Refuse(false)
	await(t, notified)
	expectOutage(t, log)
	if n := there.notifiedOfAll(); n != 1 {
		t.Errorf("the other one was notified under all names %d times", n)
	}
}

// A Redis that hangs is noticed by its silence; Notify does not wait for it.
func TestASilentRedisIsNoticed(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	here, log := start(t, onSocket(server.Addr()))
	must(t, server.Pause())
	eventually(t, "it knows", func() bool { return strings.Contains(log.String(), awayLine) })
	here.Notify("outage")
	must(t, server.Resume())
	eventually(t, "it is notified under all names", func() bool { return here.notifiedOfAll() >= 2 })
	expectOutage(t, log)
}

// A process may start before its Redis.
func TestRedisMayComeLater(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	must(t, server.Kill())
	p, log := newProcess(), &logtest.Log{}
	run(t, wake.New(open(t, onSocket(server.Addr())), &p.Notifier, log.Logger()))
	eventually(t, "it knows", func() bool { return strings.Contains(log.String(), awayLine) })
	must(t, server.Restart(t.Context()))
	eventually(t, "it is subscribed", func() bool { return p.notifiedOfAll() == 1 })
	expectOutage(t, log)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
