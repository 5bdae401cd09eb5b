package push

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
	eventsTargeted = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_push_events_total", Help: "Events whose task began; repeated: of an id that another task has, invalid: its task is dead.",
	}, []string{"outcome"})
	acceptedSeconds = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "activityd_push_event_to_accepted_seconds", Help: "Time from an event to its acceptance by the push service; quiet hours and the pauses within a burst count, too.",
		Buckets: []float64{0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.4, 0.6, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 28800, 86400},
	}, []string{"platform"})
	messages = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_push_messages_total", Help: "Messages sent; gone: the device is no more, rejected: never taken, credentials: our keys are refused, wait: tried again, ambiguous: no answer, and tried again. The reason is the push service's word, or ours, such as dial.",
	}, []string{"platform", "outcome", "reason"})
	messagesInFlight = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_push_messages_in_flight", Help: "Messages that are being sent, or wait for an answer.",
	})
	postponed = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_push_postponed_total", Help: "Deliveries put off without an answer; breaker: their push service is left alone, burst: another of the burst was sent less than a minute ago, no_keys: this process has no keys of the platform, slow: the answer takes more than 0.4 s, stale: the process was stopped since it looked.",
	}, []string{"reason"})
	skipped = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_push_skipped_total", Help: "Devices or members that an event was not sent to, and why; quiet_hours: it expires before they end, off: no process that has the keys took it, unshown: silent events to browsers, doubled: accepted or refused before, lost: the event is forgotten, or the database lost it.",
	}, []string{"reason"})
	doublesPossible = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_push_doubles_possible_total", Help: "Messages that may be accepted twice; no_answer: it was sent, and is sent again, taken_over: an attempt before may have sent it.",
	}, []string{"platform", "cause"})
	devicesGone = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_push_devices_gone_total", Help: "Devices that are not notified any more, by the push service's word.",
	}, []string{"platform", "reason"})
	breakersOpen = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "activityd_push_breakers_open", Help: "Push services that are left alone: they do not answer, ask for it, or refuse our keys.",
	}, []string{"platform"})
	credentialsRefused = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "activityd_push_credentials_refused", Help: "Push services that refuse our keys.",
	}, []string{"platform"})
	connections = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "activityd_push_connections", Help: "Connections to push services.",
	}, []string{"platform"})
)

// The ends of a notify task: its event is stored, another task has its id, or it cannot be understood.
const (
	eventNew      = "new"
	eventRepeated = "repeated"
	eventInvalid  = "invalid"
)

// Why a message may be accepted twice.
const (
	noAnswer  = "no_answer"  // it was sent, and is sent again
	takenOver = "taken_over" // an earlier attempt of its task may have sent it
)

// Why a delivery is put off.
const (
	breakerOpen = "breaker"
	noKeys      = "no_keys"
	quietHours  = "quiet_hours"
	ofBurst     = "burst"
	slow        = "slow"  // it was sent, and is not answered yet
	stale       = "stale" // it did not leave, as its look was too long ago
)

// Bounds of the reasons of results.
const (
	MaxReasons = 100 // that the results of a platform have, whatever push services say: they are labels
	MaxReason  = 64  // bytes of a reason that are kept, by the table push_receipts
)

// BeginSeries begins the series of platforms with 0.
func BeginSeries(platforms ...Kind) {
	for _, kind := range platforms {
		p := kind.Platform
		acceptedSeconds.WithLabelValues(string(p))
		for _, outcome := range []Outcome{Accepted, Gone, Rejected, Credentials, Wait, Ambiguous} {
			messages.WithLabelValues(string(p), string(outcome), "")
		}
		for _, cause := range []string{noAnswer, takenOver} {
			doublesPossible.WithLabelValues(string(p), cause)
		}
		devicesGone.WithLabelValues(string(p), "other")
		connections.WithLabelValues(string(p))
		breakersOpen.WithLabelValues(string(p))
		credentialsRefused.WithLabelValues(string(p))
	}
}

// The series without a platform begin with 0, too.
func init() {
	for _, reason := range []string{breakerOpen, noKeys, quietHours, ofBurst, slow, stale} {
		postponed.WithLabelValues(reason)
	}
	for _, reason := range []Skip{NoDevice, OptedOut, Muted, Blocked, NotVisible, Expired, NoActor, Unshown, Off, Doubled, Lost, quietHours} {
		skipped.WithLabelValues(string(reason))
	}
	for _, outcome := range []string{eventNew, eventRepeated, eventInvalid} {
		eventsTargeted.WithLabelValues(outcome)
	}
}

// CountConnections returns what is to be told of the connections that a sender of the platform
// opens, 1, and closes, -1.
func CountConnections(p Platform) func(delta int) {
	gauge := connections.WithLabelValues(string(p))
	return func(delta int) { gauge.Add(float64(delta)) }
}

// countResult counts the result of a message.
func countResult(p Platform, r Result, sinceEvent time.Duration) {
	messages.WithLabelValues(string(p), string(r.Outcome), r.Reason).Inc()
	switch r.Outcome {
	case Accepted:
		acceptedSeconds.WithLabelValues(string(p)).Observe(sinceEvent.Seconds())
	case Gone:
		devicesGone.WithLabelValues(string(p), r.Reason).Inc()
	case Ambiguous:
		doublesPossible.WithLabelValues(string(p), noAnswer).Inc()
	}
}
