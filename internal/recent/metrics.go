package recent

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/mysql"
)

var (
	// The buckets are fine where a read by the index should be, below 10 ms, and go on to where a walk is cut off.
	readSeconds = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "activityd_read_seconds", Help: "Time of a read by the source of its answer; database: it walked, none: it failed.",
		Buckets: []float64{0.00025, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.035, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
	}, []string{"source"})
	reads = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_reads_total", Help: "Reads by the source and the kind of their answer; nothing: there is nothing to show, no_contacts: no contact ever uploaded, busy: there was no room for the walk that it needed.",
	}, []string{"source", "result"})
	readWalks = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_read_walks_total", Help: "Reads answered by a walk through MySQL, by the reason for it.",
	}, []string{"reason"})
)

// fromNowhere is the source of a read that failed.
const fromNowhere Source = "none"

// failures are the results of reads that failed, each with its error; nil stands for any further error.
var failures = []struct {
	err    error
	result string
}{
	{contacts.ErrNoMember, "no_member"},
	{ErrBusy, "busy"},
	{mysql.ErrUnavailable, "unavailable"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, "cancelled"},
	{nil, "other"},
}

func init() { // the known series begin with 0
	for _, source := range []Source{FromIndex, FromDatabase} {
		readSeconds.WithLabelValues(string(source))
		reads.WithLabelValues(string(source), "photos")
		reads.WithLabelValues(string(source), "nothing")
	}
	for _, f := range failures {
		reads.WithLabelValues(string(fromNowhere), f.result)
	}
	reads.WithLabelValues(string(FromDatabase), string(NoContacts))
	for _, why := range []Reason{
		SetMissing, SetMalformed, OtherSettings, RedisUnavailable, SetUnknown, WritesRefused, NothingVisible, BestTooOld, PhotosChanged,
	} {
		readWalks.WithLabelValues(string(why))
	}
}

// count counts a read that ended after took.
func count(a Answer, err error, took time.Duration) {
	source, result := a.Source, "nothing"
	switch {
	case err != nil:
		source = fromNowhere
		for _, f := range failures {
			if result = f.result; errors.Is(err, f.err) {
				break
			}
		}
	case a.Contact != nil:
		result = "photos"
	case a.Trace.WalkReason == NoContacts: // neither a fault nor a walk
		result = string(NoContacts)
	}
	readSeconds.WithLabelValues(string(source)).Observe(took.Seconds())
	reads.WithLabelValues(string(source), result).Inc()
	if source == FromDatabase && result != string(NoContacts) {
		readWalks.WithLabelValues(string(a.Trace.WalkReason)).Inc()
	}
}
