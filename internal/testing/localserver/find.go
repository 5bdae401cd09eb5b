package localserver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// serverFolders are searched after the PATH: on Debian the servers are in sbin, a folder that is
// not on an ordinary user's PATH.
var serverFolders = []string{"/usr/sbin", "/usr/local/sbin"}

// FindMySQL returns the path of the MySQL or MariaDB server to start, and whether
// there is one: what the environment variable ACTIVITYD_TEST_MYSQLD names, or
// mariadbd or, failing that, mysqld where it is installed.
func FindMySQL() (string, bool) { return chosen("ACTIVITYD_TEST_MYSQLD", "mariadbd", "mysqld") }

// FindRedis returns the path of the Redis or Valkey server to start, and whether
// there is one: what the environment variable ACTIVITYD_TEST_REDIS names, or
// redis-server where it is installed.
func FindRedis() (string, bool) { return chosen("ACTIVITYD_TEST_REDIS", "redis-server") }

// chosen returns the value of the environment variable, or the first of names that is
// installed. The value is not checked, so that a wrong one fails by its name instead of
// selecting another program.
func chosen(variable string, names ...string) (string, bool) {
	if path := os.Getenv(variable); path != "" {
		return path, true
	}
	return find(names...)
}

// find returns the path of the first of names that is installed.
func find(names ...string) (string, bool) {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
		for _, folder := range serverFolders {
			if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
				return path, true
			}
		}
	}
	return "", false
}

// missing is the error for a program that find did not find.
func missing(program, debianPackage string) error {
	return fmt.Errorf("%s is neither on the PATH nor in %v: install it, on Debian with: apt-get install %s",
		program, serverFolders, debianPackage)
}
