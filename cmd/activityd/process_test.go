package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// process is activityd in a process of its own.
type process struct {
	cmd          *exec.Cmd
	out, log     logtest.Log // its standard output and error
	url, metrics string      // of serve
}

// spawn starts a command as a process, with further variables.
func spawn(t *testing.T, environ []string, line ...string) *process {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	p := &process{cmd: exec.CommandContext(t.Context(), self, line...)}
	p.cmd.Env = append(append(os.Environ(), asProgram+"=1"), environ...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.log
	must(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Wait() }) // the test may have waited already; or else its end has killed it
	return p
}

// spawnServe starts serve with settings as a process, and waits until it listens.
func spawnServe(t *testing.T, mysqlDSN, redisURL string, given ...string) *process {
	t.Helper()
	environ, flags := settingsOf(given)
	environ = append([]string{"ACTIVITYD_MYSQL_DSN=" + mysqlDSN, "ACTIVITYD_REDIS_URL=" + redisURL, "ACTIVITYD_DRAIN=0s", "ACTIVITYD_POLL=20ms"}, environ...)
	p := spawn(t, environ, append([]string{"serve", "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--log-format=json"}, flags...)...)
	p.metrics = "http://" + p.awaitLog(t, "listening for metrics")["address"]
	if !slices.Contains(flags, "--role=workers") {
		p.url = "http://" + p.awaitLog(t, "listening")["address"]
	}
	return p
}

// settingsOf divides settings into variables of the environment and flags.
func settingsOf(given []string) (environ, flags []string) {
	for _, setting := range given {
		if name, _, _ := strings.Cut(setting, "="); strings.ToUpper(name) == name {
			environ = append(environ, setting)
		} else {
			flags = append(flags, setting)
		}
	}
	return environ, flags
}

// logged returns the lines of the log with a message, or with a level.
func (p *process) logged(word string) (found []map[string]string) {
	for text := range strings.Lines(p.log.String()) {
		var values map[string]any
		if json.Unmarshal([]byte(text), &values) != nil || values["msg"] != word && values["level"] != word {
			continue
		}
		line := make(map[string]string)
		for name, value := range values {
			line[name] = fmt.Sprint(value)
		}
		found = append(found, line)
	}
	return found
}

// awaitLog waits until the log has a line with a message.
func (p *process) awaitLog(t *testing.T, message string) map[string]string {
	t.Helper()
	p.awaitSaid(t, `"msg":"`+message+`"`)
	return p.logged(message)[0]
}

// awaitSaid waits until the process has said something on standard error.
func (p *process) awaitSaid(t *testing.T, text string) {
	t.Helper()
	eventually(t, "it says "+text, func() bool { return strings.Contains(p.log.String(), text) })
}

// wait waits for its end, and returns its exit code: -1 after a kill.
func (p *process) wait() int {
	_ = p.cmd.Wait() // the exit code says it
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	must(t, p.cmd.Process.Signal(s))
}

// While load balancers notice, by /readyz of either listener, all is served. Then the server closes connections after a
// response, and the port. A signal that timeout(1) doubles counts once.
func TestSIGTERMDrains(t *testing.T) {
	t.Parallel()
	p := spawnServe(t, servertest.MySQLDSN(t), servertest.Redis(t).URL(), "ACTIVITYD_DRAIN=3s")
	if status, body := page(t, p.url+"/readyz"); status != http.StatusOK || !strings.HasPrefix(body, `{"status":"ok"`) {
		t.Errorf("the first /readyz: %d %s", status, body)
	}
	p.signal(t, syscall.SIGTERM)
	p.signal(t, syscall.SIGTERM)
	for _, url := range []string{p.url, p.metrics} {
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
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// A request that is under way is finished after the first signal; the second
// signal does not wait for it.
func TestASecondSignalForces(t *testing.T) {
	t.Parallel()
	p := spawnServe(t, servertest.MySQLDSN(t), servertest.Redis(t).URL(), "--grace=1h")
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	must(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
	must(t, err)
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, " 100 ") { // the server reads the body, which never comes
		t.Fatalf("%q, %v", line, err)
	}
	p.signal(t, syscall.SIGTERM)
	p.awaitSaid(t, "once more")
	<-time.After(2 * sameSignal)
	p.signal(t, syscall.SIGTERM)
	if code := p.wait(); code != -1 {
		t.Errorf("exit code %d, want the signal", code)
	}
}
