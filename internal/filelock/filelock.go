// Package filelock opens files that one process at a time may change, and replaces files as a whole.
// The lock is advisory (flock), and ends with the process. On Solaris and AIX there is none.
package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrLocked is wrapped by the error of [Open] when another process has the lock.
var ErrLocked = errors.New("another process has locked it")

// Open opens a file as [os.OpenFile] does and locks it, without waiting. Closing the
// file unlocks it. The file is the one that path names once it is locked: the owner of
// a lock may remove or replace it.
func Open(path string, flag int, perm fs.FileMode) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, flag, perm)
		if err != nil {
			return nil, err
		}
		if err := lock(f); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if IsNamed(f, path) {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// IsNamed reports whether path still names the open file f.
func IsNamed(f *os.File, path string) bool {
	own, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(own, named)
}

// Replace writes a file beside path and gives it that name, so that a reader, and a machine that
// crashes, has all of the old content or all of the new one. Only this user may read the file, unless
// prepare, which is called before it has the name, gives it another owner or mode.
func Replace(path string, text []byte, prepare func(*os.File) error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, prepare(f), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	// The renaming outlasts a crash of the machine as far as the file system and the rights on the
	// directory allow.
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync()
		return d.Close()
	}
	return nil
}
