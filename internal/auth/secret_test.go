package auth_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/auth"
)

func TestASecretIsFollowed(t *testing.T) {
	t.Parallel()
	path, log := newFile(t, "one"), &logBuffer{}
	var used []string
	reloader, err := auth.LoadSecret("test key", path, func(text []byte) error {
		if string(text) == "bad" {
			return errors.New("is no key")
		}
		used = append(used, string(text))
		return nil
	}, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	lookTwice(t, reloader)
	for _, text := range []string{"bad", "three", ""} {
		write(t, path, text)
		lookTwice(t, reloader)
		lookTwice(t, reloader)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	lookTwice(t, reloader)
	if want := []string{"one", "three", "", ""}; !slices.Equal(used, want) {
		t.Errorf("used %q, want %q", used, want)
	}
	if failed := log.at(t, slog.LevelError); len(failed) != 1 || !strings.Contains(failed[0]["error"].(string), path+": is no key") {
		t.Errorf("logged %v", failed)
	}
	if warned := log.at(t, slog.LevelWarn); len(warned) != 1 {
		t.Errorf("of a file that all may read: %v", warned)
	}
	if strings.Contains(log.String(), "three") {
		t.Error("the log shows the secret")
	}
	if _, err := auth.LoadSecret("test key", filepath.Join(t.TempDir(), "missing"), nil, log.logger()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
