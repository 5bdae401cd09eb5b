package localserver_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/testing/localserver"
)

// asParent, set in the environment, makes TestServersDieWithTheirParent the
// parent that is killed.
const asParent = "LOCALSERVER_TEST_PARENT"

// The test runs itself as a process that starts a server and waits, kills that
// process, and awaits the server's end.
func TestServersDieWithTheirParent(t *testing.T) {
	if os.Getenv(asParent) != "" {
		startAndWait(t)
	}
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	parent.Env = append(os.Environ(), asParent+"=yes")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	socket := strings.TrimSpace(line)
	if err != nil || !answers(socket) {
		t.Fatalf("the server at %q does not run: %v", socket, err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(socket)) })
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err == nil {
		t.Fatal("the parent was not killed")
	}
	awaitSilence(t, socket)
}

// startAndWait is the main function of the parent. It never returns.
func startAndWait(t *testing.T) {
	t.Helper()
	r, err := localserver.StartRedis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(r.Addr())
	<-t.Context().Done()
}

func answers(socket string) bool {
	conn, err := net.Dial("unix", socket)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

func awaitSilence(t *testing.T, socket string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for answers(socket) {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatal("the server outlived its parent")
		}
	}
}
