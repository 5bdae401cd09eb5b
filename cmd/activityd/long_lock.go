package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/activityd/activityd/internal/filelock"
)

// lockResume takes the lock that belongs to a file of --resume, so that no two
// commands go on at the same place. It lies beside the file, which is replaced all
// the time, and goes with the process, however that ends.
func lockResume(path string) (unlock func() error, err error) {
	name := path + ".lock"
	if err := checkRegular(name); err != nil {
		return nil, errCannotKeep(path, err)
	}
	file, err := filelock.Open(name, os.O_CREATE|os.O_RDWR|filelock.NoFollow, 0o600)
	if errors.Is(err, filelock.ErrLocked) {
		return nil, fmt.Errorf("--resume: another command is at work with %s: wait for it, or name another file", path)
	}
	if err != nil {
		return nil, errCannotKeep(path, err)
	}
	return func() error { return errors.Join(os.Remove(name), file.Close()) }, nil
}
