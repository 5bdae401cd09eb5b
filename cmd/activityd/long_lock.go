package main

import (
	"errors"
	"fmt"
	"os"
)

// errLocked: somebody else has the lock.
var errLocked = errors.New("another process has it")

// lockResume takes the lock that belongs to a file of --resume, so that no two
// commands go on at the same place. It lies beside the file, which is replaced all
// the time, and goes with the process, however that ends.
func lockResume(path string) (unlock func() error, err error) {
	name := path + ".lock"
	for {
		file, err := openRegular(name, os.O_CREATE|os.O_RDWR)
		if err != nil {
			return nil, errCannotKeep(path, err)
		}
		if err := lockFile(file); err != nil {
			_ = file.Close() // nothing was written
			if errors.Is(err, errLocked) {
				return nil, fmt.Errorf("--resume: another command is at work with %s: wait for it, or name another file", path)
			}
			return nil, fmt.Errorf("--resume: %s: lock %s: %w", path, name, err)
		}
		if isStill(file, name) {
			return func() error { return errors.Join(os.Remove(name), file.Close()) }, nil
		}
		_ = file.Close() // who had it removed it before we got it
	}
}

// isStill tells whether an open file is the one of that name.
func isStill(file *os.File, name string) bool {
	own, err := file.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(name)
	return err == nil && os.SameFile(own, named)
}
