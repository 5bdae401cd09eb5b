package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// pipeline is how many commands the contenders of activityd send at a time.
const pipeline = 1000

// keyOf is the key of the set of the i-th reader.
func keyOf(i int) string { return "user_" + strconv.Itoa(firstMember+i) }

// fanOut measures uploads of a member that is in the sets of all followers.
type fanOut struct {
	*bench
	last uint64 // its last upload
}

// benchFanOut compares an upload that is fanned out, from the request until all sets have it, with writing to
// the sets alone.
func (b *bench) benchFanOut(ctx context.Context) error {
	if err := b.makeSite(ctx); err != nil {
		return err
	}
	f := &fanOut{bench: b, last: epoch + 10_000_000}
	return b.with(func(p *program) error {
		c, err := dial(ctx, p.addr)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		const ours, raw, trimmed = "activityd, durably, from the request on", "pipelined ZADD", "pipelined ZADD GT and ZREMRANGEBYRANK"
		all, err := b.rounds(
			ctx,
			contender{name: ours, prepare: f.upload, run: func(ctx context.Context) (outcome, error) { return f.byTask(ctx, c) }},
			contender{name: raw, prepare: f.upload, run: func(ctx context.Context) (outcome, error) { return f.byCommands(ctx, false) }},
			contender{name: trimmed, prepare: f.upload, run: func(ctx context.Context) (outcome, error) { return f.byCommands(ctx, true) }},
		)
		if err != nil {
			return err
		}
		part := fmt.Sprintf("An upload fanned out to %d followers whose sets have the uploader", b.size.readers)
		b.report.rates(part, "followers/s", all, map[string]bound{ours: atLeast(0.5)}, raw, trimmed, ours)
		return nil
	}, "ACTIVITYD_AUDIT_SWEEP_RATE=0")
}

// upload is the site's part.
func (f *fanOut) upload(ctx context.Context) error {
	f.last++
	_, err := f.db.ExecContext(ctx, "UPDATE users SET last_upload = ? WHERE id = ?", f.last, uploader)
	return err
}

func (f *fanOut) byTask(ctx context.Context, c *conn) (outcome, error) {
	if _, err := c.must(http.MethodPost, "/v1/tasks", fmt.Sprintf(`{"type":"upload","user_id":"%d"}`, uploader), http.StatusAccepted); err != nil {
		return outcome{}, err
	}
	return outcome{ops: f.size.readers}, f.arrived(ctx)
}

// arrived waits until the sets have the upload. It looks at each set, the last first.
func (f *fanOut) arrived(ctx context.Context) error {
	left := f.size.readers
	return await(ctx, func(ctx context.Context) (bool, error) {
		for left > 0 {
			first := max(0, left-pipeline)
			scores, err := f.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for i := first; i < left; i++ {
					pipe.ZScore(ctx, keyOf(i), strconv.Itoa(uploader))
				}
				return nil
			})
			if err != nil {
				return false, err
			}
			if slices.ContainsFunc(scores, func(c redis.Cmder) bool { return uint64(c.(*redis.FloatCmd).Val()) != f.last }) {
				return false, nil
			}
			left = first
		}
		return true, nil
	})
}

func (f *fanOut) byCommands(ctx context.Context, trim bool) (outcome, error) {
	z := redis.Z{Score: float64(f.last), Member: strconv.Itoa(uploader)}
	for first := 0; first < f.size.readers; first += pipeline {
		_, err := f.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i := first; i < min(first+pipeline, f.size.readers); i++ {
				if trim {
					pipe.ZAddGT(ctx, keyOf(i), z)
					pipe.ZRemRangeByRank(ctx, keyOf(i), 0, -(stars + 1))
				} else {
					pipe.ZAdd(ctx, keyOf(i), z)
				}
			}
			return nil
		})
		if err != nil {
			return outcome{}, err
		}
	}
	return outcome{ops: f.size.readers}, nil
}

// benchRefill compares building all sets after Redis lost them with a query and a ZADD for each member.
func (b *bench) benchRefill(ctx context.Context) error {
	if err := b.makeSite(ctx); err != nil {
		return err
	}
	const ours, plain = "activityd backfill", "a query and a ZADD for each, by 4 workers"
	empty := func(ctx context.Context) error { return b.client.FlushAll(ctx).Err() }
	all, err := b.rounds(
		ctx,
		contender{name: plain, prepare: empty, run: func(ctx context.Context) (outcome, error) {
			return outcome{ops: b.size.readers}, parallel(ctx, 4, b.size.readers, func(ctx context.Context, _, i int) error { return b.refillPlainly(ctx, i) })
		}},
		contender{name: ours, prepare: empty, run: func(ctx context.Context) (outcome, error) {
			// All contacts of a member that are not its uploader are members: there is no set besides.
			err := b.command(ctx, "backfill", fmt.Sprintf("%d-%d", firstMember, firstMember+b.size.readers-1))
			if err == nil {
				var n int64
				if n, err = b.client.Exists(ctx, keyOf(0), keyOf(b.size.readers/2), keyOf(b.size.readers-1)).Result(); err == nil && n != 3 {
					err = fmt.Errorf("%d of three sets are there", n)
				}
			}
			return outcome{ops: b.size.readers}, err
		}},
	)
	b.site = false
	if err != nil {
		return err
	}
	b.report.rates(fmt.Sprintf("All sets of %d members with %d contacts each, built after a loss", b.size.readers, circle+1), "members/s", all, map[string]bound{ours: atLeast(1)}, plain, ours)
	start := time.Now()
	if err := b.command(ctx, "backfill"); err != nil { // for the parts that follow
		return err
	}
	b.site = true
	fmt.Fprintf(b.log, "  all sets again took %.0f s\n", time.Since(start).Seconds())
	return nil
}

// refillPlainly is the obvious way: no guard, and no look into the set.
func (b *bench) refillPlainly(ctx context.Context, i int) error {
	rows, err := b.db.QueryContext(ctx, "SELECT u.id, u.last_upload FROM contacts c STRAIGHT_JOIN users u ON u.id = c.contact_id"+
		" WHERE c.user_id = ? AND u.last_upload > 0 ORDER BY u.last_upload DESC, u.id DESC LIMIT ?", firstMember+i, stars)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var entries []redis.Z
	for rows.Next() {
		var id, lastUpload uint64
		if err := rows.Scan(&id, &lastUpload); err != nil {
			return err
		}
		entries = append(entries, redis.Z{Score: float64(lastUpload), Member: strconv.FormatUint(id, 10)})
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return b.client.ZAdd(ctx, keyOf(i), entries...).Err()
}
