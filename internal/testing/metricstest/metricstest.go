// Package metricstest reads metrics in tests.
//
// Counters belong to the process. A test compares them before and after, and must not be
// parallel: go test runs such tests one by one, before the parallel ones of the package.
package metricstest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Samples are the values of series, such as name{label="value"} with sorted labels. Those
// of a histogram are the number of observations, under its name, and their sum, under
// name_sum.
type Samples map[string]float64

// Gather returns the samples of the default registry and of some collectors.
func Gather(t testing.TB, collectors ...prometheus.Collector) Samples {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors...)
	families, err := prometheus.Gatherers{prometheus.DefaultGatherer, registry}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	s := make(Samples)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := labelsOf(metric)
			s[family.GetName()+labels] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			if h := metric.GetHistogram(); h != nil {
				s[family.GetName()+"_sum"+labels] = h.GetSampleSum()
			}
		}
	}
	return s
}

func labelsOf(m *dto.Metric) string {
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	if len(labels) == 0 {
		return ""
	}
	return "{" + strings.Join(labels, ",") + "}"
}

// Named returns the samples of some metrics.
func (s Samples) Named(names ...string) Samples {
	out := make(Samples)
	for series, value := range s {
		if name, _, _ := strings.Cut(series, "{"); slices.Contains(names, name) {
			out[series] = value
		}
	}
	return out
}

// Since returns the differences to the samples of before, without those that are 0.
func (s Samples) Since(before Samples) Samples {
	out := make(Samples)
	for series, value := range s {
		if value != before[series] {
			out[series] = value - before[series]
		}
	}
	return out
}
