package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
)

// maxFile is how many bytes a file may have: room for some 10,000 tokens.
const maxFile = 1 << 20

// Reloader loads a file again when its content changes. It is not safe for concurrent use.
type Reloader struct {
	what, path string
	use        func(text []byte) error // an error leaves the previous content in use
	log        *slog.Logger

	loaded, seen [sha256.Size]byte // of the content, or of the error, at the last load and at the last call
}

// LoadFile loads a file with secrets by use. A later [Reloader.Reload] uses the next content
// likewise, unless use fails. what names the file in the log.
func LoadFile(what, path string, use func(text []byte) error, log *slog.Logger) (*Reloader, error) {
	r := &Reloader{what: what, path: path, use: use, log: log}
	return r, r.load(context.Background(), true)
}

// loadList loads a list by replace, as [LoadFile] does.
func loadList[T any](what, path string, parse func(text []byte) ([]T, error), replace func([]T), log *slog.Logger) (*Reloader, error) {
	return LoadFile(what, path, func(text []byte) error {
		list, err := parse(text)
		if err != nil {
			return err
		}
		if replace(list); len(list) == 0 {
			log.Warn("file has no entries, all requests are refused", "what", what, "file", path, "mend", "activityd token --help")
		}
		return nil
	}, log)
}

// Reload uses the file's content if it changed before the last call and not since, so that no half-written file is in
// use; with now set, in any case. Call it every second or so. It logs unusable content once.
func (r *Reloader) Reload(ctx context.Context, now bool) {
	if err := r.load(ctx, now); err != nil {
		r.log.ErrorContext(ctx, "reload failed, the previous content stays in use", "file", r.what, "error", err)
	}
}

func (r *Reloader) load(ctx context.Context, now bool) error {
	text, err := readFile(r.path)
	is := sha256.Sum256(text)
	if err != nil {
		is = sha256.Sum256([]byte(err.Error()))
	}
	settled := is == r.seen
	if r.seen = is; !now && (!settled || is == r.loaded) {
		return nil
	}
	if r.loaded = is; err != nil {
		return err
	}
	if err := r.use(text); err != nil {
		return fmt.Errorf("%s: %w", r.path, err)
	}
	r.log.InfoContext(ctx, "file loaded", "what", r.what, "file", r.path)
	if info, err := os.Stat(r.path); err == nil && info.Mode()&0o026 != 0 {
		r.log.WarnContext(ctx, "file is exposed to other users", "file", r.path, "mode", info.Mode().String(), "mend", "chmod g-w,o= "+r.path)
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

// changeFile writes a file in its place, so that mode, owner and a link stay, or makes it for this user alone. The
// text is on the disk at the end; if the disk is full, the old content is written again. No write begins with an empty
// file, which a reload would take for no entries.
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

// LoadCertificate loads a file in PEM with a certificate, its chain and its key. It returns the configuration of a
// server with that certificate: TLS 1.2 or newer. After a [Reloader.Reload] the next connections use the new
// certificate. It fails if the file is unreadable, or certificate and key do not belong together.
func LoadCertificate(path string, log *slog.Logger) (*tls.Config, *Reloader, error) {
	var current atomic.Pointer[tls.Certificate]
	r, err := LoadFile("TLS certificate", path, func(text []byte) error {
		pair, err := tls.X509KeyPair(text, text)
		if err != nil {
			return err
		}
		current.Store(&pair)
		certificateEnd.WithLabelValues().Set(float64(pair.Leaf.NotAfter.Unix()))
		return nil
	}, log)
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil },
	}, r, err
}
