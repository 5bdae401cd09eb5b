package stream_test

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/streamtest"
	"github.com/activityd/activityd/queue"
)

// What a producer pays for an event, beside what PING costs on the same connection, and
// what the stream takes in memory.
func BenchmarkProducer(b *testing.B) {
	for name, args := range map[string][]string{
		"no AOF":   nil,
		"everysec": {"--appendonly", "yes", "--appendfsync", "everysec"},
		"always":   {"--appendonly", "yes", "--appendfsync", "always"},
	} {
		b.Run(name, func(b *testing.B) {
			client := newClient(b, &redis.Options{Network: "unix", Addr: servertest.Redis(b, args...).Addr()})
			var costs streamtest.Costs
			for b.Loop() {
				one, err := streamtest.Producer(b.Context(), client, 1000)
				if err != nil {
					b.Fatal(err)
				}
				costs.XAdd, costs.Ping = append(costs.XAdd, one.XAdd...), append(costs.Ping, one.Ping...)
			}
			slices.Sort(costs.XAdd)
			slices.Sort(costs.Ping)
			for unit, q := range map[string]float64{"p50": 0.5, "p99": 0.99} {
				xadd, ping := streamtest.Quantile(costs.XAdd, q), streamtest.Quantile(costs.Ping, q)
				b.ReportMetric(float64(xadd.Microseconds()), "µs-xadd-"+unit)
				b.ReportMetric(float64(ping.Microseconds()), "µs-ping-"+unit)
			}
			bytes, err := streamtest.Bytes(b.Context(), client)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(bytes, "B/entry")
		})
	}
}

// How many entries a consumer moves, and how long one takes from before its XADD to its row
// when nothing else waits.
func BenchmarkConsumer(b *testing.B) {
	client := newClient(b, &redis.Options{Network: "unix", Addr: servertest.Redis(b).Addr()})
	db, err := mysql.Open(servertest.MySQLDSN(b))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	const many, single = 20_000, 200
	for b.Loop() {
		if _, err := streamtest.Producer(b.Context(), client, many); err != nil {
			b.Fatal(err)
		}
		committed := make(chan int, many)
		q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()})
		began := time.Now()
		stop := run(b, stream.New(client, enqueueFunc(func(ctx context.Context, batch []queue.New) ([]uint64, error) {
			ids, err := q.Enqueue(ctx, batch)
			committed <- len(ids)
			return ids, err
		}), slog.New(slog.NewTextHandler(os.Stderr, nil)), stream.Options{Name: "a"}))
		for n := 0; n < many; {
			n += <-committed
		}
		b.ReportMetric(many/time.Since(began).Seconds(), "entries/s")
		var took []time.Duration
		for range single {
			began := time.Now()
			if err := client.XAdd(b.Context(), &redis.XAddArgs{Stream: stream.Key, Values: []any{stream.Field, streamtest.Event}}).Err(); err != nil {
				b.Fatal(err)
			}
			<-committed
			took = append(took, time.Since(began))
		}
		stop()
		slices.Sort(took)
		b.ReportMetric(float64(streamtest.Quantile(took, 0.5).Microseconds()), "µs-to-row-p50")
		b.ReportMetric(float64(streamtest.Quantile(took, 0.99).Microseconds()), "µs-to-row-p99")
	}
}
