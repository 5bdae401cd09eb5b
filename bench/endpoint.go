package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// benchEndpoint measures the HTTP endpoint of activityd as a program, beside a
// loop that does nothing but the two round trips.
func (s *suite) benchEndpoint(ctx context.Context) (err error) {
	const part = "The endpoint"
	if err := s.fill(ctx, s.options.site.viewers()); err != nil {
		return err
	}
	p, err := startProgram(ctx, s.backend, "--role=api")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	s.meter.account.program = p.cmd.Process.Pid
	defer func() { s.meter.account.program = 0 }()
	const bare, reads, endpoint = "bare loop: ZREVRANGE and the query, no HTTP", "bare loop: activityd's read, no HTTP", "GET /v1/users/{id}/recent-contact-photos"
	all, err := s.runs(ctx, []contender{
		{name: bare, run: s.fromMany(func(context.Context) (ask, error) { return ask{s.bareRead, nil}, nil })},
		{name: reads, run: s.fromMany(func(context.Context) (ask, error) { return ask{s.read(), nil}, nil })},
		{name: endpoint, run: s.fromMany(func(ctx context.Context) (ask, error) { return overHTTP(ctx, p.addr) })},
	})
	if err != nil {
		return err
	}
	s.results.rates(part, all, bare, "requests/s", "", nil)
	s.results.rates(part, all, reads, "requests/s", bare, nil)
	s.results.rates(part, all, endpoint, "requests/s", bare, atLeast(0.6))
	s.results.notef("Endpoint: %d connections; the client, the program and both servers share %d cores.", s.options.conns, s.results.Machine.Cores)
	return nil
}

// ask is a query over a connection, and a function that closes it.
type ask struct {
	query
	end func() error
}

// fromMany returns a run that queries for all viewers in turn, from as many goroutines
// as there are connections.
func (s *suite) fromMany(open func(context.Context) (ask, error)) func(context.Context) (int, error) {
	viewers := s.options.site.viewers()
	return func(ctx context.Context) (int, error) {
		group, ctx := errgroup.WithContext(ctx)
		var next atomic.Int64
		for range s.options.conns {
			group.Go(func() (err error) {
				a, err := open(ctx)
				if err != nil {
					return err
				}
				if a.end != nil {
					defer func() { err = errors.Join(err, a.end()) }()
				}
				for n := next.Add(1); n <= int64(s.options.requests); n = next.Add(1) {
					if err := a.query(ctx, contacts.Viewer{ID: viewers[n%int64(len(viewers))]}); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return s.options.requests, group.Wait()
	}
}

// bareRead does the minimum: it reads the set and runs the query.
func (s *suite) bareRead(ctx context.Context, v contacts.Viewer) error {
	candidates, err := s.client.ZRevRangeWithScores(ctx, index.UserKey(v.ID), 0, stars-1).Result()
	if err != nil {
		return err
	}
	if len(candidates) == 0 {
		return fmt.Errorf("viewer %s has no set", v.ID)
	}
	name, _ := candidates[0].Member.(string)
	owner, err := member.Parse(name)
	if err != nil {
		return err
	}
	return s.show(ctx, v, owner)
}

// overHTTP opens a connection to the endpoint.
func overHTTP(ctx context.Context, addr string) (ask, error) {
	c, err := dialHTTP(ctx, addr)
	if err != nil {
		return ask{}, err
	}
	return ask{func(ctx context.Context, v contacts.Viewer) error {
		// There are few viewers, and one that has many reads under way is refused more: it asks again.
		for {
			if _, err := c.get(v.ID); !errors.Is(err, errRefused) || ctx.Err() != nil {
				return err
			}
		}
	}, c.Close}, nil
}

// show asks for the photos of one owner.
func (s *suite) show(ctx context.Context, v contacts.Viewer, owner member.ID) error {
	album, err := s.store.VisiblePhotos(ctx, v, owner, shown)
	if err == nil && len(album.Photos) != shown {
		err = fmt.Errorf("viewer %s was shown %d photos, want %d", v.ID, len(album.Photos), shown)
	}
	return err
}
