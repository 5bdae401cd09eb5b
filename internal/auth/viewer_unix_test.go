//go:build unix

package auth_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/activityd/activityd/internal/auth"
)

// A server that runs as another user goes on reading the file to which root adds a key.
func TestAddingAKeyKeepsTheOwner(t *testing.T) {
	t.Parallel()
	path := newFile(t, keySet)
	if os.Geteuid() == 0 { // others cannot give a file away
		if err := os.Chown(path, 4711, 4712); err != nil {
			t.Fatal(err)
		}
	}
	owner := func() [2]uint32 {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		stat := info.Sys().(*syscall.Stat_t)
		return [2]uint32{stat.Uid, stat.Gid}
	}
	before := owner()
	k, err := auth.NewViewerKey("new", auth.EdDSA)
	if err != nil {
		t.Fatal(err)
	}
	if err := auth.AddViewerKey(t.Context(), path, k); err != nil {
		t.Fatal(err)
	}
	if after := owner(); after != before {
		t.Errorf("it belongs to %v, and did to %v", after, before)
	}
}
