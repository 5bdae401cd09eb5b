// Package streamtest measures what a producer of the stream pays.
package streamtest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/stream"
)

// Event is an entry as a site adds it when a photo is uploaded.
const Event = `{"type":"notify","user_id":"98765","event":{"type":"upload","object":"photo:901",` +
	`"title":"Ann","body":"A new photo: Harbour at dawn","data":{"photo":"901"}}}`

// Costs are how long commands took, in ascending order.
type Costs struct{ XAdd, Ping []time.Duration }

// Producer adds n entries to the stream, and sends n times PING in turns with that, over one
// connection of client, which nothing else uses then.
func Producer(ctx context.Context, client *redis.Client, n int) (c Costs, err error) {
	conn := client.Conn()
	defer func() { _ = conn.Close() }()
	for range n {
		began := time.Now()
		if err := conn.Ping(ctx).Err(); err != nil {
			return c, err
		}
		answered := time.Now()
		if err := conn.XAdd(ctx, &redis.XAddArgs{Stream: stream.Key, Values: []any{stream.Field, Event}}).Err(); err != nil {
			return c, err
		}
		c.Ping, c.XAdd = append(c.Ping, answered.Sub(began)), append(c.XAdd, time.Since(answered))
	}
	slices.Sort(c.Ping)
	slices.Sort(c.XAdd)
	return c, nil
}

// Quantile returns a quantile, from 0 to 1, of durations in ascending order.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Bytes returns how many bytes of the memory of Redis an entry of the stream takes.
func Bytes(ctx context.Context, client redis.UniversalClient) (float64, error) {
	all, err := client.MemoryUsage(ctx, stream.Key, 0).Result()
	if err != nil {
		return 0, err
	}
	length, err := client.XLen(ctx, stream.Key).Result()
	if err != nil || length == 0 {
		return 0, fmt.Errorf("the stream has %d entries: %w", length, err)
	}
	return float64(all) / float64(length), nil
}
