package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/testing/localserver"
)

// shards are Redis servers that hold an index together, each the sets of a range of
// viewers of the same size. They are no cluster, whose nodes fork alike.
type shards struct {
	servers []*localserver.Redis
	clients []*redis.Client
	indexes []*index.Index
	each    int // viewers
}

// asInOps are what ops/redis.conf says, as far as it matters to one server that has all its data
// and saves only on command. StartRedis turns other saves and the append-only file off.
func asInOps() []string {
	args := []string{"--maxmemory-policy", "noeviction", "--stop-writes-on-bgsave-error", "no"}
	for _, name := range []string{"lazyfree-lazy-user-del", "lazyfree-lazy-user-flush", "lazyfree-lazy-expire", "lazyfree-lazy-server-del"} {
		args = append(args, "--"+name, "yes")
	}
	return args
}

// newShards starts n servers and divides a number of sets among them. The caller closes
// them.
func newShards(ctx context.Context, b *backend, n, sets int) (s *shards, err error) {
	s = &shards{each: sets / n}
	for i := range n {
		server, err := localserver.StartRedis(ctx, append(patientScripts(), asInOps()...)...)
		if err != nil {
			return s, err
		}
		s.servers = append(s.servers, server)
		client, err := b.openRedisAt(server.URL())
		if err != nil {
			return s, err
		}
		s.clients = append(s.clients, client)
		ix, err := newIndex(client)
		if err != nil {
			return s, err
		}
		s.indexes = append(s.indexes, ix)
		from := member.ID(firstMember + i*s.each)
		if err := writeSets(ctx, client, from, from+member.ID(s.each)-1); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Close stops the servers.
func (s *shards) Close() error {
	var errs []error
	for _, server := range s.servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}

// read fetches the set of the i-th viewer.
func (s *shards) read(ctx context.Context, i int) error {
	i %= s.each * len(s.indexes)
	_, _, err := s.indexes[i/s.each].Candidates(ctx, member.ID(firstMember+i))
	return err
}

// save makes the servers save, one after the other, and returns the longest fork in
// milliseconds.
func (s *shards) save(ctx context.Context) (fork float64, err error) {
	for _, client := range s.clients {
		if err := client.BgSave(ctx).Err(); err != nil {
			return 0, err
		}
		if err := awaitZero(ctx, client, "rdb_bgsave_in_progress"); err != nil {
			return 0, err
		}
		micros, err := infoField(ctx, client, "stats", "latest_fork_usec")
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseFloat(micros, 64)
		if err != nil {
			return 0, err
		}
		fork = max(fork, n/1000)
	}
	return fork, nil
}

// paced reads at a steady pace while do runs, whether or not earlier reads are
// answered: a server that stalls delays all reads that became due in that time. It
// returns the times from when each read was due, in milliseconds.
func (s *shards) paced(ctx context.Context, pace time.Duration, do func(context.Context) error) (times []float64, err error) {
	group, ctx := errgroup.WithContext(ctx)
	done := make(chan struct{})
	group.Go(func() error {
		defer close(done)
		return do(ctx)
	})
	var mu sync.Mutex
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	due, begun := time.Now().Add(pace), 0
	for {
		select {
		case <-done:
			err := group.Wait()
			return times, err
		case <-ticker.C:
		}
		for ; !due.After(time.Now()); due = due.Add(pace) { // ticks may have been lost
			begun++
			viewer, since := begun*104729, due
			group.Go(func() error {
				err := s.read(ctx, viewer)
				mu.Lock()
				defer mu.Unlock()
				times = append(times, milliseconds(time.Since(since)))
				return err
			})
		}
	}
}

// benchSave measures reads of the sets while Redis saves a large index.
func (s *suite) benchSave(ctx context.Context) error {
	for _, n := range []int{1, s.options.instances} {
		if err := s.saveOn(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (s *suite) saveOn(ctx context.Context, n int) (err error) {
	servers, err := newShards(ctx, s.backend, n, s.options.sets)
	defer func() { err = errors.Join(err, servers.Close()) }()
	if err != nil {
		return err
	}
	title := "one instance"
	if n > 1 {
		title = fmt.Sprintf("%d instances, one saving after the other", n)
	}
	var forks []float64
	quiet := s.reading(servers, "no save", func(ctx context.Context) error { return retry.Sleep(ctx, s.options.quiet) })
	saving := s.reading(servers, "saving", func(ctx context.Context) error {
		fork, err := servers.save(ctx)
		forks = append(forks, fork)
		return err
	})
	all, err := s.runs(ctx, []contender{quiet, saving})
	if err != nil {
		return err
	}
	part := fmt.Sprintf("Reads of sets, one each %s, while Redis saves %d sets (BGSAVE)", s.options.pace, s.options.sets)
	tail := []quantileOf{{"p99.9", 0.999}, {"longest", 1}}
	for _, q := range append(slices.Clone(quantiles), tail...) {
		at, name := atQuantile(q.q), title+", "+q.name
		s.results.add(figure{Part: part, Name: name + ", no save", Unit: "ms", Value: all[quiet.name].spread(at)})
		s.results.add(figure{
			Part: part, Name: name, Unit: "ms", Value: all[saving.name].spread(at),
			Against: name + ", no save", Ratio: all[saving.name].over(all[quiet.name], at),
		})
	}
	for _, q := range tail {
		more := figure{
			Part: part, Name: title + ", " + q.name + " while saving, less that without a save", Unit: "ms",
			Value: all[saving.name].less(all[quiet.name], atQuantile(q.q)),
		}
		if n > 1 && q.q < 1 {
			more.Aim = atMost(1)
		}
		s.results.add(more)
	}
	s.results.add(figure{Part: part, Name: title + ", longest fork", Unit: "ms", Value: spreadOf(forks[len(forks)-s.options.rounds:]...)})
	return nil
}

// reading returns a contender that reads sets at a steady pace while do runs.
func (s *suite) reading(servers *shards, name string, do func(context.Context) error) contender {
	var times []float64
	return contender{name: name, times: func() []float64 { return times }, run: func(ctx context.Context) (n int, err error) {
		times, err = servers.paced(ctx, s.options.pace, do)
		if err == nil && len(times) == 0 {
			err = errors.New("it was over before the first read")
		}
		return len(times), err
	}}
}
