package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// process is activityd in a process of its own.
type process struct {
	cmd    *exec.Cmd
	url    string
	stderr io.Reader
	lines  *bufio.Scanner // of its log
}

// spawn starts serve as a process and waits until it listens.
func spawn(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	return spawnBy(t, []string{self}, args...)
}

// settingsOf divides settings into variables of the environment and flags.
func settingsOf(given []string) (environ, flags []string) {
	for _, setting := range given {
		if strings.HasPrefix(setting, settings.Prefix) {
			environ = append(environ, setting)
		} else {
			flags = append(flags, setting)
		}
	}
	return environ, flags
}

// spawnBy is spawn by a command line, to which the line of serve is added.
func spawnBy(t *testing.T, line []string, args ...string) *process {
	t.Helper()
	environ, flags := settingsOf(args)
	line = slices.Concat(line, []string{"serve", "--listen=127.0.0.1:0", "--metrics-listen=", "--log-format=json"}, flags)
	cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
	cmd.Env = append(append(os.Environ(), asProgram+"=1", "ACTIVITYD_MYSQL_DSN="+servertest.MySQLDSN(t), "ACTIVITYD_REDIS_URL="+servertest.Redis(t).URL(), noDrain), environ...)
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Wait() }) // the test may have waited already; or else its end has killed it
	p := &process{cmd: cmd, stderr: stderr, lines: bufio.NewScanner(stderr)}
	p.url = "http://" + p.awaitLog(t, "listening")["address"]
	return p
}

// awaitLog reads the log until a line with the given message.
func (p *process) awaitLog(t *testing.T, message string) map[string]string {
	t.Helper()
	for p.lines.Scan() {
		var line map[string]string
		if json.Unmarshal(p.lines.Bytes(), &line) == nil && line["msg"] == message {
			return line
		}
	}
	t.Fatalf("the process ended without saying %q", message)
	return nil
}

// noDrain is for processes that no load balancer asks.
const noDrain = "ACTIVITYD_DRAIN=0s"

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	must(t, p.cmd.Process.Signal(s))
}

// While load balancers notice, by /readyz of either listener, all is served. Then the server closes connections after a
// response, and the port. A signal that timeout(1) doubles counts once.
func TestSIGTERMDrains(t *testing.T) {
	t.Parallel()
	p := spawn(t, "--metrics-listen=127.0.0.1:0", "ACTIVITYD_DRAIN=3s")
	metrics := "http://" + p.awaitLog(t, "listening for metrics")["address"]
	go func() { _, _ = io.Copy(io.Discard, p.stderr) }()
	if status, body := page(t, p.url+"/readyz"); status != http.StatusOK {
		t.Errorf("the first /readyz: %d %s", status, body)
	}
	p.signal(t, syscall.SIGTERM)
	p.signal(t, syscall.SIGTERM)
	for _, url := range []string{p.url, metrics} {
		eventually(t, url+" is stopping", func() bool {
			status, body := page(t, url+"/readyz")
			return status == http.StatusServiceUnavailable && strings.HasPrefix(body, `{"status":"stopping"`)
		})
	}
	served, closing := 0, false
	for {
		client := &http.Client{Transport: &http.Transport{}} // a connection of its own
		response, err := client.Get(p.url + "/healthz")
		if err != nil {
			break
		}
		_ = response.Body.Close()
		client.CloseIdleConnections()
		if response.StatusCode != http.StatusOK || closing && !response.Close {
			t.Fatalf("%d, close: %v", response.StatusCode, response.Close)
		}
		served++
		closing = response.Close
	}
	if served < 20 || !closing {
		t.Errorf("%d requests were answered, closing: %v", served, closing)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// A request that is under way is finished after the first signal; the second
// signal does not wait for it.
func TestASecondSignalForces(t *testing.T) {
	t.Parallel()
	p := spawn(t, "--grace=1h")
	// A body that never ends keeps a request under way. It begins when the server
	// asks for it.
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Hour}}
	defer client.CloseIdleConnections()
	body := &endless{begun: make(chan struct{}), end: make(chan struct{})}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/v1/tasks", body)
	must(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Expect", "100-continue")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if response, err := client.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}()
	<-body.begun
	p.signal(t, syscall.SIGTERM)
	for p.lines.Scan() && !strings.Contains(p.lines.Text(), "once more") {
		continue
	}
	<-time.After(2 * sameSignal)
	p.signal(t, syscall.SIGTERM)
	if err := p.cmd.Wait(); err == nil || p.cmd.ProcessState.Success() {
		t.Errorf("it ended with %v, want the signal", p.cmd.ProcessState)
	}
	close(body.end)
	<-answered
}

// endless is a request body that blocks after its first byte.
type endless struct {
	begun chan struct{}
	end   chan struct{}
	sent  bool
}

func (e *endless) Read(p []byte) (int, error) {
	if !e.sent {
		e.sent = true
		p[0] = '{'
		close(e.begun)
		return 1, nil
	}
	<-e.end
	return 0, os.ErrClosed
}
