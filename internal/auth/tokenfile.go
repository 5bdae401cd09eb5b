package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/filelock"
	"github.com/activityd/activityd/internal/retry"
)

// LoadTokens loads the tokens of a file. It fails when the file cannot be read, is not in
// order, or has no tokens; a [Reloader.Reload] accepts one without tokens.
func LoadTokens(path string, log *slog.Logger) (*Tokens, *Reloader, error) {
	t := NewTokens(nil)
	first := true
	r := &Reloader{
		what: "token file", paths: []string{path}, private: "token file", log: log,
		use: func(ctx context.Context, files []file) error {
			list, err := Parse(string(files[0].text))
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if len(list) == 0 && first {
				return fmt.Errorf("%s has no tokens: make one with: activityd token NAME --scopes read --append %s", path, path)
			}
			first = false
			added, removed := t.Replace(list)
			log.InfoContext(ctx, "token file loaded", "file", path, "tokens", len(list), "added", added, "removed", removed)
			if len(list) == 0 {
				log.WarnContext(ctx, "token file has no tokens, all requests are refused", "file", path)
			}
			return nil
		},
	}
	if err := r.reload(context.Background(), true); err != nil {
		return nil, nil, fmt.Errorf("the token file cannot be used: %w", err)
	}
	return t, r, nil
}

// AppendToken appends a token to a file, and creates the file if needed. It refuses a name
// that the file has, and a file that is not in order. The file is replaced whole; several processes
// may append at once. After an error it is unchanged.
func AppendToken(ctx context.Context, path string, t Token) error {
	return changeFile(ctx, "token file", path, func(before []byte) ([]byte, error) {
		text := string(before)
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text += t.String() + "\n"
		if _, err := Parse(text); err != nil {
			return nil, fmt.Errorf("the token cannot be added to %s: %w", path, err)
		}
		return []byte(text), nil
	})
}

// changeFile replaces a file whole, with the mode and the owner that it had, while other processes that
// would change it wait, for 5 seconds or until ctx ends. It makes a file that is not there, for this user
// alone: hashes are no secrets, but other users need not know what a client may do. After an error the
// file is unchanged. what is its name for the errors.
func changeFile(ctx context.Context, what, path string, change func(before []byte) ([]byte, error)) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // the link is to stay one
	}
	locked, err := openLocked(ctx, path)
	if err != nil {
		return fmt.Errorf("the %s cannot be opened: %w", what, err)
	}
	defer func() { err = errors.Join(err, locked.Close()) }()
	before, err := readFile(path)
	if err != nil {
		return fmt.Errorf("the %s cannot be read: %w", what, err)
	}
	text, err := change(before.text)
	if err == nil && len(text) > maxFile { // it would not be loaded again
		err = fmt.Errorf("%s would have more than %d bytes", path, maxFile)
	}
	if err != nil {
		return err
	}
	err = filelock.Replace(path, text, func(f *os.File) error {
		return errors.Join(keepOwner(f, before.info), f.Chmod(before.info.Mode().Perm()))
	})
	if err != nil {
		return fmt.Errorf("the %s cannot be written: %w", what, err)
	}
	return nil
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
