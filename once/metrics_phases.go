package once

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/newest"
)

// phases are those that a name can be in.
var phases = []Phase{Free, Held, Done, Exhausted}

// A [PhasesCollector] asks for at most phasesTimeout, and answers the scrapes of the next
// phasesInterval with what it got, or of a time phasesShare times as long as the answer
// took.
const (
	phasesWait     = 50 * time.Millisecond // then a scrape shows the answer before
	phasesTimeout  = 5 * time.Second
	phasesInterval = 5 * time.Second
	phasesShare    = 10
)

var descKeys = prometheus.NewDesc("activityd_once_keys", "Names in MySQL that have a state, by phase, counted up to 100,000; held: also those whose lease has expired.", []string{"phase"}, nil)

// PhasesCollector shows how many names are in each phase. It asks during a scrape, and
// shows nothing while it gets no answer.
type PhasesCollector struct{ last *newest.Answer[map[Phase]int] }

// NewPhasesCollector returns a collector of what count returns, as [MySQL.Phases] does.
func NewPhasesCollector(count func(context.Context) (map[Phase]int, error)) *PhasesCollector {
	return &PhasesCollector{newest.New(func() (map[Phase]int, time.Duration) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), phasesTimeout)
		defer cancel()
		counts, err := count(ctx)
		if err != nil {
			counts = nil
		}
		return counts, max(phasesInterval, phasesShare*time.Since(start))
	})}
}

// Describe implements [prometheus.Collector].
func (c *PhasesCollector) Describe(out chan<- *prometheus.Desc) { out <- descKeys }

// Collect implements [prometheus.Collector].
func (c *PhasesCollector) Collect(out chan<- prometheus.Metric) {
	last, _ := c.last.Get(phasesWait)
	if last == nil {
		return
	}
	for _, phase := range phases {
		out <- prometheus.MustNewConstMetric(descKeys, prometheus.GaugeValue, float64(last[phase]), string(phase))
	}
}
