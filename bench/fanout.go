package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// pipeline is how many commands the raw writers send at once.
const pipeline = 1000

// fanOut is a fan-out of one uploader, done in several ways.
type fanOut struct {
	*suite
	client    redis.UniversalClient // of the server or the cluster with the sets
	title     string                // begins that of the table
	uploader  member.ID
	known     bool // the sets hold the uploader already, with an earlier upload
	followers int
	from, to  member.ID // the first and the last follower
	keys      []string  // their sets
	uploads   uint64    // of the uploader so far
}

// benchFanOut measures a fan-out to each of the audiences.
func (s *suite) benchFanOut(ctx context.Context) error {
	for i := range s.options.site.Followers {
		if err := newFanOut(s, i, false).measure(ctx, i == 0); err != nil {
			return err
		}
		if err := newFanOut(s, i, true).measure(ctx, false); err != nil {
			return err
		}
	}
	return nil
}

// newFanOut returns the fan-out to the i-th audience.
func newFanOut(s *suite, i int, known bool) *fanOut {
	site := s.options.site
	f := &fanOut{
		suite: s, client: s.client, title: "Fan-out of one upload", uploader: site.uploader(i), known: known,
		followers: site.Followers[i], from: site.firstFollower(),
	}
	f.to = f.from + member.ID(f.followers) - 1
	for id := f.from; id <= f.to; id++ {
		f.keys = append(f.keys, index.UserKey(id))
	}
	return f
}

// The ways. The first is that of a service; the second calls its handlers one after the
// other; the third only writes to the index.
const (
	wayPool     = "activityd: queue, workers, handlers"
	wayHandlers = "activityd's handlers alone, part by part"
	wayIndex    = "activityd's writing to the sets alone"
	wayRaw      = "raw pipelined ZADD"
	wayTrim     = "raw pipelined ZADD GT and ZREMRANGEBYRANK"
	wayFew      = "activityd's writing to the sets alone, eight sets a call"
	waySQL      = "contact_activity, one UPDATE"
	waySQLPages = "contact_activity, an UPDATE for each 1000 followers"
)

func (f *fanOut) measure(ctx context.Context, beside bool) error {
	list := []contender{
		{name: wayPool, prepare: f.prepare, run: f.byPool},
		{name: wayHandlers, prepare: f.prepare, run: f.byHandlers},
		{name: wayIndex, prepare: f.prepare, run: f.byIndex},
		{name: wayRaw, prepare: f.prepare, run: f.byRaw(false)},
		{name: wayTrim, prepare: f.prepare, run: f.byRaw(true)},
	}
	if f.known {
		list = append(list, contender{name: wayFew, prepare: f.prepare, run: f.byFew})
	}
	if beside {
		if err := f.makeActivity(ctx); err != nil {
			return err
		}
		list = append(list, contender{name: waySQL, run: f.bySQL}, contender{name: waySQLPages, run: f.bySQLPages})
	}
	all, err := f.runs(ctx, list)
	if err != nil {
		return err
	}
	holds := "do not hold the uploader yet"
	if f.known {
		holds = "hold the uploader already"
	}
	part := fmt.Sprintf("%s to %d followers whose full sets %s", f.title, f.followers, holds)
	const unit = "followers/s"
	f.results.rates(part, all, wayRaw, unit, "", nil)
	f.results.rates(part, all, wayTrim, unit, wayRaw, nil)
	f.results.rates(part, all, wayIndex, unit, wayRaw, nil)
	if f.known {
		f.results.rates(part, all, wayFew, unit, wayIndex, nil)
	}
	f.results.rates(part, all, wayHandlers, unit, wayRaw, atLeast(0.5))
	f.results.rates(part, all, wayPool, unit, wayRaw, atLeast(0.5))
	if beside {
		f.results.rates(part, all, waySQL, unit, wayRaw, nil)
		f.results.rates(part, all, waySQLPages, unit, wayRaw, nil)
		f.addSQL(part, all)
	}
	return nil
}

// addSQL compares activityd with the faster of the ways in SQL.
func (f *fanOut) addSQL(part string, all map[string]samples) {
	faster := waySQL
	if all[waySQLPages].spread(sample.rate).Median > all[waySQL].spread(sample.rate).Median {
		faster = waySQLPages
	}
	for _, way := range []string{wayHandlers, wayPool} {
		f.results.add(figure{Part: part, Name: way, Against: faster, Ratio: all[way].over(all[faster], sample.rate), Aim: atLeast(10)})
	}
}

// prepare fills the sets of all followers with twelve contacts, the uploader among them
// or not, and adds an upload. Refills store the settings, which stand beside the sets of
// each node.
func (f *fanOut) prepare(ctx context.Context) error {
	if err := f.fill(ctx, f.options.site.refilled()[:64]); err != nil {
		return err
	}
	if err := writeSets(ctx, f.client, f.from, f.to); err != nil {
		return err
	}
	if f.known {
		if _, err := f.byRaw(true)(ctx); err != nil {
			return err
		}
	}
	f.uploads += 2 // byFew writes two
	return setLastUpload(ctx, f.db, uint64(f.uploader), f.score())
}

// score is the uploader's last upload.
func (f *fanOut) score() uint64 { return epoch + 20_000_000 + f.uploads }

// writeSets writes sets of twelve for a range of viewers. Members and scores are as long
// as in production.
func writeSets(ctx context.Context, client redis.UniversalClient, from, to member.ID) error {
	const atOnce = 500
	for first := from; first <= to; first += atOnce {
		byServer := make(map[redis.Scripter][]any)
		for id := first; id <= min(first+atOnce-1, to); id++ {
			server := redis.Scripter(client)
			if cluster, ok := client.(*redis.ClusterClient); ok {
				master, err := cluster.MasterForKey(ctx, index.UserKey(id))
				if err != nil {
					return err
				}
				server = master
			}
			byServer[server] = append(byServer[server], uint64(id))
		}
		for server, ids := range byServer {
			if err := setScript.Run(ctx, server, nil, append(ids, stars)...).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// setScript replaces sets of one server: ARGV are the viewers and the number of contacts in
// each set. It names its keys itself, since they lie in several slots.
var setScript = redis.NewScript(`
for v = 1, #ARGV - 1 do
  local key, user, list = 'user_' .. ARGV[v], tonumber(ARGV[v]), {}
  for i = 1, tonumber(ARGV[#ARGV]) do
    list[2 * i - 1] = string.format('%.0f', 1690000000 + (user * 7919 + i * 104729) % 9999991)
    list[2 * i] = string.format('%.0f', 1000001 + (user * 31 + i * 7907) % 99991)
  end
  redis.call('DEL', key)
  redis.call('ZADD', key, unpack(list))
end
return 0`)

// check fails unless the sets of three followers have the upload.
func (f *fanOut) check(ctx context.Context) (int, error) {
	for _, key := range []string{f.keys[0], f.keys[len(f.keys)/2], f.keys[len(f.keys)-1]} {
		score, err := f.client.ZScore(ctx, key, f.uploader.String()).Result()
		if err != nil || uint64(score) != f.score() {
			return 0, fmt.Errorf("%s misses the upload: score %v of %s: %w", key, score, f.uploader, err)
		}
	}
	return f.followers, nil
}

func (f *fanOut) byPool(ctx context.Context) (int, error) {
	our := newActivityd(f.backend)
	done := newCountdown(1) // the chain: a task, and those that it is followed up by
	handlers := tasks.Handlers(f.index, f.store, our.queue, tasks.HandlerOptions{})
	stop := our.workWith(ctx, finishing{our.queue, done}, handlers)
	_, err := our.queue.Enqueue(ctx, []queue.New{tasks.NewUpload(f.uploader)})
	if err == nil {
		err = done.wait(ctx)
	}
	if stopErr := stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return 0, err
	}
	return f.check(ctx)
}

// noQueue is an empty queue that takes no tasks: all sets exist, and none is to be
// refilled.
type noQueue struct{ tasks.Enqueuer }

func (noQueue) Active(context.Context, string, []uint64) (map[uint64]bool, error) {
	return map[uint64]bool{}, nil
}

func (noQueue) Absorb(context.Context, []queue.Task) (int, error) { return 0, nil }

// byHandlers runs each part when the one before it has ended.
func (f *fanOut) byHandlers(ctx context.Context) (int, error) {
	handlers := tasks.Handlers(f.index, f.store, noQueue{}, tasks.HandlerOptions{})
	for next := []queue.New{tasks.NewUpload(f.uploader)}; len(next) > 0; {
		n := next[0]
		o := handlers[n.Kind].Handle(ctx, []queue.Task{{Kind: n.Kind, Key: n.Key, Payload: n.Payload}})[0]
		if o.Err != nil {
			return 0, o.Err
		}
		next = o.Next
	}
	return f.check(ctx)
}

func (f *fanOut) byIndex(ctx context.Context) (int, error) {
	if err := f.add(ctx, func(member.ID) uint64 { return f.score() }); err != nil {
		return 0, err
	}
	return f.check(ctx)
}

// fewSets is how many sets a call of a script has in [fanOut.byFew], as where a page of followers
// is spread over hundreds of masters; setsInCall is how many it has at most.
const (
	fewSets    = 8
	setsInCall = 100
)

// byFew writes with calls of few sets each: those of a call have the same entry.
func (f *fanOut) byFew(ctx context.Context) (int, error) {
	return f.followers, f.add(ctx, func(id member.ID) uint64 { return f.score() - uint64(id/fewSets%2) })
}

// add writes to all sets, each with a score of its own.
func (f *fanOut) add(ctx context.Context, score func(member.ID) uint64) error {
	additions := make([]index.Addition, 0, pipeline)
	for id := f.from; id <= f.to; id++ {
		additions = append(additions, index.Addition{Member: id, Entry: index.Entry{Contact: f.uploader, Score: score(id)}})
		if len(additions) == pipeline || id == f.to {
			_, failed := f.index.Add(ctx, additions)
			for _, err := range failed {
				return err
			}
			additions = additions[:0]
		}
	}
	return nil
}

// byRaw writes with plain commands.
func (f *fanOut) byRaw(trim bool) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		z := redis.Z{Score: float64(f.score()), Member: f.uploader.String()}
		for keys := range slices.Chunk(f.keys, pipeline) {
			pipe := f.client.Pipeline()
			for _, key := range keys {
				if trim {
					pipe.ZAddGT(ctx, key, z)
					pipe.ZRemRangeByRank(ctx, key, 0, -(stars + 1))
				} else {
					pipe.ZAdd(ctx, key, z)
				}
			}
			if _, err := pipe.Exec(ctx); err != nil {
				return 0, err
			}
		}
		return f.check(ctx)
	}
}

// makeActivity makes the table that a site without Redis would keep: the contacts of
// each follower with their last upload, in the order that the homepage needs. Each has
// five, so that the uploader's rows are not adjacent.
func (f *fanOut) makeActivity(ctx context.Context) error {
	for _, text := range []string{
		"DROP TABLE IF EXISTS contact_activity",
		"CREATE TABLE contact_activity (user_id BIGINT UNSIGNED NOT NULL, contact_id BIGINT UNSIGNED NOT NULL, last_upload BIGINT UNSIGNED NOT NULL," +
			" PRIMARY KEY (user_id, contact_id), KEY latest (user_id, last_upload), KEY followers (contact_id, user_id)) ENGINE=InnoDB",
		fmt.Sprintf("INSERT INTO contact_activity SELECT c.user_id, u.id, COALESCE(u.last_upload, 1) - MOD(c.user_id, 1000) FROM contacts c"+
			" JOIN users u ON u.id BETWEEN %d AND %d OR u.id = %d WHERE c.contact_id = %d", firstStar, firstStar+3, f.uploader, f.uploader),
		"ANALYZE TABLE contact_activity",
	} {
		if _, err := f.db.ExecContext(ctx, text); err != nil {
			return mysql.Translate(ctx, "make contact_activity", err)
		}
	}
	return nil
}

func (f *fanOut) bySQL(ctx context.Context) (int, error) {
	f.uploads++
	n, err := mysql.Affected(f.db.ExecContext(ctx, "UPDATE contact_activity SET last_upload = ? WHERE contact_id = ?", f.score(), f.uploader))
	if err == nil && n != f.followers {
		err = fmt.Errorf("%d rows were updated, want %d", n, f.followers)
	}
	return n, err
}

func (f *fanOut) bySQLPages(ctx context.Context) (int, error) {
	f.uploads++
	sum := 0
	for first := f.from; first <= f.to; first += pipeline {
		n, err := mysql.Affected(f.db.ExecContext(ctx, "UPDATE contact_activity SET last_upload = ? WHERE contact_id = ? AND user_id BETWEEN ? AND ?",
			f.score(), f.uploader, first, first+pipeline-1))
		if err != nil {
			return 0, err
		}
		sum += n
	}
	if sum != f.followers {
		return 0, fmt.Errorf("%d rows were updated, want %d", sum, f.followers)
	}
	return sum, nil
}
