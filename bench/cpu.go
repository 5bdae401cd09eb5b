package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// cpuTimes are the processor times of all processes involved: the benchmark, which is
// the client and runs the workers, the two servers, and activityd itself where it runs
// as a program. On a busy machine they are steadier than the clock.
type cpuTimes struct {
	Own     time.Duration `json:"own"`
	MySQL   time.Duration `json:"mysql"`
	Redis   time.Duration `json:"redis"`
	Program time.Duration `json:"program,omitzero"`
}

func (c cpuTimes) plus(d cpuTimes) cpuTimes {
	return cpuTimes{c.Own + d.Own, c.MySQL + d.MySQL, c.Redis + d.Redis, c.Program + d.Program}
}

func (c cpuTimes) minus(d cpuTimes) cpuTimes {
	return cpuTimes{c.Own - d.Own, c.MySQL - d.MySQL, c.Redis - d.Redis, c.Program - d.Program}
}

func (c cpuTimes) sum() time.Duration { return c.Own + c.MySQL + c.Redis + c.Program }

// accountant reads the processor times.
type accountant struct {
	mysql   int
	redis   []int // one, or those of a cluster
	program int   // 0: none
}

// newAccountant finds the processes of the servers.
func newAccountant(ctx context.Context, b *backend, servers []*redis.Client) (a accountant, err error) {
	var file string
	if err := b.db.QueryRowContext(ctx, "SELECT @@pid_file").Scan(&file); err != nil {
		return a, err
	}
	if !filepath.IsAbs(file) {
		return a, fmt.Errorf("the pid file of MySQL is %q: want an absolute path", file)
	}
	text, err := os.ReadFile(file) //nolint:gosec // the path is from our own server
	if err != nil {
		return a, err
	}
	if a.mysql, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return a, fmt.Errorf("the pid file of MySQL: %w", err)
	}
	for _, server := range servers {
		id, err := infoField(ctx, server, "server", "process_id")
		if err != nil {
			return a, err
		}
		pid, err := strconv.Atoi(id)
		if err != nil {
			return a, fmt.Errorf("the process id of Redis: %w", err)
		}
		a.redis = append(a.redis, pid)
	}
	return a, nil
}

// infoField returns a field of a section of INFO.
func infoField(ctx context.Context, client *redis.Client, section, field string) (string, error) {
	text, err := client.Info(ctx, section).Result()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == field {
			return value, nil
		}
	}
	return "", fmt.Errorf("INFO %s of Redis has no %s", section, field)
}

// read returns the processor times up to now.
func (a accountant) read() (c cpuTimes, err error) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return c, err
	}
	c.Own = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	if c.MySQL, err = processTime(a.mysql); err != nil {
		return c, err
	}
	for _, pid := range a.redis {
		one, err := processTime(pid)
		if err != nil {
			return c, err
		}
		c.Redis += one
	}
	if a.program == 0 {
		return c, nil
	}
	c.Program, err = processTime(a.program)
	return c, err
}

// tick is the unit of the times in /proc: a hundredth of a second on every Linux that
// Go supports.
const tick = 10 * time.Millisecond

// processTime returns the processor time of another process.
func processTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name of the program, in parentheses, may have spaces. The first field
	// after it is the third; utime and stime are the 14th and 15th.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields after the name", pid, len(fields))
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}
