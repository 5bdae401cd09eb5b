package stream_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/queue"
)

// BenchmarkMover measures how many entries a process moves, and how long it takes from before an XADD to the commit when nothing
// else waits.
func BenchmarkMover(b *testing.B) {
	on := newBench(b)
	const many, alone = 20_000, 200
	for b.Loop() {
		on.uploads(1, many)
		committed := make(chan int, many)
		began := time.Now()
		stop := on.run(on.mover(enqueueFunc(func(ctx context.Context, batch []queue.New) ([]uint64, error) {
			ids, err := on.queue.Enqueue(ctx, batch)
			committed <- len(ids)
			return ids, err
		})))
		for n := 0; n < many; {
			n += <-committed
		}
		b.ReportMetric(many/time.Since(began).Seconds(), "entries/s")
		var took []time.Duration
		for range alone {
			began := time.Now()
			on.add(stream.Field, anEvent)
			<-committed
			took = append(took, time.Since(began))
		}
		stop()
		slices.Sort(took)
		b.ReportMetric(float64(took[alone/2].Microseconds()), "µs-to-row-p50")
		b.ReportMetric(float64(took[alone*99/100].Microseconds()), "µs-to-row-p99")
	}
}
