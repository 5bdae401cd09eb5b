//go:build unix

package endtoend_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// fault is something that happens to the machines, and is made good again.
type fault struct {
	name   string
	strike func(ctx context.Context, rnd *rand.Rand) error
}

// monkey makes faults in turn. Faults of several monkeys overlap.
type monkey struct {
	rnd    *rand.Rand
	kinds  []fault // each happens once, in random order, and then any of them
	record *record
	hasty  bool // its pauses are short
}

// record counts the faults by name, and has the time of each.
type record struct {
	mu  sync.Mutex
	of  map[string]int
	all []struck
}

// struck is a fault that happened.
type struck struct {
	name     string
	from, to time.Time
}

func (r *record) add(name string, from time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[name]++
	r.all = append(r.all, struck{name, from, time.Now()})
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r.of)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, r.of[name]))
	}
	return strings.Join(parts, ", ")
}

// play makes faults until it is enough, but each kind once at least.
func (m *monkey) play(ctx context.Context, enough func() bool) error {
	first := m.rnd.Perm(len(m.kinds))
	for len(first) > 0 || !enough() {
		var chosen fault
		if len(first) > 0 {
			chosen, first = m.kinds[first[0]], first[1:]
		} else {
			chosen = m.kinds[m.rnd.IntN(len(m.kinds))]
		}
		if err := m.strike(ctx, chosen); err != nil {
			return fmt.Errorf("%s: %w", chosen.name, err)
		}
	}
	return nil
}

func (m *monkey) strike(ctx context.Context, f fault) error {
	least, most := 200*time.Millisecond, 900*time.Millisecond
	if m.hasty {
		least, most = 0, 200*time.Millisecond
	}
	if err := between(ctx, m.rnd, least, most); err != nil {
		return err
	}
	defer m.record.add(f.name, time.Now())
	return f.strike(ctx, m.rnd)
}

// between lets a random time pass.
func between(ctx context.Context, rnd *rand.Rand, least, most time.Duration) error {
	timer := time.NewTimer(least + time.Duration(rnd.Int64N(int64(most-least))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// monkeys returns three monkeys: for the processes, for MySQL with its network, and for Redis with its
// network.
func (f *fleet) monkeys() []*monkey {
	var all []*monkey
	for i, kinds := range [][]fault{f.processFaults(), f.mysqlFaults(), f.redisFaults()} {
		all = append(all, &monkey{rnd: rand.New(rand.NewPCG(f.seed, 300+uint64(i))), kinds: kinds, record: &f.faults})
	}
	return all
}

// processFaults has the kill of a worker twice: there are several of them, and
// many points in their work.
func (f *fleet) processFaults() []fault {
	killed := fault{"worker killed", func(ctx context.Context, rnd *rand.Rand) error {
		return killAndStart(ctx, rnd, f.workers[rnd.IntN(len(f.workers))])
	}}
	return []fault{
		killed, killed,
		{"worker stopped past its lease", func(ctx context.Context, rnd *rand.Rand) error {
			worker := f.workers[rnd.IntN(len(f.workers))]
			return whileWrong(ctx, rnd, leaseOfFleet+500*time.Millisecond, leaseOfFleet+1500*time.Millisecond, worker.freeze, worker.thaw)
		}},
		{"API killed", func(ctx context.Context, rnd *rand.Rand) error { return killAndStart(ctx, rnd, f.api) }},
		{"API stopped", func(ctx context.Context, rnd *rand.Rand) error {
			return whileWrong(ctx, rnd, 300*time.Millisecond, 2*time.Second, f.api.freeze, f.api.thaw)
		}},
	}
}

func killAndStart(ctx context.Context, rnd *rand.Rand, p *program) error {
	if err := p.kill(); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return cmp.Or(between(ctx, rnd, 0, 300*time.Millisecond), p.start(ctx))
}

func (f *fleet) mysqlFaults() []fault {
	return append(networkFaults("MariaDB", f.mysqlProxy),
		fault{"MariaDB killed", func(ctx context.Context, rnd *rand.Rand) error {
			return whileWrong(ctx, rnd, 0, 500*time.Millisecond, f.mysql.Kill, func() error { return f.mysql.Restart(ctx) })
		}},
		fault{"MariaDB stalled", func(ctx context.Context, rnd *rand.Rand) error {
			return whileWrong(ctx, rnd, 300*time.Millisecond, 1200*time.Millisecond, f.mysql.Pause, f.mysql.Resume)
		}},
	)
}

func (f *fleet) redisFaults() []fault {
	return append(networkFaults("Redis", f.redisProxy),
		fault{"Redis killed, back as it was", func(ctx context.Context, rnd *rand.Rand) error {
			return whileWrong(ctx, rnd, 0, 500*time.Millisecond, f.redis.Kill, func() error { return f.redis.Restart(ctx) })
		}},
		fault{"Redis killed, back empty", func(ctx context.Context, rnd *rand.Rand) error {
			return whileWrong(ctx, rnd, 0, 500*time.Millisecond, f.loseRedis, func() error { return f.redis.Restart(ctx) })
		}},
		fault{"Redis killed, back with older data", f.ageRedis},
		fault{"Redis emptied", func(ctx context.Context, _ *rand.Rand) error {
			return f.lossy(func() error { return f.client.FlushAll(ctx).Err() })
		}},
		fault{"Redis stalled", func(ctx context.Context, rnd *rand.Rand) error {
			return whileWrong(ctx, rnd, 300*time.Millisecond, 1200*time.Millisecond, f.redis.Pause, f.redis.Resume)
		}},
		fault{"Redis stalled until it is given up", func(ctx context.Context, rnd *rand.Rand) error {
			return whileWrong(ctx, rnd, 3500*time.Millisecond, 5*time.Second, f.redis.Pause, f.redis.Resume)
		}},
	)
}

// ageRedis copies the files of Redis, and kills Redis some time later. Redis comes back with the copy.
func (f *fleet) ageRedis(ctx context.Context, rnd *rand.Rand) error {
	folder := filepath.Join(filepath.Dir(f.redis.Addr()), "appendonlydir")
	older, err := os.MkdirTemp("", "activityd-older-")
	if err != nil {
		return err
	}
	err = cmp.Or(
		os.CopyFS(older, os.DirFS(folder)),
		between(ctx, rnd, 200*time.Millisecond, 1500*time.Millisecond),
		f.loseRedis())
	if err == nil {
		err = errors.Join(os.CopyFS(folder, os.DirFS(older)), f.redis.Restart(ctx))
	}
	return errors.Join(err, os.RemoveAll(older))
}

// lossy makes Redis lose data, and notes when it was done.
func (f *fleet) lossy(do func() error) error {
	err := do()
	f.losses = append(f.losses, time.Now())
	return err
}

// loseRedis kills Redis and deletes its files.
func (f *fleet) loseRedis() error {
	if err := f.lossy(f.redis.Kill); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(filepath.Dir(f.redis.Addr()), "appendonly*"))
	if err != nil || len(files) == 0 {
		return errors.Join(err, errors.New("Redis has written nothing down"))
	}
	for _, file := range files {
		err = errors.Join(err, os.RemoveAll(file))
	}
	return err
}

func networkFaults(to string, proxy *servertest.Proxy) []fault {
	const delay = 200 * time.Millisecond // each way
	return []fault{
		{"connections to " + to + " cut", func(context.Context, *rand.Rand) error {
			proxy.Cut()
			return nil
		}},
		{to + " far away", func(ctx context.Context, rnd *rand.Rand) error {
			return whileWrong(ctx, rnd, 500*time.Millisecond, 1500*time.Millisecond,
				func() error { proxy.Delay(delay); return nil }, func() error { proxy.Delay(0); return nil })
		}},
	}
}

// whileWrong breaks something for a random time and mends it, in any case.
func whileWrong(ctx context.Context, rnd *rand.Rand, least, most time.Duration, wrong, mend func() error) error {
	err := wrong()
	if err == nil {
		err = between(ctx, rnd, least, most)
	}
	return errors.Join(err, mend())
}
