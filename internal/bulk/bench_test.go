package bulk_test

import (
	"fmt"
	"testing"
)

// BenchmarkBackfill tells how many members a second get their sets, with so many
// members in a query, and so many queries at once.
func BenchmarkBackfill(b *testing.B) {
	const members = 3000
	g := newBackend(b)
	g.load(b, members, 60)
	for _, shape := range []struct{ batch, parallel int }{{1, 1}, {16, 1}, {128, 1}, {1, 4}, {16, 4}, {128, 4}, {512, 4}} {
		b.Run(fmt.Sprintf("batch=%d/parallel=%d", shape.batch, shape.parallel), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				must(b, g.client.FlushAll(b.Context()).Err())
				b.StartTimer()
				g.run(b, g.builder(), shape.batch, shape.parallel)
			}
			b.ReportMetric(members*float64(b.N)/b.Elapsed().Seconds(), "members/s")
		})
	}
}
