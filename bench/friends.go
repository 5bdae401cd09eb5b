package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
)

// What uploads cost that are for friends only, when the viewer is none: their owners
// are candidates that show nothing, and if all are, the read walks. Counted is how often
// that is, on a made-up circle of contacts; measured, what such a read costs, and what
// larger sets would.

// longWait is no reason to walk, nor to refuse a walk: a stall of the machine.
const longWait = time.Minute

// needs are the settings of --need that are compared. A set holds a fifth more.
var needs = []int{10, 20, 40}

func settingsOf(need int) (index.Settings, error) { return index.NewSettings(need, 20, 0) }

// benchFriends counts and measures them.
func (s *suite) benchFriends(ctx context.Context) error {
	if err := s.countWalks(ctx); err != nil {
		return err
	}
	sets, err := s.hideSome(ctx)
	if err != nil {
		return err
	}
	for _, measure := range []func(context.Context, []sized) error{s.readsByHidden, s.readsByWalks, s.readsBySize, s.fanOutBySize, s.memoryBySize} {
		if err := measure(ctx, sets); err != nil {
			return err
		}
	}
	return nil
}

// habit is how it is decided which photos are for friends only.
type habit struct {
	name   string
	member func(random *rand.Rand, share, busier float64) bool // it posts for friends only, always; busier is the share of contacts that upload less
	photo  func(random *rand.Rand, share float64) bool         // this one is, whatever its owner
}

func never(*rand.Rand, float64) bool { return false }

var habits = []habit{
	{"each photo for itself", func(*rand.Rand, float64, float64) bool { return false }, func(r *rand.Rand, share float64) bool { return r.Float64() < share }},
	{"always those of some contacts", func(r *rand.Rand, share, _ float64) bool { return r.Float64() < share }, never},
	{"always those of the busiest contacts", func(_ *rand.Rand, share, busier float64) bool { return busier >= 1-share }, never},
}

// A circle is a viewer, whom no contact calls a friend, and its contacts, who upload
// over time, each at its own rate: the logarithms of the rates are normal, so that a tenth
// of the contacts make half of the uploads.
type circle struct {
	store   *contacts.Memory
	random  *rand.Rand
	habit   habit
	share   float64
	sum     []float64 // of the rates so far
	closed  []bool    // posts for friends only, always
	uploads uint64
}

const (
	circleSize    = 200
	circleSpread  = 1.3
	circleWarmUp  = 5 * circleSize // uploads before the first read
	circleReads   = 50
	circleBetween = circleSize / 10 // uploads between two reads
	circleViewer  = 1
	circleFirst   = 2 // the first contact
)

func newCircle(seed uint64, h habit, share float64) *circle {
	c := &circle{store: contacts.NewMemory(), random: rand.New(rand.NewPCG(seed, 0)), habit: h, share: share}
	c.store.AddMember(circleViewer, "viewer")
	rates := make([]float64, circleSize)
	for i := range rates {
		rates[i] = math.Exp(circleSpread * c.random.NormFloat64())
	}
	slices.Sort(rates)
	sum := 0.0
	for i, rate := range rates {
		c.store.AddMember(circleFirst+member.ID(i), "")
		c.store.SetContact(circleViewer, circleFirst+member.ID(i), false, false)
		sum += rate
		c.sum = append(c.sum, sum)
		c.closed = append(c.closed, h.member(c.random, share, float64(i)/circleSize))
	}
	for _, i := range c.random.Perm(circleSize) {
		c.upload(i)
	}
	c.pass(circleWarmUp)
	return c
}

// pass lets contacts upload n photos, no two in the same second.
func (c *circle) pass(n int) {
	for range n {
		i, _ := slices.BinarySearch(c.sum, c.random.Float64()*c.sum[len(c.sum)-1])
		c.upload(i)
	}
}

func (c *circle) upload(contact int) {
	c.uploads++
	visibility := contacts.Public
	if c.habit.photo(c.random, c.share) || c.closed[contact] {
		visibility = contacts.Friends
	}
	owner := circleFirst + member.ID(contact)
	c.store.AddPhoto(0, owner, "", visibility, c.uploads)
	c.store.SetLastUpload(owner, c.uploads)
}

// upToDate are the sets as they are when no task is pending.
type upToDate struct {
	store *contacts.Memory
	max   int
}

// Candidates implements [recent.Index].
func (u upToDate) Candidates(ctx context.Context, viewer member.ID) (entries []index.Entry, b index.Copy, err error) {
	top, err := u.store.TopContacts(ctx, []member.ID{viewer}, u.max)
	for _, c := range top[viewer] {
		entries = append(entries, index.Entry{Contact: c.ID, Score: c.LastUpload})
	}
	return entries, b, err
}

// countWalks counts the reads that walk. The counts come from the seeds alone.
func (s *suite) countWalks(ctx context.Context) error {
	const part = "Reads that walk, of 100, by the share of the photos that are for friends only, for a viewer whom no contact calls a friend"
	for _, h := range habits {
		for _, share := range []float64{0.5, 0.7, 0.9} {
			walks, often, err := walksOf(ctx, h, share, s.options.circles)
			if err != nil {
				return err
			}
			name := fmt.Sprintf("%.0f %%, %s", 100*share, h.name)
			reads := float64(s.options.circles * circleReads)
			for i, need := range needs {
				settings, err := settingsOf(need)
				if err != nil {
					return err
				}
				s.results.add(figure{Part: part, Name: fmt.Sprintf("%s, sets of %d", name, settings.Max), Unit: "%", Exact: true, Value: spreadOf(100 * float64(walks[i]) / reads)})
			}
			s.results.add(figure{
				Part: part, Name: name + ", sets of 12: viewers of whose reads half or more walk", Unit: "%", Exact: true,
				Value: spreadOf(100 * float64(often) / float64(s.options.circles)),
			})
		}
	}
	return nil
}

// walksOf returns how many reads of some circles walk with each of needs, and the viewers for whom,
// with the first of them, half of the reads or more do.
func walksOf(ctx context.Context, h habit, share float64, circles int) (walks []int, often int, err error) {
	walks = make([]int, len(needs))
	for seed := range circles {
		own, err := newCircle(uint64(seed), h, share).walks(ctx)
		if err != nil {
			return nil, 0, err
		}
		for i, n := range own {
			walks[i] += n
		}
		if 2*own[0] >= circleReads {
			often++
		}
	}
	return walks, often, nil
}

// walks returns how many reads of the viewer walk with each of needs.
func (c *circle) walks(ctx context.Context) ([]int, error) {
	walks := make([]int, len(needs))
	for range circleReads {
		c.pass(circleBetween)
		for i, need := range needs {
			settings, err := settingsOf(need)
			if err != nil {
				return nil, err
			}
			reader := recent.NewReader(upToDate{c.store, settings.Max}, c.store, noHints{}, recent.Options{Min: settings.Min, Uncounted: true})
			a, err := reader.Read(ctx, contacts.Viewer{ID: circleViewer}, 1)
			if err != nil {
				return nil, err
			}
			if a.Source == recent.FromDatabase {
				walks[i]++
			}
		}
	}
	return walks, nil
}

// sized is an index whose sets have a size of their own, in a database of its own of Redis.
type sized struct {
	client *redis.Client
	index  *index.Index
	max    int
}

// hidden are numbers of contacts who uploaded last, for friends only, before the first star, whom
// the viewer sees.
var hidden = []int{6, 20, 40}

const (
	firstClosed = 551 // these upload for friends only
	closedOnes  = 40
	firstBlind  = 601 // the viewers, by hidden and number of contacts
)

// blind is the viewer with hidden[h] such contacts, and the i-th number of contacts.
func (s siteSize) blind(h, i int) member.ID { return member.ID(firstBlind + h*len(s.Contacts) + i) }

// audiences are the places of the numbers of contacts that are measured.
func (s siteSize) audiences() (list []int) {
	for i, n := range s.Contacts {
		if n >= 100 && len(list) < 3 {
			list = append(list, i)
		}
	}
	return list
}

// hideSome adds these members to the site, and makes sets of each size. A viewer has the
// contacts of that with the same number of them, but for as many of the last as it has
// others for.
func (s *suite) hideSome(ctx context.Context) ([]sized, error) {
	const numbers = "(WITH RECURSIVE r (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r WHERE n < 99) SELECT n FROM r) k"
	site := s.options.site
	list := []loading{
		{
			"members who post for friends only", "INSERT INTO users (id, username, last_upload) SELECT ? + n, CONCAT('closed', n), ? - n * 10000 FROM " + numbers + " WHERE n < ?",
			[]any{firstClosed, epoch + 15_000_000, closedOnes},
		},
		{
			"their photos", "INSERT INTO photos (owner_id, title, visibility, date_upload) SELECT u.id, CONCAT('shot ', n), 'friends', u.last_upload - n * 10" +
				" FROM users u JOIN " + numbers + " WHERE n < ? AND u.id BETWEEN ? AND ?", []any{starShots, firstClosed, firstClosed + closedOnes - 1},
		},
	}
	var viewers []member.ID
	for _, i := range site.audiences() {
		viewers = append(viewers, site.viewer(i))
		for h, n := range hidden {
			id := site.blind(h, i)
			viewers = append(viewers, id)
			list = append(list, loading{
				fmt.Sprintf("a viewer with %d contacts, %d of them such", site.Contacts[i], n), "INSERT INTO users (id, username) VALUES (?, CONCAT('blind', ?))", []any{id, id},
			}, loading{
				"these", "INSERT INTO contacts (user_id, contact_id, is_friend, is_family) SELECT ?, ? + n, 0, 0 FROM " + numbers + " WHERE n < ?", []any{id, firstClosed, n},
			}, loading{
				"and the others", "INSERT INTO contacts (user_id, contact_id, is_friend, is_family) SELECT ?, contact_id, 0, 0 FROM contacts" +
					" WHERE user_id = ? ORDER BY contact_id LIMIT ?", []any{id, site.viewer(i), site.Contacts[i] - n},
			})
		}
	}
	list = append(list, loading{"statistics", "ANALYZE TABLE users, contacts, photos", nil})
	if err := load(ctx, s.backend, list, s.out); err != nil {
		return nil, err
	}
	var sets []sized
	for i, need := range needs {
		settings, err := settingsOf(need)
		if err != nil {
			return nil, err
		}
		o := *s.client.Options()
		o.DB = i + 1
		client := redis.NewClient(&o)
		s.closers = append(s.closers, client)
		client.AddHook(s.meter.trips)
		own := sized{client, index.New(client, index.Options{Settings: settings}), settings.Max}
		if err := inParallel(ctx, 1, refillBatch, viewers, refillOf(&tasks.RefillHandler{Index: own.index, Store: s.store})); err != nil {
			return nil, err
		}
		sets = append(sets, own)
	}
	return sets, nil
}

// readOf reads by sets of a size, and fails unless the answer is found as it must be with so
// many that show nothing before the first contact that does.
func (s *suite) readOf(own sized, before int) query {
	reader := recent.NewReader(own.index, s.store, noHints{}, recent.Options{Min: own.index.Settings().Min, IndexWait: longWait, WalkTimeout: longWait})
	want := recent.ByLowest
	switch {
	case before == 0:
		want = recent.ByNext
	case before >= own.max:
		want = recent.ByWalk
	}
	return func(ctx context.Context, v contacts.Viewer) error {
		a, err := reader.Read(ctx, v, shown)
		if err == nil && (a.Trace.Proof != want || len(a.Photos) != shown || a.Contact.ID != firstStar) {
			err = fmt.Errorf("viewer %s was shown %d photos, proof %q: want %d of %d, proof %q", v.ID, len(a.Photos), a.Trace.Proof, shown, firstStar, want)
		}
		return err
	}
}

func foundBy(before, size int) string {
	switch {
	case before == 0:
		return "the first candidate shows"
	case before < size:
		return fmt.Sprintf("the first %d show nothing", before)
	}
	return fmt.Sprintf("the first %d show nothing, a walk", before)
}

// viewerOf is the viewer with so many that show nothing before the first that does: 0, or
// one of hidden.
func (s siteSize) viewerOf(before, i int) member.ID {
	if before == 0 {
		return s.viewer(i)
	}
	return s.blind(slices.Index(hidden, before), i)
}

// fewReads is how many reads are measured: some are walks, which take their time.
func (s *suite) fewReads() int { return max(3, s.options.reads/5) }

// readsByHidden measures reads with sets as they are by default.
func (s *suite) readsByHidden(ctx context.Context, sets []sized) error {
	const part = "A read with sets of 12, by how many of the viewer's most recent contacts show nothing"
	site := s.options.site
	for _, i := range site.audiences() {
		var list []contender
		var names []string
		for _, before := range append([]int{0}, hidden...) {
			name := fmt.Sprintf("%d contacts, %s", site.Contacts[i], foundBy(before, sets[0].max))
			names = append(names, name)
			list = append(list, asking(name, site.viewerOf(before, i), s.readOf(sets[0], before)))
		}
		if err := s.readsBeside(ctx, part, names, list); err != nil {
			return err
		}
	}
	return nil
}

// readsBeside measures reads, and compares each with the first.
func (s *suite) readsBeside(ctx context.Context, part string, names []string, list []contender) error {
	times, costs, err := s.readTimesOf(ctx, s.fewReads(), list)
	if err != nil {
		return err
	}
	median := atQuantile(0.5)
	for i, name := range names {
		f := figure{Part: part, Name: name, Unit: "ms", Value: times[name].spread(median), Each: costs[name].expense(), Samples: costs[name]}
		if i > 0 {
			f.Ratio, f.Against = times[name].over(times[names[0]], median), names[0]
		}
		s.results.add(f)
	}
	return nil
}

// readsByWalks measures reads of which every n-th walks.
func (s *suite) readsByWalks(ctx context.Context, sets []sized) error {
	const none = "none"
	site := s.options.site
	for _, i := range site.audiences() {
		part := fmt.Sprintf("Reads of which some walk, with sets of 12 and %d contacts: mean time", site.Contacts[i])
		plain := s.readOf(sets[0], 0)
		walking := s.readOf(sets[0], hidden[1])
		some := func(name string, nth int) contender {
			return contender{name: name, run: func(ctx context.Context) (n int, err error) {
				for ; n < s.fewReads() && err == nil; n++ {
					if nth > 0 && n%nth == 0 {
						err = walking(ctx, contacts.Viewer{ID: site.viewerOf(hidden[1], i)})
					} else {
						err = plain(ctx, contacts.Viewer{ID: site.viewer(i)})
					}
				}
				return n, err
			}}
		}
		names := []string{none, "every tenth", "every third", "every second", "all"}
		list := []contender{some(none, 0), some(names[1], 10), some(names[2], 3), some(names[3], 2), some(names[4], 1)}
		all, err := s.runs(ctx, list)
		if err != nil {
			return err
		}
		for n, name := range names {
			f := figure{Part: part, Name: name, Unit: "ms", Value: all[name].spread(sample.millis), Each: all[name].expense(), Samples: all[name]}
			if n > 0 {
				f.Ratio, f.Against = all[name].over(all[none], sample.millis), none
			}
			s.results.add(f)
		}
	}
	return nil
}

// readsBySize measures what a read costs with larger sets.
func (s *suite) readsBySize(ctx context.Context, sets []sized) error {
	const part = "A read by the size of the sets"
	site := s.options.site
	audiences := site.audiences()
	i := audiences[min(1, len(audiences)-1)]
	for _, before := range append([]int{0}, hidden...) {
		var list []contender
		var names []string
		for _, own := range sets {
			name := fmt.Sprintf("%d contacts, sets of %d, %s", site.Contacts[i], own.max, foundBy(before, own.max))
			names = append(names, name)
			list = append(list, asking(name, site.viewerOf(before, i), s.readOf(own, before)))
		}
		if err := s.readsBeside(ctx, part, names, list); err != nil {
			return err
		}
	}
	return nil
}

// fanOutBySize measures what it costs to add an upload to larger sets.
func (s *suite) fanOutBySize(ctx context.Context, sets []sized) error {
	site := s.options.site
	from, n := site.firstFollower(), site.Followers[0]
	uploads := uint64(0)
	for _, known := range []bool{false, true} {
		holds := "do not hold the uploader yet"
		if known {
			holds = "hold the uploader already"
		}
		part := fmt.Sprintf("Adding an upload to %d full sets that %s, by their size", n, holds)
		add := func(ctx context.Context, own sized) (int, error) {
			uploads++
			return n, own.add(ctx, from, n, index.Entry{Contact: site.uploader(0), Score: epoch + 30_000_000 + uploads})
		}
		var list []contender
		var names []string
		for _, own := range sets {
			names = append(names, fmt.Sprintf("sets of %d", own.max))
			list = append(list, contender{
				name: names[len(names)-1],
				prepare: func(ctx context.Context) error {
					err := writeSetsOf(ctx, own.client, from, n, own.max)
					if err == nil && known {
						_, err = add(ctx, own)
					}
					return err
				},
				run: func(ctx context.Context) (int, error) { return add(ctx, own) },
			})
		}
		all, err := s.runs(ctx, list)
		if err != nil {
			return err
		}
		for i, name := range names {
			against := ""
			if i > 0 {
				against = names[0]
			}
			s.results.rates(part, all, name, "followers/s", against, nil)
		}
	}
	return nil
}

// add adds an upload to the sets of n viewers.
func (own sized) add(ctx context.Context, from member.ID, n int, upload index.Entry) error {
	additions := make([]index.Addition, 0, pipeline)
	for i := range n {
		additions = append(additions, index.Addition{Member: from + member.ID(i), Entry: upload})
		if len(additions) < pipeline && i < n-1 {
			continue
		}
		_, failed := own.index.Add(ctx, additions)
		for _, err := range failed {
			return err
		}
		additions = additions[:0]
	}
	return nil
}

// writeSetsOf writes sets of a size for n viewers, as writeSets does.
func writeSetsOf(ctx context.Context, client *redis.Client, from member.ID, n, size int) error {
	const atOnce = 500
	for first := 0; first < n; first += atOnce {
		var args []any
		for i := first; i < min(first+atOnce, n); i++ {
			args = append(args, uint64(from)+uint64(i))
		}
		if err := setScript.Run(ctx, client, nil, append(args, size)...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// memoryBySize measures by how much the server grows for each set.
func (s *suite) memoryBySize(ctx context.Context, sets []sized) error {
	const part = "Memory of a set, by its size"
	n := min(s.options.sets, 1<<17) // fills the table of keys
	var first *spread
	for i, own := range sets {
		if err := own.client.Do(ctx, "flushall", "sync").Err(); err != nil { // Valkey would go on freeing memory
			return err
		}
		before, err := usedMemory(ctx, own.client)
		if err != nil {
			return err
		}
		if err := writeSetsOf(ctx, own.client, firstMember, n, own.max); err != nil {
			return err
		}
		after, err := usedMemory(ctx, own.client)
		if err != nil {
			return err
		}
		each := (after - before) / float64(n)
		f := figure{Part: part, Name: fmt.Sprintf("sets of %d", own.max), Unit: "bytes", Value: spreadOf(each), Exact: true}
		if i == 0 {
			first = f.Value
		} else {
			f.Against, f.Ratio = "sets of 12", spreadOf(each/first.Median)
		}
		s.results.add(f)
	}
	return s.client.FlushAll(ctx).Err()
}
