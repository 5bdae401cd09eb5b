package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// maxFile is how many bytes a file may have: room for some 10,000 tokens.
const maxFile = 1 << 20

// Reloader loads files again when they change. It is not safe for concurrent use.
type Reloader struct {
	what  string                     // for the log
	paths []string                   // the last one is secret
	use   func(texts [][]byte) error // the content of paths; an error leaves the previous content in use
	log   *slog.Logger

	loaded, seen string // stamps of the files: of the last load, and of the last call
}

// LoadFile loads a file with secrets by use. A later [Reloader.Reload] uses the next content
// likewise, unless use fails. what names the file in the log.
func LoadFile(what, path string, use func(text []byte) error, log *slog.Logger) (*Reloader, error) {
	return load(&Reloader{what: what, paths: []string{path}, log: log, use: func(texts [][]byte) error { return use(texts[0]) }})
}

// load loads the files of r for the first time.
func load(r *Reloader) (*Reloader, error) {
	r.seen = r.stamp()
	r.loaded = r.seen
	return r, r.load(context.Background())
}

// Reload loads the files if they changed before the last call and not since, so that it reads no half-written
// file; with now set, in any case. Call it every second or so. It logs unusable content once.
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
		text, err := readFile(path)
		if err != nil {
			return err
		}
		texts = append(texts, text)
	}
	if err := r.use(texts); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(r.paths, " and "), err)
	}
	r.log.InfoContext(ctx, "file loaded", "what", r.what, "file", r.paths[0])
	secret := r.paths[len(r.paths)-1]
	if info, err := os.Stat(secret); err == nil && info.Mode()&0o026 != 0 {
		r.log.WarnContext(ctx, "file is exposed to other users", "file", secret, "mode", info.Mode().String(), "mend", "chmod g-w,o= "+secret)
	}
	return nil
}

// readFile reads a regular file. A pipe may never end, and cannot be read twice.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: want a file, as it is read again when it changes", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s: has more than %d bytes", path, maxFile)
	}
	text, err := os.ReadFile(path)
	return bytes.TrimPrefix(text, []byte("\ufeff")), err // an editor of Windows writes a byte order mark
}

// changeFile writes a file in its place, so that mode, owner and a link stay, or makes it for this user alone. It
// writes the old content again if the disk is full.
func changeFile(path string, change func(before []byte) ([]byte, error)) (err error) {
	before, err := readFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	text, err := change(before)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	write := func(text []byte) error {
		_, err := f.WriteAt(text, 0)
		return errors.Join(err, f.Truncate(int64(len(text))), f.Sync())
	}
	if err := write(text); err != nil {
		return errors.Join(err, write(before))
	}
	return nil
}
