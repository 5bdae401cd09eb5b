package push

import (
	"slices"
	"time"
)

// hear takes note of whether a subscription accepts anything. If it never did, vain says that this
// message was not accepted either, and drop that this has been so for long. A subscription is not
// dropped while its push service accepts messages to others: then it may fail for a moment. Only
// those of push services that members name are judged, as they can make up no others.
func (b *batch) hear(a answer) (vain, drop bool) {
	device := a.device
	switch {
	case !b.ByMembers[device.Platform] || a.heard:
	case a.Outcome == Accepted:
		b.heard = append(b.heard, device.ID)
		b.mu.Lock()
		delete(b.standing, device.ID)
		b.mu.Unlock()
	case a.Outcome != Ambiguous && a.Outcome != Wait, a.Reason == reasonStale, a.Reason == ReasonGoAway, a.Reason == ReasonRefused:
	case a.silent.IsZero():
		b.silent = append(b.silent, device.ID)
	default:
		return true, a.pass.unproven && b.clock().Sub(a.silent) > maxSilence
	}
	return false, false
}

// silence is how long a delivery waits for a device that was sent to in vain and never accepted
// anything; 0: it is none.
func (b *batch) silence(l *looked) time.Duration {
	if l.silent.IsZero() {
		return 0
	}
	return min(b.clock().Sub(l.silent), maxSilentPause)
}

// stands reports whether the delivery is one of the newest of its device, of those that came by
// here.
func (d *Deliveries) stands(l *looked) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	list, known := d.standing[l.device.ID]
	if !known && len(d.standing) >= maxOrigins {
		for other := range d.standing {
			delete(d.standing, other)
			break
		}
	}
	number := l.newest().Number
	if !slices.Contains(list, number) {
		list = slices.Sorted(slices.Values(append(list, number)))
		list = list[max(0, len(list)-maxStanding):]
		d.standing[l.device.ID] = list
	}
	return slices.Contains(list, number)
}
