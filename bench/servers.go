package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/queue"
)

// bench has private servers with the tables, and the report. All contenders use the same
// servers.
type bench struct {
	size   size
	log    io.Writer
	report report

	mysql   *localserver.MySQL
	redis   *localserver.Redis
	db      *sql.DB
	client  *redis.Client
	bare    *sql.Stmt // of bareRead
	dir     string
	binary  string   // activityd
	program *program // whose processor time is counted; nil: none
	site    bool     // it is there
	closers []io.Closer
}

// closing is a close that cannot fail.
type closing func()

// Close implements [io.Closer].
func (c closing) Close() error { c(); return nil }

// database is the name of the site's.
const database = "bench"

// newBench builds activityd, starts the servers and creates the tables. MySQL is durable, as in production; Redis
// appends to a file that it syncs each second. The caller closes it.
func newBench(ctx context.Context, s size, log io.Writer) (b *bench, err error) {
	b = &bench{size: s, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return b, err
	}
	if b.binary, err = build(ctx, b.dir); err != nil {
		return b, err
	}
	b.mysql, err = localserver.StartMySQL(ctx, "--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=1073741824", "--loose-innodb-log-file-size=268435456")
	if err != nil {
		return b, err
	}
	b.closers = append(b.closers, b.mysql)
	// A script is not cut short when the machine stalls in the middle of it.
	if b.redis, err = localserver.StartRedis(ctx, "--lua-time-limit", "600000"); err != nil {
		return b, err
	}
	b.closers = append(b.closers, b.redis)
	if err := b.mysql.CreateDatabase(ctx, database); err != nil {
		return b, err
	}
	if b.db, err = queue.OpenDB(b.mysql.DSN(database)); err != nil {
		return b, err
	}
	b.client = redis.NewClient(&redis.Options{Network: "unix", Addr: b.redis.Addr(), ContextTimeoutEnabled: true})
	b.closers = append(b.closers, b.db, b.client)
	for _, setting := range [][2]string{{"appendfsync", "everysec"}, {"appendonly", "yes"}} {
		if err := b.client.ConfigSet(ctx, setting[0], setting[1]).Err(); err != nil {
			return b, err
		}
	}
	if err := b.command(ctx, "schema", "--apply"); err != nil {
		return b, err
	}
	b.report.Machine, err = describe(ctx, b)
	return b, err
}

// build builds activityd below a folder.
func build(ctx context.Context, dir string) (binary string, err error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/activityd/activityd").Output()
	if err != nil {
		return "", fmt.Errorf("find activityd's sources: %w", err)
	}
	binary = filepath.Join(dir, "activityd")
	if out, err := exec.CommandContext(ctx, "go", "build", "-C", strings.TrimSpace(string(root)), "-o", binary, "./cmd/activityd").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build activityd: %w: %s", err, out)
	}
	return binary, nil
}

// Close closes everything that was opened, the last first.
func (b *bench) Close() error {
	var errs []error
	for _, c := range slices.Backward(b.closers) {
		errs = append(errs, c.Close())
	}
	b.closers = nil
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}

// environment is that of the program.
func (b *bench) environment() []string {
	return append(os.Environ(), "ACTIVITYD_MYSQL_DSN="+b.mysql.DSN(database), "ACTIVITYD_REDIS_URL="+b.redis.URL())
}

// command runs a command of activityd to its end.
func (b *bench) command(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, b.binary, args...)
	cmd.Env = b.environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("activityd %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// program is "activityd serve", or a contender, as a process of its own.
type program struct {
	cmd     *exec.Cmd
	addr    string // of HTTP
	reading sync.WaitGroup
}

// serve starts activityd with settings of the environment. The caller closes it.
func (b *bench) serve(settings ...string) (*program, error) {
	return b.start(exec.Command(b.binary, "serve", "--listen=127.0.0.1:0", "--metrics-listen=", "--log-format=json"), settings...)
}

// start starts a program that logs where it listens.
func (b *bench) start(cmd *exec.Cmd, settings ...string) (p *program, err error) {
	p = &program{cmd: cmd}
	p.cmd.Env = append(b.environment(), settings...)
	log, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	lines, last := bufio.NewReader(log), ""
	for p.addr == "" {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s ended before it listened: %s", cmd, last), p.cmd.Wait())
		}
		var entry struct {
			Message string `json:"msg"`
			Address string `json:"address"`
		}
		if last = string(line); json.Unmarshal(line, &entry) == nil && entry.Message == "listening" {
			p.addr = entry.Address
		}
	}
	p.reading.Go(func() { _, _ = io.Copy(io.Discard, lines) })
	return p, nil
}

// Close stops it and waits for its end.
func (p *program) Close() error {
	err := p.cmd.Process.Signal(syscall.SIGTERM)
	p.reading.Wait()
	return errors.Join(err, p.cmd.Wait())
}

// with serves while do runs, and counts the program's processor time.
func (b *bench) with(do func(p *program) error, settings ...string) (err error) {
	p, err := b.serve(settings...)
	if err != nil {
		return err
	}
	b.program = p
	defer func() { b.program, err = nil, errors.Join(err, p.Close()) }()
	return do(p)
}
