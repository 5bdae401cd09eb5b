package localserver

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// serverFolders are searched after the PATH: an ordinary user's PATH has no
// sbin on Debian, where the servers are.
var serverFolders = []string{"/usr/sbin", "/usr/local/sbin"}

// FindMySQL returns the path of mariadbd or, failing that, of mysqld, and
// whether there is one.
func FindMySQL() (string, bool) { return find("mariadbd", "mysqld") }

// FindRedis returns the path of redis-server, and whether there is one.
func FindRedis() (string, bool) { return find("redis-server") }

// find returns the first of names that is there.
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
