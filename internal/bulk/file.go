package bulk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/activityd/activityd/internal/filelock"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
)

// Work identifies the work of a checkpoint, which other work does not continue.
type Work struct {
	Command string `json:"command"`
	Members string `json:"members"` // as [Range.String] names them
	Options string `json:"options"` // those that decide what is done
	Site    string `json:"site"`    // distinguishes databases
}

// String names the work as a command.
func (w Work) String() string {
	text := "activityd " + w.Command
	if w.Options != "" {
		text += " " + w.Options
	}
	return text + " of " + w.Members
}

// file keeps a checkpoint on disk. It is replaced as a whole: a process that is
// killed, or a machine that crashes, leaves the old content or the new one.
type file struct {
	path   string // empty: nothing is kept
	found  content
	work   Work
	start  time.Time
	last   time.Time // when it was written
	unlock func() error
	// partlyLost says that sets of some nodes were lost since the work began.
	partlyLost bool
}

// content is what the file holds.
type content struct {
	Work
	Generation index.Generation `json:"epoch"`
	Position   member.ID        `json:"position,omitzero"`
	Counts     Counts           `json:"counts"`
	Seconds    float64          `json:"seconds"` // that the work took so far
	Updated    time.Time        `json:"updated"`
	PartlyLost bool             `json:"partly_lost,omitempty"`
}

// writeInterval is how often the file is replaced at most. What was done since is
// repeated after a crash.
const writeInterval = 500 * time.Millisecond

// openFile locks and reads the file at path, or creates it, so that an unusable path
// is refused before the work begins. It refuses the file of other work, and one that
// another process has locked. An empty path keeps nothing.
func openFile(path string, work Work) (*file, error) {
	f := &file{path: path, work: work, start: time.Now(), unlock: func() error { return nil }}
	if path == "" {
		return f, nil
	}
	var err error
	if f.unlock, err = lock(path); err != nil {
		return nil, err
	}
	if err := f.read(); err != nil {
		return nil, errors.Join(err, f.unlock())
	}
	return f, nil
}

func (f *file) read() error {
	if err := checkRegular(f.path); err != nil {
		return err
	}
	opened, err := os.OpenFile(f.path, os.O_RDONLY|filelock.NoFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return f.write(Checkpoint{}, index.Generation{})
	}
	if err != nil {
		return cannotKeep(f.path, err)
	}
	text, err := io.ReadAll(opened)
	if err := errors.Join(err, opened.Close()); err != nil {
		return cannotKeep(f.path, err)
	}
	if err := json.Unmarshal(text, &f.found); err != nil || f.found.Command == "" {
		return fmt.Errorf("%s was not written by activityd, or is damaged: name another file, or delete it to start over", f.path)
	}
	f.partlyLost = f.found.PartlyLost
	site := f.found.Site
	if f.found.Site = f.work.Site; f.found.Work != f.work {
		return fmt.Errorf("%s belongs to %s, this is %s: name another file, or delete it to start over", f.path, f.found.Work, f.work)
	}
	if site != f.work.Site {
		return fmt.Errorf("%s was written with another --mysql-dsn: name another file, or delete it to start over", f.path)
	}
	return nil
}

// elapsed is the time that the work took, in all its runs.
func (f *file) elapsed() time.Duration {
	return time.Duration(f.found.Seconds*float64(time.Second)) + time.Since(f.start)
}

// save keeps a checkpoint, unless one was kept a moment ago.
func (f *file) save(at Checkpoint, g index.Generation) error {
	if time.Since(f.last) < writeInterval {
		return nil
	}
	return f.write(at, g)
}

// write keeps a checkpoint.
func (f *file) write(at Checkpoint, g index.Generation) error {
	if f.path == "" {
		return nil
	}
	f.last = time.Now()
	text, err := json.Marshal(content{f.work, g, at.Position, at.Counts, f.elapsed().Seconds(), f.last.UTC(), f.partlyLost})
	if err != nil {
		return err
	}
	if err := filelock.Replace(f.path, append(text, '\n'), func(*os.File) error { return nil }); err != nil {
		return cannotKeep(f.path, err)
	}
	return nil
}

// remove ends it: all is done, or has to be done again.
func (f *file) remove() error {
	if f.path == "" {
		return nil
	}
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// cannotKeep is the error for a file that cannot be used. The reason may be about
// another one beside it, whose name is left out.
func cannotKeep(path string, reason error) error {
	advice := "name a file in a directory that this user may write to"
	if errors.Is(reason, fs.ErrNotExist) {
		advice = fmt.Sprintf("make the directory %s first, or name a file in another", filepath.Dir(path))
	}
	if of, ok := errors.AsType[*fs.PathError](reason); ok {
		reason = of.Err
	}
	return fmt.Errorf("the position cannot be kept in %s: %w: %s", path, reason, advice)
}

// errIrregular: the path names a symbolic link, a pipe or the like.
var errIrregular = errors.New("is no regular file: remove it, or name another file")

// checkRegular refuses a symbolic link at the end of the path, which filelock.NoFollow
// refuses for good: in a directory such as /tmp another user may have put it there, to
// have some other file read, made or locked.
func checkRegular(path string) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s (%s) %w", path, info.Mode(), errIrregular)
	}
	return nil
}

// lock takes the lock that belongs to a file, so that no two commands continue at the
// same place. It lies beside the file, which is replaced all the time.
func lock(path string) (unlock func() error, err error) {
	name := path + ".lock"
	if err := checkRegular(name); err != nil {
		return nil, err
	}
	f, err := filelock.Open(name, os.O_CREATE|os.O_RDWR|filelock.NoFollow, 0o600)
	if errors.Is(err, filelock.ErrLocked) {
		return nil, fmt.Errorf("another command is at work with %s: wait for it, or name another file", path)
	}
	if err != nil {
		return nil, cannotKeep(path, err)
	}
	return func() error { return errors.Join(os.Remove(name), f.Close()) }, nil
}
