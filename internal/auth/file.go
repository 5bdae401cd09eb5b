package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/filelock"
	"github.com/activityd/activityd/internal/retry"
)

// maxFile is how large a file may be, in bytes: room for some 10,000 tokens.
const maxFile = 1 << 20

// Reloader loads files again when they change. It must be used by one goroutine at a time.
type Reloader struct {
	what  string                                          // for the log
	paths []string                                        // the last one is secret
	use   func(ctx context.Context, texts [][]byte) error // the content of paths; an error leaves the previous one in use
	log   *slog.Logger

	loaded, seen string // stamps of the files: when they were last loaded, and at the last call
}

// LoadFile loads a file that holds secrets, such as keys, by use, which keeps what it has when it fails. After a
// [Reloader.Reload] the next content is used likewise. what is the log's name for the file.
func LoadFile(what, path string, use func(text []byte) error, log *slog.Logger) (*Reloader, error) {
	return load(&Reloader{what: what, paths: []string{path}, log: log, use: func(_ context.Context, texts [][]byte) error {
		if err := use(texts[0]); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}})
}

// load loads the files of r for the first time.
func load(r *Reloader) (*Reloader, error) {
	r.seen = r.stamp()
	r.loaded = r.seen
	if err := r.load(context.Background()); err != nil {
		return nil, err
	}
	return r, nil
}

// Reload loads the files if they changed before the last call and not since, so that a file is not read while it is
// written. With now set it loads them in any case. Content that cannot be used is logged once, and the
// previous content stays in use. Reload is to be called every second or so.
func (r *Reloader) Reload(ctx context.Context, now bool) {
	stamp := r.stamp()
	settled := stamp == r.seen
	r.seen = stamp
	if !now && (!settled || stamp == r.loaded) {
		return
	}
	r.loaded = stamp
	if err := r.load(ctx); err != nil {
		r.log.ErrorContext(ctx, "reload failed, the previous content stays in use", "file", r.what, "error", err)
	}
}

// stamp is a text that changes with the files.
func (r *Reloader) stamp() string {
	var b strings.Builder
	for _, path := range r.paths {
		if info, err := os.Stat(path); err != nil {
			fmt.Fprintln(&b, err)
		} else {
			fmt.Fprintln(&b, info.Size(), info.Mode(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}

func (r *Reloader) load(ctx context.Context) error {
	var texts [][]byte
	for _, path := range r.paths {
		text, _, err := readFile(path)
		if err != nil {
			return err
		}
		texts = append(texts, text)
	}
	if err := r.use(ctx, texts); err != nil {
		return err
	}
	r.log.InfoContext(ctx, "file loaded", "what", r.what, "file", r.paths[0])
	secret := r.paths[len(r.paths)-1]
	if info, err := os.Stat(secret); err == nil && info.Mode()&0o026 != 0 {
		r.log.WarnContext(ctx, "file is exposed to other users", "file", secret, "mode", info.Mode().String(), "mend", "chmod g-w,o= "+secret)
	}
	return nil
}

// readFile reads a regular file. A pipe may never end, and cannot be read twice.
func readFile(path string) ([]byte, os.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s: want a file, as it is read again when it changes", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, nil, err
	}
	if len(text) > maxFile {
		return nil, nil, fmt.Errorf("%s: has more than %d bytes", path, maxFile)
	}
	return bytes.TrimPrefix(text, []byte("\ufeff")), info, nil // an editor of Windows writes a byte order mark
}

// changeFile replaces a file whole, with the mode and the owner that it had, or makes it for this user alone. Other
// processes that would change it wait, for 5 seconds or until ctx ends. After an error the file is unchanged.
func changeFile(ctx context.Context, path string, change func(before []byte) ([]byte, error)) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // the link is to stay one
	}
	locked, err := openLocked(ctx, path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locked.Close()) }()
	before, info, err := readFile(path)
	if err != nil {
		return err
	}
	text, err := change(before)
	if err == nil && len(text) > maxFile { // it would not be loaded again
		err = fmt.Errorf("would have more than %d bytes", maxFile)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return filelock.Replace(path, text, func(f *os.File) error {
		return errors.Join(keepOwner(f, info), f.Chmod(info.Mode().Perm()))
	})
}

// openLocked opens a file that is to be changed, and makes it if needed.
func openLocked(ctx context.Context, path string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		f, err := filelock.Open(path, os.O_RDWR|os.O_CREATE, 0o600)
		if !errors.Is(err, filelock.ErrLocked) || retry.Sleep(ctx, 20*time.Millisecond) != nil {
			return f, err
		}
	}
}
