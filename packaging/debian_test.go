//go:build dist

package packaging_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// suite is the release of Debian that the package is tried on.
const suite = "bookworm"

// debian is a Debian of its own, with systemd as its first process if it is booted.
type debian struct {
	root   string
	leader int // process id of systemd; 0: not booted
}

// newDebian unpacks a minimal Debian, or reports that it cannot be tried.
func newDebian(t *testing.T) (*debian, bool) {
	t.Helper()
	if os.Geteuid() != 0 {
		notTested(t, "the Debian package", "it is installed into a root file system, which needs root")
		return nil, false
	}
	cache, err := os.UserCacheDir()
	must(t, err)
	archive := filepath.Join(cache, "activityd", "debian-"+suite+"-"+runtime.GOARCH+".tar")
	if info, err := os.Stat(archive); err != nil || time.Since(info.ModTime()) > 7*24*time.Hour {
		if err := makeDebian(t, archive); err != nil {
			t.Log(err)
			if _, err := os.Stat(archive); err != nil {
				notTested(t, "the Debian package", "Debian's packages cannot be fetched")
				return nil, false
			}
		}
	}
	d := &debian{root: t.TempDir()}
	output(t, "tar", "-xpf", archive, "-C", d.root, "--numeric-owner")
	must(t, os.Chmod(d.root, 0o755))
	return d, true
}

// makeDebian makes the archive of a minimal Debian with systemd.
func makeDebian(t *testing.T, archive string) error {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(archive), 0o755))
	mirror, err := try(t.Context(), "sh", "-c", `apt-get indextargets --format '$(REPO_URI)' 'Identifier: Packages' | grep '/debian/*$' | head -n 1`)
	if err != nil {
		return err
	}
	made := archive + ".new.tar"
	args := []string{"--mode=root", "--variant=minbase", "--include=systemd,systemd-sysv,adduser", suite, made}
	if mirror = strings.TrimSpace(mirror); mirror != "" { // else mmdebstrap's own default
		args = append(args, mirror)
	}
	if _, err := try(t.Context(), "mmdebstrap", args...); err != nil {
		return err
	}
	return os.Rename(made, archive)
}

// boot starts systemd in it, or reports that this machine cannot. bind maps paths of this machine to paths
// inside, as in "/tmp/socket:/run/socket".
func (d *debian) boot(t *testing.T, bind ...string) bool {
	t.Helper()
	if _, err := exec.LookPath("systemd-nspawn"); err != nil {
		t.Log(err)
		return false
	}
	args := []string{
		"--quiet", "--register=no", "--keep-unit", "--boot", "--directory=" + d.root, "--console=pipe",
		"--machine=activityd-" + strconv.Itoa(os.Getpid()), "--settings=no", "--link-journal=no", "--resolv-conf=off", "--timezone=off",
	}
	for _, b := range bind {
		args = append(args, "--bind="+b)
	}
	nspawn, log := launch(t, append([]string{"systemd-nspawn"}, args...), nil)
	t.Cleanup(func() {
		if d.leader != 0 {
			_ = syscall.Kill(d.leader, syscall.SIGKILL) // the first process of its namespace: all end
		}
	})
	up := false
	servertest.Eventually(t, "systemd runs or has ended", func() bool {
		select {
		case <-nspawn.Exited:
			return true
		default:
		}
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%[1]d/task/%[1]d/children", nspawn.Group))
		pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
		if err != nil {
			return false
		}
		d.leader = pid
		state, _ := try(t.Context(), "nsenter", d.enter("systemctl", "is-system-running")...)
		state = strings.TrimSpace(state)
		up = state == "running" || state == "degraded"
		return up
	})
	if !up {
		d.leader = 0
		t.Logf("systemd-nspawn: %s", log())
	}
	return up
}

func (d *debian) enter(args ...string) []string {
	return append([]string{"--target=" + strconv.Itoa(d.leader), "--all", "--root", "--wd=/", "/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"}, args...)
}

// try runs a program in it.
func (d *debian) try(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if d.leader != 0 {
		return try(t.Context(), "nsenter", d.enter(args...)...)
	}
	return try(t.Context(), "chroot", append([]string{d.root, "/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"}, args...)...)
}

// run is try for a program that must succeed.
func (d *debian) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := d.try(t, args...)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(out)
}

// path is where a file of it is on this machine.
func (d *debian) path(name string) string { return filepath.Join(d.root, name) }

// install copies a package into it and installs it. dpkg has no terminal to ask about the
// configuration, and need not: that of the package is the same in all versions.
func (d *debian) install(t *testing.T, deb string) string {
	t.Helper()
	raw, err := os.ReadFile(deb)
	must(t, err)
	must(t, os.WriteFile(d.path("package.deb"), raw, 0o644))
	return d.run(t, "dpkg", "--install", "/package.deb")
}

// property returns a property of the unit.
func (d *debian) property(t *testing.T, name string) string {
	t.Helper()
	return d.run(t, "systemctl", "show", "--property="+name, "--value", "activityd.service")
}

const (
	environmentFile = "/etc/activityd/environment"
	mysqlSocket     = "/run/mysqld/mysqld.sock"
	redisSocket     = "/run/redis/redis.sock"
)

// sites starts the servers of a site with a single member, 1. They listen on unix sockets only.
func sites(t *testing.T) (*localserver.MySQL, *localserver.Redis) {
	t.Helper()
	m, r := servertest.OwnMySQL(t), servertest.Redis(t)
	db, err := sql.Open("mysql", m.DSN(servertest.Database))
	must(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), "INSERT INTO users (id, username) VALUES (1, 'ben')")
	must(t, err)
	must(t, os.Chmod(m.Addr(), 0o777))
	must(t, os.Chmod(r.Addr(), 0o777))
	return m, r
}

// configure sets the two settings that a site needs, and ports that are free, as an
// administrator would: by editing the file.
func (d *debian) configure(t *testing.T) {
	t.Helper()
	raw, err := os.ReadFile(d.path(environmentFile))
	must(t, err)
	text := string(raw)
	for name, value := range map[string]string{
		"MYSQL_DSN": "root@unix(" + mysqlSocket + ")/" + servertest.Database, "REDIS_URL": "unix://" + redisSocket,
		"LISTEN": "127.0.0.1:0", "METRICS_LISTEN": "127.0.0.1:0",
	} {
		line := regexp.MustCompile(`(?m)^#ACTIVITYD_` + name + `=.*$`)
		if len(line.FindAllString(text, -1)) != 1 {
			t.Fatalf("ACTIVITYD_%s is not in %s", name, text)
		}
		text = line.ReplaceAllLiteralString(text, "ACTIVITYD_"+name+"='"+value+"'")
	}
	must(t, os.WriteFile(d.path(environmentFile), []byte(text), 0)) // its mode stays
}

// tryGet asks a listener of the service, at the address in the log of the last start.
func tryGet(ctx context.Context, log, listener, path string) (string, error) {
	found := regexp.MustCompile(`msg=`+listener+` address=(\S+)`).FindAllStringSubmatch(log, -1)
	if len(found) == 0 {
		return "", fmt.Errorf("no %s in the log:\n%s", listener, log)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+found[len(found)-1][1]+path, http.NoBody)
	if err != nil {
		return "", err
	}
	defer http.DefaultClient.CloseIdleConnections()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, response.Status, body)
	}
	return string(body), err
}

// awaitAnswer waits until a listener of the service answers 200 and want. log returns the service's log so
// far.
func awaitAnswer(t *testing.T, log func() string, listener, path, want string) {
	t.Helper()
	var body string
	var err error
	defer func() {
		if t.Failed() {
			t.Logf("the last answer: %s, %v", body, err)
		}
	}()
	servertest.Eventually(t, path+" has "+want, func() bool {
		body, err = tryGet(t.Context(), log(), listener, path)
		return err == nil && strings.Contains(body, want)
	})
}

// The package is installed, configured, reloaded, upgraded, downgraded, removed, installed
// again and purged, under a systemd that boots.
func TestDebianPackage(t *testing.T) {
	d, ok := newDebian(t)
	if !ok {
		return
	}
	m, r := sites(t)
	older, newer := one(t, release(t, oldVersion), "*.deb"), one(t, release(t, newVersion), "*.deb")
	if !d.boot(t, m.Addr()+":"+mysqlSocket, r.Addr()+":"+redisSocket) {
		notTested(t, "the service under systemd", "systemd-nspawn cannot boot here; it is started by hand instead")
		d.tryByHand(t, m, r, older, newer)
		return
	}

	if said := d.install(t, older); !strings.Contains(said, "set ACTIVITYD_MYSQL_DSN in "+environmentFile) {
		t.Errorf("the installation does not say what to do next: %s", said)
	}
	d.checkFiles(t)
	if state, result, enabled := d.property(t, "ActiveState"), d.property(t, "Result"), d.run(t, "systemctl", "is-enabled", "activityd"); state != "inactive" || result == "exit-code" || enabled != "enabled" {
		t.Errorf("without settings it is %s (%s) and %s, want inactive and enabled", state, result, enabled)
	}
	d.awaitLog(t, "", "not configured: set ACTIVITYD_MYSQL_DSN")

	d.configure(t)
	before := d.log(t)
	d.run(t, "systemctl", "restart", "activityd")
	d.checkRuns(t, before, oldVersion)
	first := d.property(t, "MainPID")
	d.run(t, "systemctl", "reload", "activityd")
	d.checkRuns(t, before, oldVersion)
	if pid := d.property(t, "MainPID"); pid != first {
		t.Errorf("the reload replaced process %s by %s", first, pid)
	}

	for _, step := range []struct{ deb, version string }{{newer, newVersion}, {older, oldVersion}} {
		before, pid := d.log(t), d.property(t, "MainPID")
		edited := d.run(t, "cat", environmentFile)
		d.install(t, step.deb)
		if now := d.run(t, "cat", environmentFile); now != edited {
			t.Errorf("to %s: the configuration became %s", step.version, now)
		}
		d.awaitLog(t, before, "msg=stopped")
		d.checkRuns(t, before, step.version)
		if after := d.logAfter(t, before); d.property(t, "MainPID") == pid || strings.Count(after, "msg=stopped") != 1 || strings.Contains(after, "killed") {
			t.Errorf("to %s: process %s did not stop by itself: %s", step.version, pid, after)
		}
	}
	if d.property(t, "NRestarts") != "0" {
		t.Errorf("it was restarted after failures: %s", d.log(t))
	}

	before = d.log(t)
	d.run(t, "dpkg", "--remove", "activityd")
	d.awaitLog(t, before, "msg=stopped")
	if state := d.property(t, "ActiveState"); state != "inactive" {
		t.Errorf("it is removed, and %s", state)
	}
	if _, err := os.Stat(d.path(environmentFile)); err != nil {
		t.Errorf("the removal took the configuration: %v", err)
	}
	before = d.log(t)
	d.install(t, newer)
	d.checkRuns(t, before, newVersion)

	d.run(t, "dpkg", "--purge", "activityd")
	d.checkGone(t)
	d.run(t, "systemctl", "daemon-reload")
	if state := d.property(t, "LoadState"); state != "not-found" {
		t.Errorf("it is purged, and the unit is %s", state)
	}
}

// log returns the unit's log.
func (d *debian) log(t *testing.T) string {
	t.Helper()
	d.run(t, "journalctl", "--sync")
	return d.run(t, "journalctl", "--unit=activityd", "--output=cat", "--no-pager")
}

// logAfter returns the unit's log since log returned before.
func (d *debian) logAfter(t *testing.T, before string) string {
	t.Helper()
	return strings.TrimPrefix(d.log(t), before)
}

// awaitLog waits until the unit has logged want since log returned before.
func (d *debian) awaitLog(t *testing.T, before, want string) {
	t.Helper()
	servertest.Eventually(t, "the journal has "+want, func() bool { return strings.Contains(d.logAfter(t, before), want) })
}

// checkRuns checks a service that was started since log returned before. It must be ready, run as its own
// user, use MySQL and Redis, and have the version.
func (d *debian) checkRuns(t *testing.T, before, version string) {
	t.Helper()
	if state := d.property(t, "ActiveState") + " " + d.property(t, "SubState"); state != "active running" {
		t.Fatalf("it is %s: %s", state, d.log(t))
	}
	log := func() string { return d.logAfter(t, before) }
	awaitAnswer(t, log, "listening", "/readyz", `"status":"ok"`)
	awaitAnswer(t, log, "listening", "/v1/users/1/recent-contact-photos", `"photos":[]`)
	awaitAnswer(t, log, `"listening for metrics"`, "/metrics", `version="`+version+`"`)
	if user := d.run(t, "stat", "-c", "%U", "/proc/"+d.property(t, "MainPID")); user != "activityd" {
		t.Errorf("it runs as %s", user)
	}
	if after := log(); strings.Contains(after, "level=ERROR") || strings.Contains(after, "panic:") {
		t.Errorf("it logs %s", after)
	}
}

// checkFiles checks the files of the package, and who may read them.
func (d *debian) checkFiles(t *testing.T) {
	t.Helper()
	for path, want := range map[string]string{
		environmentFile: "640 root:activityd", "/etc/activityd": "750 root:activityd", "/usr/bin/activityd": "755 root:root",
		"/usr/lib/systemd/system/activityd.service": "644 root:root",
	} {
		if got := d.run(t, "stat", "-c", "%a %U:%G", path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	listed := d.run(t, "dpkg", "--listfiles", "activityd")
	for _, path := range []string{
		"/usr/share/bash-completion/completions/activityd", "/usr/share/zsh/vendor-completions/_activityd",
		"/usr/share/fish/vendor_completions.d/activityd.fish",
		"/usr/share/doc/activityd/copyright", "/usr/share/doc/activityd/changelog.gz", "/usr/share/doc/activityd/docs/settings.md",
		"/usr/share/lintian/overrides/activityd",
	} {
		if !strings.Contains(listed, path+"\n") && !strings.HasSuffix(listed, path) {
			t.Errorf("there is no %s", path)
		}
	}
	version := d.run(t, "dpkg-query", "-W", "-f", "${Version}", "activityd")
	inDebiansFormat := regexp.MustCompile(`^activityd \(` + regexp.QuoteMeta(version) + `\) unstable; urgency=medium\n\n  \* .+\n\n -- .+ <.+@.+>  \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \+0000$`)
	if changes := d.run(t, "zcat", "/usr/share/doc/activityd/changelog.gz"); !inDebiansFormat.MatchString(changes) {
		t.Errorf("the changelog of %s is %q", version, changes)
	}
	d.run(t, "bash", "-c", "source /usr/share/bash-completion/completions/activityd && complete -p activityd")
	if said := d.run(t, "dpkg", "--verify", "activityd"); strings.Contains(said, "/usr/bin") {
		t.Errorf("dpkg --verify: %s", said)
	}
	if user := d.run(t, "getent", "passwd", "activityd"); !strings.HasSuffix(user, ":/nonexistent:/usr/sbin/nologin") {
		t.Errorf("the user is %s", user)
	}
}

// checkGone checks that a purge leaves the user only.
func (d *debian) checkGone(t *testing.T) {
	t.Helper()
	left := output(t, "find", d.root, "-xdev", "-name", "*activityd*", "-not", "-path", d.path("proc/*"), "-not", "-path", d.path("var/log/journal/*"), "-not", "-path", d.path("run/*"))
	if left != "" {
		t.Errorf("a purge leaves %s", left)
	}
	d.run(t, "getent", "passwd", "activityd")
}
