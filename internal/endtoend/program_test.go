//go:build unix

package endtoend_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/testing/localserver"
)

// buildFlags has -race where the tests have it.
var buildFlags = []string{"build", "-ldflags=-w"}

// activityd returns the path of the real program, built once from this checkout by the go command of the test,
// which "go test" puts first in the PATH.
func activityd(t *testing.T) string {
	t.Helper()
	must(t, built())
	return filepath.Join(programFolder, "activityd")
}

var built = sync.OnceValue(func() error {
	args := append(buildFlags, "-o", programFolder, "github.com/activityd/activityd/cmd/activityd")
	if output, err := exec.CommandContext(context.Background(), "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build activityd: %w\n%s", err, output)
	}
	return nil
})

// program is activityd as an operator runs it, in a process that a test kills, stops and starts again.
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
	p.env = append(os.Environ(), "ACTIVITYD_METRICS_LISTEN=", "GORACE=halt_on_error=1", "ACTIVITYD_DRAIN=0s")
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

// start starts the process and waits for its log message.
func (p *program) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("a minute is over"))
	defer cancel()
	p.mu.Lock()
	process, err := localserver.StartProcess(p.argv, p.env, "", filepath.Join(p.logs, fmt.Sprintf("%s-%d", p.name, len(p.runs)+1)))
	r := &run{Process: process}
	if err == nil {
		p.runs = append(p.runs, r)
	}
	p.mu.Unlock()
	if err == nil {
		err = r.awaitStarted(ctx)
	}
	if err != nil {
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
func (p *program) address() (string, error) { return p.latest().addressIn("listening") }

// kill ends it as kill -9 does.
func (p *program) kill() error { return p.latest().end(syscall.SIGKILL) }

// freeze stops it where it stands, until thaw.
func (p *program) freeze() error { return p.latest().signal(syscall.SIGSTOP) }

func (p *program) thaw() error { return p.latest().signal(syscall.SIGCONT) }

// finish ends the program in good order, and checks its logs. The exit code reports a data race.
func (p *program) finish(t *testing.T) {
	t.Helper()
	r := p.latest()
	if err := cmp.Or(r.end(syscall.SIGTERM), r.Err); err != nil {
		t.Errorf("%s ended with %v", p.name, err)
	}
	for _, r := range p.runs {
		for _, line := range r.lines(t) {
			if line.isTrouble() {
				t.Errorf("%s: %s", filepath.Base(r.Log), line.text)
			}
		}
	}
}

// sum adds up the counts in the lines with the given message, over all runs.
func (p *program) sum(t *testing.T, message string) (total int) {
	t.Helper()
	for _, r := range p.runs {
		for _, line := range r.lines(t) {
			if line.Message == message {
				total += line.Count
			}
		}
	}
	return total
}

// tellLogs prints the end of each log that has trouble in it, and the folder of all logs. Whole logs would
// bury the failure, which is printed first.
func (p *program) tellLogs(t *testing.T) {
	t.Helper()
	const most = 100 // lines: the two stacks of a data race are among them
	for _, r := range p.runs {
		lines := r.lines(t)
		if exit, is := errors.AsType[*exec.ExitError](r.Err); is && exit.Exited() || slices.ContainsFunc(lines, line.isTrouble) {
			lines = slices.DeleteFunc(lines, func(l line) bool { return l.Message == "request" })
			for _, line := range lines[max(0, len(lines)-most):] {
				t.Logf("%s: %s", filepath.Base(r.Log), line.text)
			}
		}
	}
	t.Logf("the logs of %s are in %s", p.name, p.logs)
}

// run is a life of a program, from a start to its end.
type run struct {
	*localserver.Process

	ending atomic.Bool // a test ended it
}

// signal sends a signal to a process that must be alive.
func (r *run) signal(sig syscall.Signal) error {
	select {
	case <-r.Exited:
		return fmt.Errorf("the process ended by itself: %w", r.Err)
	default:
		return r.Signal(sig)
	}
}

// end sends a signal that ends the process and waits until it is gone, for so
// long as a stop may take. A process that ended by itself before is an error.
func (r *run) end(sig syscall.Signal) error {
	const most = 30 * time.Second
	if r.ending.Swap(true) {
		return nil
	}
	if err := r.signal(sig); err != nil {
		return err
	}
	select {
	case <-r.Exited:
		return nil
	case <-time.After(most):
		_ = r.Kill() // the error below says that it came to this
		return fmt.Errorf("the process was still there %v after %v", most, sig)
	}
}

// line is a line of a log.
type line struct {
	Time    time.Time `json:"time"`
	Message string    `json:"msg"`
	Address string    `json:"address"`
	Count   int       `json:"count"`
	text    string
}

var troubles = regexp.MustCompile("DATA RACE|panic|fatal error")

// isTrouble reports whether the line tells of a data race or a panic, by the runtime or by the pool that
// caught it.
func (l line) isTrouble() bool { return troubles.MatchString(l.text) }

func (r *run) lines(t *testing.T) []line {
	t.Helper()
	all, err := r.read()
	must(t, err)
	return all
}

func (r *run) read() (all []line, err error) {
	text, err := os.ReadFile(r.Log)
	for part := range strings.Lines(string(text)) {
		l := line{text: strings.TrimSpace(part)}
		_ = json.Unmarshal([]byte(part), &l) // the runtime's own lines are no JSON
		all = append(all, l)
	}
	return all, err
}

// addressIn returns the address in the first line with a message.
func (r *run) addressIn(message string) (string, error) {
	all, err := r.read()
	if i := slices.IndexFunc(all, func(l line) bool { return l.Message == message }); i >= 0 {
		return all[i].Address, nil
	}
	return "", cmp.Or(err, fmt.Errorf("it does not say %q", message))
}

// awaitStarted waits until the process says that it has started.
func (r *run) awaitStarted(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := r.addressIn("started")
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-r.Exited:
			text, _ := os.ReadFile(r.Log) // the error is about something else
			return fmt.Errorf("the process ended by itself: %w\n%s", r.Err, text)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}
