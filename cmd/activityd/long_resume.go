package main

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
	"github.com/activityd/activityd/internal/sweep"
)

// resumeFile keeps how far a long command is, so that it goes on there when it is
// started again. It is replaced as a whole: a process that is killed, or a machine
// that crashes, leaves the old content or the new one.
type resumeFile struct {
	path   string // empty: nothing is kept
	run    kept   // which command it is of
	before kept   // what was found
	start  time.Time
	last   time.Time
	unlock func() error
}

// kept is the content of the file.
type kept struct {
	Command  string       `json:"command"`
	Members  string       `json:"members"` // in words: see rangeText
	Options  string       `json:"options"` // those that decide what is done
	Site     string       `json:"site"`    // tells one database from another
	Epoch    index.Epoch  `json:"epoch"`
	Position member.ID    `json:"position,omitzero"`
	Counts   sweep.Counts `json:"counts"`
	Seconds  float64      `json:"seconds"` // that it took so far
	Updated  time.Time    `json:"updated"`
}

// resumeInterval is how often the file is replaced at most. What was done since is
// done again after a crash.
const resumeInterval = 500 * time.Millisecond

// openResume reads the file, or makes one, so that a path where none can be is
// refused before the work begins. It refuses the file of other work, and one that
// another process works with. Who opened it must close it.
func openResume(path string, run kept) (*resumeFile, sweep.State, error) {
	f := &resumeFile{path: path, run: run, start: time.Now(), unlock: func() error { return nil }}
	if path == "" {
		return f, sweep.State{}, nil
	}
	var err error
	if f.unlock, err = lockResume(path); err != nil {
		return nil, sweep.State{}, err
	}
	state, err := f.read()
	if err != nil {
		return nil, sweep.State{}, errors.Join(err, f.unlock())
	}
	return f, state, nil
}

// read reads the file, or makes one.
func (f *resumeFile) read() (sweep.State, error) {
	file, err := openRegular(f.path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return sweep.State{}, f.write(sweep.State{})
	}
	if err != nil {
		return sweep.State{}, errCannotKeep(f.path, err)
	}
	text, err := io.ReadAll(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return sweep.State{}, errCannotKeep(f.path, err)
	}
	var found kept
	if err := json.Unmarshal(text, &found); err != nil || found.Command == "" {
		return sweep.State{}, fmt.Errorf("--resume: %s was not written by activityd, or is damaged: name another file, or delete it to begin anew", f.path)
	}
	if found.Command != f.run.Command || found.Members != f.run.Members || found.Options != f.run.Options {
		return sweep.State{}, fmt.Errorf("--resume: %s belongs to %s, this is %s: name another file, or delete it to begin anew", f.path, found, f.run)
	}
	if found.Site != f.run.Site {
		return sweep.State{}, fmt.Errorf("--resume: %s was written with another --mysql-dsn: name another file, or delete it to begin anew", f.path)
	}
	f.before, f.run.Epoch = found, found.Epoch
	return sweep.State{Position: found.Position, Counts: found.Counts}, nil
}

// close lets others use the file.
func (f *resumeFile) close() error { return f.unlock() }

// tell says where it goes on.
func (f *resumeFile) tell(t *teller) {
	if f.before.Position > 0 {
		t.say(fmt.Sprintf("going on after member %s (saved %s)", f.before.Position, f.before.Updated.Format(time.DateTime+" MST")))
	}
}

// String names the work as a command.
func (k kept) String() string {
	text := "activityd " + k.Command
	if k.Options != "" {
		text += " " + k.Options
	}
	return text + " of " + k.Members
}

// elapsed is the time that the work took, in all its runs.
func (f *resumeFile) elapsed() time.Duration {
	return time.Duration(f.before.Seconds*float64(time.Second)) + time.Since(f.start)
}

// save keeps a state, unless one was kept a moment ago.
func (f *resumeFile) save(s sweep.State) error {
	if f.path == "" || time.Since(f.last) < resumeInterval {
		return nil
	}
	return f.write(s)
}

// write keeps a state.
func (f *resumeFile) write(s sweep.State) error {
	if f.path == "" {
		return nil
	}
	f.last = time.Now()
	now := f.run
	now.Position, now.Counts, now.Seconds, now.Updated = s.Position, s.Counts, f.elapsed().Seconds(), f.last.UTC()
	text, err := json.Marshal(now)
	if err != nil {
		return err
	}
	if err := replaceFile(f.path, append(text, '\n')); err != nil {
		return errCannotKeep(f.path, err)
	}
	return nil
}

// remove ends it: everything is done, or has to be done anew.
func (f *resumeFile) remove() error {
	if f.path == "" {
		return nil
	}
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("--resume: %w", err)
	}
	return nil
}

// errCannotKeep says of the file that was named that it cannot be used. The reason
// may be of another one beside it, of which nobody has heard.
func errCannotKeep(path string, reason error) error {
	if errors.Is(reason, errIrregular) {
		return fmt.Errorf("--resume: %w", reason)
	}
	advice := "name a file in a directory that this user may write to"
	if errors.Is(reason, fs.ErrNotExist) {
		advice = fmt.Sprintf("make the directory %s first, or name a file in another", filepath.Dir(path))
	}
	if of, ok := errors.AsType[*fs.PathError](reason); ok {
		reason = of.Err
	}
	return fmt.Errorf("--resume: how far it is cannot be kept in %s: %w: %s", path, reason, advice)
}

// errIrregular: what has the name of a file is a symbolic link, a pipe or the like.
var errIrregular = errors.New("is no regular file: remove it, or name another file")

// openRegular opens a file of --resume with flags of [os.OpenFile]. It follows no
// symbolic link at the end of the path: in a folder such as /tmp another user may
// have put it there, to have some other file read, made or locked.
func openRegular(path string, flags int) (*os.File, error) {
	if err := checkRegular(path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, flags|filelock.NoFollow, 0o600) //nolint:gosec // G304: the operator names it
}

func checkRegular(path string) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s (%s) %w", path, info.Mode(), errIrregular)
	}
	return nil
}

// replaceFile writes a file beside the one at path, makes sure that it is on the
// disk, and puts it in its place.
func replaceFile(path string, text []byte) error {
	dir := filepath.Dir(path)
	temp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = temp.Write(text)
	err = errors.Join(err, temp.Sync(), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return syncDir(dir)
}

// syncDir makes a renaming outlast a crash of the machine, as far as it can: the
// directory may be one that can be written but not read, and not every file system
// knows how.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the operator names it
	if err != nil {
		return nil //nolint:nilerr // the file is in its place
	}
	_ = d.Sync() // see above
	return d.Close()
}
