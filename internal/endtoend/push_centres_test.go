//go:build unix

package endtoend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestPushSurvivesTheLossOfACentre: there are two data centres, with an activityd and a Redis each; the
// primary of MySQL is in the first, and a semi-synchronous replica in the second. All of the first is killed
// at once, the replica promoted, and the other activityd led to it: no acknowledged event is lost.
func TestPushSurvivesTheLossOfACentre(t *testing.T) {
	t.Parallel()
	c := newCentres(t, seedFor(t))
	const enough = 200 // messages
	rest := c.live(t.Context(), c.seed, c.http, func(rnd *rand.Rand) *program {
		return []*program{c.first, c.second}[rnd.IntN(2)]
	}, c.addToFirst)
	c.awaitMessages(t, enough)
	c.loseFirst(t)
	c.awaitMessages(t, c.apns.Stats().Accepted+enough)
	if err := rest(); err != nil {
		t.Fatalf("the site: %v", err)
	}
	c.awaitDelivered(t, pushSettleBound)
	j := newPushJudge(t, c.pushSite)
	j.checkNothingStuck()
	j.checkComplete()
	j.checkAllowed()
	j.checkDevices()
	t.Log(j)
	c.checkStreams(t, j)
	c.second.finish(t)
	c.second.checkLogs(t)
}

// centres are two data centres. The test loses the first.
type centres struct {
	*pushSite
	seed             uint64
	primary, replica *servertest.Replicated
	firstRedis       *localserver.Redis
	first, second    *program
	toPrimary        *servertest.Proxy // of the site and of both processes
	http             *http.Client
	toFirst          *pushProducer // adds to the stream of the first Redis
}

func newCentres(t *testing.T, seed uint64) *centres {
	t.Helper()
	c := &centres{seed: seed, http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}}
	t.Cleanup(c.http.CloseIdleConnections)
	c.primary = servertest.NewPrimary(t)
	c.replica = c.primary.NewReplica(t)
	c.toPrimary = servertest.NewProxy(t, c.primary.Addr())
	dsn := c.toPrimary.MySQLDSN(c.primary.SiteDSN())
	c.pushSite = newPushSite(t, groundOn(t, 10, dsn, servertest.Redis(t, localserver.AOF...)), seed)
	c.firstRedis = servertest.Redis(t, localserver.AOF...)
	c.toFirst = &pushProducer{
		pushSite: c.pushSite, way: byStream, prefix: "to-first", rnd: rand.New(rand.NewPCG(seed, 800)), redis: openRedis(t, c.firstRedis),
	}
	c.first = c.process(t, "first", dsn, c.firstRedis.URL())
	c.second = c.process(t, "second", dsn, c.redis.URL())
	c.first.mustStart(t)
	c.second.mustStart(t)
	return c
}

// addToFirst adds events to the stream of the first centre. There, it is not tried again.
func (c *centres) addToFirst(ctx context.Context) error {
	batch := []*sentEvent{c.toFirst.event(), c.toFirst.event()}
	_ = c.toFirst.begin(batch, func() error { return c.toFirst.add(ctx, batch) }) // an event of a failed call is not acknowledged
	return ctx.Err()
}

// awaitMessages waits until phones have got so many.
func (c *centres) awaitMessages(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " messages are accepted"), func() bool { return c.apns.Stats().Accepted >= n })
}

// loseFirst kills all of the first centre, and promotes the replica.
func (c *centres) loseFirst(t *testing.T) {
	t.Helper()
	c.primary.CheckSynchronous(t)
	var group errgroup.Group
	group.Go(c.first.kill)
	group.Go(c.firstRedis.Kill)
	group.Go(c.primary.Kill)
	must(t, group.Wait())
	c.replica.Promote(t)
	c.toPrimary.Move(c.replica.Addr())
}

// checkStreams: each event of the second centre's stream is in the queue. Each event of the first centre's
// stream is in the queue, or still in the stream.
func (c *centres) checkStreams(t *testing.T, j *pushJudge) {
	t.Helper()
	must(t, c.firstRedis.Restart(t.Context()))
	// The client that met the dead server answers with the old error until it next tries to connect.
	entries, err := openRedis(t, c.firstRedis).XRange(t.Context(), stream.Key, "-", "+").Result()
	must(t, err)
	var left strings.Builder
	for _, e := range entries {
		fmt.Fprintln(&left, e.Values)
	}
	for id, e := range j.sent {
		if e.way == byStream && !e.acked.IsZero() && !j.notified[id] && !strings.Contains(left.String(), `"`+id+`"`) {
			j.wrongf("LOST: event %s was taken out of the stream, and is not in the queue", id)
		}
	}
}
