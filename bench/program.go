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
	"syscall"
)

// program is activityd itself, as a process of its own.
type program struct {
	cmd     *exec.Cmd
	dir     string
	addr    string // its HTTP address
	metrics string // the address of its metrics
	reading sync.WaitGroup
}

// startProgram builds activityd and starts it on the servers of a backend, with these
// settings besides, which are flags or variables of the environment. The caller closes it.
func startProgram(ctx context.Context, b *backend, settings ...string) (p *program, err error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/activityd/activityd").Output()
	if err != nil {
		return nil, fmt.Errorf("find activityd's sources: %w", err)
	}
	p = &program{}
	if p.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return nil, err
	}
	binary := filepath.Join(p.dir, "activityd")
	build := exec.CommandContext(ctx, "go", "build", "-C", strings.TrimSpace(string(root)), "-o", binary, "./cmd/activityd") //nolint:gosec // our own sources
	if out, err := build.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("build activityd: %w: %s", err, out), os.RemoveAll(p.dir))
	}
	if err := p.start(binary, b, settings); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// start starts it and waits until it listens.
func (p *program) start(binary string, b *backend, settings []string) error {
	p.cmd = exec.Command(binary, "serve", "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--log-format=json", //nolint:noctx,gosec // Close ends it
		"--mysql-dsn="+b.mysql.DSN(database), "--redis-url="+b.redis.URL())
	p.cmd.Env = os.Environ()
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
	lines := bufio.NewReader(log)
	for p.addr == "" || p.metrics == "" {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("activityd ended before it listened: %w", err)
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
