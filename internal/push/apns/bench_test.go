package apns

import (
	"testing"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/testing/apnstest"
)

// Both ends of it, and TLS: 500 messages in flight.
func BenchmarkSend(b *testing.B) {
	server := apnstest.StartWith(b, apnstest.Options{Discard: true})
	s, err := New(Options{
		KeyPEM: server.Key(), KeyID: server.KeyID(), TeamID: server.TeamID(), Topic: server.Topic(),
		URL: server.URL(), RootCAs: server.RootCAs(),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.SetParallelism(250)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		m := message(1)
		for pb.Next() {
			if r := s.Send(b.Context(), m); r.Outcome != push.Accepted {
				b.Errorf("%+v", r)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	b.ReportMetric(float64(server.Stats().Conns), "connections")
}
