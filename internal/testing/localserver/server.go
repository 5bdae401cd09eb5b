// Package localserver starts private servers, MariaDB or MySQL and Redis, in a
// temporary folder: for the tests, that kill and pause servers, and for the
// demo, that has a site of its own.
//
// A server listens on a unix socket only, so that it takes no port and the network cannot
// reach it. The nodes of a cluster, which need ports, listen on the loopback
// interface, too.
// A server reads no configuration but its command line, so that it is the same on every
// machine. Close stops it and removes its folder. When the process that started it
// dies without Close, the kernel kills the server, on Linux; the folder stays.
//
// # States
//
//	Start ──> running ──Pause──> paused ──Resume──> running
//	             │                  │
//	             └──────Kill────────┴──> dead ──Restart──> running
//
// Close works in every state, and more than once. All methods are safe for
// concurrent use.
package localserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 20 * time.Second
	pingInterval = 10 * time.Millisecond
)

// server is a child process and its folder.
type server struct {
	name string
	dir  string
	// Argv is the command line. It may be changed while the server is dead.
	Argv []string
	ping func(context.Context) error // nil error: the server answers

	mu     sync.Mutex // guards the fields below; held while a call changes the state
	proc   *Process
	closed bool
}

// newServer makes the folder, in the one that the environment variable
// ACTIVITYD_TEST_FOLDER names, or else in that of temporary files. Its path is short,
// because the path of a unix socket is limited to about a hundred bytes.
func newServer(name string) (*server, error) {
	dir, err := os.MkdirTemp(os.Getenv("ACTIVITYD_TEST_FOLDER"), "activityd-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for %s: %w", name, err)
	}
	return &server{name: name, dir: dir}, nil
}

// path returns the path of a file in the server's folder.
func (s *server) path(name string) string { return filepath.Join(s.dir, name) }

// run runs a program until it ends.
func (s *server) run(ctx context.Context, argv []string) error {
	ctx, cancel := withStartTimeout(ctx, s.name)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.WaitDelay = s.dir, stopTimeout
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w%s", filepath.Base(argv[0]), cmp.Or(context.Cause(ctx), err), tailOf(out))
	}
	return nil
}

// start starts the server and waits until it answers. The caller holds mu, or no other
// goroutine has the server yet.
func (s *server) start(ctx context.Context) error {
	ctx, cancel := withStartTimeout(ctx, s.name)
	defer cancel()
	p, err := StartProcess(s.Argv, nil, s.dir, s.path("log"))
	if err != nil {
		return err
	}
	if err := s.awaitAnswer(ctx, p); err != nil {
		return errors.Join(err, p.Kill())
	}
	s.proc = p
	return nil
}

// awaitAnswer pings until the server answers, ends, or ctx does.
func (s *server) awaitAnswer(ctx context.Context, p *Process) error {
	ticker := time.NewTicker(pingInterval)
	defer ticker.Stop()
	for {
		pingErr := s.ping(ctx)
		if pingErr == nil {
			return nil
		}
		select {
		case <-p.Exited:
			return fmt.Errorf("%s ended before it answered: %w%s", s.name, cmp.Or(p.Err, errors.New("exit status 0")), p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("%s did not answer: %w (%w)%s", s.name, context.Cause(ctx), pingErr, p.logTail())
		case <-ticker.C:
		}
	}
}

// withStartTimeout bounds a start.
func withStartTimeout(ctx context.Context, name string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, startTimeout,
		fmt.Errorf("%s took longer than %v to start", name, startTimeout))
}

// Kill ends the server at once, as kill -9 does, and waits until it is gone.
// Its folder stays, for Restart.
func (s *server) Kill() error { return s.locked((*Process).Kill) }

// Pause stops the server as SIGSTOP does: connections stay open and nothing is answered
// until Resume.
func (s *server) Pause() error { return s.locked((*Process).Pause) }

// Resume continues a paused server.
func (s *server) Resume() error { return s.locked((*Process).Resume) }

// Restart stops the server, if it still runs, and starts it again on the same
// data and socket. ctx bounds the start. Without an error the server answers.
func (s *server) Restart(ctx context.Context) error {
	return s.locked(func(p *Process) error {
		if err := s.stop(p); err != nil {
			return err
		}
		return s.start(ctx)
	})
}

// Close stops the server, by SIGKILL if SIGTERM does not end it in time, and removes its
// folder.
func (s *server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return errors.Join(s.stop(s.proc), os.RemoveAll(s.dir))
}

// locked runs f on the server's process unless the server is closed.
func (s *server) locked(f func(*Process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%s: the server is closed", s.name)
	}
	return f(s.proc)
}

// stop sends SIGTERM and, after stopTimeout, SIGKILL. It continues a paused process, because that process
// could not end otherwise.
func (s *server) stop(p *Process) error {
	if err := errors.Join(p.Signal(syscall.SIGTERM), p.Resume()); err != nil {
		return err
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.Exited:
		return nil
	case <-timer.C:
		return p.Kill()
	}
}
