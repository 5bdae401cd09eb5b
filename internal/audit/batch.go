package audit

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// checkFunc compares something of each of the users with MySQL.
type checkFunc func(ctx context.Context, users []member.ID) (Report, error)

// check compares the sets of users, tells whoever is to be told, and repairs.
func (p *Patrol) check(ctx context.Context, origin Origin, users []member.ID) (r Report, done repairs, err error) {
	if r, err = p.checkChunks(ctx, users, p.auditor.Check); err != nil {
		return r, repairs{}, err
	}
	countSets(origin, r)
	done, err = p.follow(ctx, r)
	return r, done, err
}

func (p *Patrol) checkAnswers(ctx context.Context, viewers []member.ID) (r Report, err error) {
	if r, err = p.checkChunks(ctx, viewers, p.auditor.CheckAnswers); err != nil {
		return r, err
	}
	countAnswers(r)
	_, err = p.follow(ctx, r)
	return r, err
}

// checkChunks checks several chunks at the same time: where much is wrong, most of
// the time are the rests between the looks.
func (p *Patrol) checkChunks(ctx context.Context, users []member.ID, check checkFunc) (all Report, err error) {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for some := range slices.Chunk(users, usersAtOnce) {
		group.Go(func() error {
			r, err := p.checkEach(ctx, some, check)
			mu.Lock()
			defer mu.Unlock()
			all.Add(r)
			return err
		})
	}
	err = group.Wait()
	return all, err
}

// nobody is no member: whatever fails for nobody fails for all.
const nobody member.ID = math.MaxUint64

// checkEach leaves out those users at whom a server fails, as when one has so many
// contacts that MySQL gives up counting them. They must not hold up all others.
func (p *Patrol) checkEach(ctx context.Context, users []member.ID, check checkFunc) (Report, error) {
	r, err := check(ctx, users)
	if err == nil || isOfAll(ctx, err) {
		return r, err
	}
	if _, general := check(ctx, []member.ID{nobody}); general != nil {
		return Report{}, err
	}
	return p.halve(ctx, users, err, check)
}

// isOfAll tells whether an error is about a server, or the end, and so concerns
// everybody.
func isOfAll(ctx context.Context, err error) bool {
	return ctx.Err() != nil || isAway(err) || errors.Is(err, index.ErrSettings)
}

// halve checks the halves of users, of which at least one makes a server fail.
func (p *Patrol) halve(ctx context.Context, users []member.ID, failure error, check checkFunc) (all Report, err error) {
	if len(users) == 1 {
		p.teller.failed(users[0], failure)
		return Report{Failed: 1}, nil
	}
	middle := len(users) / 2
	for _, half := range [][]member.ID{users[:middle], users[middle:]} {
		r, err := check(ctx, half)
		switch {
		case err == nil:
		case isOfAll(ctx, err):
			return all, err
		default:
			if r, err = p.halve(ctx, half, err, check); err != nil {
				return all, err
			}
		}
		all.Add(r)
	}
	return all, nil
}
