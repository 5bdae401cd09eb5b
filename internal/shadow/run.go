package shadow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
)

// Run compares the answers for a sample of the members, one after the other. All but Patience is required.
type Run struct {
	Comparer  *Comparer
	Statement Statement
	Limit     int // photos
	Members   bulk.Source
	Range     bulk.Range
	Sample    int         // members at most
	Pacer     *bulk.Pacer // of one batch at once; it runs
	// Duration ends the run early, without an error; 0: never.
	Duration time.Duration
	// Patience is how long servers may be away until the run ends; default 30 s.
	Patience time.Duration

	Begin   func(sample int) // when the members are chosen
	Trouble func(error)      // with each error that is waited out
	GaveUp  func(id member.ID, err error)
	Done    func(Comparison) error
}

const (
	defaultPatience = 30 * time.Second
	listBatch       = 10_000
	// A member that fails is left out. So many in a row end the run: then it is not due to them.
	maxFailed = 3
)

// Do compares until the sample is through. What it found is in the tally, with an error, too.
func (r *Run) Do(ctx context.Context) (*Tally, error) {
	r.Patience = cmp.Or(r.Patience, defaultPatience)
	t := newTally(time.Now())
	defer func() { t.Took = time.Since(t.began) }()
	sample, err := r.sample(ctx)
	if err != nil {
		return t, err
	}
	t.Sample = len(sample)
	r.Begin(len(sample))
	end, cancel := context.WithTimeout(ctx, cmp.Or(r.Duration, math.MaxInt64))
	defer cancel()
	failed := 0
	for i, id := range sample {
		leave, err := r.enter(end, 1)
		if end.Err() != nil && ctx.Err() == nil {
			return t, nil // the time is up
		}
		if err != nil {
			return t, err
		}
		// What has begun is finished when the time is up.
		c, err := r.patiently(ctx, id, i%2 == 0)
		leave()
		switch {
		case err == nil:
			failed = 0
			t.add(c)
			err = r.Done(c)
		case errors.Is(err, contacts.ErrNoMember): // since it was chosen
			t.Gone++
			continue
		case ctx.Err() == nil && (errors.Is(err, ErrTooSlow) || bulk.Judge(err) == bulk.Own):
			t.fail(err)
			r.GaveUp(id, err)
			failed++
			if failed < maxFailed {
				continue
			}
			err = fmt.Errorf("%d members in a row: %w", failed, err)
		}
		if err != nil {
			return t, err
		}
	}
	return t, nil
}

// patiently compares for one member, again after an outage.
func (r *Run) patiently(ctx context.Context, id member.ID, theirsFirst bool) (Comparison, error) {
	began, broken := time.Now(), 0
	for try := 1; ; try++ {
		c, err := r.Comparer.Compare(ctx, r.Statement, contacts.Viewer{ID: id}, r.Limit, theirsFirst)
		switch {
		case err == nil || ctx.Err() != nil || bulk.Judge(err) != bulk.Away:
			return c, err
		case time.Since(began) >= r.Patience:
			return c, fmt.Errorf("given up after %v: %w", r.Patience, err)
		}
		if errors.Is(err, errBroken) {
			broken++
		} else {
			broken = 0
		}
		if broken == maxFailed {
			return c, err
		}
		r.Trouble(err)
		if err := retry.Sleep(ctx, retry.Backoff(try, 100*time.Millisecond, 5*time.Second)); err != nil {
			return c, err
		}
	}
}

// enter waits until the servers bear more, and no longer than they may be away.
func (r *Run) enter(ctx context.Context, n int) (leave func(), err error) {
	for {
		bounded, cancel := context.WithTimeout(ctx, r.Patience)
		leave, err = r.Pacer.Enter(bounded, n)
		cancel()
		if err == nil || ctx.Err() != nil {
			return leave, err
		}
		if p := r.Pacer.Pace(); p.Mode == bulk.Stopped {
			return nil, fmt.Errorf("given up after %v: %w: %w", r.Patience, mysql.ErrUnavailable, p.Problem())
		}
	}
}

// sample chooses members of the range, each with the same chance, in an order of chance: a run that ends early has
// seen a sample, too. It reads the ids of all, once, and keeps those it has chosen (algorithm R: Vitter, "Random sampling
// with a reservoir", ACM TOMS 11(1), 1985).
func (r *Run) sample(ctx context.Context) ([]member.ID, error) {
	var chosen []member.ID
	seen := int64(0)
	for after := r.Range.First - 1; ; {
		page, err := r.page(ctx, after)
		if err != nil {
			return nil, err
		}
		for _, id := range page {
			if id > r.Range.Last {
				break
			}
			seen++
			if len(chosen) < r.Sample {
				chosen = append(chosen, id)
			} else if at := rand.Int64N(seen); at < int64(len(chosen)) {
				chosen[at] = id
			}
		}
		if len(page) == 0 || page[len(page)-1] >= r.Range.Last {
			break
		}
		after = page[len(page)-1]
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%w among %s", contacts.ErrNoMember, r.Range)
	}
	rand.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	return chosen, nil
}

// page lists the members after one, as far as a page goes.
func (r *Run) page(ctx context.Context, after member.ID) ([]member.ID, error) {
	leave, err := r.enter(ctx, 0) // the rate is that of comparisons
	if err != nil {
		return nil, err
	}
	defer leave()
	bounded, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	ids, err := r.Members.Members(bounded, after, listBatch)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: no answer within %v", mysql.ErrUnavailable, r.Patience)
	}
	if err != nil {
		return nil, fmt.Errorf("list the members after %s: %w", after, err)
	}
	return ids, nil
}
