package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/wake"
)

// figuresOfScale are what the capacity model is computed from, and what it is compared
// with: the costs of single operations, all measured on a site of one size, and what the
// servers took under a mixed load on sites of several sizes.
type figuresOfScale struct {
	Machine machine `json:"machine"`
	Crowd   crowd   `json:"crowd"` // of the site that the costs were measured on
	Costs   costs   `json:"costs"`
	Loads   []taken `json:"loads"`
}

// taken is what a load took.
type taken struct {
	Crowd    crowd   `json:"crowd"`
	Rates    rates   `json:"rates"`
	Planned  float64 `json:"planned_seconds"` // for what the rates say
	Seconds  float64 `json:"seconds"`         // that it took
	Told     float64 `json:"followers_told"`
	Swept    float64 `json:"sets_swept"`
	Pages    float64 `json:"pages_read_from_disk"`
	Cost     cost    `json:"cost"` // in all
	Contacts float64 `json:"contacts"`

	Refill    cost    `json:"refill"` // of all members, once
	SetMemory float64 `json:"set_memory_bytes"`
	Sets      float64 `json:"sets"`
	Disk      float64 `json:"site_disk_bytes"`
}

// scaleOptions say how much is measured.
type scaleOptions struct {
	members []float64     // sizes of the sites under load
	base    float64       // size of the site of the costs
	seconds float64       // of each paced phase; loads take twice that
	rounds  int           // measurements of the costs
	settle  time.Duration // that a process gets to come to rest, or to notice a pause
	burst   int           // tasks that wait when the workers begin
	json    string
}

// measureScale is the subcommand scale.
func measureScale(ctx context.Context, args []string, log io.Writer) error {
	flags := flag.NewFlagSet("bench scale", flag.ContinueOnError)
	flags.SetOutput(log)
	sizes := flags.String("members", "1e5,1e4,1e6", "members of the sites under load")
	o := scaleOptions{}
	flags.DurationVar(&o.settle, "settle", 2*time.Second, "how long a process gets to come to rest")
	flags.Float64Var(&o.base, "base", 1e5, "members of the site of the costs")
	flags.Float64Var(&o.seconds, "seconds", 15, "length of each paced phase of the costs; loads take twice that")
	flags.IntVar(&o.burst, "burst", 5000, "tasks in a burst")
	flags.IntVar(&o.rounds, "rounds", 3, "measurements of the costs, each on a site of its own; their medians are taken")
	flags.StringVar(&o.json, "json", "capacity.json", "file for the figures")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, text := range strings.FieldsFunc(*sizes, func(r rune) bool { return r == ',' }) {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n < 1000 || n > 1e6 {
			return fmt.Errorf("--members %q: want numbers of a thousand to a million", *sizes)
		}
		o.members = append(o.members, n)
	}
	if o.rounds < 1 {
		return fmt.Errorf("--rounds %d: want at least 1", o.rounds)
	}
	f := figuresOfScale{}
	rounds := make([]costs, o.rounds)
	for i := range rounds {
		err := o.on(ctx, o.base, log, func(s *scale) (err error) {
			f.Crowd = s.crowd
			f.Machine, err = describe(ctx, s.backend)
			return errors.Join(err, s.costs(ctx, &rounds[i]))
		})
		if err != nil {
			return err
		}
	}
	f.Costs = medianCosts(rounds)
	var err error
	for _, n := range o.members {
		for _, load := range loadsOn(n) {
			if err != nil {
				return err
			}
			err = o.on(ctx, n, log, func(s *scale) error {
				t, err := s.underLoad(ctx, load)
				f.Loads = append(f.Loads, t)
				return err
			})
			err = errors.Join(err, f.write(o.json))
		}
	}
	return errors.Join(err, f.write(o.json))
}

func (f *figuresOfScale) write(file string) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644) //nolint:gosec // the user chooses the file, and nothing in it is secret
}

// on makes a site of a size on servers of its own, and measures there.
func (o scaleOptions) on(ctx context.Context, members float64, log io.Writer, measure func(*scale) error) (err error) {
	s := &scale{scaleOptions: o, crowd: flickr(members), log: log}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%.0f members: %w", members, err)
		}
	}()
	if s.backend, err = newBackend(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := load(ctx, s.backend, s.crowd.statements(), log); err != nil {
		return err
	}
	if s.meter, err = newMeter(ctx, s.backend); err != nil {
		return err
	}
	return measure(s)
}

// scale measures on one site.
type scale struct {
	*backend
	scaleOptions
	crowd   crowd
	meter   *meter
	log     io.Writer
	program *program
	idle    cost // a second of the program at rest
	http    atomic.Int64
	drawn   int // uploads that were drawn
	used    int // pairs that were used
}

// start starts activityd as a program, with flags besides.
func (s *scale) start(ctx context.Context, settings ...string) error {
	var err error
	if s.program, err = startProgram(ctx, s.backend, settings...); err != nil {
		return err
	}
	s.meter.account.program = s.program.cmd.Process.Pid
	return retry.Sleep(ctx, s.settle) // what it does at its start is over
}

func (s *scale) stop() error {
	p := s.program
	s.program, s.meter.account.program = nil, 0
	return p.Close()
}

// metric returns the sum of the series of activityd's metrics whose lines begin with a text.
func (s *scale) metric(ctx context.Context, prefix string) (sum float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.program.metrics+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), prefix); ok {
			n, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			if err != nil {
				return 0, err
			}
			sum += n
		}
	}
	return sum, lines.Err()
}

// phase measures what do takes, without what the program takes at rest.
func (s *scale) phase(ctx context.Context, name string, do func(context.Context) error) (cost, time.Duration, error) {
	if err := s.meter.calibrate(ctx); err != nil {
		return cost{}, 0, err
	}
	s.http.Store(0)
	one, err := s.meter.once(ctx, &contender{run: func(ctx context.Context) (int, error) { return 1, do(ctx) }}, false)
	if err != nil {
		return cost{}, 0, fmt.Errorf("%s: %w", name, err)
	}
	c := costOf(one)
	c.HTTPBytes = float64(s.http.Load())
	fmt.Fprintf(s.log, "%s: %.1f s, CPU: activityd %.0f ms, MySQL %.0f ms, Redis %.0f ms; %.0f rows\n", name,
		one.Wall.Seconds(), c.Activityd/1e3, c.MySQL/1e3, c.Redis/1e3, c.Counts.RowsRead)
	return c.plus(s.idle, -one.Wall.Seconds()), one.Wall, nil
}

// costOf is what a run took. Where there is no program, its work was done here.
func costOf(one sample) cost {
	c := cost{MySQL: micros(one.CPU.MySQL), Redis: micros(one.CPU.Redis), Activityd: micros(one.CPU.Program), Counts: one.Counts}
	if one.CPU.Program == 0 {
		c.Activityd = micros(one.CPU.Own)
	}
	return c
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// clients is how many connections the load has.
const clients = 16

// paced calls do a number of times at a rate a second, from some goroutines.
func (s *scale) paced(ctx context.Context, n int, rate float64, do func(ctx context.Context, worker, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	var next atomic.Int64
	for worker := range clients {
		group.Go(func() error {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := retry.Sleep(ctx, time.Until(start.Add(time.Duration(float64(i)/rate*1e9)))); err != nil {
					return err
				}
				if err := do(ctx, worker, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// reads asks the endpoint for members in turn, at a rate for some seconds.
func (s *scale) reads(ctx context.Context, seconds, rate float64) error {
	var conns [clients]*httpClient
	defer func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	}()
	for i := range conns {
		c, err := dialHTTP(ctx, s.program.addr)
		if err != nil {
			return err
		}
		c.conn = &counting{Conn: c.conn, n: &s.http}
		c.answers = bufio.NewReader(c.conn)
		conns[i] = c
	}
	return s.paced(ctx, int(seconds*rate), rate, func(_ context.Context, worker, i int) error {
		_, err := conns[worker].get(s.viewer(i))
		return err
	})
}

// viewer draws the i-th reader.
func (s *scale) viewer(i int) member.ID {
	return member.ID(firstMember + int(s.crowd.Members*drawn("viewer"+strconv.Itoa(i))))
}

// counting counts the bytes on a connection.
type counting struct {
	net.Conn

	n *atomic.Int64
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.n.Add(int64(n))
	return n, err
}

func (c *counting) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.n.Add(int64(n))
	return n, err
}

// change is what a site does when a member's contact changes: the i-th even one adds a
// contact, the next one removes it. told says whether it enqueues the task.
func (s *scale) change(i int, told bool) func(context.Context) error {
	p := contacts.Pair{User: s.viewer(i / 2 * 31), Contact: s.crowd.id(i / 2 * 97 % int(s.crowd.Members))}
	return func(ctx context.Context) error {
		return inTransaction(ctx, s.db, func(tx *sql.Tx) error {
			text, task := "INSERT IGNORE INTO contacts (user_id, contact_id) VALUES (?, ?)", tasks.AddContact
			if i%2 == 1 {
				text, task = "DELETE FROM contacts WHERE user_id = ? AND contact_id = ?", tasks.RemoveContact
			}
			if _, err := tx.ExecContext(ctx, text, p.User, p.Contact); err != nil || !told {
				return err
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO tasks (type, subject, args) VALUES (?, ?, JSON_OBJECT('contact_id', ?))", task, p.User, p.Contact)
			return err
		})
	}
}

// upload is what a site does when a member uploads.
func (s *scale) upload(owner member.ID, told bool) func(context.Context) error {
	return func(ctx context.Context) error {
		return inTransaction(ctx, s.db, func(tx *sql.Tx) error {
			now := time.Now().Unix()
			if _, err := tx.ExecContext(ctx, "INSERT INTO photos (owner_id, title, visibility, date_upload) VALUES (?, 'new', 'public', ?)", owner, now); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "UPDATE users SET last_upload = GREATEST(COALESCE(last_upload, 0), ?) WHERE id = ?", now, owner); err != nil || !told {
				return err
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO tasks (type, subject) VALUES (?, ?)", tasks.Upload, owner)
			return err
		})
	}
}

// notify wakes the workers, as a site that publishes does.
func (s *scale) notify(ctx context.Context) error {
	return s.client.Publish(ctx, wake.Channel, tasks.QueueDefault).Err()
}

// changes makes n changes of contacts at a rate.
func (s *scale) changes(ctx context.Context, n int, rate float64, told bool) error {
	from := s.used
	s.used += n + n%2
	return s.paced(ctx, n, rate, func(ctx context.Context, _, i int) error {
		if err := s.change(from+i, told)(ctx); err != nil || !told {
			return err
		}
		return s.notify(ctx)
	})
}

// uploads makes uploads by these members at a rate.
func (s *scale) uploads(ctx context.Context, owners []member.ID, rate float64, told bool) error {
	return s.paced(ctx, len(owners), rate, func(ctx context.Context, _, i int) error {
		if err := s.upload(owners[i], told)(ctx); err != nil || !told {
			return err
		}
		return s.notify(ctx)
	})
}

// uploaders draws n of them.
func (s *scale) uploaders(n int) []member.ID {
	list := make([]member.ID, n)
	for i := range list {
		list[i] = s.crowd.uploader(s.drawn)
		s.drawn++
	}
	return list
}

// ranked are n members who uploaded, from a rank on.
func (s *scale) ranked(first, n int) (list []member.ID) {
	for rank := first; len(list) < n; rank++ {
		if id := s.crowd.id(rank); s.crowd.uploads(id) {
			list = append(list, id)
		}
	}
	return list
}

// followersOf counts them.
func (s *scale) followersOf(ctx context.Context, ids []member.ID) (sum float64, err error) {
	for _, id := range ids {
		n := 0.0
		if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM contacts WHERE contact_id = ?", id).Scan(&n); err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// drain waits until no task is left.
func (s *scale) drain(ctx context.Context) error {
	for {
		var left int
		if err := s.db.QueryRowContext(ctx, leftTasks).Scan(&left); err != nil || left == 0 {
			return err
		}
		if err := retry.Sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// pause lets no task start, or does so again. Processes notice within a second.
func (s *scale) pause(ctx context.Context, on bool) error {
	text := "DELETE FROM paused_queues"
	if on {
		text = "INSERT INTO paused_queues (queue) VALUES ('default'), ('fan_out'), ('refill')"
	}
	if _, err := s.db.ExecContext(ctx, text); err != nil || !on {
		return err
	}
	return retry.Sleep(ctx, s.settle)
}

// refill makes the sets of members.
func (s *scale) refill(ctx context.Context, users []member.ID) error {
	handler := &tasks.RefillHandler{Index: s.index, Store: contacts.NewMySQL(s.db)}
	return inParallel(ctx, refillWorkers, refillBatch, users, refillOf(handler))
}

// members lists n of them.
func (s *scale) members(ctx context.Context, query string, args ...any) (ids []member.ID, err error) {
	rows, err := s.db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id member.ID
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// costs measures single operations.
func (s *scale) costs(ctx context.Context, c *costs) (err error) {
	if err := s.refillCosts(ctx, c); err != nil {
		return err
	}
	sweeping, seconds, swept, err := s.sweepCosts(ctx)
	if err != nil {
		return err
	}
	if err := s.start(ctx, "ACTIVITYD_AUDIT_SWEEP_RATE=0"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.idleCosts(ctx, c); err != nil {
		return err
	}
	c.Swept = sweeping.plus(c.Process, -seconds).times(1 / swept).atLeastZero()
	if err := s.readCosts(ctx, c); err != nil {
		return err
	}
	if err := s.changeCosts(ctx, c); err != nil {
		return err
	}
	return s.uploadCosts(ctx, c)
}

// refillCosts fills the index: first sets of members with few contacts and with many, so
// that the cost of a refill can be separated from that of each contact in it.
func (s *scale) refillCosts(ctx context.Context, c *costs) error {
	few, err := s.members(ctx, "SELECT ? + n FROM degrees WHERE degree <= 4 ORDER BY n LIMIT 8000", firstMember)
	if err != nil {
		return err
	}
	many, err := s.members(ctx, "SELECT ? + n FROM degrees WHERE degree BETWEEN 20 AND 1000 ORDER BY n LIMIT 5000", firstMember)
	if err != nil {
		return err
	}
	var took [2]cost
	var each [2]float64
	for i, ids := range [][]member.ID{few, many} {
		if each[i], err = s.contactsOf(ctx, ids); err != nil {
			return err
		}
		again := func(ctx context.Context) error { return errors.Join(s.client.FlushAll(ctx).Err(), s.refill(ctx, ids)) }
		if err := again(ctx); err != nil { // warms up
			return err
		}
		const times = 5
		took[i], _, err = s.phase(ctx, fmt.Sprintf("%d refills, %.1f contacts each, %d times", len(ids), each[i], times), func(ctx context.Context) (err error) {
			for range times {
				err = errors.Join(err, again(ctx))
			}
			return err
		})
		if err != nil {
			return err
		}
		took[i] = took[i].times(1 / float64(times*len(ids)))
	}
	c.RefillContact = took[1].plus(took[0], -1).times(1 / (each[1] - each[0])).atLeastZero()
	c.Refill = took[0].plus(c.RefillContact, -each[0]).atLeastZero()
	c.Contacts = s.crowd.contacts()
	return s.setBytes(ctx, c)
}

// contactsOf is how many each of these members has in the mean.
func (s *scale) contactsOf(ctx context.Context, ids []member.ID) (float64, error) {
	n := 0.0
	for some := range slices.Chunk(ids, 1000) {
		var sum float64
		text := "SELECT COUNT(*) FROM contacts WHERE user_id IN (?" + strings.Repeat(",?", len(some)-1) + ")"
		args := make([]any, len(some))
		for i, id := range some {
			args[i] = id
		}
		if err := s.db.QueryRowContext(ctx, text, args...).Scan(&sum); err != nil {
			return 0, err
		}
		n += sum
	}
	return n / float64(len(ids)), nil
}

// fill makes all sets, and returns what that took and by how much Redis grew.
func (s *scale) fill(ctx context.Context) (took cost, grown float64, err error) {
	if err := s.client.FlushAll(ctx).Err(); err != nil {
		return took, 0, err
	}
	before, err := usedMemory(ctx, s.client)
	if err != nil {
		return took, 0, err
	}
	ids := make([]member.ID, int(s.crowd.Members))
	for i := range ids {
		ids[i] = member.ID(firstMember + i)
	}
	if took, _, err = s.phase(ctx, "all sets", func(ctx context.Context) error { return s.refill(ctx, ids) }); err != nil {
		return took, 0, err
	}
	after, err := usedMemory(ctx, s.client)
	return took, after - before, err
}

// setBytes measures the memory of sets by their size, and what the table of keys adds.
func (s *scale) setBytes(ctx context.Context, c *costs) error {
	_, grown, err := s.fill(ctx)
	if err != nil {
		return err
	}
	full := indexMax()
	sums, counts := make([]float64, full+1), make([]float64, full+1)
	n := int(min(s.crowd.Members, 50_000))
	for i := range n {
		key := index.UserKey(member.ID(firstMember + i))
		size, err := s.client.ZCard(ctx, key).Result()
		if err != nil {
			return err
		}
		if size == 0 || counts[size] >= 300 {
			counts[size]++
			continue
		}
		bytes, err := s.client.MemoryUsage(ctx, key, 0).Result()
		if err != nil {
			return err
		}
		sums[size] += float64(bytes)
		counts[size]++
		if counts[size] == 300 {
			sums[size] /= 300
		}
	}
	total := 0.0
	c.SetBytes = make([]float64, full+1)
	for size := 1; size <= full; size++ {
		if c.SetBytes[size] = sums[size]; counts[size] < 300 {
			c.SetBytes[size] /= max(1, counts[size])
		}
		total += c.SetBytes[size] * counts[size] / float64(n) * s.crowd.Members
	}
	keys, err := s.client.DBSize(ctx).Result()
	if err != nil {
		return err
	}
	c.KeyBytes = max(0, (grown-total)/float64(keys))
	fmt.Fprintf(s.log, "sets of 0 to %d: %.0f of %d members; %.0f bytes; %.1f more for each key\n", full, counts, n, c.SetBytes, c.KeyBytes)
	return nil
}

// idleCosts measures a program at rest.
func (s *scale) idleCosts(ctx context.Context, c *costs) error {
	took, wall, err := s.phase(ctx, "at rest", func(ctx context.Context) error {
		return retry.Sleep(ctx, time.Duration(s.seconds*1e9))
	})
	if err != nil {
		return err
	}
	c.Process = took.times(1 / wall.Seconds())
	s.idle = c.Process
	return nil
}

func (s *scale) readCosts(ctx context.Context, c *costs) error {
	const rate = 400
	if err := s.reads(ctx, 3, rate); err != nil { // warms up
		return err
	}
	took, _, err := s.phase(ctx, "reads", func(ctx context.Context) error { return s.reads(ctx, s.seconds, rate) })
	c.Read = took.times(1 / float64(int(s.seconds*rate)))
	return err
}

// Rates of what a site does, a second.
const (
	siteRate  = 200 // as calm as in a load: commits that come together cost less
	aloneRate = 25  // so rare that each task is claimed alone
)

// changeCosts measures changes of contacts: the site's own part, the task's row, and the
// work, in claims of one task and in full ones.
func (s *scale) changeCosts(ctx context.Context, c *costs) error {
	n := int(s.seconds * siteRate)
	bare, _, err := s.phase(ctx, "changes without tasks", func(ctx context.Context) error { return s.changes(ctx, n, siteRate, false) })
	if err != nil {
		return err
	}
	if err := s.pause(ctx, true); err != nil {
		return err
	}
	told, _, err := s.phase(ctx, "changes with tasks", func(ctx context.Context) error { return s.changes(ctx, n, siteRate, true) })
	if err != nil {
		return err
	}
	if err := s.changes(ctx, s.burst, 1e6, true); err != nil {
		return err
	}
	batched, _, err := s.phase(ctx, "their tasks", func(ctx context.Context) error {
		return errors.Join(s.pause(ctx, false), s.notify(ctx), s.drain(ctx))
	})
	if err != nil {
		return err
	}
	few := int(s.seconds * aloneRate)
	alone, _, err := s.phase(ctx, "changes one by one", func(ctx context.Context) error {
		return errors.Join(s.changes(ctx, few, aloneRate, true), s.drain(ctx))
	})
	if err != nil {
		return err
	}
	c.SiteChange = bare.times(1 / float64(n)).atLeastZero()
	c.Enqueue = told.plus(bare, -1).times(1 / float64(n)).atLeastZero()
	c.ChangeBatched = batched.times(1 / float64(n+s.burst)).atLeastZero()
	c.ChangeAlone = alone.times(1/float64(few)).plus(c.SiteChange, -1).plus(c.Enqueue, -1).atLeastZero()
	return nil
}

// uploadCosts does the same for uploads, by members with few followers, and measures what
// a follower costs with those that have most: the two kinds of uploaders separate it from the cost
// of a task.
func (s *scale) uploadCosts(ctx context.Context, c *costs) error {
	n, few := s.burst/2, int(s.seconds*aloneRate)
	owners := s.ranked(int(s.crowd.Members)/2, 2*n+few)
	bare, _, err := s.phase(ctx, "uploads without tasks", func(ctx context.Context) error { return s.uploads(ctx, owners[:n], siteRate, false) })
	if err != nil {
		return err
	}
	c.SiteUpload = bare.times(1 / float64(n)).atLeastZero()
	batched, ofBatched, err := s.burstOfUploads(ctx, owners[n:2*n])
	if err != nil {
		return err
	}
	alone, ofAlone, err := s.told(ctx, "uploads one by one", owners[2*n:], aloneRate, 1)
	if err != nil {
		return err
	}
	big, ofBig, err := s.told(ctx, "uploads by the most followed", s.ranked(0, 60), 1e6, 15)
	if err != nil {
		return err
	}
	site := c.SiteUpload.plus(c.Enqueue, 1)
	c.Told = big.plus(site, -1).plus(batched, -1).times(1 / (ofBig - ofBatched)).atLeastZero()
	c.UploadBatched = batched.plus(c.Told, -ofBatched).atLeastZero()
	c.UploadAlone = alone.plus(site, -1).plus(c.Told, -ofAlone).atLeastZero()
	return nil
}

// burstOfUploads measures the tasks of uploads that wait when the workers begin. It returns
// what one takes, and its followers in the mean.
func (s *scale) burstOfUploads(ctx context.Context, owners []member.ID) (each cost, followers float64, err error) {
	if followers, err = s.followersOf(ctx, owners); err != nil {
		return each, 0, err
	}
	if err := errors.Join(s.pause(ctx, true), s.uploads(ctx, owners, 1e6, true)); err != nil {
		return each, 0, err
	}
	took, _, err := s.phase(ctx, fmt.Sprintf("the tasks of uploads to %.0f followers in all", followers), func(ctx context.Context) error {
		return errors.Join(s.pause(ctx, false), s.notify(ctx), s.drain(ctx))
	})
	n := float64(len(owners))
	return took.times(1 / n), followers / n, err
}

// told measures uploads by these members, so many times. It returns what one takes, the
// site's part included, and its followers in the mean.
func (s *scale) told(ctx context.Context, name string, owners []member.ID, rate float64, times int) (each cost, followers float64, err error) {
	if followers, err = s.followersOf(ctx, owners); err != nil {
		return each, 0, err
	}
	took, _, err := s.phase(ctx, fmt.Sprintf("%s, to %.0f followers in all, %d times", name, followers, times), func(ctx context.Context) (err error) {
		for range times {
			err = errors.Join(err, s.uploads(ctx, owners, rate, true), s.drain(ctx))
		}
		return err
	})
	n := float64(len(owners))
	return took.times(1 / n / float64(times)), followers / n, err
}

// sweepCosts measures the audit's sweep: what so many seconds took in which so many sets
// were swept.
func (s *scale) sweepCosts(ctx context.Context) (took cost, seconds, swept float64, err error) {
	if err := s.start(ctx, "ACTIVITYD_AUDIT_SWEEP_RATE=1000"); err != nil {
		return took, 0, 0, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	before, err := s.metric(ctx, sweptSets)
	if err != nil {
		return took, 0, 0, err
	}
	after := before
	took, wall, err := s.phase(ctx, "sweeping", func(ctx context.Context) error {
		for after == before { // once, but on a machine that stalls
			if err := retry.Sleep(ctx, time.Duration(s.seconds*1e9)); err != nil {
				return err
			}
			if after, err = s.metric(ctx, sweptSets); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return took, 0, 0, err
	}
	fmt.Fprintf(s.log, "%.0f sets were swept\n", after-before)
	return took, wall.Seconds(), after - before, nil
}

// loadsOn are the loads on a site of a size, as busy as this machine bears.
func loadsOn(members float64) []rates {
	switch {
	case members < 5e4:
		return []rates{{Reads: 200, Uploads: 5, Changes: 20, SweepSets: 50}}
	case members < 5e5:
		return []rates{{Reads: 300, Uploads: 10, Changes: 60, SweepSets: 50}, {Reads: 50, Uploads: 20, Changes: 300, SweepSets: 50}}
	default:
		return []rates{{Reads: 400, Uploads: 20, Changes: 40, SweepSets: 50}}
	}
}

// underLoad measures a mixed load, beside a sweep as by default.
func (s *scale) underLoad(ctx context.Context, load rates) (t taken, err error) {
	t = taken{Crowd: s.crowd, Rates: load}
	if t.Refill, t.SetMemory, err = s.fill(ctx); err != nil {
		return t, err
	}
	keys, err := s.client.DBSize(ctx).Result()
	if err != nil {
		return t, err
	}
	t.Sets = float64(keys)
	if err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM contacts").Scan(&t.Contacts); err != nil {
		return t, err
	}
	err = s.db.QueryRowContext(ctx, "SELECT SUM(data_length + index_length) FROM information_schema.tables"+
		" WHERE table_schema = DATABASE() AND table_name IN ('users', 'contacts', 'photos')").Scan(&t.Disk)
	if err != nil {
		return t, err
	}
	if err := s.start(ctx); err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	seconds := 2 * s.seconds
	owners := s.uploaders(int(seconds * t.Rates.Uploads))
	if err := s.reads(ctx, 3, t.Rates.Reads); err != nil { // warms up
		return t, err
	}
	before, err := s.seen(ctx)
	if err != nil {
		return t, err
	}
	took, wall, err := s.phase(ctx, "load", func(ctx context.Context) error {
		group, loading := errgroup.WithContext(ctx)
		group.Go(func() error { return s.reads(loading, seconds, t.Rates.Reads) })
		group.Go(func() error { return s.uploads(loading, owners, t.Rates.Uploads, true) })
		group.Go(func() error { return s.changes(loading, int(seconds*t.Rates.Changes), t.Rates.Changes, true) })
		if err := group.Wait(); err != nil {
			return err
		}
		return s.drain(ctx)
	})
	if err != nil {
		return t, err
	}
	after, err := s.seen(ctx)
	t.Cost, t.Planned, t.Seconds = took, seconds, wall.Seconds()
	t.Told, t.Swept, t.Pages = after[0]-before[0], after[1]-before[1], after[2]-before[2]
	fmt.Fprintf(s.log, "%d uploads updated the sets of %.0f followers; %.0f sets were swept, %.0f pages read from the disk\n", len(owners), t.Told, t.Swept, t.Pages)
	return t, err
}

const sweptSets = `activityd_audit_checked_total{origin="sweep"}`

// seen are the counters of followers told, of sets swept, and of pages read from the disk.
func (s *scale) seen(ctx context.Context) (n [3]float64, err error) {
	for i, name := range []string{"activityd_fan_out_followers_sum", sweptSets} {
		if n[i], err = s.metric(ctx, name); err != nil {
			return n, err
		}
	}
	var name string
	return n, s.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_reads'").Scan(&name, &n[2])
}
