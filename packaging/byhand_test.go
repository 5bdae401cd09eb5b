//go:build dist

package packaging_test

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/testing/localserver"
)

// tryByHand is TestDebianPackage without systemd: the package is installed, upgraded,
// downgraded, removed and purged, and the command of the unit is started as its user.
func (d *debian) tryByHand(t *testing.T, m *localserver.MySQL, r *localserver.Redis, older, newer string) {
	t.Helper()
	if said := d.install(t, older); !strings.Contains(said, "set ACTIVITYD_MYSQL_DSN in "+environmentFile) {
		t.Errorf("the installation does not say what to do next: %s", said)
	}
	d.checkFiles(t)
	d.configure(t)
	d.serveByHand(t, m, r, oldVersion)
	edited, err := os.ReadFile(d.path(environmentFile))
	must(t, err)
	for _, step := range []struct{ deb, version string }{{newer, newVersion}, {older, oldVersion}} {
		d.install(t, step.deb)
		if now, err := os.ReadFile(d.path(environmentFile)); err != nil || !bytes.Equal(now, edited) {
			t.Errorf("the upgrade changed the configuration: %v: %s", err, now)
		}
		d.serveByHand(t, m, r, step.version)
	}
	d.run(t, "dpkg", "--remove", "activityd")
	if _, err := os.Stat(d.path(environmentFile)); err != nil {
		t.Errorf("the removal took the configuration: %v", err)
	}
	d.install(t, newer)
	d.serveByHand(t, m, r, newVersion)
	d.run(t, "dpkg", "--purge", "activityd")
	d.checkGone(t)
}

// serveByHand starts the service as the unit does, with a socket that takes its notifications,
// and stops it.
func (d *debian) serveByHand(t *testing.T, m *localserver.MySQL, r *localserver.Redis, version string) {
	t.Helper()
	for from, to := range map[string]string{m.Addr(): mysqlSocket, r.Addr(): redisSocket} {
		must(t, os.MkdirAll(filepath.Dir(d.path(to)), 0o755))
		_ = os.Remove(d.path(to))
		must(t, os.Link(from, d.path(to))) // both are in the folder for temporary files
	}
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: d.path("run/notify"), Net: "unixgram"})
	must(t, err)
	defer socket.Close()
	must(t, socket.SetReadDeadline(time.Now().Add(90*time.Second)))
	must(t, os.Chmod(d.path("run/notify"), 0o777))
	serve, log := launch(t, []string{"chroot", "--userspec=activityd:activityd", d.root, "/usr/bin/activityd", "serve"},
		[]string{"NOTIFY_SOCKET=/run/notify", "ACTIVITYD_CONFIG=" + environmentFile})
	if state := read(t, socket); state != "READY=1" {
		t.Errorf("it notifies %q, want READY=1", state)
	}
	awaitAnswer(t, log, "listening", "/readyz", `"status":"ok"`)
	awaitAnswer(t, log, `"listening for metrics"`, "/metrics", `version="`+version+`"`)
	stop(t, serve, log)
	if state := read(t, socket); state != "STOPPING=1" {
		t.Errorf("it notifies %q, want STOPPING=1", state)
	}
	must(t, os.Remove(d.path("run/notify")))
}

func read(t *testing.T, socket *net.UnixConn) string {
	t.Helper()
	var buffer [256]byte
	n, err := socket.Read(buffer[:])
	must(t, err)
	return string(buffer[:n])
}
