package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// program is activityd itself, as a process of its own.
type program struct {
	cmd     *exec.Cmd
	dir     string
	binary  string
	addr    string // its HTTP address
	metrics string // the address of its metrics
	pid     atomic.Int64
	reading sync.WaitGroup
}

// startProgram builds activityd and starts it on the servers of a backend, with these
// settings besides, which are flags or variables of the environment. The caller closes it.
func startProgram(ctx context.Context, b *backend, settings ...string) (p *program, err error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/activityd/activityd").Output()
	if err != nil {
		return nil, fmt.Errorf("find activityd's sources: %w", err)
	}
	return buildAndStart(ctx, b, strings.TrimSpace(string(root)), "./cmd/activityd", settings)
}

// buildAndStart builds a program from a folder and starts it. It takes the flags of activityd.
func buildAndStart(ctx context.Context, b *backend, folder, name string, settings []string) (p *program, err error) {
	p = &program{}
	if p.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return nil, err
	}
	p.binary = filepath.Join(p.dir, "program")
	build := exec.CommandContext(ctx, "go", "build", "-C", folder, "-o", p.binary, name) //nolint:gosec // our own sources
	if out, err := build.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("build %s: %w: %s", name, err, out), os.RemoveAll(p.dir))
	}
	if err := p.start(b, settings); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// start starts it and waits until it listens.
func (p *program) start(b *backend, settings []string) error {
	p.addr, p.metrics = "", ""
	p.cmd = exec.Command(p.binary, "serve", "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--log-format=json", //nolint:noctx,gosec // Close ends it
		"--mysql-dsn="+b.mysql.DSN(database), "--redis-url="+b.redis.URL())
	p.cmd.Env = append(os.Environ(), "ACTIVITYD_DRAIN=0s")
	for _, setting := range settings {
		if strings.HasPrefix(setting, "--") {
			p.cmd.Args = append(p.cmd.Args, setting)
		} else {
			p.cmd.Env = append(p.cmd.Env, setting)
		}
	}
	log, err := p.cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.pid.Store(int64(p.cmd.Process.Pid))
	lines := bufio.NewReader(log)
	for p.addr == "" || p.metrics == "" {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("the program ended before it listened: %w", err)
		}
		var entry struct {
			Message string `json:"msg"`
			Address string `json:"address"`
		}
		if json.Unmarshal(line, &entry) != nil {
			continue
		}
		switch entry.Message {
		case "listening":
			p.addr = entry.Address
		case "listening for metrics":
			p.metrics = entry.Address
		}
	}
	p.reading.Go(func() { _, _ = io.Copy(io.Discard, lines) })
	return nil
}

// restart ends it by SIGKILL, and starts it again at its addresses.
func (p *program) restart(b *backend, settings []string) error {
	addr, metrics := p.addr, p.metrics
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	p.reading.Wait()
	_ = p.cmd.Wait() // the error says which signal ended it
	return p.start(b, append(settings, "--listen="+addr, "--metrics-listen="+metrics))
}

// Close stops it and waits for its end.
func (p *program) Close() error {
	var err error
	if p.cmd != nil && p.cmd.Process != nil {
		err = p.cmd.Process.Signal(syscall.SIGTERM)
		p.reading.Wait()
		err = errors.Join(err, p.cmd.Wait())
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// kill ends it by SIGKILL, and waits for that.
func (p *program) kill() error {
	err := p.cmd.Process.Kill()
	p.reading.Wait()
	_ = p.cmd.Wait() // the error says which signal ended it
	p.cmd = nil
	return errors.Join(err, p.Close())
}
