package once_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

// BenchmarkRedis is an acquisition and its end, and Do of work that does nothing, beside the
// plain lock by the same client: SET NX PX and DEL.
func BenchmarkRedis(b *testing.B) {
	client := connect(b, servertest.Redis(b))
	store := once.NewRedis(client)
	terms := once.Terms{Lease: 30 * time.Second, Keep: time.Minute, Attempts: 5}
	owner := "host/12345/ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	processes := once.New(store, once.Options{})
	var n atomic.Int64
	for name, run := range map[string]func(*testing.B){
		"once": func(b *testing.B) {
			b.Helper()
			name := "bench/" + strconv.FormatInt(n.Add(1), 10)
			for _, a := range []once.Action{once.Acquire, once.Finish} {
				if r, err := store.Apply(b.Context(), name, once.Operation{Action: a, Owner: owner, Terms: terms}); err != nil || r.Outcome != once.OK {
					b.Fatal(r, err)
				}
			}
		},
		"do": func(b *testing.B) {
			b.Helper()
			k := once.Key{Name: "bench/" + strconv.FormatInt(n.Add(1), 10), Keep: terms.Keep}
			if did, err := processes.Do(b.Context(), k, func(context.Context, once.Attempt) error { return nil }); !did || err != nil {
				b.Fatal(did, err)
			}
		},
		"plain": func(b *testing.B) {
			b.Helper()
			key := "bench/" + strconv.FormatInt(n.Add(1), 10)
			if err := client.SetArgs(b.Context(), key, owner, redis.SetArgs{Mode: "NX", TTL: terms.Lease}).Err(); err != nil {
				b.Fatal(err)
			}
			if err := client.Del(b.Context(), key).Err(); err != nil {
				b.Fatal(err)
			}
		},
	} {
		b.Run("clients=1/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				run(b)
			}
		})
		b.Run("clients=16/"+name, func(b *testing.B) {
			b.SetParallelism(8) // times GOMAXPROCS
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					run(b)
				}
			})
		})
	}
}
