package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// DefaultEvery is how often files are read again.
const DefaultEvery = time.Second

// mostBytes is how large a file may be: room for some 10,000 tokens.
const mostBytes = 1 << 20

// settling is how long a file must say the same before it is taken: one that is
// being written would be taken half, with half the tokens, or a limit cut short.
const settling = 100 * time.Millisecond

// Options are those of [FollowTokens] and [FollowCertificate].
type Options struct {
	Every time.Duration // how often files are read again; 0: [DefaultEvery]
	Log   *slog.Logger
}

// Follower takes over what changes in files. It reads them whole each time and
// compares what they say: that is true of every way to replace a file, be it by
// writing, renaming, or changing a link on the way to it, and files of this size
// are read in no time.
type Follower struct {
	what  string // for the log
	paths []string
	// public is how many of the paths, from the first on, anybody may read; private
	// is what the log calls those that follow, which only we and root should write.
	public  int
	private string
	// take puts what the files say into use, or returns why it cannot. Files are
	// in the order of paths.
	take func(ctx context.Context, files []file) error
	log  *slog.Logger

	every     time.Duration
	nudge     chan struct{}
	seen      []Hash // of the files that take was last given
	changing  []Hash // of files that differ, and may not be written to the end yet
	since     time.Time
	refused   error  // what take said of them
	complaint string // what was last logged, "" when all is well
	exposed   []exposure
}

// file is what was read of one.
type file struct {
	path string
	info fs.FileInfo
	text []byte
}

// follow reads the files for the first time. Then an error is the caller's.
func follow(f Follower, o Options) (*Follower, error) {
	f.log, f.every, f.nudge = o.Log, o.Every, make(chan struct{}, 1)
	if f.every == 0 {
		f.every = DefaultEvery
	}
	if err := f.look(context.Background()); err != nil {
		return nil, err
	}
	return &f, nil
}

// Run reads the files again and again until ctx ends, whose end is no error. It
// is to be called once.
func (f *Follower) Run(ctx context.Context) error {
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	for {
		var settled <-chan time.Time
		if f.changing != nil {
			settled = time.After(settling)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-settled:
		case <-tick.C:
		case <-f.nudge:
		}
		f.complain(ctx, f.look(ctx))
	}
}

// Nudge has the files read again at once. It does not wait for it, and may be
// called from any goroutine.
func (f *Follower) Nudge() {
	select {
	case f.nudge <- struct{}{}:
	default: // one is waiting already
	}
}

// look reads the files and takes them if they changed, and have said the same for
// a little. The error is why what they said at last is not in use.
func (f *Follower) look(ctx context.Context) error {
	files, hashes, err := readAll(f.paths)
	if err != nil {
		return err
	}
	switch first := f.seen == nil; {
	case slices.Equal(hashes, f.seen):
		f.changing = nil
	case !first && !slices.Equal(hashes, f.changing):
		f.changing, f.since = hashes, time.Now()
	case !first && time.Since(f.since) < settling:
	default:
		f.changing = nil
		f.seen, f.refused = hashes, f.take(ctx, files)
		f.exposed = nil // what is still so is logged again
	}
	if f.changing == nil && f.refused == nil {
		f.warnOfOthers(ctx, files)
	}
	return f.refused
}

// complain logs what is wrong once, and not every second until it is mended.
func (f *Follower) complain(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != f.complaint {
		f.log.ErrorContext(ctx, "the "+f.what+" cannot be used as it is now: what was there before stays in use", "error", err)
	}
	f.complaint = text
}

// warnOfOthers logs what lets others read or change private files, when it is new.
func (f *Follower) warnOfOthers(ctx context.Context, files []file) {
	var found []exposure
	for _, file := range files[f.public:] {
		found = append(found, exposuresOf(file)...)
	}
	for _, e := range found {
		if !slices.Contains(f.exposed, e) {
			f.log.WarnContext(ctx, "file is exposed", "file", f.private, "others", e.others, "path", e.path, "mode", e.mode.String(), "mend", e.mend)
		}
	}
	f.exposed = found
}

// exposure is what lets others at a file.
type exposure struct {
	others string // what they may do
	path   string // of the file, or of a folder that it lies in
	mode   fs.FileMode
	mend   string // the command that ends it
}

// exposuresOf looks at a file, and at the folders of its name and, where that is a
// symbolic link, of what it names: who may write to a folder may replace what lies
// in it.
func exposuresOf(f file) (found []exposure) {
	if f.info.Mode()&0o004 != 0 {
		found = append(found, exposure{"may read", f.path, f.info.Mode(), "chmod o= " + f.path})
	}
	found = append(found, writable(f.path, f.info)...)
	folders := []string{filepath.Dir(f.path)}
	if target, err := filepath.EvalSymlinks(f.path); err == nil && filepath.Dir(target) != folders[0] {
		folders = append(folders, filepath.Dir(target))
	}
	for _, folder := range folders {
		if info, err := os.Stat(folder); err == nil { // else it was moved since it was read
			found = append(found, writable(folder, info)...)
		}
	}
	return found
}

// writable tells why others than this user and root may write to a file or folder.
// In a sticky folder, such as /tmp, they cannot replace what is not theirs.
func writable(path string, info fs.FileInfo) []exposure {
	const others = "may change"
	mode := info.Mode()
	owner, self, known := ownerOf(info)
	switch {
	case !known:
	case owner != 0 && owner != self:
		return []exposure{{others, path, mode, fmt.Sprintf("chown %d %s", self, path)}}
	case mode&0o022 != 0 && mode&fs.ModeSticky == 0:
		return []exposure{{others, path, mode, "chmod go-w " + path}}
	}
	return nil
}

func readAll(paths []string) (files []file, hashes []Hash, err error) {
	for _, path := range paths {
		one, err := readFile(path)
		if err != nil {
			return nil, nil, err
		}
		files, hashes = append(files, one), append(hashes, sha256.Sum256(one.text))
	}
	return files, hashes, nil
}

// readFile reads a regular file. Others, such as pipes, may never end, and cannot
// be read twice.
func readFile(path string) (file, error) {
	info, err := os.Stat(path)
	if err != nil {
		return file{}, err
	}
	if !info.Mode().IsRegular() {
		return file{}, fmt.Errorf("%s: want a file, as it is read again when it changes", path)
	}
	opened, err := os.Open(path) //nolint:gosec // G304: the operator names it
	if err != nil {
		return file{}, err
	}
	text, err := io.ReadAll(io.LimitReader(opened, mostBytes+1))
	if err := errors.Join(err, opened.Close()); err != nil {
		return file{}, err
	}
	if len(text) > mostBytes {
		return file{}, fmt.Errorf("%s: has more than %d bytes", path, mostBytes)
	}
	return file{path, info, text}, nil
}
