//go:build dist

package packaging_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// image is the relevant part of the output of "buildah inspect".
type image struct {
	FromImageID string
	OCIv1       struct {
		Config struct {
			User            string
			Env, Entrypoint []string
			Cmd             []string
		} `json:"config"`
	}
}

// The image is built twice, and is the same; it serves as its own user, without a file system
// that can be written to, and stops when it is told to.
func TestContainerImage(t *testing.T) {
	if os.Geteuid() != 0 {
		notTested(t, "the container image", "it is run in a mount namespace, which needs root")
		return
	}
	folder := t.TempDir()
	output(t, "tar", "-xzf", one(t, release(t, oldVersion), "*.tar.gz"), "-C", folder, "--strip-components=1")
	storage := t.TempDir()
	buildah := func(args ...string) (string, error) {
		out, err := try(t.Context(), "buildah", append([]string{"--root=" + storage + "/root", "--runroot=" + storage + "/run", "--storage-driver=vfs"}, args...)...)
		return strings.TrimSpace(out), err
	}
	if _, err := buildah("from", "scratch"); err != nil {
		t.Log(err)
		notTested(t, "the container image", "buildah does not work here")
		return
	}
	build := func(tag string) (string, error) {
		return buildah("build", "--quiet", "--isolation=chroot", "--no-cache", "--timestamp="+epoch, "--tag="+tag, "--file=Containerfile", folder)
	}
	first, err := build("localhost/activityd:first")
	must(t, err)
	if second, err := build("localhost/activityd:second"); err != nil || second != first {
		t.Errorf("built twice, it is %s and %s (%v)", first, second, err)
	}
	raw, err := buildah("inspect", "--type=image", "localhost/activityd:first")
	must(t, err)
	var made image
	must(t, json.Unmarshal([]byte(raw), &made))
	config := made.OCIv1.Config
	if config.User != "65532:65532" || !slices.Contains(config.Env, "ACTIVITYD_LISTEN=:8080") {
		t.Errorf("its configuration is %+v", config)
	}
	container, err := buildah("from", "localhost/activityd:first")
	must(t, err)
	root, err := buildah("mount", container)
	must(t, err)
	t.Cleanup(func() { _, _ = try(t.Context(), "umount", root) })

	m, r := sites(t)
	for _, name := range []string{"mysql", "redis"} { // where the sockets are mounted
		must(t, os.WriteFile(filepath.Join(root, name), nil, 0o644))
	}
	const run = `mount --bind "$1" "$1" && mount --bind "$2" "$1/mysql" && mount --bind "$3" "$1/redis" && mount -o remount,ro,bind "$1" || exit
user=$4; root=$1; shift 4; exec chroot --userspec="$user" "$root" "$@"`
	line := slices.Concat([]string{"--mount", "sh", "-c", run, "sh", root, m.Addr(), r.Addr(), config.User}, config.Entrypoint, config.Cmd)
	refused := exec.CommandContext(t.Context(), "unshare", line...)
	refused.Env = append(slices.Clone(config.Env), "ACTIVITYD_MYSQL_DSN=root@unix(/mysql)/"+servertest.Database, "ACTIVITYD_REDIS_URL=unix:///redis")
	if said, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(said), "there are no tokens") {
		t.Errorf("without tokens: %v: %s", err, said)
	}

	serve, log := launch(t, append([]string{"unshare"}, line...),
		slices.Concat(refused.Env, []string{"ACTIVITYD_LISTEN=127.0.0.1:0", "ACTIVITYD_METRICS_LISTEN=127.0.0.1:0"}))
	awaitAnswer(t, log, "listening", "/readyz", `"status":"ok"`)
	stop(t, serve, log)
}
