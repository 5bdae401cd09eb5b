package push_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
)

// byType is what the metric has for a type, by platform and result.
func byType(t *testing.T, kind string) map[string]float64 {
	t.Helper()
	all, err := prometheus.DefaultGatherer.Gather()
	must(t, err)
	values := map[string]float64{}
	for _, family := range all {
		if family.GetName() != "activityd_push_notifications_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["type"] == kind {
				values[labels["platform"]+" "+labels["result"]] = m.GetCounter().GetValue()
			}
		}
	}
	return values
}

// What a member opened counts once, if it was accepted for the member, on the device that it says; and nothing is stored.
func TestOpened(t *testing.T) {
	t.Parallel()
	store, db := openStore(t)
	phone := register(t, store, 1, token(1))
	browser, err := store.Register(t.Context(), 1, push.WebPush, addressOf("https://push.example/a"))
	must(t, err)
	other := register(t, store, 2, token(2))
	must(t, err)
	var events []push.NewEvent
	for i := range 4 {
		e := event(fmt.Sprint("e", i))
		e.Type = "opened-of-test"
		events = append(events, push.NewEvent{Event: e, Task: uint64(i + 1), Created: time.Now()})
	}
	stored, err := store.StoreEvents(t.Context(), events)
	must(t, err)
	receipt := func(event int, id member.ID, device uint64, state push.State) push.Receipt {
		return push.Receipt{Event: stored[event].Number, Member: id, Device: device, State: state}
	}
	must(t, store.WriteReceipts(t.Context(), nil, []push.Receipt{
		receipt(0, 1, phone.ID, push.StateAccepted), receipt(0, 1, browser.ID, push.StateFailed),
		receipt(1, 1, phone.ID, push.StateAccepted), receipt(1, 1, browser.ID, push.StateAccepted),
		receipt(2, 1, phone.ID, push.StateAccepted), receipt(2, 1, browser.ID, push.StateAccepted),
		receipt(3, 2, other.ID, push.StateSkipped),
	}))
	rows := countRows(t, db)
	for _, o := range []struct {
		id     member.ID
		event  string
		device uint64
	}{
		{1, "e0", 0}, {1, "e0", 0}, {1, "e0", phone.ID}, // once, of the one that was accepted
		{1, "e1", browser.ID}, {1, "e2", 0}, // on one of two, and on either
		{2, "e0", 0}, {1, "e3", 0}, {2, "e3", 0}, {2, "e1", phone.ID}, // not for this member, or not sent to it
		{1, "none", 0}, {999, "e0", 0}, {1, "e0", browser.ID},
	} {
		must(t, store.Opened(t.Context(), o.id, o.event, o.device))
	}
	got := byType(t, "opened-of-test")
	want := map[string]float64{"fcm opened": 1, "webpush opened": 1, "several opened": 1}
	for what, n := range want {
		if got[what] != n {
			t.Errorf("%s: %v, want %v", what, got[what], n)
		}
	}
	if len(got) != len(want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	if after := countRows(t, db); after != rows {
		t.Errorf("rows %s, before %s", after, rows)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := store.Opened(canceled, 1, "e0", 0); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
