package localserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The tests of this file change the folders that are searched, so none is parallel.

func TestFindLooksBesideThePath(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", "")
	setFolders(t, dir)
	if path, ok := FindRedis(); ok {
		t.Fatalf("found %s where there is none", path)
	}
	want := filepath.Join(dir, "redis-server")
	if err := os.WriteFile(want, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if path, ok := FindRedis(); !ok || path != want {
		t.Errorf("found %q, %v; want %s", path, ok, want)
	}
}

func TestFindMySQLPrefersMariaDB(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	setFolders(t)
	for _, name := range []string{"mysqld", "mariadbd"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		if path, ok := FindMySQL(); !ok || filepath.Base(path) != name {
			t.Errorf("found %q, %v; want %s", path, ok, name)
		}
	}
}

func TestMissingServersAreNamedWithTheirPackage(t *testing.T) {
	t.Setenv("PATH", "")
	setFolders(t, t.TempDir())
	_, err := StartMySQL(t.Context())
	if err == nil || !strings.Contains(err.Error(), "apt-get install mariadb-server") {
		t.Errorf("error %v does not say what to install", err)
	}
	_, err = StartRedis(t.Context())
	if err == nil || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Errorf("error %v does not say what to install", err)
	}
}

func TestChosenServersAreTaken(t *testing.T) {
	t.Setenv("ACTIVITYD_TEST_MYSQLD", "/not/there/mysqld")
	t.Setenv("ACTIVITYD_TEST_REDIS", "/not/there/valkey-server")
	if _, err := StartMySQL(t.Context()); err == nil || !strings.Contains(err.Error(), "/not/there/mysqld") {
		t.Errorf("error %v does not name the chosen MySQL", err)
	}
	if _, err := StartRedis(t.Context()); err == nil || !strings.Contains(err.Error(), "/not/there/valkey-server") {
		t.Errorf("error %v does not name the chosen Redis", err)
	}
}

// setFolders has servers looked for in folders and on the PATH only.
func setFolders(t *testing.T, folders ...string) {
	t.Helper()
	t.Setenv("ACTIVITYD_TEST_MYSQLD", "")
	t.Setenv("ACTIVITYD_TEST_REDIS", "")
	old := serverFolders
	serverFolders = folders
	t.Cleanup(func() { serverFolders = old })
}
