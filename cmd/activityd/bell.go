package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/wake"
)

// wakeFlag is for commands that enqueue, and can do without Redis.
func (c *config) wakeFlag(f *pflag.FlagSet) {
	f.StringVar(&c.redisURL, "redis-url", "", "`URL` of the index's Redis, as for serve: idle workers are woken; without it they find the tasks at their next poll")
}

// openNotifier returns a notifier that wakes the workers of the running processes, if a
// Redis is named, and what is to be called in the end: it tells what was rung for
// last. A Redis that is away is no error.
func openNotifier(ctx context.Context, c *config, log io.Writer) (notifier *queue.Notifier, done func(), err error) {
	notifier = &queue.Notifier{}
	if c.redisURL == "" {
		return notifier, func() {}, nil
	}
	client, err := openRedis(c.redisURL)
	if err != nil {
		return nil, nil, err
	}
	w := wake.New(client, notifier, newLogger(c, log))
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return notifier, func() {
		stop()
		if err := <-ended; err != nil {
			fmt.Fprintln(log, err)
		}
		_ = client.Close() // it only told
	}, nil
}
