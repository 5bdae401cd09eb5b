package push

import (
	"slices"
	"time"
)

// What becomes of subscriptions that accept nothing. A device is silent since its first message in
// vain, or from a day after it if it accepted others before: push services that are known to work
// are away for some hours at times. See [MySQL.Hear].
const (
	// trustedFor is that day.
	trustedFor = 24 * time.Hour
	// maxSilentPause is how long a delivery waits for a silent device: at first for as long as the device
	// has been silent. If it was sent in vain and the push service accepts nothing from others either, it
	// is an eighth of that at last.
	maxSilentPause = 30 * time.Minute
	// maxStanding is how many deliveries, the newest, wait for a device that has been silent for
	// maxSilentPause: not before, since its push service may just be away.
	maxStanding = 3
	// maxSilence is after how long a silent device is retired.
	maxSilence = 3 * 24 * time.Hour
)

// await collects answers for as long as a handler waits for them. Only one batch at a time waits for
// messages that are unlikely to be answered soon: else these would have all workers.
func (b *batch) await() {
	if b.waited = b.unlikely.TryLock(); b.waited {
		defer b.unlikely.Unlock()
	}
	b.collect(b.ctx.Done(), 0, b.Patience, briefPatience, b.waited)
}

// expect counts a message that is sent, or that has ended, among those that the batch waits for.
func (b *batch) expect(p pass, n int) {
	switch {
	case p.unlikely:
	case p.byMember:
		b.browsers += n
	default:
		b.awaited += n
	}
}

// hear takes note of whether a subscription accepts anything. vain says that it is silent, and did not
// accept this message either, and retire that this has been so for long. A subscription is not
// retired while its push service accepts messages to others, as then it may fail for a moment; nor
// while no push service accepts any, as then our network may be away. Only those of push services that members
// name are judged, as they can make up no others.
func (b *batch) hear(a answer) (vain, retire bool) {
	device := a.device
	switch {
	case !b.ByMembers[device.Platform]:
	case a.Outcome == Accepted:
		if !a.heard {
			b.heard = append(b.heard, device.ID)
			b.mu.Lock()
			delete(b.standing, device.ID)
			b.mu.Unlock()
		}
	case a.Outcome != Ambiguous && a.Outcome != Wait, a.Reason == reasonStale, a.Reason == ReasonGoAway, a.Reason == ReasonRefused:
	case !a.silent.IsZero():
		return true, a.pass.unproven && b.clock().Sub(a.silent) > maxSilence && b.breakers.accepts()
	case !a.heard || a.pass.unproven:
		b.silent = append(b.silent, device.ID)
	}
	return false, false
}

// silence is how long a delivery waits because its device is silent; 0: it is not. inVain: it was sent, and
// its push service accepts nothing from others either.
func (b *batch) silence(l *looked, inVain bool) time.Duration {
	if l.silent.IsZero() {
		return 0
	}
	silent, most := max(0, b.clock().Sub(l.silent)), maxSilentPause
	if inVain {
		most = max(most, silent/8)
	}
	return min(silent, most)
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
