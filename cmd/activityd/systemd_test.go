package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// manager is a service manager's socket.
func manager(t *testing.T, name string) *net.UnixConn {
	t.Helper()
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	must(t, socket.SetReadDeadline(time.Now().Add(90*time.Second)))
	return socket
}

// notified waits for the next state.
func notified(t *testing.T, socket *net.UnixConn) string {
	t.Helper()
	var state [512]byte
	n, err := socket.Read(state[:])
	must(t, err)
	return string(state[:n])
}

// With a wrong password the service waits for the right password, and says so where people look: in the last line of
// its start, in the manager's status and in /readyz.
func TestWrongPasswordIsReported(t *testing.T) {
	t.Parallel()
	folder, err := os.MkdirTemp("", "activityd-notify-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	path := filepath.Join(folder, "socket")
	socket := manager(t, path)
	dsn, err := mysqldriver.ParseDSN(servertest.MySQLDSN(t))
	must(t, err)
	db := servertest.MySQL(t)
	dsn.User, dsn.Passwd = "late"+strconv.Itoa(os.Getpid()), "secret"
	p := spawnServe(t, dsn.FormatDSN(), servertest.Redis(t).URL(), notifySocket+"="+path)
	p.awaitLog(t, "started")
	if line := p.awaitLog(t, "not ready"); !strings.Contains(line["error"], "Access denied") || !strings.Contains(line["error"], "check user and password") {
		t.Errorf("the last line of the start is %v", line)
	}
	if state := notified(t, socket); !strings.HasPrefix(state, stateReady+"\nSTATUS=not ready: ") || !strings.Contains(state, "Access denied") {
		t.Errorf("the manager is notified of %q", state)
	}
	if status, body := page(t, p.url+"/readyz"); status != 503 || !strings.Contains(body, "access denied: see the log") {
		t.Errorf("/readyz: %d %s", status, body)
	}
	account := fmt.Sprintf("'%s'@'localhost'", dsn.User)
	for _, statement := range []string{"CREATE USER " + account + " IDENTIFIED BY 'secret'", "GRANT ALL ON *.* TO " + account} {
		_, err := db.ExecContext(t.Context(), statement)
		must(t, err)
	}
	t.Cleanup(func() { _, _ = db.ExecContext(context.Background(), "DROP USER "+account) })
	p.awaitLog(t, "ready")
	if state := notified(t, socket); state != stateOnceReady {
		t.Errorf("the manager is notified of %q, want %q", state, stateOnceReady)
	}
	p.signal(t, syscall.SIGHUP) // the manager's reload: there are no files
	if status, _ := page(t, p.url+"/healthz"); status != 200 {
		t.Errorf("after the reload it answers %d", status)
	}
	p.signal(t, syscall.SIGTERM)
	if state := notified(t, socket); state != stateStopping {
		t.Errorf("the manager is notified of %q, want %q", state, stateStopping)
	}
	if code := p.wait(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// The unit waits for as long as requests and then tasks may take to finish.
func TestTheUnitWaitsForTheGrace(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../packaging/activityd.service")
	must(t, err)
	found := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindSubmatch(unit)
	if found == nil {
		t.Fatal("it has no TimeoutStopSec")
	}
	timeout, err := time.ParseDuration(string(found[1]) + "s")
	must(t, err)
	if least := 2*queue.DefaultGrace + metricsGrace; timeout <= least {
		t.Errorf("TimeoutStopSec is %v, want more than %v", timeout, least)
	}
}

// Without CAs on the host, as in a container, the program uses its own.
func TestCertificatesOfPushServicesNeedNoHost(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestThereAreRoots$", "-test.v")
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE=/nonexistent", "SSL_CERT_DIR=/nonexistent")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestThereAreRoots") {
		t.Errorf("%v: %s", err, out)
	}
}

// The test above runs it on a host without CAs.
func TestThereAreRoots(t *testing.T) {
	t.Parallel()
	roots, err := x509.SystemCertPool()
	must(t, err)
	if roots.Equal(x509.NewCertPool()) {
		t.Error("there are none")
	}
}
