package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
)

// maxFile is how large a file may be, in bytes: room for some 10,000 tokens.
const maxFile = 1 << 20

// Reloader loads files again when they change. It must be used by one goroutine at a
// time.
type Reloader struct {
	what  string // for the log
	paths []string
	// private is the log's name for the last of paths, which only the user of this
	// process and root should write, and not all users should read.
	private string
	// use uses the content of the files, which are in the order of paths, or fails.
	use func(ctx context.Context, files []file) error
	log *slog.Logger

	loaded  []fs.FileInfo // of paths, before they were last loaded
	changed []fs.FileInfo // of paths, at the last call, if not loaded yet
	refused error         // why the content that was last loaded is not in use
	logged  string        // the last error that was logged, "" after a success
}

// file is what was read of one.
type file struct {
	path string
	info fs.FileInfo
	text []byte
}

// Reload loads the files if they changed before the last call and not since, so that a
// file is not read while it is written. With now set it loads them in any case. Content
// that cannot be used is logged once, and the previous content stays in use. Reload is to
// be called every second or so.
func (r *Reloader) Reload(ctx context.Context, now bool) {
	err := r.reload(ctx, now)
	if err == nil {
		r.logged = ""
	} else if text := err.Error(); text != r.logged {
		r.log.ErrorContext(ctx, "reload failed, the previous content stays in use", "file", r.what, "error", err)
		r.logged = text
	}
}

// reload returns why the content of the files is not in use.
func (r *Reloader) reload(ctx context.Context, now bool) error {
	var infos []fs.FileInfo
	for _, path := range r.paths {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		infos = append(infos, info)
	}
	switch {
	case now:
	case slices.EqualFunc(infos, r.loaded, isSame):
		r.changed = nil
		return r.refused
	case !slices.EqualFunc(infos, r.changed, isSame):
		r.changed = infos
		return r.refused
	}
	r.loaded, r.changed = infos, nil
	r.refused = r.load(ctx)
	return r.refused
}

// isSame reports whether a file is the same as before, and was not written to. A symbolic
// link on its path may have changed.
func isSame(before, after fs.FileInfo) bool {
	return os.SameFile(before, after) && before.Size() == after.Size() &&
		before.ModTime().Equal(after.ModTime()) && before.Mode() == after.Mode()
}

func (r *Reloader) load(ctx context.Context) error {
	var files []file
	for _, path := range r.paths {
		f, err := readFile(path)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	if err := r.use(ctx, files); err != nil {
		return err
	}
	for _, e := range exposures(files[len(files)-1]) {
		r.log.WarnContext(ctx, "file is exposed", "file", r.private, "others", e.others, "path", e.path, "mode", e.mode.String(), "mend", e.mend)
	}
	return nil
}

// exposure is what gives others access to a file.
type exposure struct {
	others string // what they may do
	path   string // of the file, or of a folder that it lies in
	mode   fs.FileMode
	mend   string // the command that ends it
}

// exposures returns those of a file, of its folder and of the folder of the file that it
// links to: a user who may write to a folder may replace the files in it.
func exposures(f file) (found []exposure) {
	if f.info.Mode()&0o004 != 0 {
		found = append(found, exposure{"may read", f.path, f.info.Mode(), "chmod o= " + f.path})
	}
	found = append(found, writable(f.path, f.info)...)
	folders := []string{filepath.Dir(f.path)}
	if target, err := filepath.EvalSymlinks(f.path); err == nil && filepath.Dir(target) != folders[0] {
		folders = append(folders, filepath.Dir(target))
	}
	for _, folder := range folders {
		if info, err := os.Stat(folder); err == nil { // else it was moved just now
			found = append(found, writable(folder, info)...)
		}
	}
	return found
}

// writable returns why other users than this one and root may write to a file or folder.
// In a sticky folder, such as /tmp, they cannot replace the files of others.
func writable(path string, info fs.FileInfo) []exposure {
	mode := info.Mode()
	owner, self, known := ownerOf(info)
	switch {
	case !known:
	case owner != 0 && owner != self:
		return []exposure{{"may change", path, mode, fmt.Sprintf("chown %d %s", self, path)}}
	case mode&0o022 != 0 && mode&fs.ModeSticky == 0:
		return []exposure{{"may change", path, mode, "chmod go-w " + path}}
	}
	return nil
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
	opened, err := os.Open(path)
	if err != nil {
		return file{}, err
	}
	text, err := io.ReadAll(io.LimitReader(opened, maxFile+1))
	if err := errors.Join(err, opened.Close()); err != nil {
		return file{}, err
	}
	if len(text) > maxFile {
		return file{}, fmt.Errorf("%s: has more than %d bytes", path, maxFile)
	}
	return file{path, info, text}, nil
}
