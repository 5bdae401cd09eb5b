package push

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/queue"
)

// book is the receipts of a batch that are to be written, and what else its messages taught.
type book struct {
	receipts  []Receipt        // the last one of a device and an event last
	unwritten map[*asked]*sent // whose receipts these are; nil: nothing of it was sent
	owed      int              // of these, counted by Deliveries.owing: they could not be written in time
	taken     int              // of these, accepted
	gone      []Pruned
	heard     []uint64 // devices that accepted a message: their first one, or the first after some in vain
	silent    []uint64 // devices that were sent one in vain, or whose push service has failed for long
}

// receipt returns one of the delivery.
func (one *asked) receipt(event uint64, state State, reason string) Receipt {
	return Receipt{Event: event, Member: one.to.Member, Device: one.to.Device, State: state, Reason: reason, Burst: one.key.burst}
}

// record has a receipt written of a delivery of which nothing was sent.
func (b *batch) record(one *asked, r Receipt) {
	b.receipts = append(b.receipts, r)
	b.unwritten[one] = nil
}

// recordAll has a receipt written for each of some events of a message.
func (b *batch) recordAll(s *sent, events []*StoredEvent, state State, reason string) {
	for _, e := range events {
		b.receipts = append(b.receipts, s.receipt(e.Number, state, reason))
	}
	b.unwritten[s.asked] = s
}

// recordEnd has the receipts written of a message that has come to its end. That of one of several deliveries of a task
// is a part of a row, unless there may be a row of its own already.
func (b *batch) recordEnd(a answer, v verdict) {
	isOwn := len(a.all) == 1 || a.marked || a.unanswered || a.byBurst
	for _, e := range a.send {
		r := a.receipt(e.Number, v.state, v.reason)
		if v.state == StateAccepted {
			r.ProviderID = a.ID
			switch {
			case e != a.text: // a run has no reason
				r.Reason = string(Doubled)
			case !isOwn:
				r.Task = a.task.ID
			}
		}
		b.receipts = append(b.receipts, r)
	}
	for _, number := range a.old {
		b.receipts = append(b.receipts, a.receipt(number, v.state, string(Doubled)))
	}
	b.unwritten[a.sent.asked] = a.sent
}

// flushInTime is flush, as long as the lease of the tasks lasts. A handler does not try again what
// failed.
func (b *batch) flushInTime() {
	if b.owed > 0 && !b.detached {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), recordTime)
	defer cancel()
	if !b.detached {
		defer context.AfterFunc(b.ctx, func() {
			_ = retry.Sleep(ctx, recordLate)
			cancel()
		})()
	}
	b.flush(ctx)
}

// flush writes the receipts, and then ends the devices that are gone. It tries again until ctx
// ends; receipts that are not written by then are kept, with the reservations of what they are
// about.
func (b *batch) flush(ctx context.Context) {
	if len(b.receipts) > 0 {
		if err := persist(ctx, b.write); err != nil {
			b.owe(err)
			return
		}
		b.owes(0)
		b.receipts, b.taken = nil, 0
		clear(b.unwritten)
		if b.detached {
			b.release()
		}
	}
	if len(b.gone) > 0 {
		ctx, cancel := context.WithTimeout(ctx, recordTime)
		defer cancel()
		if err := persist(ctx, func(ctx context.Context) error { _, err := b.Store.Prune(ctx, b.gone); return err }); err != nil {
			b.logOften(ctx, slog.LevelWarn, "", "devices that are gone not pruned", "count", len(b.gone), "error", err)
		}
		b.gone = nil
	}
	if len(b.heard)+len(b.silent) > 0 { // if that fails, the next messages say it again
		ctx, cancel := context.WithTimeout(ctx, recordTime)
		defer cancel()
		if err := b.Store.Hear(ctx, b.heard, b.silent); err != nil {
			b.logOften(ctx, slog.LevelWarn, "", "what devices accept not noted", "error", err)
		}
		b.heard, b.silent = nil, nil
	}
}

// write writes the receipts; pending ones only while the leases of the tasks hold. Afterwards another process has the tasks, or
// their follow-ups, and writes what becomes of the deliveries.
func (b *batch) write(ctx context.Context) error {
	final := slices.DeleteFunc(slices.Clone(b.receipts), func(r Receipt) bool { return r.State == StatePending })
	if len(final) < len(b.receipts) && !b.detached {
		held := make([]queue.Task, len(b.jobs))
		for i, j := range b.jobs {
			held[i] = j.task
		}
		if err := b.Store.WriteReceipts(ctx, held, b.receipts); !errors.Is(err, queue.ErrLeaseLost) {
			return err
		}
	}
	return b.Store.WriteReceipts(ctx, nil, final)
}

// owe takes note that the receipts could not be written in time: from now on, another process
// may have the tasks.
func (b *batch) owe(err error) {
	for one, s := range b.unwritten {
		if s != nil && (s.accepted || s.marked && b.inFlight[one] != nil) && !s.doubles {
			s.doubles = true
			doublesPossible.WithLabelValues(string(s.device.Platform), noReceipt).Inc()
		}
	}
	b.owes(len(b.receipts))
	b.logOften(b.ctx, slog.LevelWarn, "", "receipts of notifications not written yet", "count", len(b.receipts), "error", err)
}

// owes says how many receipts of the batch could not be written in time.
func (b *batch) owes(n int) {
	b.owing.Add(int64(n - b.owed))
	b.owed = n
}

// forget is the end of the batch, whatever was not written.
func (b *batch) forget() {
	b.owes(0)
	clear(b.unwritten)
	b.release()
}

// persist writes until that succeeds, or ctx ends.
func persist(ctx context.Context, write func(ctx context.Context) error) error {
	for try := 1; ; try++ {
		bounded, cancel := context.WithTimeout(ctx, recordTime)
		err := write(bounded)
		cancel()
		if err == nil || retry.Sleep(ctx, retry.Backoff(try, 50*time.Millisecond, 500*time.Millisecond)) != nil {
			return err
		}
	}
}
