package push

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/activityd/activityd/internal/member"
)

var byType = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "activityd_push_notifications_total",
	Help: "Notifications by the type of their event; accepted: by a push service, failed: refused for good, opened: as apps report; type other: all but the first 50, platform several: the app did not say which.",
}, []string{"type", "platform", "result"})

// resultOpened is what apps report; the other results are states of receipts.
const resultOpened = "opened"

const (
	maxTypeLabels = 50
	otherType     = "other"
	// severalPlatforms stands for the platform of what was opened on one of several devices.
	severalPlatforms = "several"
)

// types are the types of events that are labels.
var types = struct {
	mu   sync.Mutex
	seen map[string]bool
}{seen: map[string]bool{otherType: true}}

// typeLabel is a type of events as a label: the site chooses them, and may choose many.
func typeLabel(kind string) string {
	types.mu.Lock()
	defer types.mu.Unlock()
	if !types.seen[kind] && len(types.seen) > maxTypeLabels {
		return otherType
	}
	types.seen[kind] = true
	return kind
}

// countByType counts what became of a message about an event, or that it was opened.
func countByType(kind string, platform Platform, result string) {
	byType.WithLabelValues(typeLabel(kind), string(platform), result).Inc()
}

// Opened counts that a member opened the notification of an event on a device; 0: it is not said on which. It counts
// what a push service accepted for the member, once for an event and a member, as long as this process remembers
// it: for the last 50,000 at least. What it does not know it does not count, and says nothing of it.
func (m *MySQL) Opened(ctx context.Context, id member.ID, event string, device uint64) error {
	e, err := m.EventByID(ctx, event)
	if err != nil || e == nil {
		return err
	}
	platform := Platform("")
	for page, err := range m.Fates(ctx, e.Number, id) {
		if err != nil {
			return err
		}
		for _, f := range page {
			switch {
			case f.State != StateAccepted || f.Platform == "" || device != 0 && f.Device != device:
			case platform != "" && platform != f.Platform:
				platform = severalPlatforms
			default:
				platform = f.Platform
			}
		}
	}
	if platform != "" && m.opened.first(opening{e.Number, id}) {
		countByType(e.Type, platform, resultOpened)
	}
	return nil
}

// opening is an event, by its number, and a member that opened its notification.
type opening struct {
	event  uint64
	member member.ID
}

// openings are those that were counted last. The zero value is empty.
type openings struct {
	mu       sync.Mutex
	now, old map[opening]bool // what is in old is forgotten when now is full
}

const maxOpenings = 50_000

// first reports whether an opening is not known, and remembers it.
func (o *openings) first(one opening) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now[one] || o.old[one] {
		return false
	}
	if o.now == nil || len(o.now) >= maxOpenings {
		o.now, o.old = make(map[opening]bool), o.now
	}
	o.now[one] = true
	return true
}
