package wake_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/wake"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

const (
	awayLine = "Redis cannot wake workers"
	backLine = "Redis wakes workers again"
)

// expectOutages expects that many outages in the log, each begun and ended, and
// nothing else.
func expectOutages(t *testing.T, log *logged, n int) {
	t.Helper()
	eventually(t, "the outage is over", func() bool { return strings.Count(log.String(), backLine) >= n })
	text := log.String()
	if away, back := strings.Count(text, awayLine), strings.Count(text, backLine); away != n || back != n || strings.Count(text, "\n") != 2*n {
		t.Errorf("want %d outages: %s", n, text)
	}
}

// A Redis that dies costs wakes as long as it is away. When it is back, everybody
// looks at everything, and hears again; and what was rung for meanwhile is
// published after all.
func TestARedisThatDiesComesBack(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	here, log := start(t, onSocket(server.Addr()))
	there, otherLog := start(t, onSocket(server.Addr()))
	for outages := 1; outages <= 2; outages++ {
		must(t, server.Kill())
		eventually(t, "both know", func() bool {
			return strings.Count(log.String(), awayLine) == outages && strings.Count(otherLog.String(), awayLine) == outages
		})
		begin := time.Now()
		for range 10_000 {
			here.Notify("meanwhile")
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("10,000 rings took %v", took)
		}
		must(t, server.Restart(t.Context()))
		for _, b := range []*notifier{here, there} {
			eventually(t, "it looks at everything", func() bool { return b.rungForAll() == 1+outages })
		}
		expectOutages(t, log, outages)
		expectOutages(t, otherLog, outages)
		here.Notify("after")
		there.awaits(t, "after")
	}
}

// Rings that could not be published are not forgotten, also if the others never
// lost their connection.
func TestRingsOutliveAnOutage(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	proxy := servertest.NewProxy(t, server.Addr())
	here, log := start(t, &redis.Options{Addr: proxy.Addr()})
	there, _ := start(t, onSocket(server.Addr()))
	proxy.Refuse(true)
	proxy.Cut()
	eventually(t, "it knows", func() bool { return strings.Contains(log.String(), awayLine) })
	here.Notify("meanwhile")
	proxy.Refuse(false)
	there.awaits(t, "meanwhile")
	expectOutages(t, log, 1)
	if n := there.rungForAll(); n != 1 {
		t.Errorf("the other one subscribed %d times", n)
	}
}

// A Redis that hangs is noticed by its silence; nobody waits for it to ring.
func TestASilentRedisIsNoticed(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	here, log := start(t, onSocket(server.Addr()))
	must(t, server.Pause())
	here.Notify("meanwhile")
	eventually(t, "it knows", func() bool { return strings.Contains(log.String(), awayLine) })
	must(t, server.Resume())
	eventually(t, "it looks at everything", func() bool { return here.rungForAll() >= 2 })
	expectOutages(t, log, 1)
}

// A process may start before its Redis.
func TestRedisMayComeLater(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	must(t, server.Kill())
	b, log := &notifier{}, &logged{}
	run(t, wake.New(open(t, onSocket(server.Addr())), b, slog.New(slog.NewTextHandler(log, nil))))
	eventually(t, "it knows", func() bool { return strings.Contains(log.String(), awayLine) })
	must(t, server.Restart(t.Context()))
	eventually(t, "it is subscribed", func() bool { return b.rungForAll() == 1 })
	expectOutages(t, log, 1)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
