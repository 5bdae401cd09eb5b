package once_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/wake"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/once"
)

// processVariable makes this program a process that does a [processTask].
const processVariable = "ACTIVITYD_ONCE_PROCESS"

// processTask is what a process has to do: work under all names, at several of them at the
// same time, that succeeds by chance.
type processTask struct {
	Store  string // redis or mysql
	DSN    string
	Socket string // of Redis
	Names  int
	Seed   uint64
	Chance float64 // that an attempt succeeds
}

// name returns the ith name.
func (p processTask) name(i int) string { return fmt.Sprintf("%s/work:%d", p.Store, i) }

// succeeds reports whether an attempt succeeds: by chance, and the same in all processes.
func (p processTask) succeeds(name string, attempt int) bool {
	h := fnv.New64a()
	fmt.Fprint(h, p.Seed, name, attempt)
	return rand.New(rand.NewPCG(p.Seed, h.Sum64())).Float64() < p.Chance
}

// attempts returns how many attempts there are under a name.
func (p processTask) attempts(name string) int {
	n := 1
	for !p.succeeds(name, n) {
		n++
	}
	return n
}

// processLine is what a process writes: an attempt, or what a call came to.
type processLine struct {
	Name string

	Attempt      once.Attempt
	Began, Ended int64 // Unix ns

	Did   bool
	Error string
}

// beProcess is the process. It says that it is ready, waits until it may begin, and
// writes what it did.
func beProcess(ctx context.Context, text string) error {
	var task processTask
	if err := json.Unmarshal([]byte(text), &task); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, 30*time.Minute)
	defer stop()
	db, err := mysql.Open(task.DSN)
	if err != nil {
		return err
	}
	const conns = 5 // of each of eight processes
	db.SetMaxOpenConns(conns)
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: task.Socket, ContextTimeoutEnabled: true, DialTimeout: time.Minute, ReadTimeout: time.Minute})
	notifier := &notify.Notifier{}
	subscribed, _ := notifier.Subscribe("a name that no process notifies")
	passing, stopPassing := context.WithCancel(ctx)
	defer stopPassing()
	var running sync.WaitGroup
	running.Go(func() { _ = wake.New(client, notifier, slog.New(slog.DiscardHandler)).Run(passing) })
	<-subscribed
	var store once.Store = once.NewMySQL(db)
	if task.Store == "redis" {
		store = once.NewRedis(client, once.NewMySQL(db).NextEpoch)
	}
	o := once.New(store, once.Options{Notifier: notifier})

	// A call ends if its first operation fails, as when all connect at the same time.
	if err := errors.Join(connectAll(ctx, db, conns), client.Ping(ctx).Err()); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	var mu sync.Mutex
	var lines []processLine
	write := func(l processLine) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, l)
	}
	var working sync.WaitGroup
	slots := make(chan struct{}, 12) // many, because a call that failed pauses for seconds
	for i := range task.Names {
		slots <- struct{}{}
		working.Go(func() {
			defer func() { <-slots }()
			name := task.name(i)
			did, err := o.Do(ctx, once.Key{Name: name, Attempts: 10_000}, func(ctx context.Context, a once.Attempt) error {
				l := processLine{Name: name, Attempt: a, Began: time.Now().UnixNano()}
				err := guardedWork(ctx, db, name, a, task.succeeds(name, a.Number))
				l.Ended = time.Now().UnixNano()
				write(l)
				return err
			})
			write(processLine{Name: name, Did: did, Error: fmt.Sprint(err)})
		})
	}
	working.Wait()
	stopPassing()
	running.Wait()
	out := json.NewEncoder(os.Stdout)
	for _, l := range lines {
		if err := out.Encode(l); err != nil {
			return err
		}
	}
	return errors.Join(client.Close(), db.Close())
}

// connectAll opens n connections of a pool.
func connectAll(ctx context.Context, db *sql.DB, n int) error {
	var all []*sql.Conn
	for range n {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		all = append(all, conn)
	}
	for _, conn := range all {
		if err := conn.Close(); err != nil {
			return err
		}
	}
	return nil
}

// guardedWork changes a row of a table that refuses fences it has seen.
func guardedWork(ctx context.Context, db *sql.DB, name string, a once.Attempt, succeeds bool) error {
	n := 0
	err := mysql.Transact(ctx, db, "work", func(tx *sql.Tx) (err error) {
		n, err = mysql.Affected(tx.ExecContext(ctx, "UPDATE guarded SET attempts = attempts + 1, successes = successes + ?, fence = ? WHERE name = ? AND fence < ?",
			succeeds, a.Fence, name, a.Fence))
		return err
	})
	if err != nil {
		return err
	}
	if n != 1 {
		return fmt.Errorf("attempt %+v of %s was refused", a, name)
	}
	if !succeeds {
		return errWork
	}
	return nil
}

// Eight processes do work that seldom succeeds: each once, with as many attempts as are
// counted, one after the other, and the next one soon. "make prove-once" does it under
// 1,000 names.
func TestProveProcesses(t *testing.T) {
	t.Parallel()
	// The timeout is for connecting.
	task := processTask{DSN: servertest.MySQLDSN(t) + "&timeout=1m", Socket: servertest.Redis(t).Addr(), Names: 40, Seed: rand.Uint64(), Chance: 0.3}
	if os.Getenv("ACTIVITYD_PROVE") != "" {
		task.Names, task.Chance = 1000, 0.15
		if seed, err := strconv.ParseUint(os.Getenv("ACTIVITYD_SEED"), 10, 64); err == nil {
			task.Seed = seed
		}
	}
	db, err := mysql.Open(task.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE guarded (
		name VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
		attempts INT NOT NULL DEFAULT 0, successes INT NOT NULL DEFAULT 0, fence BIGINT UNSIGNED NOT NULL DEFAULT 0)`); err != nil {
		t.Fatal(err)
	}
	client := connectTo(t, task.Socket)
	for name, store := range map[string]once.Store{"mysql": once.NewMySQL(db), "redis": once.NewRedis(client, nil)} {
		task.Store = name
		t.Run(name, func(t *testing.T) { task.prove(t, db, store) })
	}
}

func connectTo(t *testing.T, socket string) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// prove runs the processes, and checks what they did.
func (p processTask) prove(t *testing.T, db *sql.DB, store once.Store) {
	for i := range p.Names {
		if _, err := db.ExecContext(t.Context(), "INSERT INTO guarded (name) VALUES (?)", p.name(i)); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	attempts, did := make(map[string][]processLine), make(map[string]int)
	for _, l := range p.spawn(t, 8) {
		switch {
		case l.Began != 0:
			attempts[l.Name] = append(attempts[l.Name], l)
		case l.Error != "<nil>":
			t.Errorf("seed %d: %s: %s", p.Seed, l.Name, l.Error)
		case l.Did:
			did[l.Name]++
		}
	}
	took := time.Since(begin)
	var pauses []time.Duration
	total := 0
	for i := range p.Names {
		name := p.name(i)
		pauses = append(pauses, p.check(t, db, store, name, attempts[name], did[name])...)
		total += len(attempts[name])
	}
	slices.Sort(pauses)
	t.Logf("seed %d: %d names, %d attempts in %v; from a failure to the next attempt p50 %v, p90 %v, p99 %v",
		p.Seed, p.Names, total, took.Round(time.Millisecond), pauses[len(pauses)/2], pauses[len(pauses)*9/10], pauses[len(pauses)*99/100])
}

// spawn runs n processes, which begin together, and returns what they wrote.
func (p processTask) spawn(t *testing.T, n int) (lines []processLine) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	begin := make(chan struct{})
	var ready, running sync.WaitGroup
	var mu sync.Mutex
	for i := range n {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), processVariable+"="+string(text))
		cmd.Stderr = t.Output()
		in, err1 := cmd.StdinPipe()
		out, err2 := cmd.StdoutPipe()
		if err := errors.Join(err1, err2, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		ready.Add(1)
		running.Go(func() {
			scanner := bufio.NewScanner(out)
			if !scanner.Scan() || scanner.Text() != "ready" {
				t.Errorf("process %d says %q", i, scanner.Text())
			}
			ready.Done()
			<-begin
			_, _ = fmt.Fprintln(in)
			for scanner.Scan() {
				var l processLine
				if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
					t.Errorf("process %d writes %q: %v", i, scanner.Text(), err)
				}
				mu.Lock()
				lines = append(lines, l)
				mu.Unlock()
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("process %d: %v", i, err)
			}
		})
	}
	ready.Wait()
	close(begin)
	running.Wait()
	return lines
}

// check checks what was done under a name, and returns the times from each failure to the
// next attempt.
func (p processTask) check(t *testing.T, db *sql.DB, store once.Store, name string, attempts []processLine, did int) (pauses []time.Duration) {
	t.Helper()
	want := p.attempts(name)
	slices.SortFunc(attempts, func(a, b processLine) int { return a.Attempt.Number - b.Attempt.Number })
	if did != 1 || len(attempts) != want {
		t.Errorf("seed %d: %s was done by %d calls in %d attempts, want 1 in %d", p.Seed, name, did, len(attempts), want)
	}
	for i, l := range attempts {
		if l.Attempt.Number != i+1 {
			t.Errorf("seed %d: %s: attempt %d is number %d", p.Seed, name, i+1, l.Attempt.Number)
		}
		if i == 0 {
			continue
		}
		before := attempts[i-1]
		if l.Began < before.Ended || l.Attempt.Fence <= before.Attempt.Fence {
			t.Errorf("seed %d: %s: %+v begins before the end of %+v", p.Seed, name, l, before)
		}
		pauses = append(pauses, time.Duration(l.Began-before.Ended))
	}
	var counted, successes int
	if err := db.QueryRowContext(t.Context(), "SELECT attempts, successes FROM guarded WHERE name = ?", name).Scan(&counted, &successes); err != nil {
		t.Error(err)
	}
	r, err := store.Get(t.Context(), name)
	if err != nil || r.State.Phase != once.Done || r.State.Attempt != want || counted != want || successes != 1 {
		t.Errorf("seed %d: %s: %d attempts and %d successes are counted, want %d and 1; state %+v: %v", p.Seed, name, counted, successes, want, r.State, err)
	}
	return pauses
}
