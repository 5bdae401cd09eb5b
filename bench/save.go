package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/localserver"
	"github.com/activityd/activityd/internal/member"
)

// shards are Redis servers that hold an index together, each the sets of as many
// viewers, by their ids.
type shards struct {
	servers []*localserver.Redis
	clients []*redis.Client
	indexes []*index.Index
	each    int // viewers
}

// newShards starts n servers and gives them sets, some of each. The caller closes
// them.
func newShards(ctx context.Context, g *ground, n, sets int) (s *shards, err error) {
	s = &shards{each: sets / n}
	for i := range n {
		server, err := localserver.StartRedis(ctx, patientScripts()...)
		if err != nil {
			return s, err
		}
		s.servers = append(s.servers, server)
		client, err := g.openRedisAt(server.URL())
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
	_, err := s.indexes[i/s.each].Candidates(ctx, member.ID(firstMember+i))
	return err
}

// save lets the servers save, one after the other, and returns the longest fork in
// milliseconds.
func (s *shards) save(ctx context.Context) (fork float64, err error) {
	for _, client := range s.clients {
		if err := client.BgSave(ctx).Err(); err != nil {
			return 0, err
		}
		for saving := true; saving; {
			if err := sleep(ctx, 20*time.Millisecond); err != nil {
				return 0, err
			}
			progress, err := infoField(ctx, client, "persistence", "rdb_bgsave_in_progress")
			if err != nil {
				return 0, err
			}
			saving = progress != "0"
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

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// paced reads at a steady pace while do runs, whether or not earlier reads are
// answered: a server that stands still is late for all who came meanwhile. It
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

// saveRun is what reads took in one state.
type saveRun struct{ p50, p99, most, fork []float64 }

func (r *saveRun) note(times []float64, fork float64) {
	q := quantilesOf(times, 0.5, 0.99, 1)
	r.p50, r.p99, r.most, r.fork = append(r.p50, q[0]), append(r.p99, q[1]), append(r.most, q[2]), append(r.fork, fork)
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
	servers, err := newShards(ctx, s.ground, n, s.options.sets)
	defer func() { err = errors.Join(err, servers.Close()) }()
	if err != nil {
		return err
	}
	quiet, saving := &saveRun{}, &saveRun{}
	for round := range s.options.rounds + 1 {
		var fork float64
		still, err := servers.paced(ctx, s.options.pace, func(ctx context.Context) error { return sleep(ctx, s.options.quiet) })
		if err != nil {
			return err
		}
		during, err := servers.paced(ctx, s.options.pace, func(ctx context.Context) (err error) {
			fork, err = servers.save(ctx)
			return err
		})
		if err != nil {
			return err
		}
		if round > 0 && len(still) > 0 && len(during) > 0 {
			quiet.note(still, 0)
			saving.note(during, fork)
		}
		fmt.Fprintf(s.log, "round %d, %d instances: %d reads without a save, %d during it\n", round, n, len(still), len(during))
	}
	s.addSave(n, quiet, saving)
	return nil
}

func (s *suite) addSave(n int, quiet, saving *saveRun) {
	part := fmt.Sprintf("Reads of sets, one each %s, while Redis saves %d sets (BGSAVE)", s.options.pace, s.options.sets)
	who := "one instance"
	if n > 1 {
		who = fmt.Sprintf("%d instances, one saving after the other", n)
	}
	for _, q := range []struct {
		name          string
		still, during []float64
	}{{"p50", quiet.p50, saving.p50}, {"p99", quiet.p99, saving.p99}, {"longest", quiet.most, saving.most}} {
		still, during, ratio := spreadOf(q.still), spreadOf(q.during), ratios(q.during, q.still)
		against := fmt.Sprintf("%s, %s, no save", who, q.name)
		s.results.add(figure{Part: part, Name: against, Unit: "ms", Value: &still})
		s.results.add(figure{Part: part, Name: fmt.Sprintf("%s, %s", who, q.name), Unit: "ms", Value: &during, Against: against, Ratio: &ratio})
	}
	fork := spreadOf(saving.fork)
	s.results.add(figure{Part: part, Name: who + ", longest fork", Unit: "ms", Value: &fork})
}
