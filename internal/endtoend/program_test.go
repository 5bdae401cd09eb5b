//go:build unix

package endtoend_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// program is activityd as an operator runs it, in a process of its own, to be
// killed, stopped and started again.
type program struct {
	name string
	argv []string
	env  []string
	logs string // a folder with a file for each start

	mu   sync.Mutex
	runs []*run // the last run is the present one
}

// serving returns an "activityd serve" that is not yet started. The settings are flags or variables of the
// environment. The program ends with t at the latest. If t fails, its logs stay.
func serving(t *testing.T, name, dsn, redisURL string, settings ...string) *program {
	t.Helper()
	path := activityd(t)
	logs, err := os.MkdirTemp("", "activityd-logs-")
	must(t, err)
	p := &program{name: name, logs: logs, argv: []string{
		path, "serve", "--log-format=json", "--listen=127.0.0.1:0", "--mysql-dsn=" + dsn, "--redis-url=" + redisURL,
	}}
	p.env = append(os.Environ(), "ACTIVITYD_METRICS_LISTEN=127.0.0.1:0", "GORACE=halt_on_error=1", "ACTIVITYD_DRAIN=0s")
	for _, setting := range settings {
		if strings.HasPrefix(setting, "--") {
			p.argv = append(p.argv, setting)
		} else {
			p.env = append(p.env, setting)
		}
	}
	t.Cleanup(func() {
		if r := p.latest(); r != nil {
			_ = r.end(syscall.SIGKILL) // it may have ended
		}
		if !t.Failed() {
			must(t, os.RemoveAll(p.logs))
			return
		}
		p.tellLogs(t)
	})
	return p
}

// start starts the process and waits until it says that it did.
func (p *program) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("a minute is over"))
	defer cancel()
	p.mu.Lock()
	r, err := startRun(p.argv, p.env, filepath.Join(p.logs, fmt.Sprintf("%s-%d", p.name, len(p.runs)+1)))
	if err == nil {
		p.runs = append(p.runs, r)
	}
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	if _, err = r.awaitLine(ctx, "started"); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	return nil
}

func (p *program) mustStart(t *testing.T) *program {
	t.Helper()
	must(t, p.start(t.Context()))
	return p
}

// latest returns the present or last run; nil before the first.
func (p *program) latest() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.runs) == 0 {
		return nil
	}
	return p.runs[len(p.runs)-1]
}

// address returns where its API listens.
func (p *program) address() (string, error) {
	line, found, err := p.latest().findLine("listening")
	if err == nil && !found {
		err = errors.New("it does not listen")
	}
	return line.Address, err
}

// kill ends it as kill -9 does.
func (p *program) kill() error { return p.latest().end(syscall.SIGKILL) }

// freeze stops it where it stands, until thaw.
func (p *program) freeze() error { return p.latest().signal(syscall.SIGSTOP) }

func (p *program) thaw() error { return p.latest().signal(syscall.SIGCONT) }

// finish ends the program in good order. Under the race detector, the exit code reports a race.
func (p *program) finish(t *testing.T) {
	t.Helper()
	r := p.latest()
	if err := r.end(syscall.SIGTERM); err != nil {
		t.Errorf("%s: %v", p.name, err)
	}
	if r.err != nil {
		t.Errorf("%s ended with %v", p.name, r.err)
	}
}

// says reports whether any run of it has logged the message.
func (p *program) says(t *testing.T, message string) bool {
	t.Helper()
	return p.sum(t, message) > 0
}

// sum adds up the counts in the lines with the given message, over all runs.
func (p *program) sum(t *testing.T, message string) (total int) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.runs {
		lines, err := r.lines()
		must(t, err)
		for _, line := range lines {
			if line.Message == message {
				total += line.Count
			}
		}
	}
	return total
}

// checkLogs fails the test when the program said anything that it must never
// say, in whichever of its lives.
func (p *program) checkLogs(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.runs {
		lines, err := r.lines()
		must(t, err)
		for _, line := range lines {
			if line.isTrouble() {
				t.Errorf("%s: %s", filepath.Base(r.log), line.text)
			}
		}
	}
}

// tellLogs prints the end of each log that has trouble in it, and the folder of all logs. Whole logs would
// bury the failure, which is printed first.
func (p *program) tellLogs(t *testing.T) {
	t.Helper()
	const most = 100 // lines: the two stacks of a data race are among them
	for _, r := range p.runs {
		lines, err := r.lines()
		if err != nil {
			t.Error(err)
		}
		if !r.failed() && !slices.ContainsFunc(lines, line.isTrouble) {
			continue
		}
		lines = slices.DeleteFunc(lines, func(l line) bool { return l.Message == "request" })
		for _, line := range lines[max(0, len(lines)-most):] {
			t.Logf("%s: %s", filepath.Base(r.log), line.text)
		}
	}
	t.Logf("the logs of %s are in %s", p.name, p.logs)
}
