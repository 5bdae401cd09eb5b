package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sideshow/apns2"
	"golang.org/x/net/http2"

	"github.com/activityd/activityd/internal/testing/apnstest"
)

// foreignClient is a client of the server that lives as long as the test.
func foreignClient(t *testing.T, server *apnstest.Server) *apns2.Client {
	t.Helper()
	client, err := newAPNs2(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// What this project's own sender is tested and measured with is understood by a foreign
// client, and understands it.
func TestFakeAPNsAndAForeignClient(t *testing.T) {
	t.Parallel()
	server := apnstest.Start(t)
	client := foreignClient(t, server)
	device := strings.Repeat("0a", 32)
	notification := func() *apns2.Notification {
		return &apns2.Notification{
			ApnsID: "123e4567-e89b-12d3-a456-426614174000", CollapseID: "c", DeviceToken: device, Topic: server.Topic(),
			Expiration: time.Unix(1795300000, 0), Priority: apns2.PriorityHigh, PushType: apns2.PushTypeAlert,
			Payload: []byte(`{"aps":{"alert":"hello"}}`),
		}
	}
	r, err := client.Push(notification())
	if err != nil || !r.Sent() || r.ApnsID != notification().ApnsID {
		t.Fatalf("%+v, %v", r, err)
	}
	log := server.Accepted()
	if len(log) != 1 || log[0].Token != device || log[0].Collapse != "c" || log[0].Expiration != "1795300000" ||
		log[0].Priority != "10" || log[0].PushType != "alert" || string(log[0].Payload) != `{"aps":{"alert":"hello"}}` {
		t.Errorf("accepted: %+v", log)
	}

	since := time.Unix(1795300000, 0) // apns2 drops the milliseconds
	gone := strings.Repeat("0b", 32)
	server.Unregister(gone, since)
	for want, change := range map[string]func(*apns2.Notification){
		apns2.ReasonBadDeviceToken:     func(n *apns2.Notification) { n.DeviceToken = "no hex" },
		apns2.ReasonMissingDeviceToken: func(n *apns2.Notification) { n.DeviceToken = "" },
		apns2.ReasonBadMessageID:       func(n *apns2.Notification) { n.ApnsID = "1" },
		apns2.ReasonMissingTopic:       func(n *apns2.Notification) { n.Topic = "" },
		apns2.ReasonTopicDisallowed:    func(n *apns2.Notification) { n.Topic = "com.example.other" },
		apns2.ReasonBadCollapseID:      func(n *apns2.Notification) { n.CollapseID = strings.Repeat("x", 65) },
		apns2.ReasonPayloadEmpty:       func(n *apns2.Notification) { n.Payload = []byte(`{}`) },
		apns2.ReasonPayloadTooLarge:    func(n *apns2.Notification) { n.Payload = []byte(`{"aps":"` + strings.Repeat("x", 4096) + `"}`) },
		apns2.ReasonUnregistered:       func(n *apns2.Notification) { n.DeviceToken = gone },
	} {
		n := notification()
		change(n)
		r, err := client.Push(n)
		if err != nil || r.Sent() || r.Reason != want {
			t.Errorf("want %s: %+v, %v", want, r, err)
		} else if want == apns2.ReasonUnregistered && (r.StatusCode != http.StatusGone || !r.Timestamp.Equal(since)) {
			t.Errorf("unregistered: status %d, since %v", r.StatusCode, r.Timestamp)
		}
	}
	for _, a := range []apnstest.Answer{
		{Status: 429, Reason: apns2.ReasonTooManyRequests},
		{Status: 500, Reason: apns2.ReasonInternalServerError},
		{Status: 503, Reason: apns2.ReasonServiceUnavailable},
	} {
		server.Answer(func(apnstest.Request) apnstest.Answer { return a })
		if r, err := client.Push(notification()); err != nil || r.StatusCode != a.Status || r.Reason != a.Reason {
			t.Errorf("%+v: %+v, %v", a, r, err)
		}
	}

	// An answer that is lost after the message was accepted.
	server.Answer(func(apnstest.Request) apnstest.Answer { return apnstest.Answer{Cut: true, Accept: true} })
	if r, err := client.Push(notification()); err == nil || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut connection: %+v, %v", r, err)
	}
	if n := len(server.Accepted()); n != 2 {
		t.Errorf("%d messages were accepted, want 2", n)
	}
	server.Answer(func(apnstest.Request) apnstest.Answer { return apnstest.Answer{Reset: http2.ErrCodeInternal} })
	var reset http2.StreamError
	if r, err := client.Push(notification()); !errors.As(err, &reset) || reset.Code != http2.ErrCodeInternal {
		t.Errorf("a reset stream: %+v, %v", r, err)
	}

	// Another key, and one that is not known.
	server.Answer(nil)
	server.RevokeKey(server.KeyID())
	if r, err := client.Push(notification()); err != nil || r.Reason != apns2.ReasonInvalidProviderToken {
		t.Errorf("a revoked key: %+v, %v", r, err)
	}
}

// Many at once, over a connection whose limit of streams changes and that is told to go away.
func TestFakeAPNsUnderAForeignLoad(t *testing.T) {
	t.Parallel()
	server := apnstest.StartWith(t, apnstest.Options{FirstStreams: 100})
	client := foreignClient(t, server)
	var wg sync.WaitGroup
	const senders, each = 8, 50
	for i := range senders {
		wg.Go(func() {
			for n := range each {
				push := func() (*apns2.Response, error) {
					return client.Push(&apns2.Notification{
						DeviceToken: fmt.Sprintf("%064x", i*each+n), Topic: server.Topic(), PushType: apns2.PushTypeAlert,
						Payload: []byte(`{"aps":{"alert":"hello"}}`),
					})
				}
				// A connection that is told to go away before its first request is an error of
				// the transport; that happens twice at most.
				r, err := push()
				for tries := 0; err != nil && tries < 2; tries++ {
					r, err = push()
				}
				if err != nil || !r.Sent() {
					t.Errorf("%d: %+v, %v", i*each+n, r, err)
				}
				switch i*each + n {
				case 20:
					server.SetMaxStreams(2)
				case 100:
					server.SetMaxStreams(1000)
				case 150, 250:
					server.GoAway("Shutdown")
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]int{}
	for _, r := range server.Accepted() {
		seen[r.Token]++
	}
	if len(seen) != senders*each {
		t.Errorf("%d devices were notified, want %d", len(seen), senders*each)
	}
}
